//! What `durability = "strict:…"` relies on: that the server drops no lock that is held, has enough replicas, and
//! that its clock runs like the proxy's. The upkeep connection checks at each heartbeat; sessions only read the
//! result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use lockwarden_control::text::numbers::counted;
use lockwarden_lock::era::Reading;
use lockwarden_lock::time::RedisTime;
use lockwarden_resp::Value;

use super::server_info::{EVICTION_TAKES_LOCKS, eviction, info_field};

/// What a server reports of itself in `INFO`, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The replicas that are online now.
    pub(crate) online: u64,
    /// It keeps a file from which it starts again with the locks that were held.
    keeps_file: bool,
    /// Its `maxmemory-policy`, if it may drop locks.
    eviction: Option<String>,
}

impl Said {
    /// Reads the reply to `INFO`; `None` if the server does not report all of it.
    pub fn read(answer: &Value) -> Option<Said> {
        let info = String::from_utf8_lossy(answer.as_bytes()?);
        info_field(&info, "connected_slaves:")?;
        info_field(&info, "maxmemory_policy:")?;
        Some(Said {
            online: online(&info),
            keeps_file: info_field(&info, "aof_enabled:") == Some("1"),
            eviction: eviction(&info),
        })
    }
}

/// How many replicas of `slave0:ip=…,port=…,state=online,offset=…,lag=…` are online now.
pub fn online(info: &str) -> u64 {
    let replicas = info.lines().filter(|line| {
        let rest = line.strip_prefix("slave");
        rest.is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    });
    let online = replicas.filter(|line| line.contains("state=online"));
    u64::try_from(online.count()).unwrap_or(u64::MAX)
}

/// Why a grant that this many replicas must have could be lost on this server, and what to do, one sentence each.
pub fn unmet(said: Option<&Said>, replicas: u16) -> Vec<String> {
    let Some(said) = said else {
        return vec![
            "the server does not tell the proxy's own user about its memory and its replicas: give that user +info"
                .to_owned(),
        ];
    };
    let mut unmet = Vec::new();
    if !has_enough(said, replicas) {
        unmet.push(format!(
            "the server has {} online, and {} must have each grant: attach what is missing",
            counted(said.online, "replica", "replicas"),
            replicas
        ));
        if said.online == 0 && !said.keeps_file {
            let text = "appendonly is no, so without a replica a restart loses every lock";
            unmet.push(text.to_owned());
        }
    }
    if let Some(policy) = &said.eviction {
        unmet.push(format!("maxmemory-policy is {policy}: {EVICTION_TAKES_LOCKS}"));
    }
    unmet
}

fn has_enough(said: &Said, replicas: u16) -> bool {
    said.online >= u64::from(replicas)
}

/// The result of the last check.
#[derive(Default)]
pub struct StrictTerms {
    said: ArcSwapOption<Said>,
    clock: Mutex<Clock>,
}

impl StrictTerms {
    /// What the server reported of itself; `None` if it was not asked yet, or does not say.
    pub fn said(&self) -> Guard<Option<Arc<Said>>> {
        self.said.load()
    }

    pub(crate) fn set_said(&self, said: Option<Said>) {
        self.said.store(said.map(Arc::new));
    }

    /// Whether nothing is known that would lose a grant that this many replicas have.
    pub(crate) fn are_met(&self, replicas: u16) -> bool {
        let said = self.said.load();
        let said = said.as_ref();
        said.is_some_and(|said| has_enough(said, replicas) && said.eviction.is_none())
    }

    /// Another server is checked from now on, with another clock.
    pub(crate) fn another_server(&self) {
        self.said.store(None);
        *self.clock() = Clock::default();
    }

    /// The server's clock was read. Returns by how much it has jumped forward since the last time, if it has.
    pub(crate) fn read_clock(&self, reading: Reading) -> Option<Duration> {
        self.clock().read(reading)
    }

    /// Whether the server's clock has jumped forward since it was last read, according to a time in a reply.
    pub(crate) fn has_jumped(&self, redis: RedisTime, heard: Instant) -> bool {
        self.clock().has_jumped(redis, heard)
    }

    /// For how long leases may still end before their holders reckon, if a lease lasts this long.
    pub(crate) fn clock_jumped(&self, lasts: Duration, now: Instant) -> Option<Duration> {
        let noticed = self.clock().jumped?;
        let left = lasts.checked_sub(now.saturating_duration_since(noticed));
        left.filter(|left| !left.is_zero())
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's clock compared with the proxy's own, which never jumps. A clock that is put back only makes leases
/// longer.
#[derive(Debug, Default)]
struct Clock {
    last: Option<Reading>,
    /// When it was last noticed that the clock had jumped forward.
    jumped: Option<Instant>,
}

impl Clock {
    fn read(&mut self, now: Reading) -> Option<Duration> {
        let by = self.last.and_then(|last| last.jump(now.redis, now.heard));
        self.last = Some(now);
        if by.is_some() {
            self.jumped = Some(now.heard);
        }
        by
    }

    fn has_jumped(&mut self, redis: RedisTime, heard: Instant) -> bool {
        let has = (self.last).is_some_and(|last| last.jump(redis, heard).is_some());
        if has {
            self.jumped = Some(heard);
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const INFO: &str = "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:0\r\n\
                        # Replication\r\nrole:master\r\nconnected_slaves:3\r\nmin_slaves_good_slaves:1\r\n\
                        slave0:ip=127.0.0.1,port=1,state=online,offset=1,lag=0\r\n\
                        slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
                        slave10:ip=127.0.0.1,port=3,state=online,offset=1,lag=1\r\nslave_repl_offset:7\r\n";

    fn said(info: &str) -> Option<Said> {
        Said::read(&Value::Bulk(Bytes::from(info.to_owned())))
    }

    #[test]
    fn replicas_that_follow_are_counted() {
        assert_eq!(online(INFO), 2);
        assert_eq!(online("role:master\r\nconnected_slaves:0\r\n"), 0);
        assert_eq!(online(""), 0);
    }

    #[test]
    fn what_would_lose_a_grant_is_named() {
        let unmet = |info: &str, replicas| unmet(said(info).as_ref(), replicas);
        let named = |info: &str, replicas, words: &[&str]| {
            let unmet = unmet(info, replicas);
            assert_eq!(unmet.len(), words.len(), "{unmet:?}");
            for (line, words) in unmet.iter().zip(words) {
                assert!(line.contains(words), "{line}");
            }
        };
        named(INFO, 2, &[]);
        named(INFO, 3, &["2 replicas online, and 3 must have each grant"]);
        let alone = INFO.replace("state=online", "state=send_bulk");
        named(&alone, 1, &["0 replicas online, and 1 must", "appendonly is no"]);
        let alone = alone.replace("aof_enabled:0", "aof_enabled:1");
        named(&alone, 1, &["0 replicas online"]);
        let evicts = INFO.replace("noeviction", "volatile-ttl");
        named(&evicts, 1, &[]);
        let evicts = evicts.replace("maxmemory:0", "maxmemory:1000");
        named(&evicts, 1, &["maxmemory-policy is volatile-ttl"]);
        for lacks in ["", "# Memory\r\nmaxmemory_policy:noeviction\r\n"] {
            named(lacks, 1, &["give that user +info"]);
        }
        let refused = Value::Error(Bytes::from_static(b"NOPERM"));
        assert_eq!(Said::read(&refused), None);
    }

    #[test]
    fn terms_are_met_where_nothing_is_to_be_named() {
        let terms = StrictTerms::default();
        assert!(!terms.are_met(1), "nobody has looked");
        let evicts = INFO.replace("noeviction", "allkeys-lru").replace("maxmemory:0", "maxmemory:9");
        for info in [INFO, "", &evicts] {
            for replicas in 1..4 {
                terms.set_said(said(info));
                let expected = unmet(said(info).as_ref(), replicas).is_empty();
                assert_eq!(terms.are_met(replicas), expected, "{info} {replicas}");
            }
        }
        terms.set_said(said(INFO));
        terms.another_server();
        assert!(!terms.are_met(1));
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Reads a clock that says `redis` at `sent` ms, answered after `took` ms.
    fn reads(clock: &mut Clock, begun: Instant, (redis, sent, took): (u64, u64, u64)) -> u128 {
        let sent = begun + MS(sent);
        let by = clock.read(Reading { redis: RedisTime(redis), sent, heard: sent + MS(took) });
        by.unwrap_or_default().as_millis()
    }

    #[test]
    fn a_clock_that_jumps_is_told_from_an_answer_that_is_late() {
        for (readings, expected) in [
            ([(10_000, 0, 0), (11_000, 1000, 0)], 0),
            ([(10_000, 0, 0), (11_250, 1000, 0)], 0),
            ([(10_000, 0, 0), (11_251, 1000, 0)], 251),
            ([(10_000, 0, 0), (70_000, 1000, 0)], 59_000),
            // Put back.
            ([(10_000, 0, 0), (7_000, 1000, 0)], 0),
            ([(10_000, 0, 0), (10_000, 1000, 0)], 0),
            // An answer took three seconds, and the clock was read at some time within these.
            ([(10_000, 0, 0), (14_000, 1000, 3000)], 0),
            ([(10_000, 0, 3000), (14_000, 4000, 0)], 0),
            ([(10_000, 0, 0), (14_300, 1000, 3000)], 300),
        ] {
            let (mut clock, begun) = (Clock::default(), Instant::now());
            assert_eq!(reads(&mut clock, begun, readings[0]), 0);
            let by = reads(&mut clock, begun, readings[1]);
            assert_eq!(by, expected, "{readings:?}");
            let redis = RedisTime(readings[1].0 + 300);
            let heard = begun + MS(readings[1].1);
            assert!(clock.has_jumped(redis, heard), "{readings:?}");
        }
    }

    #[test]
    fn a_jump_matters_as_long_as_a_lease_may_last_from_the_moment_it_was_noticed() {
        let (terms, begun) = (StrictTerms::default(), Instant::now());
        let at = |ms| begun + MS(ms);
        let read = |redis, ms| reads(&mut terms.clock(), begun, (redis, ms, 0));
        assert!(!terms.has_jumped(RedisTime(10_000), at(0)), "nobody knows");
        read(10_000, 0);
        assert!(!terms.has_jumped(RedisTime(10_260), at(10)));
        assert_eq!(terms.clock_jumped(Duration::MAX, at(10)), None);
        read(16_000, 1000);
        assert_eq!(terms.clock_jumped(MS(1500), at(1000)), Some(MS(1500)));
        assert_eq!(terms.clock_jumped(MS(1500), at(2000)), Some(MS(500)));
        assert_eq!(terms.clock_jumped(MS(1500), at(2500)), None);
        // Noticed in an answer.
        assert!(terms.has_jumped(RedisTime(20_000), at(3000)));
        assert_eq!(terms.clock_jumped(MS(1500), at(4000)), Some(MS(500)));
        // Hostile.
        assert!(terms.has_jumped(RedisTime(u64::MAX), at(5000)));
        assert!(!terms.has_jumped(RedisTime(0), at(5000)));
        terms.another_server();
        assert_eq!(terms.clock_jumped(Duration::MAX, at(5000)), None);
    }
}
