//! Machines are separated by a network partition while clients work through two proxies, one on each side. With a quarantine
//! no lock has two holders, no fencing token goes back, and no late write of guarded data passes; without one every lock that
//! had two holders for longer than a moment is in the log, with its holder.

use std::time::Duration;

use lockwarden_tests::history::{Parted, PartedPlan, Parting, Run};
use lockwarden_tests::{Cluster, Machines, soak};

use super::WORKER;

/// These, or with `LOCKWARDEN_FAILOVERS=20` so many, of all kinds in turn, with clients that hold for 5 to 60 s.
fn plan(quarantine: &'static str, few: &[Parting]) -> PartedPlan {
    let seconds = Duration::from_secs;
    let (partings, holds) = match soak::number("LOCKWARDEN_FAILOVERS") {
        Some(many) => {
            let all = Parting::ALL.into_iter().cycle();
            (all.take(usize::try_from(many).expect("not so many")).collect(), (seconds(5), seconds(60)))
        }
        None => (few.to_vec(), (seconds(1), seconds(8))),
    };
    let seed = soak::number("LOCKWARDEN_SEED").unwrap_or(1);
    PartedPlan { seed, sessions: "dedicated", tls: false, quarantine, holds, cluster: false, partings, worker: WORKER }
}

#[track_caller]
fn plays(plan: PartedPlan) -> Run {
    let by = if plan.cluster { "a cluster" } else { "sentinels" };
    let what = format!("{by}, quarantine {}, {}, TLS {}", plan.quarantine, plan.sessions, plan.tls);
    let partings = plan.partings.len();
    let run = Parted::plays(plan);
    eprintln!(
        "parted: {partings} times, {what}: {}; {} guarded writes; {} overlaps, {} stale writes, {} leases lost",
        run.summary(),
        run.history.writes.len(),
        run.overlaps(),
        run.stale_writes().len(),
        run.lost.len()
    );
    run
}

#[track_caller]
fn keeps_exclusion(plan: PartedPlan) {
    let run = plays(plan);
    if let Some(text) = run.verdict() {
        panic!("{text}");
    }
    has_one_holder_each(&run);
}

#[track_caller]
fn has_one_holder_each(run: &Run) {
    assert_eq!(run.overlaps(), 0, "none, told or not");
    assert_eq!(run.stale_writes(), []);
    assert!(run.history.grants() > 20 && run.history.writes.len() > 20, "{}", run.summary());
}

#[test]
fn with_a_quarantine_a_proxy_on_the_losing_side_gives_nobody_what_others_may_get() {
    if Machines::are_lacking() {
        return;
    }
    keeps_exclusion(plan("auto", &[Parting::LosingSide]));
}

/// A node that is cut off from most others takes no writes after a while; a node that has slept still takes them for a
/// moment.
#[test]
fn with_a_quarantine_a_cluster_keeps_a_node_that_has_slept_from_giving_what_others_have() {
    if Machines::are_lacking() || Cluster::is_lacking() {
        return;
    }
    keeps_exclusion(PartedPlan { cluster: true, ..plan("auto", &[Parting::Asleep]) });
}

#[test]
#[ignore = "a part of `make soak`: a minute for each way in which machines are parted"]
fn with_a_quarantine_a_cluster_and_tls() {
    if Machines::are_lacking() || Cluster::is_lacking() {
        return;
    }
    keeps_exclusion(PartedPlan { cluster: true, tls: true, ..plan("auto", &Parting::ALL) });
}

#[test]
#[ignore = "a part of `make soak`: a minute for each way in which machines are parted"]
fn with_a_quarantine_shared_connections_and_tls() {
    if Machines::are_lacking() {
        return;
    }
    keeps_exclusion(PartedPlan { sessions: "multiplexed", tls: true, ..plan("auto", &Parting::ALL) });
}

#[test]
fn without_one_every_lock_with_two_holders_is_told_with_its_holder() {
    if Machines::are_lacking() {
        return;
    }
    let run = plays(plan("off", &[Parting::ProxyFrozen, Parting::LosingSide]));
    // A client on the losing side is served by a server that will lose its place: such overlaps are possible.
    let untold = run.untold_overlaps(Duration::from_millis(250));
    assert!(untold.is_empty(), "{}told were {:?}", untold.join("\n"), run.lost);
}
