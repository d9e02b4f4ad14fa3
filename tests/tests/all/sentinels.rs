//! What Sentinel itself does when a primary loses its place, which other tests rely on: after each kind of
//! failover another server answers as the primary, and the old one takes writes meanwhile, unless it was told of
//! the change.

use lockwarden_tests::{Failover, Sentinels, soak};

#[test]
fn every_kind_of_failover_ends_with_another_primary_and_heals() {
    if Sentinels::are_lacking() {
        return;
    }
    // Each takes some twenty seconds until all is in order again.
    let kinds = match soak::number("LOCKWARDEN_SOAK_SECONDS") {
        Some(_) => &Failover::ALL[..],
        None => &[Failover::Killed, Failover::SentinelCutOff],
    };
    let mut all = Sentinels::start();
    for &kind in kinds {
        let switched = all.fails_over(kind);
        assert_ne!(switched.from, switched.to, "{kind:?}");
        let (old, new) = (all.server_address(switched.from), switched.to);
        eprintln!("{}: {:?} until named", kind.words(), switched.named - switched.began);
        all.server(new).client().sends("SET written on-new").gets("+OK");
        match kind {
            // Sentinel has not told it, and nothing else does.
            Failover::Planned | Failover::PrimaryCutOff | Failover::SentinelCutOff => {
                let old = lockwarden_tests::Client::connect_plain(old);
                old.sends("SET written on-old").gets("+OK");
            }
            Failover::Killed | Failover::Frozen => {}
        }
        if kind == Failover::SentinelCutOff {
            assert_eq!(all.named_by(2), Some(switched.from), "it was told nothing");
        }
        all.heals();
        // On a busy machine the new one may have lost its place again by now.
        let primary = all.named_by(0);
        assert!(primary.is_some(), "{kind:?}");
        for number in 0..3 {
            assert_eq!(all.named_by(number), primary, "{kind:?}, sentinel {number}");
            assert_eq!(all.server(number).value("written"), "$6 on-new", "{kind:?}");
        }
    }
}
