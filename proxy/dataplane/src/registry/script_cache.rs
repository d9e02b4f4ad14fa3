//! Script texts that were seen, by SHA-1, so that a later EVALSHA is understood as well as the text was. Bounded; a
//! text that was forgotten is asked for again with NOSCRIPT.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dashmap::DashMap;
use lockwarden_lock::library_scripts;
use lockwarden_lock::script_facts::{ScriptFacts, ScriptSha};
use tokio::sync::Semaphore;

/// Texts that are remembered.
const MAX_TEXTS: usize = 10_000;
/// Bytes: a text up to this length is analysed in less than one or two milliseconds, whatever it contains.
pub(crate) const LONG_TEXT: usize = 4 * 1024;
/// Bytes that texts and what is known of them may take together. A lock script takes some 10 KiB.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The memory.
pub(crate) struct ScriptCache {
    facts: DashMap<ScriptSha, Arc<ScriptFacts>>,
    bytes: AtomicUsize,
    /// Long texts are analysed one at a time, so that clients that send many do not take all cores.
    reading: Semaphore,
}

impl Default for ScriptCache {
    fn default() -> ScriptCache {
        ScriptCache { facts: DashMap::new(), bytes: AtomicUsize::new(0), reading: Semaphore::new(1) }
    }
}

impl ScriptCache {
    /// Remembers a text; returns what follows from it.
    pub(crate) fn saw(&self, text: &[u8]) -> Arc<ScriptFacts> {
        if let Some(facts) = self.seen(&ScriptSha::of(text)) {
            return facts;
        }
        self.keep(Arc::new(ScriptFacts::of(text)))
    }

    /// Whether the analysis of a text would take long.
    pub(crate) fn takes_time(&self, text: &[u8]) -> bool {
        text.len() > LONG_TEXT && self.seen(&ScriptSha::of(text)).is_none()
    }

    /// Analyses a long text on another thread than those that serve clients.
    pub(crate) async fn read(self: Arc<Self>, text: Bytes) {
        let _turn = self.reading.acquire().await;
        let this = self.clone();
        // If that fails, the text is analysed when it is needed.
        let _ = tokio::task::spawn_blocking(move || this.saw(&text)).await;
    }

    fn keep(&self, facts: Arc<ScriptFacts>) -> Arc<ScriptFacts> {
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

    /// What is known of a script: from its text, or because it belongs to a library.
    pub(crate) fn get(&self, sha: &ScriptSha) -> Option<Arc<ScriptFacts>> {
        if let Some(known) = self.facts.get(sha) {
            return Some(known.value().clone());
        }
        Some(self.keep(library_scripts::facts(sha)?))
    }

    /// What is known of a text that was seen.
    pub(crate) fn seen(&self, sha: &ScriptSha) -> Option<Arc<ScriptFacts>> {
        let known = self.facts.get(sha)?;
        (!known.stands_in).then(|| known.value().clone())
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
    fn a_script_of_a_library_is_known_by_its_digest_until_its_text_is_seen() {
        let script_cache = ScriptCache::default();
        // The first two lines of bsm/redislock, on one line.
        let text =
            b"if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"del\", KEYS[1]) else return 0 end";
        let sha = ScriptSha::of(text);
        let known = script_cache.get(&sha).expect("libraries have it");
        assert!(known.stands_in && known.sha == sha);
        assert!(script_cache.seen(&sha).is_none());
        script_cache.saw(text);
        let seen = script_cache.get(&sha).expect("it was seen");
        assert!(!seen.stands_in && seen.text == text[..]);
        assert_eq!(script_cache.facts.len(), 1);
        assert_eq!(script_cache.bytes.load(Ordering::Relaxed), seen.weight());
        assert!(script_cache.get(&ScriptSha::of(b"return 1")).is_none());
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
