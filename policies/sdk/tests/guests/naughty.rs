//! A guest that misbehaves on demand: its settings choose what happens while it is configured, the
//! key of a request what happens while it decides.

use std::cell::RefCell;
use std::hint::black_box;
use std::mem::MaybeUninit;

use lockwarden_policy_sdk::{
    Code, Decision, Fence, Obligations, Operation, Policy, Proofs, Request, Settings, certificate, describe,
    export_policy,
};

struct Naughty {
    wants: Obligations,
    trap_on_samples: bool,
    /// It refuses the requests that it is asked about when it is loaded.
    denies_samples: bool,
    /// With which code and words it refuses `deny`.
    deny_as: (Code, &'static str),
    /// Operations on which it traps, but not while it is loaded.
    trap_on: Vec<Operation>,
    /// Operations on which it does not come to an end, for keys that begin with `lock:spin`.
    spin_on: Vec<Operation>,
    /// How many rounds it takes for each byte of a key.
    per_byte: u64,
    /// Operations that it refuses.
    deny: Vec<Operation>,
    /// How owner tokens begin that it refuses.
    deny_token: Option<String>,
    hoard: RefCell<Vec<Vec<u8>>>,
}

const PROOFS: [(&str, Proofs); 4] = [
    ("token", Proofs::TOKEN),
    ("session", Proofs::SESSION),
    ("observed", Proofs::OBSERVED),
    ("identity", Proofs::IDENTITY),
];

const OPERATIONS: [(&str, Operation); 4] = [
    ("acquire", Operation::Acquire),
    ("extend", Operation::Extend),
    ("release", Operation::Release),
    ("take-over", Operation::TakeOver),
];

/// The key of the requests that a policy is asked about when it is loaded.
const SAMPLE: &[u8] = b"lock:sample";

impl Policy for Naughty {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        match settings.text("configure").as_deref() {
            Some("loop") => spin(),
            Some("trap") => panic!("as told"),
            Some("reject") => return Err("no\nthanks".to_owned()),
            Some("reject at length") => return Err("no ".repeat(100_000)),
            _ => {}
        }
        let require = settings.choices("require", &PROOFS);
        let fence =
            settings.choice("fence", &[("hybrid", Fence::Hybrid), ("sequential", Fence::Sequential)], Fence::None);
        let samples = settings.text("samples");
        let trap_on_samples = samples.as_deref() == Some("trap");
        let denies_samples = samples.as_deref() == Some("deny");
        let deny_as = settings.choice(
            "deny_as",
            &[
                ("limited", (Code::Limited, "one report a minute: ask later")),
                ("too-long", (Code::TtlTooLong, "at most 5 s")),
            ],
            (Code::Other, "not today"),
        );
        let trap_on = settings.choices("trap_on", &OPERATIONS).unwrap_or_default();
        let per_byte = settings.number("per_byte", 0);
        let spin_on = settings.choices("spin_on", &OPERATIONS).unwrap_or_default();
        let deny = settings.choices("deny", &OPERATIONS).unwrap_or_default();
        let deny_token = settings.text("deny_token");
        settings.finish()?;
        Ok(Naughty {
            wants: Obligations {
                require: require.map(|proofs| proofs.into_iter().collect()),
                fence,
                ..Obligations::default()
            },
            trap_on_samples,
            denies_samples,
            deny_as,
            trap_on,
            spin_on,
            per_byte,
            deny,
            deny_token,
            hoard: RefCell::default(),
        })
    }

    fn decide(&self, request: &Request) -> Decision {
        if self.trap_on.contains(&request.operation) && !request.key.starts_with(SAMPLE) {
            panic!("as told");
        }
        if self.spin_on.contains(&request.operation) && request.key.starts_with(b"lock:spin") {
            spin();
        }
        for round in 0..self.per_byte * request.key.len() as u64 {
            black_box(round);
        }
        if self.deny.contains(&request.operation) {
            let (code, words) = self.deny_as;
            return Decision::deny(code, words);
        }
        let begins = |token: &Vec<u8>| self.deny_token.as_ref().is_some_and(|text| token.starts_with(text.as_bytes()));
        if request.owner_token.as_ref().is_some_and(begins) {
            return Decision::deny(Code::Other, "not that one");
        }
        match request.key.as_slice() {
            b"loop" => spin(),
            b"trap" => panic!("as told"),
            b"bomb" => loop {
                self.hoard.borrow_mut().push(Vec::with_capacity(1 << 20));
            },
            b"moody" => {
                self.hoard.borrow_mut().push(Vec::new());
                return Decision::deny(Code::Other, format!("asked {} times", self.hoard.borrow().len()));
            }
            b"hoard" => self.hoard.borrow_mut().push(Vec::with_capacity(1 << 20)),
            b"recursion" => {
                black_box(descend(u64::from(request.attempts)));
            }
            b"long" => return Decision::deny(Code::Other, "x".repeat(1 << 18)),
            b"a little too long" => return Decision::deny(Code::Other, "x".repeat((4 << 10) + 1)),
            b"as long as may be" => return Decision::deny(Code::Other, "x".repeat(4 << 10)),
            b"lines" => return Decision::deny(Code::Other, "a\r\n-b\0c"),
            b"who" => return who(describe(request)),
            b"who else" => {
                return who(describe(&Request { client: request.client + 1, ..request.clone() }));
            }
            b"certificate" => return named(certificate(request)),
            b"certificate of another" => {
                return named(certificate(&Request { client: request.client + 1, ..request.clone() }));
            }
            b"echo" => return Decision::deny(Code::Other, format!("{request:?}")),
            key if self.denies_samples && key.starts_with(SAMPLE) => {
                return Decision::deny(Code::Other, "no samples");
            }
            key if self.trap_on_samples && key.starts_with(SAMPLE) && request.operation == Operation::Extend => {
                panic!("as told")
            }
            _ => {}
        }
        self.wants.into()
    }
}

fn who(identity: Option<lockwarden_policy_sdk::ClientIdentity>) -> Decision {
    let text = match identity {
        Some(identity) => format!("{}/{}/{}", identity.name, identity.user, identity.address),
        None => "nobody".to_owned(),
    };
    Decision::deny(Code::Other, text)
}

fn named(certificate: Option<String>) -> Decision {
    let text = certificate.unwrap_or_else(|| "nobody".to_owned());
    Decision::deny(Code::Other, text)
}

fn spin() -> ! {
    let mut round: u64 = 0;
    loop {
        round = black_box(round.wrapping_add(1));
    }
}

#[expect(unconditional_recursion, reason = "that is what it is for")]
fn descend(depth: u64) -> u64 {
    // A large frame that costs nothing to make, so that the stack ends before the fuel.
    let frame = [const { MaybeUninit::<u64>::uninit() }; 512];
    black_box(&frame);
    let deepest = descend(black_box(depth + 1));
    black_box(&frame);
    deepest
}

export_policy!(Naughty);
