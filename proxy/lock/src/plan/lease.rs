//! How long a lease and its record live, calculated here as far as Redis's clock is not needed, so that a script need
//! not format these numbers.

use smallvec::SmallVec;

use super::step::Digits;
use crate::decision::{Fence, Obligations};
use crate::op::{AskedTtl, LockOp};
use crate::record::{MAX_TTL_MS, WITHOUT_TTL_MS};
use crate::rules::{Adopt, KeepAliveTtl, Mode, Rules};
use crate::settle::Allowed;
use crate::time::{AskedMs, KeepAliveMs, OutliveMs, TtlMs};

/// How many TTL ceilings a companion outlives its lease, but at least ten minutes.
const OUTLIVE_CEILINGS: u64 = 10;
const OUTLIVE_AT_LEAST_MS: u64 = 600_000;
/// A sequential counter has no clock to fall back on, so its companion lives a day longer.
const OUTLIVE_SEQUENTIAL_MS: u64 = 86_400_000;

/// The TTLs of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseTtl {
    /// The TTL of the lock's key.
    pub(super) ttl_ms: TtlMs,
    /// The requested TTL.
    pub(super) asked_ms: AskedMs,
    /// Whether keep-alive renews it.
    pub(super) kept: bool,
    /// The TTL of the record, ms.
    pub(super) companion_ms: u64,
}

impl LeaseTtl {
    /// For a new lease. `None` if Redis's clock is needed.
    pub(super) fn granted(asked: AskedTtl, allowed: &Allowed, monitor: bool) -> Option<LeaseTtl> {
        let obligations = &allowed.obligations;
        let asked_ms = match asked {
            AskedTtl::None | AskedTtl::Keep | AskedTtl::Further(_) => 0,
            AskedTtl::For(ms) => positive(ms)?,
            // The script calculates this one, by Redis's clock.
            AskedTtl::Until(_) => return None,
        };
        // Monitor mode keeps the key as the application wrote it, including its TTL.
        let ttl_ms = match monitor {
            true => asked_ms,
            false => ttl_of_grant(asked_ms, obligations),
        };
        let kept = !monitor && is_kept(ttl_ms, asked_ms, allowed);
        let ttl_ms = match monitor {
            true => ttl_ms,
            false => with_grace(ttl_ms, &allowed.rules),
        };
        Some(LeaseTtl::of(TtlMs(ttl_ms), AskedMs(asked_ms), kept, outlive_ms(allowed)))
    }

    /// For an extended lease. `None` if Redis's clock or the remaining TTL is needed, and if nothing of the lease would
    /// be left.
    pub(super) fn extended(asked: AskedTtl, allowed: &Allowed) -> Option<LeaseTtl> {
        let asked_ms = match asked {
            AskedTtl::None | AskedTtl::Keep => 0,
            AskedTtl::For(ms) => positive(ms)?,
            AskedTtl::Until(_) | AskedTtl::Further(_) => return None,
        };
        let ttl_ms = ttl_of_extension(asked_ms, &allowed.obligations);
        let kept = is_kept(ttl_ms, asked_ms, allowed);
        Some(LeaseTtl::of(TtlMs(with_grace(ttl_ms, &allowed.rules)), AskedMs(asked_ms), kept, outlive_ms(allowed)))
    }

    /// For a lease without a TTL that was granted while nothing was enforced, as if it was granted now. The TTL is 0 if
    /// nothing is enforced even now, or if no policy has a TTL.
    pub(super) fn found(obligations: &Obligations, rules: &Rules) -> LeaseTtl {
        let ttl_ms = match rules.mode {
            Mode::Enforce => ttl_of_grant(0, obligations),
            Mode::Monitor => 0,
        };
        let kept = ttl_ms > 0 && keeps_alive(obligations);
        let ttl_ms = TtlMs(with_grace(ttl_ms, rules));
        LeaseTtl::of(ttl_ms, AskedMs(0), kept, outlive(obligations, rules))
    }

    fn of(ttl_ms: TtlMs, asked_ms: AskedMs, kept: bool, OutliveMs(outlive): OutliveMs) -> LeaseTtl {
        let companion_ms = match ttl_ms.0 {
            0 => outlive.max(WITHOUT_TTL_MS),
            ttl => ttl.saturating_add(outlive),
        };
        LeaseTtl { ttl_ms, asked_ms, kept, companion_ms: companion_ms.min(MAX_TTL_MS) }
    }
}

/// The TTL of a new lease with this requested TTL, 0 for none.
fn ttl_of_grant(asked_ms: u64, obligations: &Obligations) -> u64 {
    let ttl_ms = match asked_ms {
        0 => obligations.ttl_default_ms.unwrap_or(0),
        asked => asked,
    };
    match obligations.ttl_cap_ms {
        Some(cap @ 1..) if ttl_ms == 0 || ttl_ms > cap => cap,
        Some(_) | None => ttl_ms,
    }
}

/// The TTL of an extended lease with this requested TTL, 0 for none.
fn ttl_of_extension(asked_ms: u64, obligations: &Obligations) -> u64 {
    match obligations.ttl_cap_ms {
        Some(cap @ 1..) => asked_ms.min(cap),
        Some(0) | None => asked_ms,
    }
}

/// The TTL, ms, that a command would give to its client's lease, as far as it is known here; at most the ceiling.
/// `None` for a command that lengthens no lease.
pub(crate) fn lengthened_to(op: &LockOp, obligations: &Obligations) -> Option<u64> {
    let unknown = longest_ms(obligations);
    let (asked, extends) = match op {
        LockOp::Extend { ttl, .. } => (*ttl, true),
        LockOp::Take { ttl, .. } | LockOp::Store { ttl, .. } => (*ttl, false),
        LockOp::Wrapped { .. } => return Some(unknown),
        // A free lock is taken or not, and a held one is unchanged.
        LockOp::Acquire { .. } | LockOp::AcquireAll { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } => {
            return None;
        }
    };
    match asked {
        // Zero or less, which releases it.
        AskedTtl::For(..=0) => None,
        AskedTtl::For(ms) if extends => Some(ttl_of_extension(positive(ms)?, obligations)),
        AskedTtl::For(ms) => Some(ttl_of_grant(positive(ms)?, obligations)),
        AskedTtl::None if !extends => match ttl_of_grant(0, obligations) {
            0 => Some(unknown),
            ttl => Some(ttl),
        },
        AskedTtl::Keep => None,
        AskedTtl::None | AskedTtl::Until(_) | AskedTtl::Further(_) => Some(unknown),
    }
}

/// Whether a repeated acquire may give its client's lease the whole TTL again.
pub(crate) fn may_repeat(obligations: &Obligations, rules: &Rules) -> bool {
    rules.may_promise(longest_ms(obligations))
}

/// The longest TTL that a lease may be given, ms.
fn longest_ms(obligations: &Obligations) -> u64 {
    let cap = obligations.ttl_cap_ms.filter(|cap| *cap > 0);
    cap.unwrap_or(MAX_TTL_MS)
}

/// Whether a lease has keep-alive. A lease with the TTL that its client requested must be extended by the client,
/// unless the rules say otherwise.
fn is_kept(ttl_ms: u64, asked_ms: u64, allowed: &Allowed) -> bool {
    let is_meant = match allowed.rules.keep_alive_ttl {
        KeepAliveTtl::Proxy => ttl_ms != asked_ms,
        KeepAliveTtl::All => ttl_ms > 0,
    };
    is_meant && keeps_alive(&allowed.obligations)
}

/// The TTL of the lock's key: the lease's own plus the grace, if the lease has an end.
fn with_grace(ttl_ms: u64, rules: &Rules) -> u64 {
    match ttl_ms {
        0 => 0,
        ttl => ttl.saturating_add(rules.grace_ms).min(MAX_TTL_MS),
    }
}

/// The terms that a lease would have in enforce mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnforcedTerms {
    /// Its TTL, without a grace.
    pub ttl_ms: TtlMs,
    /// Whether keep-alive would renew it.
    pub kept: bool,
}

impl EnforcedTerms {
    /// For a lease requested by a command in a namespace in monitor mode; `None` if the terms equal the requested ones.
    pub fn instead_of(AskedMs(asked_ms): AskedMs, op: &LockOp, allowed: &Allowed) -> Option<EnforcedTerms> {
        let obligations = &allowed.obligations;
        let ttl_ms = match op {
            // Without a TTL it is PERSIST: refused, or intended.
            LockOp::Extend { .. } => ttl_of_extension(asked_ms, obligations),
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::Wrapped { .. } => ttl_of_grant(asked_ms, obligations),
            LockOp::Release { .. } | LockOp::ReleaseMany { .. } => asked_ms,
        };
        (ttl_ms != asked_ms).then(|| EnforcedTerms { ttl_ms: TtlMs(ttl_ms), kept: keeps_alive(obligations) })
    }
}

fn positive(ms: i64) -> Option<u64> {
    let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0)?;
    Some(ms.min(MAX_TTL_MS))
}

/// How long an identity owes the release of a lease that ended unreleased, ms.
pub(super) fn debt_ms(allowed: &Allowed) -> u64 {
    // If locks are handed over, an expired lease does not show which client will still release it.
    let usual = match allowed.rules.hand_over {
        true => 0,
        false => ten_ceilings_ms(&allowed.obligations).max(1),
    };
    allowed.rules.debt_max_age_ms.unwrap_or(usual)
}

fn ten_ceilings_ms(obligations: &Obligations) -> u64 {
    let ceiling =
        obligations.ttl_cap_ms.or(obligations.ttl_default_ms).unwrap_or(OUTLIVE_AT_LEAST_MS / OUTLIVE_CEILINGS);
    ceiling.saturating_mul(OUTLIVE_CEILINGS)
}

/// How much longer than its lease a companion lives: at least as long as a release may be owed.
pub fn outlive_ms(allowed: &Allowed) -> OutliveMs {
    outlive(&allowed.obligations, &allowed.rules)
}

pub(super) fn outlive(obligations: &Obligations, rules: &Rules) -> OutliveMs {
    let outlive = ten_ceilings_ms(obligations).max(OUTLIVE_AT_LEAST_MS).max(rules.debt_max_age_ms.unwrap_or(0));
    OutliveMs(match obligations.fence {
        Fence::Sequential => outlive.max(OUTLIVE_SEQUENTIAL_MS),
        Fence::None | Fence::Hybrid => outlive,
    })
}

/// The argument about TTLs for a script: which ones have keep-alive, and the grace, ms, in one word.
pub(super) fn keep_and_grace(allowed: &Allowed) -> SmallVec<[u8; 24]> {
    let mut word = SmallVec::new();
    let kept = keeps_alive(&allowed.obligations);
    word.push(match (kept, allowed.rules.keep_alive_ttl) {
        (false, _) => b'0',
        (true, KeepAliveTtl::Proxy) => b'1',
        (true, KeepAliveTtl::All) => b'2',
    });
    word.extend_from_slice(Digits::new().of(allowed.rules.grace_ms));
    word
}

/// The age up to which a lease has keep-alive.
pub fn keep_alive_ms(obligations: &Obligations, rules: &Rules) -> KeepAliveMs {
    let keep_alive_ms = obligations.keep_alive_ms.unwrap_or(0);
    KeepAliveMs(match (rules.keep_alive_ttl, obligations.max_hold_ms) {
        // A client that hangs must not hold a lock for ever.
        (KeepAliveTtl::All, Some(most)) => keep_alive_ms.min(most),
        (KeepAliveTtl::All, None) | (KeepAliveTtl::Proxy, _) => keep_alive_ms,
    })
}

pub(super) fn keeps_alive(obligations: &Obligations) -> bool {
    obligations.keep_alive_ms.is_some_and(|age| age > 0)
}

/// The TTL for a lock without a TTL that has no record, ms; 0 for none.
pub(super) fn adopted_ttl(obligations: &Obligations, rules: &Rules) -> u64 {
    match (rules.adopt, rules.mode) {
        (Adopt::Cap, Mode::Enforce) => obligations.ttl_cap_ms.unwrap_or(0),
        (Adopt::Cap, Mode::Monitor) | (Adopt::Report, _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::evidence::Facts;
    use crate::op::{AcquireReply, ExpireCondition, ExtendSpelling};
    use crate::plan::tests::ENFORCE;
    use crate::settle::tests::{lock, target};

    fn allowed(default: Option<u64>, cap: Option<u64>, keep: bool) -> Allowed {
        Allowed {
            lock: lock(target(), Facts::default()),
            obligations: Obligations {
                ttl_default_ms: default,
                ttl_cap_ms: cap,
                keep_alive_ms: keep.then_some(1),
                ..Obligations::default()
            },
            rules: ENFORCE,
            would: None,
            terms: None,
        }
    }

    fn granted(asked: AskedTtl, monitor: bool) -> Option<(u64, u64, bool, u64)> {
        let allowed = allowed(Some(30_000), Some(60_000), true);
        LeaseTtl::granted(asked, &allowed, monitor)
            .map(|ttl| (ttl.ttl_ms.0, ttl.asked_ms.0, ttl.kept, ttl.companion_ms))
    }

    #[test]
    fn a_new_lease_has_the_default_or_what_it_asks_up_to_the_cap() {
        assert_eq!(granted(AskedTtl::None, false), Some((30_000, 0, true, 630_000)));
        assert_eq!(granted(AskedTtl::For(5_000), false), Some((5_000, 5_000, false, 605_000)));
        assert_eq!(granted(AskedTtl::For(90_000), false), Some((60_000, 90_000, true, 660_000)));
        assert_eq!(granted(AskedTtl::Until(5), false), None);
        assert_eq!(granted(AskedTtl::For(0), false), None);
        assert_eq!(granted(AskedTtl::For(-5), false), None);
    }

    #[test]
    fn where_nothing_is_enforced_the_ttl_is_what_was_asked() {
        let week = WITHOUT_TTL_MS;
        assert_eq!(granted(AskedTtl::None, true), Some((0, 0, false, week)));
        assert_eq!(granted(AskedTtl::For(90_000), true), Some((90_000, 90_000, false, 690_000)));
    }

    #[test]
    fn what_enforce_mode_would_give_instead_is_known_where_nothing_is_enforced() {
        let op = |extends: bool| match extends {
            true => LockOp::Extend {
                target: target(),
                ttl: AskedTtl::None,
                condition: ExpireCondition::Always,
                spelling: ExtendSpelling::Expire,
                comparison: None,
            },
            false => LockOp::Acquire {
                target: target(),
                value: Bytes::from_static(b"1"),
                ttl: AskedTtl::None,
                reply: AcquireReply::Integer,
            },
        };
        let watched = allowed(Some(30_000), Some(60_000), true);
        let instead = |asked, extends| {
            EnforcedTerms::instead_of(AskedMs(asked), &op(extends), &watched).map(|terms| (terms.ttl_ms.0, terms.kept))
        };
        assert_eq!(instead(0, false), Some((30_000, true)));
        assert_eq!(instead(0, true), None);
        for extends in [false, true] {
            assert_eq!(instead(60_000, extends), None);
            assert_eq!(instead(60_001, extends), Some((60_000, true)));
        }
        let free = allowed(None, None, true);
        assert_eq!(EnforcedTerms::instead_of(AskedMs(0), &op(false), &free), None);
        let unkept = allowed(None, Some(60_000), false);
        let terms = EnforcedTerms::instead_of(AskedMs(0), &op(false), &unkept);
        assert_eq!(terms.map(|terms| (terms.ttl_ms.0, terms.kept)), Some((60_000, false)));
    }

    #[test]
    fn the_grace_comes_behind_the_cap_and_is_no_part_of_what_was_asked_for() {
        let mut allowed = allowed(Some(30_000), Some(60_000), true);
        allowed.rules.grace_ms = 5_000;
        let told = |ttl: LeaseTtl| (ttl.ttl_ms.0, ttl.asked_ms.0, ttl.kept, ttl.companion_ms);
        let granted = |asked, monitor| LeaseTtl::granted(asked, &allowed, monitor).map(told);
        let extended = |asked| LeaseTtl::extended(asked, &allowed).map(told);
        let (ten, ninety) = (AskedTtl::For(10_000), AskedTtl::For(90_000));
        let plain = Some((15_000, 10_000, false, 615_000));
        assert_eq!(granted(ten, false), plain);
        assert_eq!(extended(ten), plain);
        let cut = Some((65_000, 90_000, true, 665_000));
        assert_eq!(granted(ninety, false), cut);
        assert_eq!(extended(ninety), cut);
        let invented = Some((35_000, 0, true, 635_000));
        assert_eq!(granted(AskedTtl::None, false), invented);
        // PERSIST requests no end, and monitor mode does not change the key.
        assert_eq!(extended(AskedTtl::None), Some((0, 0, false, 604_800_000)));
        assert_eq!(granted(ten, true), Some((10_000, 10_000, false, 610_000)));
        allowed.rules.grace_ms = MAX_TTL_MS;
        let most = LeaseTtl::granted(ten, &allowed, false);
        assert_eq!(most.map(|ttl| ttl.ttl_ms.0), Some(MAX_TTL_MS));
    }

    #[test]
    fn a_ttl_that_was_asked_for_is_kept_alive_where_the_rules_say_so() {
        let mut allowed = allowed(Some(30_000), Some(60_000), true);
        allowed.rules.keep_alive_ttl = KeepAliveTtl::All;
        let kept = |ttl: Option<LeaseTtl>| ttl.map(|ttl| (ttl.ttl_ms.0, ttl.kept));
        for asked in [AskedTtl::For(10_000), AskedTtl::For(60_000)] {
            let AskedTtl::For(ms) = asked else { continue };
            let ms = u64::try_from(ms).ok();
            let granted = |monitor| kept(LeaseTtl::granted(asked, &allowed, monitor));
            assert_eq!(granted(false), ms.map(|ms| (ms, true)));
            assert_eq!(granted(true), ms.map(|ms| (ms, false)));
            let extended = LeaseTtl::extended(asked, &allowed);
            assert_eq!(kept(extended), ms.map(|ms| (ms, true)));
        }
        // PERSIST requests no end, so there is nothing to keep alive.
        let persisted = LeaseTtl::extended(AskedTtl::None, &allowed);
        assert_eq!(kept(persisted), Some((0, false)));
        allowed.obligations.keep_alive_ms = None;
        let granted = LeaseTtl::granted(AskedTtl::For(10_000), &allowed, false);
        assert_eq!(kept(granted), Some((10_000, false)));
    }

    #[test]
    fn no_ttl_is_longer_than_a_record_can_say() {
        let none = allowed(None, None, true);
        let longest = LeaseTtl {
            ttl_ms: TtlMs(MAX_TTL_MS),
            asked_ms: AskedMs(MAX_TTL_MS),
            kept: false,
            companion_ms: MAX_TTL_MS,
        };
        let asked = AskedTtl::For(i64::MAX);
        assert_eq!(LeaseTtl::granted(asked, &none, false), Some(longest));
        assert_eq!(LeaseTtl::extended(asked, &none), Some(longest));
    }

    #[test]
    fn an_extension_is_cut_and_one_without_ttl_is_not() {
        let allowed = allowed(Some(30_000), Some(60_000), true);
        let extended = |asked| LeaseTtl::extended(asked, &allowed).map(|ttl| (ttl.ttl_ms.0, ttl.asked_ms.0, ttl.kept));
        assert_eq!(extended(AskedTtl::None), Some((0, 0, false)));
        assert_eq!(extended(AskedTtl::For(5_000)), Some((5_000, 5_000, false)));
        assert_eq!(extended(AskedTtl::For(90_000)), Some((60_000, 90_000, true)));
        assert_eq!(extended(AskedTtl::For(0)), None);
        assert_eq!(extended(AskedTtl::Until(1)), None);
        assert_eq!(extended(AskedTtl::Further(1)), None);
    }
}
