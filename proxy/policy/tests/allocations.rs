//! What is permitted costs no allocation: on the way of a lock command the allocator would take as
//! long as a policy.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use lockwarden_lock::decision::{Decide, Operation, Proofs, Question, Traits, Verdict};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::AskedMs;
use lockwarden_policy::{ChainSpec, Chains, DEFAULT_CHAIN, Generation, PolicyHost};

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_permit_of_the_three_policies_allocates_nothing() {
    let host = PolicyHost::new().unwrap();
    let spec = ChainSpec {
        namespace: "orders".to_owned(),
        policies: DEFAULT_CHAIN.map(|name| (name.to_owned(), Vec::new())).to_vec(),
    };
    let generation = Arc::new(host.load(&[], &[spec]).unwrap());
    // Whether their answers are kept, or they are asked each time.
    for chains in [Chains::new(), Chains::that_ask_always()] {
        permits_for_nothing(chains, &generation);
    }
}

fn permits_for_nothing(mut chains: Chains, generation: &Arc<Generation>) {
    chains.follow(generation);
    let mut ask = |operation, ttl_ms| {
        let question = Question {
            owner_token: Some(b"6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2"),
            ttl_ms: Option::map(ttl_ms, AskedMs),
            proofs: Proofs::SESSION,
            traits: Traits::CONDITIONAL,
            client: 7,
            ..Question::plain(operation, b"lock:order:42")
        };
        let before = ASKED.get();
        let decision = chains.decide(NamespaceId(0), &question, &|_| None);
        let asked = ASKED.get() - before;
        (decision.verdict, asked)
    };
    let everything = [
        (Operation::Acquire, Some(30_000)),
        (Operation::Extend, Some(30_000)),
        (Operation::Release, None),
        (Operation::TakeOver, None),
    ];
    // The first of each kind makes instances, which is not free.
    for (operation, ttl_ms) in everything {
        assert!(ask(operation, ttl_ms).1 < 1_000);
    }
    for _ in 0..100 {
        for (operation, ttl_ms) in everything {
            assert_eq!(ask(operation, ttl_ms), (Verdict::Permit, 0), "{operation:?}");
        }
    }
    // The counting counts: the words of a refusal are allocated.
    assert!(ask(Operation::Write, None).1 > 0);
}
