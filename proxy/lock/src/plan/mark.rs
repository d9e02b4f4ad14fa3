//! The step that enters which `companion_prefix` is in use, and which proxies serve under it; and what proxies say of
//! themselves there.

use std::time::Duration;

use bytes::Bytes;
use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::companion::Home;
use crate::scripts;

/// For how long it counts what a proxy has said of itself: it says it again six times meanwhile.
const COUNTS: Duration = Duration::from_secs(60);
/// For how long it is remembered that proxies have served under a prefix.
const REMEMBERED: Duration = Duration::from_secs(30 * 86_400);

/// What a proxy says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProxyNote {
    /// Tells this run of it from others.
    pub run: String,
    /// The version of lockwarden.
    pub version: String,
    /// The version of the records that it writes: a digit.
    pub record: u8,
    /// Tells its rules from others.
    pub rules: String,
}

impl ProxyNote {
    /// Reads what was entered. `None` for what no proxy has. A later version may say more behind it.
    pub fn read(entry: &[u8]) -> Option<ProxyNote> {
        let mut words = std::str::from_utf8(entry).ok()?.split(' ');
        let mut word = || words.next().filter(|word| !word.is_empty() && word.len() <= 64).map(str::to_owned);
        let (run, version, record, rules) = (word()?, word()?, word()?, word()?);
        match record.as_bytes() {
            [record @ b'1'..=b'9'] => Some(ProxyNote { run, version, record: *record, rules }),
            _ => None,
        }
    }

    /// What is entered.
    pub fn entry(&self) -> String {
        let ProxyNote { run, version, record, rules } = self;
        format!("{run} {version} {} {rules}", char::from(*record))
    }
}

/// Enters the prefix, unless another counts, and the proxy under it. `before` is what it said of itself last, `given_up` a prefix that it
/// served under and leaves by an order. Is run in database 0.
pub fn enter_mark((prefix, home): (&[u8], Home), note: &str, before: &str, given_up: &[u8]) -> Plan {
    let mut step = Step::of_keys(&[&home.prefix_mark(), &home.proxies_key(prefix)]);
    step.bytes(prefix);
    step.bytes(note.as_bytes());
    step.bytes(before.as_bytes());
    for span in [COUNTS, REMEMBERED] {
        step.number(span.as_millis().try_into().unwrap_or(u64::MAX));
    }
    step.bytes(given_up);
    step.bytes(&home.proxies_key(b""));
    step.done(&scripts::MARK)
}

/// What became of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The prefix is in use.
    Own {
        /// What stood there, and was no word of a proxy's.
        replaced: Option<Bytes>,
        /// Redis's error, where the proxy itself could not be entered.
        unnoted: Option<Bytes>,
        /// What all proxies that serve under it say of themselves.
        proxies: Vec<ProxyNote>,
    },
    /// Another one is.
    Other(Bytes),
}

/// Reads the answer of [`enter_mark`]. `None` for one that is none of the script's own.
pub fn marked(answer: &Value, prefix: &[u8]) -> Option<Marked> {
    let items: Option<Vec<&Bytes>> = answer.as_items()?.iter().map(Value::as_bytes).collect();
    let some = |text: &Bytes| (!text.is_empty()).then(|| text.clone());
    match &items?[..] {
        [mark, replaced, unnoted, said @ ..] if **mark == prefix => Some(Marked::Own {
            replaced: some(replaced),
            unnoted: some(unnoted),
            proxies: said.iter().filter_map(|entry| ProxyNote::read(entry)).collect(),
        }),
        [mark] if **mark != prefix => Some(Marked::Other((*mark).clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_proxy_says_of_itself_is_read_as_it_was_written() {
        let note = ProxyNote { run: "a1".into(), version: "0.1.0".into(), record: b'1', rules: "77aa".into() };
        assert_eq!(ProxyNote::read(note.entry().as_bytes()), Some(note.clone()));
        let later = format!("{} more", note.entry());
        assert_eq!(ProxyNote::read(later.as_bytes()), Some(note));
        for other in ["", "a", "a b c d", "a b 1", "a b 12 d", "a  1 d", "\u{e9}"] {
            assert_eq!(ProxyNote::read(other.as_bytes()), None, "{other}");
        }
        assert_eq!(ProxyNote::read(b"a b 1 \xff"), None);
    }

    #[test]
    fn an_answer_is_read_or_it_is_none_of_ours() {
        let bulks = |texts: &[&'static str]| {
            Value::Array(texts.iter().map(|text| Value::Bulk(Bytes::from_static(text.as_bytes()))).collect())
        };
        let own = |replaced: Option<&'static str>, proxies| {
            let replaced = replaced.map(|text| Bytes::from_static(text.as_bytes()));
            Some(Marked::Own { replaced, unnoted: None, proxies })
        };
        let note = ProxyNote::read(b"a 1.0 2 r").expect("a note");
        for (answer, expected) in [
            (bulks(&["lw:", "", "", "a 1.0 2 r", "nonsense"]), own(None, vec![note])),
            (bulks(&["lw:", "x", ""]), own(Some("x"), Vec::new())),
            (bulks(&["wardens:"]), Some(Marked::Other(Bytes::from_static(b"wardens:")))),
            (bulks(&["lw:"]), None),
            (bulks(&[]), None),
            (Value::Integer(1), None),
            (Value::Array(vec![Value::Integer(1)]), None),
        ] {
            assert_eq!(marked(&answer, b"lw:"), expected, "{answer:?}");
        }
    }
}
