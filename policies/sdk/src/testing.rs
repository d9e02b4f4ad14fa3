//! The native test harness: requests with sensible defaults, settings from a table, and the parts of an answer. It
//! panics with a readable message if an answer is not what a test expects.

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::{Decision, Denial, Obligations, Operation, Operations, Policy, Proofs, Request, Setting, Settings, Traits};

/// A request for this operation: `lock:test` in database 0, no proofs, no circumstances, no TTL and no owner token.
/// Change individual fields with struct update syntax.
///
/// ```
/// use lockwarden_policy_sdk::{Operation, Request, testing::request};
///
/// let asks_for_a_minute = Request { ttl_ms: Some(60_000), ..request(Operation::Acquire) };
/// assert_eq!(asks_for_a_minute.key, b"lock:test");
/// ```
#[must_use]
pub fn request(operation: Operation) -> Request {
    Request {
        operation,
        db: 0,
        key: b"lock:test".to_vec(),
        owner_token: None,
        ttl_ms: None,
        proofs: Proofs::empty(),
        traits: Traits::empty(),
        fencing_token: 0,
        remaining_ms: 0,
        attempts: 0,
        client: 1,
        // 2026-01-01T00:00:00Z
        now_ms: 1_767_225_600_000,
    }
}

/// Settings in the form in which the proxy passes them.
#[must_use]
pub fn settings(given: &[(&str, &str)]) -> Settings {
    Settings::new(
        given.iter().map(|(name, value)| Setting { name: (*name).to_owned(), value: (*value).to_owned() }).collect(),
    )
}

/// Configures a policy with these settings.
///
/// # Errors
/// The policy's error text.
pub fn configure<P: Policy>(given: &[(&str, &str)]) -> Result<P, String> {
    P::configure(&mut settings(given))
}

/// The obligations of a permit.
///
/// # Panics
/// If the decision is a refusal.
#[track_caller]
pub fn obligations(decision: &Decision) -> &Obligations {
    match decision {
        Decision::Permit(obligations) => obligations,
        Decision::Deny(denial) => panic!("expected a permit, got {denial:?}"),
    }
}

/// The denial of a refusal.
///
/// # Panics
/// If the decision is a permit.
#[track_caller]
pub fn denial(decision: &Decision) -> &Denial {
    match decision {
        Decision::Deny(denial) => denial,
        Decision::Permit(obligations) => panic!("expected a denial, got {obligations:?}"),
    }
}

/// Checks that a policy which distinguishes operations in `decide` does nothing for those that it does not judge: the
/// proxy permits them without asking, so a rule for one of them would never be applied.
///
/// # Panics
/// If it answers an ordinary request for such an operation with anything but a plain permit.
#[track_caller]
pub fn assert_silent_beyond_judged<P: Policy>(policy: &P) {
    let judged = policy.judges();
    for operation in OPERATIONS {
        if judged.contains(as_set(operation)) {
            continue;
        }
        let bare = request(operation);
        let full = Request {
            owner_token: Some(b"0123456789abcdef".to_vec()),
            ttl_ms: Some(u64::MAX),
            traits: Traits::all(),
            attempts: u32::MAX,
            ..request(operation)
        };
        for request in [bare, full] {
            assert_eq!(
                policy.decide(&request),
                Decision::permit(),
                "{operation:?} is not judged, and yet it is answered"
            );
        }
    }
}

fn as_set(operation: Operation) -> Operations {
    match operation {
        Operation::Acquire => Operations::ACQUIRE,
        Operation::Extend => Operations::EXTEND,
        Operation::Release => Operations::RELEASE,
        Operation::TakeOver => Operations::TAKE_OVER,
        Operation::Inspect => Operations::INSPECT,
        Operation::Write => Operations::WRITE,
        Operation::GuardedWrite => Operations::GUARDED_WRITE,
    }
}

/// Every operation, for tables.
pub const OPERATIONS: [Operation; 7] = [
    Operation::Acquire,
    Operation::Extend,
    Operation::Release,
    Operation::TakeOver,
    Operation::Inspect,
    Operation::Write,
    Operation::GuardedWrite,
];
