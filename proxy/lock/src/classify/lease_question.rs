//! The questions that every client may ask the proxy about the lease of a lock: `LOCKWARDEN CHECK` and `LEASE`. Reads
//! these commands; Redis determines the answer in one step (`plan::ask_for_lease`). `LOCKWARDEN FENCE`, which only asks
//! for this connection's own grant, is read in the parent module.

use bytes::Bytes;
use lockwarden_resp::Request;

use super::MAX_KEY_BYTES;
use crate::record::FENCE;
use crate::token::FencingToken;

/// A question about a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseQuestion {
    /// The kind of question.
    pub about: About,
    /// The lock.
    pub key: Bytes,
}

/// The kinds of questions about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Whether this fencing token belongs to the lease that holds the lock.
    Fence(FencingToken),
    /// All that is known.
    Everything,
}

/// An invalid question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// `CHECK` with too few or too many arguments.
    #[error("syntax error: LOCKWARDEN CHECK key fence")]
    Check,
    /// `LEASE` with too few or too many arguments.
    #[error("syntax error: LOCKWARDEN LEASE key")]
    Lease,
    /// A text that can be no fencing token.
    #[error("a fencing token is a whole number from 1 to 9999999999999999")]
    Fence,
    /// A key above [`MAX_KEY_BYTES`].
    #[error("a lock key has at most 1024 bytes")]
    Key,
}

impl LeaseQuestion {
    /// Reads the question of a request. `None` for every other command.
    pub fn read(request: &Request<'_>) -> Option<Result<LeaseQuestion, Mistake>> {
        let mut words = request.args();
        if !words.next()?.eq_ignore_ascii_case(b"lockwarden") {
            return None;
        }
        let word = words.next()?;
        // One more than any question has.
        let words: Vec<&[u8]> = words.take(3).collect();
        let read = if word.eq_ignore_ascii_case(b"check") {
            match words[..] {
                [key, fence] => match fencing_token(fence) {
                    Some(fence) => about(key, About::Fence(fence)),
                    None => Err(Mistake::Fence),
                },
                _ => Err(Mistake::Check),
            }
        } else if word.eq_ignore_ascii_case(b"lease") {
            match words[..] {
                [key] => about(key, About::Everything),
                _ => Err(Mistake::Lease),
            }
        } else {
            return None;
        };
        Some(read)
    }

    /// The name of the command in an error.
    pub fn command(&self) -> &'static str {
        match self.about {
            About::Fence(_) => "lockwarden check",
            About::Everything => "lockwarden lease",
        }
    }
}

fn about(key: &[u8], about: About) -> Result<LeaseQuestion, Mistake> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Mistake::Key);
    }
    let key = Bytes::copy_from_slice(key);
    Ok(LeaseQuestion { about, key })
}

/// A fencing token as an application writes it: at most as many digits as a record has. 0 is the token of no lease.
fn fencing_token(word: &[u8]) -> Option<FencingToken> {
    let is_number = word.len() <= FENCE && word.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (is_number && number > 0).then_some(FencingToken(number))
}

#[cfg(test)]
mod tests {
    use lockwarden_resp::OwnedRequest;

    use super::*;

    fn read(line: &str) -> Option<Result<LeaseQuestion, Mistake>> {
        let words = line.split(' ').map(str::as_bytes);
        LeaseQuestion::read(&OwnedRequest::new(words).request())
    }

    fn question(key: &'static str, about: About) -> Result<LeaseQuestion, Mistake> {
        let key = Bytes::from_static(key.as_bytes());
        Ok(LeaseQuestion { about, key })
    }

    #[test]
    fn a_question_is_read_in_any_spelling_and_a_mistake_is_named() {
        let fence = |number| About::Fence(FencingToken(number));
        for (line, expected) in [
            ("LOCKWARDEN LEASE lock:a", question("lock:a", About::Everything)),
            ("lockwarden Lease lock:a", question("lock:a", About::Everything)),
            ("LOCKWARDEN CHECK lock:a 42", question("lock:a", fence(42))),
            // As a record has it.
            ("lockwarden check lock:a 0000000000000042", question("lock:a", fence(42))),
            ("LOCKWARDEN CHECK lock:a 9999999999999999", question("lock:a", fence(9_999_999_999_999_999))),
            ("LOCKWARDEN LEASE", Err(Mistake::Lease)),
            ("LOCKWARDEN LEASE a b", Err(Mistake::Lease)),
            ("LOCKWARDEN CHECK a", Err(Mistake::Check)),
            ("LOCKWARDEN CHECK a 1 2", Err(Mistake::Check)),
            ("LOCKWARDEN CHECK a 0", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a -1", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a +1", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a 1.5", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a ", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a x", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a 10000000000000000", Err(Mistake::Fence)),
            ("LOCKWARDEN CHECK a 00000000000000042", Err(Mistake::Fence)),
        ] {
            assert_eq!(read(line), Some(expected), "{line}");
        }
        let long = format!("LOCKWARDEN LEASE {}", "k".repeat(MAX_KEY_BYTES + 1));
        assert_eq!(read(&long), Some(Err(Mistake::Key)));
        for line in ["LOCKWARDEN", "LOCKWARDEN FENCE a", "LOCKWARDEN LOCKS", "LEASE a"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
