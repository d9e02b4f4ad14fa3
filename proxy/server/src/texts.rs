//! Script texts that were seen, by SHA-1, so that a later EVALSHA means as much as the text did.
//! Bounded; a text that was forgotten is asked for again with NOSCRIPT.

use std::sync::Arc;

use dashmap::DashMap;
use lockwarden_lock::recipe::{ScriptFacts, ScriptSha};

/// Texts that are remembered. Facts without their text take some 200 bytes each.
const MOST_TEXTS: usize = 10_000;

/// The memory.
#[derive(Default)]
pub(crate) struct Texts {
    facts: DashMap<ScriptSha, Arc<ScriptFacts>>,
}

impl Texts {
    /// Remembers a text; answers what follows from it.
    pub(crate) fn saw(&self, text: &[u8]) -> Arc<ScriptFacts> {
        if let Some(facts) = self.get(&ScriptSha::of(text)) {
            return facts;
        }
        if self.facts.len() >= MOST_TEXTS {
            // Clients send a forgotten text again, so any one may go.
            let any = self.facts.iter().next().map(|entry| *entry.key());
            if let Some(any) = any {
                self.facts.remove(&any);
            }
        }
        let facts = Arc::new(ScriptFacts::of(text));
        self.facts.insert(facts.sha, facts.clone());
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
        let texts = Texts::default();
        for i in 0..MOST_TEXTS + 10 {
            texts.saw(format!("return {i}").as_bytes());
        }
        assert_eq!(texts.facts.len(), MOST_TEXTS);
        let last = format!("return {}", MOST_TEXTS + 9);
        assert!(texts.get(&ScriptSha::of(last.as_bytes())).is_some());
    }
}
