//! Version 1 of the contract: the generated bindings, and how their types map to the domain's. Both directions are
//! exhaustive, so a change on either side is a compile error here.

use std::sync::Arc;

use lockwarden_lock::decision as domain;
use lockwarden_lock::reason::Reason;

use generated::lockwarden::policy::types::{Code, Denial, Fence, Obligations, Operation, Proofs, TakeOverRule, Traits};
pub(crate) use generated::lockwarden::policy::types::{Decision, Operations, Request, Setting};
pub(crate) use generated::lockwarden::policy::{clients, history};
pub(crate) use generated::{Policy, PolicyPre};

/// The newest version of the contract that this proxy speaks.
pub const ABI: &str = "1.2";

/// The interfaces of the contract as components name them, up to the minor version, each with its functions.
pub(crate) const INTERFACES: [(&str, &[&str]); 3] = [
    ("lockwarden:policy/types@1.", &[]),
    (CLIENTS, &["describe", "certificate", "application"]),
    (HISTORY, &["tries", "take", "holds", "held"]),
];

/// The one of them that a component imports only if it asks for clients' identities.
pub(crate) const CLIENTS: &str = "lockwarden:policy/clients@1.";

/// The one that it imports only if it asks for clients' recent actions.
pub(crate) const HISTORY: &str = "lockwarden:policy/history@1.";

mod generated {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    wasmtime::component::bindgen!({ path: "../../wit", world: "policy" });
}

/// A request to be filled: its buffers are reused from one question to the next.
pub(crate) fn empty_request() -> Request {
    Request {
        operation: Operation::Inspect,
        db: 0,
        key: Vec::new(),
        owner_token: None,
        ttl_ms: None,
        proofs: Proofs::empty(),
        traits: Traits::empty(),
        fencing_token: 0,
        remaining_ms: 0,
        attempts: 0,
        client: 0,
        now_ms: 0,
    }
}

/// The set with only this operation.
pub(crate) fn as_set(operation: domain::Operation) -> Operations {
    match operation {
        domain::Operation::Acquire => Operations::ACQUIRE,
        domain::Operation::Extend => Operations::EXTEND,
        domain::Operation::Release => Operations::RELEASE,
        domain::Operation::TakeOver => Operations::TAKE_OVER,
        domain::Operation::Inspect => Operations::INSPECT,
        domain::Operation::Write => Operations::WRITE,
        domain::Operation::GuardedWrite => Operations::GUARDED_WRITE,
    }
}

/// A policy's answer, in the domain's terms.
#[derive(Clone)]
pub(crate) enum Answer {
    Permit(domain::Obligations),
    /// `rule` is not the contract's: see `instance.rs`.
    Deny {
        reason: Reason,
        rule: Option<Arc<str>>,
        detail: Option<String>,
    },
}

impl From<Decision> for Answer {
    fn from(guest: Decision) -> Self {
        match guest {
            Decision::Permit(wants) => Answer::Permit(wants.into()),
            Decision::Deny(Denial { code, detail }) => Answer::Deny { reason: code.into(), rule: None, detail },
        }
    }
}

/// Copies a question into a request, reusing its buffers.
pub(crate) fn fill(request: &mut Request, question: &domain::Question<'_>) {
    request.operation = operation_to_guest(question.operation);
    request.db = question.db;
    refill(&mut request.key, question.key);
    match question.owner_token {
        Some(token) => refill(request.owner_token.get_or_insert_default(), token),
        None => request.owner_token = None,
    }
    request.ttl_ms = question.ttl_ms.map(|asked| asked.0);
    request.proofs = proofs_to_guest(question.proofs);
    request.traits = traits_to_guest(question.traits);
    request.fencing_token = question.fencing_token.0;
    request.remaining_ms = question.remaining_ms;
    request.attempts = question.attempts;
    request.client = question.client;
    request.now_ms = question.now.0;
}

fn operation_to_guest(operation: domain::Operation) -> Operation {
    match operation {
        domain::Operation::Acquire => Operation::Acquire,
        domain::Operation::Extend => Operation::Extend,
        domain::Operation::Release => Operation::Release,
        domain::Operation::TakeOver => Operation::TakeOver,
        domain::Operation::Inspect => Operation::Inspect,
        domain::Operation::Write => Operation::Write,
        domain::Operation::GuardedWrite => Operation::GuardedWrite,
    }
}

/// How many bytes of a buffer are kept between two questions; one huge key must not occupy memory for good.
const KEPT_BYTES: usize = 4 * 1024;

fn refill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    if buffer.capacity() > KEPT_BYTES {
        buffer.shrink_to(KEPT_BYTES);
    }
    buffer.extend_from_slice(bytes);
}

const PROOFS: [(domain::Proofs, Proofs); 4] = [
    (domain::Proofs::TOKEN, Proofs::TOKEN),
    (domain::Proofs::SESSION, Proofs::SESSION),
    (domain::Proofs::OBSERVED, Proofs::OBSERVED),
    (domain::Proofs::IDENTITY, Proofs::IDENTITY),
];

const TRAITS: [(domain::Traits, Traits); 6] = [
    (domain::Traits::CONDITIONAL, Traits::CONDITIONAL),
    (domain::Traits::TRANSACTIONAL, Traits::TRANSACTIONAL),
    (domain::Traits::SCRIPTED, Traits::SCRIPTED),
    (domain::Traits::MONITORED, Traits::MONITORED),
    (domain::Traits::SHARED_TOKEN, Traits::SHARED_TOKEN),
    (domain::Traits::REFUSED_SINCE, Traits::REFUSED_SINCE),
];

fn proofs_to_guest(proofs: domain::Proofs) -> Proofs {
    let mut flags = Proofs::empty();
    for (ours, theirs) in PROOFS {
        if proofs.contains(ours) {
            flags |= theirs;
        }
    }
    flags
}

fn proofs_from_guest(flags: Proofs) -> domain::Proofs {
    PROOFS.into_iter().fold(domain::Proofs::NONE, |set, (ours, theirs)| set.with_if(flags.contains(theirs), ours))
}

fn traits_to_guest(traits: domain::Traits) -> Traits {
    let mut flags = Traits::empty();
    for (ours, theirs) in TRAITS {
        if traits.contains(ours) {
            flags |= theirs;
        }
    }
    flags
}

impl From<Obligations> for domain::Obligations {
    fn from(guest: Obligations) -> Self {
        domain::Obligations {
            ttl_default_ms: guest.ttl_default_ms,
            ttl_cap_ms: guest.ttl_cap_ms,
            keep_alive_ms: guest.keep_alive_ms,
            max_hold_ms: guest.max_hold_ms,
            require: guest.require.map(proofs_from_guest),
            fence: match guest.fence {
                Fence::None => domain::Fence::None,
                Fence::Hybrid => domain::Fence::Hybrid,
                Fence::Sequential => domain::Fence::Sequential,
            },
            current_fence_only: guest.current_fence_only,
            take_over: guest.take_over.map(|rule| match rule {
                TakeOverRule::Never => domain::TakeOverRule::Never,
                TakeOverRule::AfterDeadline => domain::TakeOverRule::AfterDeadline,
            }),
        }
    }
}

impl From<Code> for Reason {
    fn from(code: Code) -> Self {
        match code {
            Code::NotOwner => Reason::NotOwner,
            Code::Expired => Reason::Expired,
            Code::Overwrite => Reason::Overwrite,
            Code::TakeOver => Reason::TakeOver,
            Code::OpaqueWrite => Reason::OpaqueWrite,
            Code::NoTtl => Reason::NoTtl,
            Code::TtlTooLong => Reason::TtlTooLong,
            Code::SharedToken => Reason::SharedToken,
            Code::StaleFence => Reason::StaleFence,
            Code::UnsafeScript => Reason::UnsafeScript,
            Code::BulkDelete => Reason::BulkDelete,
            Code::Limited => Reason::Limited,
            Code::Other => Reason::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockwarden_lock::time::{AskedMs, ProxyTime};
    use lockwarden_lock::token::FencingToken;

    use super::*;

    #[test]
    fn every_proof_and_trait_has_its_counterpart() {
        assert_eq!(proofs_to_guest(domain::Proofs::ALL), Proofs::all());
        assert_eq!(proofs_from_guest(Proofs::all()), domain::Proofs::ALL);
        assert_eq!(PROOFS.len(), domain::Proofs::WORDS.len());
        for (ours, theirs) in PROOFS {
            assert_eq!(proofs_to_guest(ours), theirs);
            assert_eq!(proofs_from_guest(theirs), ours);
        }
        assert_eq!(TRAITS.len(), domain::Traits::WORDS.len());
        let all = TRAITS.into_iter().fold(domain::Traits::NONE, |set, (ours, _)| set.union(ours));
        assert_eq!(traits_to_guest(all), Traits::all());
        for (ours, theirs) in TRAITS {
            assert_eq!(traits_to_guest(ours), theirs);
        }
    }

    #[test]
    fn a_refilled_request_keeps_nothing_of_the_question_before() {
        let mut request = empty_request();
        let giant = vec![b'k'; 1 << 20];
        let mut question = domain::Question {
            operation: domain::Operation::Acquire,
            db: 3,
            key: &giant,
            owner_token: Some(b"one"),
            ttl_ms: Some(AskedMs(1)),
            proofs: domain::Proofs::ALL,
            traits: domain::Traits::SCRIPTED,
            fencing_token: FencingToken(4),
            remaining_ms: 5,
            attempts: 6,
            client: 7,
            now: ProxyTime(8),
        };
        fill(&mut request, &question);
        assert_eq!(request.key.len(), 1 << 20);
        assert_eq!(request.owner_token.as_deref(), Some(&b"one"[..]));

        question.key = b"k";
        question.owner_token = None;
        question.traits = domain::Traits::NONE;
        fill(&mut request, &question);
        assert_eq!(request.key, b"k");
        assert!(request.key.capacity() <= KEPT_BYTES);
        assert_eq!(request.owner_token, None);
        assert_eq!(request.traits, Traits::empty());
        assert_eq!((request.db, request.client, request.now_ms), (3, 7, 8));
    }
}
