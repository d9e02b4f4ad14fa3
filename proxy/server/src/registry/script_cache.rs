//! Script texts that were seen, by SHA-1, so that a later EVALSHA means as much as the text did.
//! Bounded; a text that was forgotten is asked for again with NOSCRIPT.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use lockwarden_lock::script_facts::{ScriptFacts, ScriptSha};

/// Texts that are remembered.
const MAX_TEXTS: usize = 10_000;
/// Bytes that texts and what is known of them may take together. A lock script's take some 10 KiB.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The memory.
#[derive(Default)]
pub(crate) struct ScriptCache {
    facts: DashMap<ScriptSha, Arc<ScriptFacts>>,
    bytes: AtomicUsize,
}

impl ScriptCache {
    /// Remembers a text; answers what follows from it.
    pub(crate) fn saw(&self, text: &[u8]) -> Arc<ScriptFacts> {
        if let Some(facts) = self.get(&ScriptSha::of(text)) {
            return facts;
        }
        let facts = Arc::new(ScriptFacts::of(text));
        let full = |script_cache: &ScriptCache| {
            script_cache.facts.len() >= MAX_TEXTS
                || script_cache.bytes.load(Ordering::Relaxed) + facts.weight() > MAX_BYTES
        };
        while full(self) {
            // Clients send a forgotten text again, so any one may go.
            let any = self.facts.iter().next().map(|entry| *entry.key());
            let Some((_, gone)) = any.and_then(|any| self.facts.remove(&any)) else {
                break;
            };
            self.bytes.fetch_sub(gone.weight(), Ordering::Relaxed);
        }
        self.bytes.fetch_add(facts.weight(), Ordering::Relaxed);
        if let Some(before) = self.facts.insert(facts.sha, facts.clone()) {
            self.bytes.fetch_sub(before.weight(), Ordering::Relaxed);
        }
        facts
    }

    /// What is known of a text.
    pub(crate) fn get(&self, sha: &ScriptSha) -> Option<Arc<ScriptFacts>> {
        self.facts.get(sha).map(|entry| entry.value().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded() {
        let script_cache = ScriptCache::default();
        for i in 0..MAX_TEXTS + 10 {
            script_cache.saw(format!("return {i}").as_bytes());
        }
        assert_eq!(script_cache.facts.len(), MAX_TEXTS);
        let last = format!("return {}", MAX_TEXTS + 9);
        assert!(script_cache.get(&ScriptSha::of(last.as_bytes())).is_some());
    }

    #[test]
    fn long_texts_push_others_out_before_there_are_many() {
        let script_cache = ScriptCache::default();
        let calls = "redis.call('get', KEYS[1]) ".repeat(150);
        for i in 0..1_000 {
            script_cache.saw(format!("{calls} return {i}").as_bytes());
        }
        let kept: usize = script_cache.facts.iter().map(|entry| entry.weight()).sum();
        assert!(kept <= MAX_BYTES, "{kept}");
        assert_eq!(kept, script_cache.bytes.load(Ordering::Relaxed));
        assert!(script_cache.facts.len() < 1_000);
    }
}
