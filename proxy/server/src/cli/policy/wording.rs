//! The obligations of a policy, spelled as in case files and rules.

use std::fmt::Write as _;

use lockwarden_control::text::durations::toml_duration;
use lockwarden_lock::decision::Obligations;

/// `permitted`, with the obligations.
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
        ("fence", fence.word().map(str::to_owned)),
        ("current_fence_only", wants.current_fence_only.then(|| "true".to_owned())),
        ("take_over", wants.take_over.map(|rule| rule.word().to_owned())),
    ] {
        if let Some(wish) = wish {
            let _ = write!(words, ", {key} {wish}");
        }
    }
    words
}

/// The functions of the proxy that a module may call.
pub(super) fn calls_in_words(calls: &[String]) -> String {
    if calls.is_empty() { "nothing".to_owned() } else { calls.join(", ") }
}
