//! The step that registers which `companion_prefix` is in use and which proxies use it; and the notes of the proxies
//! about themselves.

use std::time::Duration;

use bytes::Bytes;
use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::companion::Home;
use crate::scripts;

/// How long a proxy's note is valid: the proxy renews it six times in that period.
const COUNTS: Duration = Duration::from_secs(60);
/// How long it is remembered that proxies have used a prefix.
const REMEMBERED: Duration = Duration::from_secs(30 * 86_400);

/// A proxy's note about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProxyNote {
    /// Distinguishes this run of it from others.
    pub run: String,
    /// The version of lockwarden.
    pub version: String,
    /// The version of the records that it writes: a digit.
    pub record: u8,
    /// Distinguishes its rules from others.
    pub rules: String,
}

impl ProxyNote {
    /// Parses a note. `None` if it is not a proxy's. A later version may append more to it.
    pub fn read(entry: &[u8]) -> Option<ProxyNote> {
        let mut words = std::str::from_utf8(entry).ok()?.split(' ');
        let mut word = || words.next().filter(|word| !word.is_empty() && word.len() <= 64).map(str::to_owned);
        let (run, version, record, rules) = (word()?, word()?, word()?, word()?);
        match record.as_bytes() {
            [record @ b'1'..=b'9'] => Some(ProxyNote { run, version, record: *record, rules }),
            _ => None,
        }
    }

    /// The note as stored.
    pub fn entry(&self) -> String {
        let ProxyNote { run, version, record, rules } = self;
        format!("{run} {version} {} {rules}", char::from(*record))
    }
}

/// Registers the prefix, unless another one is valid, and the proxy for it. `before` is the proxy's last note,
/// `given_up` a prefix that it used and leaves by an order. Runs in database 0.
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

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The prefix is in use.
    Own {
        /// The earlier value, if it was not written by a proxy.
        replaced: Option<Bytes>,
        /// Redis's error, if the proxy itself could not be registered.
        unnoted: Option<Bytes>,
        /// The notes of all proxies that use the prefix.
        proxies: Vec<ProxyNote>,
    },
    /// Another prefix is in use.
    Other(Bytes),
}

/// Parses the answer of [`enter_mark`]. `None` if it has not the script's form.
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
