//! Version 1 of the contract without the component layer: a guest's core exports, called with the
//! arguments that the canonical ABI prescribes for [`types`](super). wasmtime's component calls look
//! everything up again for each of the three or four entries of a decision, which takes five times
//! as long as the guest; here the functions are looked up once.
//!
//! Only for the policies that ship with the proxy: nothing here checks that a module was built for
//! this world, or uses UTF-8. Their build does, and the tests below compare every answer with
//! that of the component. What a guest returns is checked as anybody's: a wrong answer is an error,
//! and no pointer is followed out of its memory.

use std::ops::Range;
use std::str;

use lockwarden_lock::decision::{Fence, Obligations, Proofs, Question, TakeOverRule, Traits};
use lockwarden_lock::reason::Reason;
use wasmtime::{Engine, InstancePre, Linker, Memory, Module, Result, Store, TypedFunc, bail};

use super::{Answer, OPERATIONS, Operations, PROOFS, Setting, TRAITS, operation_to_guest};

/// A module that imports nothing, ready to be instantiated.
pub(crate) struct DirectPre<T: 'static>(InstancePre<T>);

impl<T> DirectPre<T> {
    /// Compiles a module.
    ///
    /// # Errors
    /// If it is none, or imports anything.
    pub(crate) fn new(engine: &Engine, module: &[u8]) -> Result<DirectPre<T>> {
        let module = Module::from_binary(engine, module)?;
        Linker::new(engine).instantiate_pre(&module).map(DirectPre)
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.module().engine()
    }

    pub(crate) fn instantiate(&self, store: &mut Store<T>) -> Result<Direct> {
        let instance = self.0.instantiate(&mut *store)?;
        let Some(memory) = instance.get_memory(&mut *store, "memory") else {
            bail!("exports no memory");
        };
        Ok(Direct {
            memory,
            realloc: instance.get_typed_func(&mut *store, "cabi_realloc")?,
            configure: instance.get_typed_func(&mut *store, "configure")?,
            decide: instance.get_typed_func(&mut *store, "decide")?,
            decided: instance.get_typed_func(&mut *store, "cabi_post_decide")?,
        })
    }
}

/// The sixteen flattened fields of `request`, in its order. An option is a tag and its payload, a
/// list an address and a length.
type FlatRequest = (
    u32, // operation
    u32, // db
    u32,
    u32, // key
    u32,
    u32,
    u32, // owner-token
    u32,
    u64, // ttl-ms
    u32, // proofs
    u32, // traits
    u64, // fencing-token
    u64, // remaining-ms
    u32, // attempts
    u64, // client
    u64, // now-ms
);

/// The exports of one instance.
pub(crate) struct Direct {
    memory: Memory,
    /// Old address, old size, alignment, new size.
    realloc: TypedFunc<(u32, u32, u32, u32), u32>,
    configure: TypedFunc<(u32, u32), u32>,
    decide: TypedFunc<FlatRequest, u32>,
    /// Frees what a decision left behind.
    decided: TypedFunc<u32, ()>,
}

impl Direct {
    /// Configures the instance. Its answer is not freed: an instance is configured once.
    pub(crate) fn configure<T>(
        &self,
        store: &mut Store<T>,
        settings: &[Setting],
        most_text: usize,
    ) -> Result<Result<Operations, String>> {
        let mut list = Vec::with_capacity(settings.len() * 16);
        for Setting { name, value } in settings {
            for text in [name, value] {
                let (address, length) = self.lower(store, text.as_bytes(), 1)?;
                list.extend_from_slice(&address.to_le_bytes());
                list.extend_from_slice(&length.to_le_bytes());
            }
        }
        let (address, _) = self.lower(store, &list, 4)?;
        let settings = (address, u32::try_from(settings.len())?);
        let answer = self.configure.call(&mut *store, settings)?;
        Returned::at(self.memory.data(&*store), answer, 4, 12)?.judged(most_text)
    }

    /// Asks for a decision.
    pub(crate) fn decide<T>(
        &self,
        store: &mut Store<T>,
        question: &Question<'_>,
        most_text: usize,
    ) -> Result<Answer> {
        let key = self.lower(store, question.key, 1)?;
        let (has_token, token) = match question.owner_token {
            Some(token) => (1, self.lower(store, token, 1)?),
            None => (0, (0, 0)),
        };
        let (has_ttl, ttl_ms) = match question.ttl_ms {
            Some(ttl_ms) => (1, ttl_ms),
            None => (0, 0),
        };
        let request = (
            operation_to_guest(question.operation) as u32,
            question.db,
            key.0,
            key.1,
            has_token,
            token.0,
            token.1,
            has_ttl,
            ttl_ms,
            proof_bits(question.proofs),
            trait_bits(question.traits),
            question.fencing_token,
            question.remaining_ms,
            question.attempts,
            question.client,
            question.now_ms,
        );
        let answer = self.decide.call(&mut *store, request)?;
        let decision =
            Returned::at(self.memory.data(&*store), answer, 8, 80)?.decision(most_text)?;
        // Only a text has to be freed.
        if let Answer::Deny {
            detail: Some(_), ..
        } = &decision
        {
            self.decided.call(store, answer)?;
        }
        Ok(decision)
    }

    /// Copies bytes into memory that the guest gives out, and owns from then on.
    fn lower<T>(&self, store: &mut Store<T>, bytes: &[u8], align: u32) -> Result<(u32, u32)> {
        let length = u32::try_from(bytes.len())?;
        if length == 0 {
            // What an empty list's address is, by the ABI: anything that is aligned.
            return Ok((align, 0));
        }
        let address = self.realloc.call(&mut *store, (0, 0, align, length))?;
        let place = range(address, bytes.len())?;
        let Some(place) = self.memory.data_mut(store).get_mut(place) else {
            bail!("gave out memory that it does not have");
        };
        place.copy_from_slice(bytes);
        Ok((address, length))
    }
}

fn range(address: u32, length: usize) -> Result<Range<usize>> {
    let start = usize::try_from(address)?;
    Ok(start..start.saturating_add(length))
}

/// The bits of a set as the contract has them: by the place of a member.
fn proof_bits(proofs: Proofs) -> u32 {
    let members = PROOFS.iter().enumerate();
    members.fold(0, |bits, (place, (ours, _))| {
        bits | u32::from(proofs.contains(*ours)) << place
    })
}

fn trait_bits(traits: Traits) -> u32 {
    let members = TRAITS.iter().enumerate();
    members.fold(0, |bits, (place, (ours, _))| {
        bits | u32::from(traits.contains(*ours)) << place
    })
}

/// A returned value in a guest's memory, by its layout in the canonical ABI.
struct Returned<'a> {
    memory: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Returned<'a> {
    fn at(memory: &'a [u8], address: u32, align: u32, size: usize) -> Result<Returned<'a>> {
        if !address.is_multiple_of(align) {
            bail!("an answer at an address that is not aligned");
        }
        match memory.get(range(address, size)?) {
            Some(bytes) => Ok(Returned { memory, bytes }),
            None => bail!("an answer outside of its memory"),
        }
    }

    /// `result<operations, string>`: 12 bytes.
    fn judged(&self, most_text: usize) -> Result<Result<Operations, String>> {
        match self.byte(0) {
            0 => Ok(Ok(self.members(
                4,
                &OPERATIONS,
                Operations::empty(),
                |a, b| a | b,
            ))),
            1 => Ok(Err(self.text(4, most_text)?)),
            other => bail!("a result has no case {other}"),
        }
    }

    /// `decision`: 80 bytes.
    fn decision(&self, most_text: usize) -> Result<Answer> {
        match self.byte(0) {
            0 => Ok(Answer::Permit(Obligations {
                ttl_default_ms: self.optional_u64(8)?,
                ttl_cap_ms: self.optional_u64(24)?,
                keep_alive_ms: self.optional_u64(40)?,
                max_hold_ms: self.optional_u64(56)?,
                require: match self.is_some(72)? {
                    true => Some(self.members(
                        73,
                        &PROOFS.map(|(ours, _)| ours),
                        Proofs::NONE,
                        Proofs::union,
                    )),
                    false => None,
                },
                fence: self.case(74, &FENCES)?,
                current_fence_only: self.byte(75) != 0,
                take_over: match self.is_some(76)? {
                    true => Some(self.case(77, &TAKE_OVER_RULES)?),
                    false => None,
                },
            })),
            1 => Ok(Answer::Deny {
                reason: self.case(8, &REASONS)?,
                detail: match self.is_some(12)? {
                    true => Some(self.text(16, most_text)?),
                    false => None,
                },
            }),
            other => bail!("a decision has no case {other}"),
        }
    }

    // The places that these are asked for are constants inside of the size that `at` has checked.

    fn byte(&self, at: usize) -> u8 {
        self.bytes[at]
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[at..at + N]);
        array
    }

    fn is_some(&self, at: usize) -> Result<bool> {
        self.case(at, &[false, true])
    }

    fn optional_u64(&self, at: usize) -> Result<Option<u64>> {
        let some = self.is_some(at)?;
        Ok(some.then(|| u64::from_le_bytes(self.array(at + 8))))
    }

    fn case<C: Copy>(&self, at: usize, cases: &[C]) -> Result<C> {
        match cases.get(usize::from(self.byte(at))) {
            Some(case) => Ok(*case),
            None => bail!("of {} cases there is no {}", cases.len(), self.byte(at)),
        }
    }

    /// Bits that have no meaning are passed over, as the ABI says.
    fn members<S: Copy>(&self, at: usize, all: &[S], none: S, join: fn(S, S) -> S) -> S {
        let bits = self.byte(at);
        let members = all.iter().enumerate();
        members.fold(none, |set, (place, member)| {
            if bits >> place & 1 == 1 {
                join(set, *member)
            } else {
                set
            }
        })
    }

    fn text(&self, at: usize, most: usize) -> Result<String> {
        let address = u32::from_le_bytes(self.array(at));
        let length = usize::try_from(u32::from_le_bytes(self.array(at + 4)))?;
        if length > most {
            bail!("a text of {length} bytes");
        }
        match self.memory.get(range(address, length)?) {
            Some(bytes) => Ok(str::from_utf8(bytes)?.to_owned()),
            None => bail!("a text outside of its memory"),
        }
    }
}

// The cases of the contract's enums, in its order.

const FENCES: [Fence; 3] = [Fence::None, Fence::Hybrid, Fence::Sequential];

const TAKE_OVER_RULES: [TakeOverRule; 2] = [TakeOverRule::Never, TakeOverRule::AfterDeadline];

const REASONS: [Reason; 13] = [
    Reason::NotOwner,
    Reason::Expired,
    Reason::Overwrite,
    Reason::TakeOver,
    Reason::OpaqueWrite,
    Reason::NoTtl,
    Reason::TtlTooLong,
    Reason::SharedToken,
    Reason::StaleFence,
    Reason::UnsafeScript,
    Reason::BulkDelete,
    Reason::Limited,
    Reason::Other,
];

#[cfg(test)]
mod tests;
