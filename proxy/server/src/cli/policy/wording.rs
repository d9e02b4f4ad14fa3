//! What a policy wants, spelt as case files and rules do.

use std::fmt::Write as _;

use lockwarden_lock::decision::{Fence, Obligations, TakeOverRule};

use crate::text::durations::toml_duration;

/// `permitted`, with what is asked for.
pub(super) fn wants_in_words(wants: &Obligations) -> String {
    let Obligations { ttl_default_ms, ttl_cap_ms, keep_alive_ms, max_hold_ms, require, fence, .. } = wants;
    let duration = |ms: &Option<u64>| ms.map(toml_duration);
    let mut words = "permitted".to_owned();
    for (key, wish) in [
        ("ttl_default", duration(ttl_default_ms)),
        ("ttl_cap", duration(ttl_cap_ms)),
        ("keep_alive", duration(keep_alive_ms)),
        ("max_hold", duration(max_hold_ms)),
        ("require", require.map(|proofs| proofs.words().collect::<Vec<_>>().join(","))),
        ("fence", fence_word(*fence).map(str::to_owned)),
        ("current_fence_only", wants.current_fence_only.then(|| "true".to_owned())),
        ("take_over", wants.take_over.map(|rule| take_over_word(rule).to_owned())),
    ] {
        if let Some(wish) = wish {
            let _ = write!(words, ", {key} {wish}");
        }
    }
    words
}

pub(super) fn fence_word(fence: Fence) -> Option<&'static str> {
    match fence {
        Fence::None => None,
        Fence::Hybrid => Some("hybrid"),
        Fence::Sequential => Some("sequential"),
    }
}

pub(super) fn take_over_word(rule: TakeOverRule) -> &'static str {
    match rule {
        TakeOverRule::Never => "never",
        TakeOverRule::AfterDeadline => "after-deadline",
    }
}
