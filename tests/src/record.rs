//! The companion record that the proxy keeps beside a lock, read straight from Redis. Tests look at its state
//! and its fencing token, as an operator would. The layout is packed, fixed-width text.

use crate::client::Client;
use crate::reply::Reply;

/// The state of the newest lease of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `L`: live, as far as the record knows; the key and its TTL decide.
    Live,
    /// `R`: released.
    Released,
    /// `T`: taken over.
    TakenOver,
    /// `B`: broken by an operator.
    Broken,
    /// `E`: known to have expired.
    Expired,
}

/// One record, with its bytes for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The state of the newest lease.
    pub state: State,
    /// The newest fencing token.
    pub fence: u64,
    /// TTL asked for, in milliseconds; 0 if none.
    pub asked_ms: u64,
    /// The value that the grant wrote, or its digest.
    pub owner: Vec<u8>,
    /// The record as stored.
    pub bytes: Vec<u8>,
}

/// Width of everything before the owner value.
const HEAD: usize = 106;
/// Where the holder's process stands.
const PROCESS: std::ops::Range<usize> = 43..51;

impl Record {
    /// Whether its holder is known not to have read that it was granted the lock.
    pub fn is_undelivered(&self) -> bool {
        self.bytes[2] & 1 == 1
    }

    /// Whether it names the holder's process.
    pub fn process_is_known(&self) -> bool {
        let process = &self.bytes[PROCESS];
        process != [0; 8] && process != [0xff; 8]
    }

    /// Finds and reads the record of a lock key whose name has no glob characters.
    #[track_caller]
    pub fn of(redis: &Client, key: &str) -> Option<Record> {
        let names = redis.sends(format!("KEYS lw:{{*}}:{key}")).reply();
        match names.elements() {
            [] => None,
            [name] => {
                let stored = redis.sends_arguments(&[b"GET".as_slice(), name.bytes()]).reply();
                match stored {
                    Reply::Bulk(bytes) => Some(Record::parse(bytes)),
                    other => panic!("the record of {key} is not a string but {other}"),
                }
            }
            several => panic!("{key} has {} records", several.len()),
        }
    }

    /// The record without the holder's process, as it was before that was looked up.
    #[must_use]
    pub fn without_process(mut self) -> Record {
        self.bytes[PROCESS].fill(0);
        self
    }

    /// Whether the holder's process was looked up, if there was one to be found.
    pub fn is_identified(&self) -> bool {
        self.bytes[PROCESS] != [0xff; 8]
    }

    #[track_caller]
    fn parse(bytes: Vec<u8>) -> Record {
        assert!(bytes.len() >= HEAD, "a record of {} bytes only", bytes.len());
        assert_eq!(bytes[0], b'1', "an unknown version");
        Record {
            state: match bytes[1] {
                b'L' => State::Live,
                b'R' => State::Released,
                b'T' => State::TakenOver,
                b'B' => State::Broken,
                b'E' => State::Expired,
                other => panic!("an unknown state {:?}", char::from(other)),
            },
            fence: decimal(&bytes[51..67]),
            asked_ms: decimal(&bytes[80..93]),
            owner: bytes[HEAD..].to_vec(),
            bytes,
        }
    }
}

#[track_caller]
fn decimal(digits: &[u8]) -> u64 {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_else(|| panic!("{:?} is not a number", digits.escape_ascii().to_string()))
}
