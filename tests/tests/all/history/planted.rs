//! The checker finds violations: mistakes that are put into the proxy's scripts on their way to Redis, and clients
//! that use no proxy.

use std::time::Duration;

use lockwarden_tests::history::{Plan, Planted, Rig, Run};

use super::plan;

fn planted(mistake: Planted) -> Run {
    let run = Rig::plays(Plan {
        lasts: Duration::from_secs(4),
        faults: &[],
        planted: Some(mistake),
        ..plan(1, Some("dedicated"))
    });
    assert!(run.planted > 0, "the mistake never reached Redis");
    run
}

/// The transcript has all that a reader needs.
#[track_caller]
fn finds(run: &Run, headings: &[&str]) {
    let Some(text) = run.verdict() else {
        panic!("nothing was found in {}", run.summary());
    };
    for heading in headings {
        assert!(text.contains(heading), "{heading} is not in:\n{text}");
    }
    for part in ["what was said of lock:", "fencing token 1"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_set_without_nx_is_found() {
    let run = planted(Planted::SetWithoutNx);
    finds(&run, &["TWO HOLDERS of lock:", "held it from"]);
}

#[test]
fn a_release_without_proof_is_found() {
    finds(&planted(Planted::ReleaseWithoutProof), &["lock:"]);
}

#[test]
fn a_clock_that_is_not_that_of_redis_is_found() {
    let run = planted(Planted::ClockOfTheProxy);
    finds(&run, &["TWO HOLDERS of lock:", "GETSET"]);
}

/// The same clients, in front of no proxy: the damage that they do.
#[test]
fn what_goes_wrong_without_a_proxy_is_found() {
    let run = Rig::plays(Plan { lasts: Duration::from_secs(4), faults: &[], ..plan(1, None) });
    let Some(text) = run.verdict() else {
        panic!("misuse does harm on Redis alone: {}", run.summary());
    };
    assert!(text.contains("TWO HOLDERS"), "{text}");
}
