//! What was seen of the keys of one pattern: only counts and durations, no value, and no key but one example.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use sketches_ddsketch::{Config, DDSketch};

use crate::sighting::{Spelling, Stored};

/// Applications that are listed for a pattern.
const MAX_APPLICATIONS: usize = 16;
/// Connections that tried to take a key of a pattern. Beyond this limit any connection may have tried.
const MAX_TAKERS: usize = 512;
/// Bytes of an example that are kept.
const MAX_EXAMPLE: usize = 256;
/// Bits of the sketch that estimates how many different keys there are; it saturates above about four times as many
/// keys.
const KEY_BITS: usize = 1_024;

/// What one application did with the keys of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByApplication {
    /// Tries to take a key.
    pub tries: u64,
    /// Keys that it took.
    pub granted: u64,
    /// Keys that it deleted, its own and others'.
    pub deleted: u64,
}

/// See the module.
pub struct Usage {
    /// A key.
    pub example: Bytes,
    /// The first and the last sighting, Unix time, ms.
    pub first_ms: u64,
    /// See `first_ms`.
    pub last_ms: u64,
    /// Tries to take a key, by how they are spelled.
    pub tries: BTreeMap<Spelling, u64>,
    /// Tries that took it.
    pub granted: u64,
    /// Tries that found it taken.
    pub contended: u64,
    /// Leases that ended without ever having a TTL.
    pub without_ttl: u64,
    /// Leases whose TTL was set by a second command.
    pub ttl_later: u64,
    /// Released by the connection that took it, or by another one of its pool.
    pub released: u64,
    /// Those among them that compared the value first.
    pub compared: u64,
    /// Deleted by another process of the application that took it.
    pub handed_over: u64,
    /// Deleted by another application that takes such keys too, by a client that was refused the key during the lease,
    /// or by one whose own lease of it had expired.
    pub foreign: u64,
    /// Deleted by a connection that never tried to take such a key.
    pub swept: u64,
    /// Deletions that compared the value first, for keys whose grant was not seen.
    pub unwitnessed: u64,
    /// Leases whose value was read by a client that had not been refused the key, and was not checking whether it is
    /// the holder: a value that is kept to be read is no lock.
    pub looked_up: u64,
    /// Calls of scripts that get such a key and are not understood.
    pub unclear: u64,
    /// Deletions that found no key.
    pub late: u64,
    /// Leases that expired.
    pub ran_out: u64,
    /// New TTLs for a held key.
    pub extended: u64,
    /// Values that were replaced while another client held the key.
    pub overwritten: u64,
    /// The same, by GETSET.
    pub taken_over: u64,
    /// Reads of a held key by clients other than its holder, as far as they were reported.
    pub read: u64,
    /// The highest number that a counter reached.
    pub counted_to: i64,
    /// Values that look like documents.
    pub documents: u64,
    /// Whether all values were the same.
    pub one_value: bool,
    /// The longest value, bytes.
    pub longest_value: usize,
    /// The longest TTL, ms.
    pub longest_ttl_ms: u64,
    applications: BTreeMap<Arc<str>, ByApplication>,
    takers: HashSet<u64>,
    sweepers: HashSet<u64>,
    value: Option<u64>,
    ttls: DDSketch,
    holds: DDSketch,
    keys: [u64; KEY_BITS / 64],
}

impl Usage {
    /// The start: only a key of this name was seen.
    pub(crate) fn new(example: &Bytes, now_ms: u64) -> Usage {
        Usage {
            example: Bytes::copy_from_slice(&example[..example.len().min(MAX_EXAMPLE)]),
            first_ms: now_ms,
            last_ms: now_ms,
            tries: BTreeMap::new(),
            granted: 0,
            contended: 0,
            without_ttl: 0,
            ttl_later: 0,
            released: 0,
            compared: 0,
            handed_over: 0,
            foreign: 0,
            swept: 0,
            unwitnessed: 0,
            looked_up: 0,
            unclear: 0,
            late: 0,
            ran_out: 0,
            extended: 0,
            overwritten: 0,
            taken_over: 0,
            read: 0,
            counted_to: 0,
            documents: 0,
            one_value: true,
            longest_value: 0,
            longest_ttl_ms: 0,
            applications: BTreeMap::new(),
            takers: HashSet::new(),
            sweepers: HashSet::new(),
            value: None,
            ttls: sketch(),
            holds: sketch(),
            keys: [0; KEY_BITS / 64],
        }
    }

    /// What an application did; beyond the bound, applications share one entry.
    pub(crate) fn by(&mut self, application: &Arc<str>) -> &mut ByApplication {
        const REST: &str = "others";
        let is_known = self.applications.contains_key(application);
        let name =
            if is_known || self.applications.len() < MAX_APPLICATIONS { application.clone() } else { REST.into() };
        self.applications.entry(name).or_default()
    }

    /// A connection has tried to take such a key.
    pub(crate) fn taker(&mut self, session: u64) {
        if self.takers.len() < MAX_TAKERS {
            self.takers.insert(session);
        }
    }

    /// Whether a connection may ever have tried to take such a key.
    pub(crate) fn may_take(&self, session: u64) -> bool {
        let is_full = self.takers.len() >= MAX_TAKERS && !self.takers_come_once();
        is_full || self.takers.contains(&session)
    }

    /// A connection that never tried to take such a key has deleted one.
    pub(crate) fn sweeper(&mut self, session: u64) {
        self.swept += 1;
        if self.sweepers.len() < MAX_TAKERS {
            self.sweepers.insert(session);
        }
    }

    /// Whether nearly every try came over a new connection, as from `redis-cli` in a shell script.
    fn takers_come_once(&self) -> bool {
        come_once(&self.takers, self.tried())
    }

    /// Whether keys are taken and deleted by clients that each connect for a single command.
    pub fn is_by_short_lived(&self) -> bool {
        self.swept > 0 && self.takers_come_once() && come_once(&self.sweepers, self.swept)
    }

    pub(crate) fn stored(&mut self, value: &Stored) {
        self.documents += u64::from(value.is_document);
        self.longest_value = self.longest_value.max(value.length);
        self.one_value &= self.value.is_none_or(|first| first == value.digest);
        self.value = self.value.or(Some(value.digest));
    }

    pub(crate) fn ttl(&mut self, ms: u64) {
        self.longest_ttl_ms = self.longest_ttl_ms.max(ms);
        self.ttls.add(ms as f64);
    }

    pub(crate) fn held(&mut self, ms: u64) {
        self.holds.add(ms as f64);
    }

    pub(crate) fn key(&mut self, hash: u64) {
        let bit = hash as usize % KEY_BITS;
        self.keys[bit / 64] |= 1 << (bit % 64);
    }

    /// About how many different keys there were (linear counting: Whang et al., 1990).
    pub fn keys(&self) -> u64 {
        let set: u32 = self.keys.iter().map(|word| word.count_ones()).sum();
        let all = KEY_BITS as f64;
        let clear = (all - f64::from(set)).max(1.0);
        (all * (all / clear).ln()).round() as u64
    }

    /// Tries to take a key.
    pub fn tried(&self) -> u64 {
        self.tries.values().sum()
    }

    /// Leases that ended by a deletion.
    pub fn deleted(&self) -> u64 {
        self.released + self.handed_over + self.foreign + self.swept
    }

    /// The TTL, ms, that this share of the leases does not exceed.
    pub fn ttl_ms(&self, share: f64) -> Option<u64> {
        quantile(&self.ttls, share)
    }

    /// The time from grant to release, ms, that this share of the leases does not exceed. Only leases that their holder
    /// released.
    pub fn hold_ms(&self, share: f64) -> Option<u64> {
        quantile(&self.holds, share)
    }

    /// What each application did.
    pub fn applications(&self) -> &BTreeMap<Arc<str>, ByApplication> {
        &self.applications
    }

    /// Adds the counts of another pattern.
    pub(crate) fn add(&mut self, other: &Usage) {
        self.first_ms = self.first_ms.min(other.first_ms);
        self.last_ms = self.last_ms.max(other.last_ms);
        for (spelling, tries) in &other.tries {
            *self.tries.entry(*spelling).or_default() += tries;
        }
        let counts = [
            (&mut self.granted, other.granted),
            (&mut self.contended, other.contended),
            (&mut self.without_ttl, other.without_ttl),
            (&mut self.ttl_later, other.ttl_later),
            (&mut self.released, other.released),
            (&mut self.compared, other.compared),
            (&mut self.handed_over, other.handed_over),
            (&mut self.foreign, other.foreign),
            (&mut self.swept, other.swept),
            (&mut self.unwitnessed, other.unwitnessed),
            (&mut self.looked_up, other.looked_up),
            (&mut self.unclear, other.unclear),
            (&mut self.late, other.late),
            (&mut self.ran_out, other.ran_out),
            (&mut self.extended, other.extended),
            (&mut self.overwritten, other.overwritten),
            (&mut self.taken_over, other.taken_over),
            (&mut self.read, other.read),
            (&mut self.documents, other.documents),
        ];
        for (mine, theirs) in counts {
            *mine += theirs;
        }
        self.counted_to = self.counted_to.max(other.counted_to);
        self.one_value &= other.one_value && (self.value.is_none() || self.value == other.value);
        self.value = self.value.or(other.value);
        self.longest_value = self.longest_value.max(other.longest_value);
        self.longest_ttl_ms = self.longest_ttl_ms.max(other.longest_ttl_ms);
        other.takers.iter().for_each(|session| self.taker(*session));
        let room = MAX_TAKERS.saturating_sub(self.sweepers.len());
        self.sweepers.extend(other.sweepers.iter().take(room));
        for (application, by) in &other.applications {
            let mine = self.by(application);
            mine.tries += by.tries;
            mine.granted += by.granted;
            mine.deleted += by.deleted;
        }
        // Both sketches have the same accuracy, so this does not fail.
        let _ = self.ttls.merge(&other.ttls);
        let _ = self.holds.merge(&other.holds);
        for (mine, theirs) in self.keys.iter_mut().zip(&other.keys) {
            *mine |= theirs;
        }
    }
}

/// Whether this many commands came over about as many connections.
fn come_once(connections: &HashSet<u64>, commands: u64) -> bool {
    let enough = (commands * 9 / 10).clamp(1, MAX_TAKERS as u64);
    connections.len() as u64 >= enough
}

/// A sketch of durations, accurate to two percent, in at most about four kilobytes.
fn sketch() -> DDSketch {
    DDSketch::new(Config::new(0.02, 512, 1.0))
}

fn quantile(sketch: &DDSketch, share: f64) -> Option<u64> {
    let value = sketch.quantile(share).ok().flatten()?;
    Some(value.round() as u64)
}
