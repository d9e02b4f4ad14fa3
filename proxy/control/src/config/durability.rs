//! `durability` of a namespace: how many replicas must confirm a grant before the client gets its reply, and how long
//! that may take; and whether nothing is granted while the server cannot provide this.

use lockwarden_lock::rules::Durability;

use super::suggest::quoted;
use super::value;

/// The longest time that a client waits, ms.
const MAX_WAIT_MS: u16 = 1_000;
/// Replicas of one primary.
const MAX_REPLICAS: u16 = 64;

/// What is wrong with a value.
#[derive(Debug, thiserror::Error)]
pub(super) enum DurabilityError {
    #[error("{}: write \"none\", \"wait:<replicas>:<time>\" or \"strict:<replicas>:<time>\", such as \"wait:1:50ms\"", quoted(.0))]
    Form(String),
    #[error("{}: wait for at least one replica", quoted(.0))]
    NoReplica(String),
    #[error("{}: wait for at most {MAX_REPLICAS} replicas", quoted(.0))]
    Replicas(String),
    #[error("{}: wait for at least 1ms", quoted(.0))]
    NoTime(String),
    #[error("{}: wait for at most 1s; a client would wait longer than most do", quoted(.0))]
    Time(String),
}

/// Parses a value; `None` for `none`.
pub(super) fn durability(text: &str) -> Result<Option<Durability>, DurabilityError> {
    if text == "none" {
        return Ok(None);
    }
    let form = || DurabilityError::Form(text.to_owned());
    let (kind, said) = text.split_once(':').ok_or_else(form)?;
    let is_strict = match kind {
        "wait" => false,
        "strict" => true,
        _ => return Err(form()),
    };
    let (replicas, within) = said.split_once(':').ok_or_else(form)?;
    let is_number = !replicas.is_empty() && replicas.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(form());
    }
    let within = value::milliseconds(within).ok_or_else(form)?;
    let text = || text.to_owned();
    let replicas: u16 = match replicas.parse() {
        Ok(0) => return Err(DurabilityError::NoReplica(text())),
        Ok(replicas) if replicas <= MAX_REPLICAS => replicas,
        Ok(_) | Err(_) => return Err(DurabilityError::Replicas(text())),
    };
    match u16::try_from(within) {
        Ok(0) => Err(DurabilityError::NoTime(text())),
        Ok(within_ms) if within_ms <= MAX_WAIT_MS => Ok(Some(Durability { replicas, within_ms, is_strict })),
        Ok(_) | Err(_) => Err(DurabilityError::Time(text())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_read() {
        let durable = |replicas, within_ms, is_strict| Some(Durability { replicas, within_ms, is_strict });
        let wait = |replicas, within_ms| durable(replicas, within_ms, false);
        for (text, expected) in [
            ("none", None),
            ("wait:1:50ms", wait(1, 50)),
            ("wait:64:1s", wait(64, 1000)),
            ("wait:2:1000ms", wait(2, 1000)),
            ("wait:1:1ms", wait(1, 1)),
            ("strict:1:50ms", durable(1, 50, true)),
        ] {
            assert_eq!(durability(text).expect(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let form =
            "write \"none\", \"wait:<replicas>:<time>\" or \"strict:<replicas>:<time>\", such as \"wait:1:50ms\"";
        let long = "wait for at most 1s; a client would wait longer than most do";
        for (text, expected) in [
            ("", form),
            ("wait", form),
            ("wait:1", form),
            ("wait:1:", form),
            ("wait::50ms", form),
            ("wait:-1:50ms", form),
            ("wait:+1:50ms", form),
            ("wait:one:50ms", form),
            ("wait:1:50", form),
            ("wait:1:50ms:2", form),
            ("WAIT:1:50ms", form),
            ("strict", form),
            ("strict:1", form),
            ("stric:1:50ms", form),
            (":1:50ms", form),
            ("strict:0:50ms", "wait for at least one replica"),
            ("strict:1:2s", long),
            ("wait:0:50ms", "wait for at least one replica"),
            ("wait:65:50ms", "wait for at most 64 replicas"),
            ("wait:99999999999:50ms", "wait for at most 64 replicas"),
            ("wait:1:0ms", "wait for at least 1ms"),
            ("wait:1:1001ms", long),
            ("wait:1:24h", long),
        ] {
            let error = durability(text).expect_err(text).to_string();
            assert_eq!(error, format!("\"{text}\": {expected}"), "{text}");
        }
    }
}
