//! Exclusion, whatever goes wrong: clients in processes of their own work through two proxies while everything is
//! killed, frozen and cut, and a checker judges what they have written down. `judging` has histories written by hand,
//! `planted` mistakes that the checker must find.

use std::time::Duration;

use lockwarden_tests::history::{Fault, Plan, Rig, Worker, run_worker};
use lockwarden_tests::soak::for_each_seed;

mod failovers;
mod judging;
mod parted;
mod planted;

/// The test that is a client.
const WORKER: Worker = Worker::Test("history::a_client_in_a_process_of_its_own");

#[test]
#[ignore = "a part of the other tests here, which start it"]
fn a_client_in_a_process_of_its_own() {
    run_worker();
}

fn plan(seed: u64, sessions: Option<&'static str>) -> Plan {
    Plan {
        seed,
        lasts: Duration::from_secs(27),
        sessions,
        clients: 8,
        faults: &Fault::ALL,
        failovers: Vec::new(),
        quarantine: "off",
        durability: "none",
        planted: None,
        misbehave: true,
        worker: WORKER,
    }
}

/// Every fault over two proxies. With `LOCKWARDEN_SOAK_SECONDS` other seeds follow; `LOCKWARDEN_SEED` repeats one, and
/// `LOCKWARDEN_KEEP_HISTORY` names a folder for the files of clients and proxies.
#[track_caller]
fn no_two_clients_ever_hold_one_lock(sessions: &'static str) {
    for_each_seed(&[1], |seed| {
        let run = Rig::plays(plan(seed, Some(sessions)));
        let verdict = run.verdict();
        let violations = verdict.as_deref().map_or("0 violations", |_| "VIOLATIONS");
        eprintln!("history: seed {seed}, {sessions}: {}: {violations}", run.summary());
        if let Some(text) = verdict {
            panic!(
                "{text}\nonce more: LOCKWARDEN_SEED={seed} cargo test -p lockwarden-tests --test all history::{sessions}"
            );
        }
        let recovered = run
            .history
            .operations
            .iter()
            .filter(|operation| operation.fence.is_some() && operation.sent > run.calm_from);
        let recovered = recovered.count();
        assert!(recovered > 5, "{recovered} grants after the last fault");
        let written: usize = run.written.values().map(Vec::len).sum();
        assert!(written > 50, "{written} guarded writes");
        assert!(run.history.grants() > 100, "{}", run.summary());
        assert!(run.committed.grants() > 100, "the file of Redis was not read");
    });
}

#[test]
fn dedicated() {
    no_two_clients_ever_hold_one_lock("dedicated");
}

#[test]
fn multiplexed() {
    no_two_clients_ever_hold_one_lock("multiplexed");
}
