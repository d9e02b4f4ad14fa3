//! Commands that pass through and may be about locks that no namespace names. They are forwarded unchanged; what they
//! did is reported to [`Discovery`](lockwarden_control::telemetry::discovery::Discovery).

use std::time::Instant;

use bytes::Bytes;
use lockwarden_control::clock::now_ms;
use lockwarden_control::telemetry::discovery::{Seen, What};
use lockwarden_discovery::recognise::{
    Interest, Scripts, is_hsetnx, is_named_like_lock, recognise, stores, writes_data,
};
use lockwarden_discovery::sighting::{Doings, answered, doings, field_taken, watched};
use lockwarden_discovery::{Compares, Did, Spelling, Stored};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::evidence::Own;
use lockwarden_lock::library_scripts;
use lockwarden_lock::op::{AcquireReply, LockCommand, LockOp, ReleaseSpelling};
use lockwarden_lock::outcome::{Answer, Outcome};
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::script_facts::ScriptSha;
use lockwarden_lock::table::{Access, Lookup, for_each_key, lookup};
use lockwarden_resp::Request;
use smallvec::{SmallVec, smallvec};

use crate::session::client::Client;
use crate::session::step::awaited::Sighted;

/// A longer command is not about a lock: bytes.
const MAX_FRAME: usize = 4_096;
/// Keys of a command that are looked at.
const MAX_KEYS: usize = 16;
/// A longer key of data is not looked at: bytes.
const MAX_KEY: usize = 256;
/// A lock without a TTL is taken to be held for this long (ms), and its holder's writes are looked at that long; the
/// second is the limit for others.
const HELD_MS: u64 = 60_000;
const MAX_HELD_MS: u64 = 3_600_000;

impl Client {
    /// A command whose reply says what it did to keys that may be locks. Nearly no command is one, and that is found
    /// out without a look at its key.
    #[inline]
    pub(crate) fn sight(&mut self, pass: PassThrough<'_>, request: &Request<'_>) -> Option<Box<Sighted>> {
        let interest = Interest::of(pass.effect(), request);
        if writes_data(pass.effect(), interest) {
            self.sight_write(pass, request);
        }
        match interest {
            Interest::No => None,
            interest => self.sight_of(interest, pass, request),
        }
    }

    /// The same of a command that is too long to be about a lock.
    pub(crate) fn sight_long(&mut self, pass: PassThrough<'_>, request: &Request<'_>) {
        if writes_data(pass.effect(), Interest::of(pass.effect(), request)) {
            self.sight_write(pass, request);
        }
    }

    /// Reports a write of data if its client may hold a lock, or if such a key was written under a lock before.
    #[inline]
    fn sight_write(&mut self, pass: PassThrough<'_>, request: &Request<'_>) {
        if self.first_writes.wants_more() {
            self.note_first_write(request);
        }
        let may_hold = self.may_hold_until_ms != 0 || self.evidence.latest().next().is_some();
        let discovery = &self.shared.discovery;
        let is_known = |key: &[u8]| discovery.is_written_under_a_lock(self.connection.db(), key);
        if may_hold || request.get(1).is_some_and(is_known) {
            self.tell_write(pass.is_blocking(), request);
        }
    }

    #[cold]
    fn note_first_write(&mut self, request: &Request<'_>) {
        let db = self.connection.db();
        for key in written(request) {
            self.first_writes.note(db, &key);
        }
    }

    /// A lock was granted to this client. What it wrote before its first lock is reported.
    pub(crate) fn has_taken_a_lock(&mut self, db: u32) {
        let before = self.first_writes.take(db);
        if !before.is_empty() {
            self.leave(now_ms(), db, What::Began(before));
        }
    }

    #[cold]
    fn tell_write(&mut self, waits: bool, request: &Request<'_>) {
        let (now, at_ms) = (Instant::now(), now_ms());
        if self.may_hold_until_ms <= at_ms {
            self.may_hold_until_ms = 0;
        }
        let db = self.connection.db();
        let holds = |(key, own): &(&DbKey, &Own)| key.db() == db && own.ends.is_none_or(|ends| ends > now);
        let held = || self.evidence.latest().filter(holds);
        let discovery = &self.shared.discovery;
        let may_hold = self.may_hold_until_ms != 0 || held().next().is_some();
        let is_known = |key: &[u8]| discovery.is_written_under_a_lock(db, key);
        if !(may_hold || request.get(1).is_some_and(is_known)) || !discovery.may_tell_write() {
            return;
        }
        let keys = written(request);
        if may_hold {
            keys.iter().for_each(|key| discovery.follow_writes(db, key));
        }
        if !keys.is_empty() {
            let under = held().map(|(key, _)| Bytes::copy_from_slice(key.bytes())).collect();
            self.leave(at_ms, db, What::Wrote { keys, under, waits });
        }
    }

    fn sight_of(&mut self, interest: Interest, pass: PassThrough<'_>, request: &Request<'_>) -> Option<Box<Sighted>> {
        let discovery = &self.shared.discovery;
        let db = self.connection.db();
        let follows = |key: &[u8]| discovery.follows(db, key);
        let is_in_block = self.connection.block.is_some() && self.connection.watch.is_any();
        let takes_by_watch = is_in_block && stores(pass.effect());
        match interest {
            Interest::No => return None,
            Interest::Reads => {
                self.sight_read(request.get(1)?);
                return None;
            }
            Interest::Changes => {
                let mut keys = request.args().skip(1).take(MAX_KEYS);
                if !takes_by_watch && !keys.any(follows) {
                    return None;
                }
            }
            Interest::Script => {
                self.tell_unknown(db, request);
                let discovery = &self.shared.discovery;
                let is_followed = request.get(3).is_some_and(follows);
                if !is_followed && !discovery.script(request.get(1)?).is_worth_a_look() {
                    return None;
                }
            }
            Interest::Takes | Interest::Counts => {}
        }
        if pass.is_blocking() || pass.frame().len() > MAX_FRAME || !discovery.may_look() {
            return None;
        }
        let scripts = Scripts {
            by_name: &|sha| {
                let seen = self.shared.script_cache.get(sha);
                seen.or_else(|| library_scripts::facts_to_watch(sha))
            },
            of_text: &|text| self.shared.script_cache.saw(text),
        };
        if is_hsetnx(request) {
            self.leave_sightings(db, field_taken(request.arg(1), request.arg(3)));
            return None;
        }
        let command = recognise(*request, &scripts);
        let doings = command.as_deref().map(|command| doings(command, now_ms()));
        if interest == Interest::Script && doings.as_ref().map_or_else(|| self.is_unknown(request), SmallVec::is_empty)
        {
            let mut unclear = written(request);
            let is_read = doings.is_some();
            unclear.retain(|key| discovery.follows(db, key) || (is_read && is_named_like_lock(key)));
            let unclear = unclear.into_iter().map(|key| (key, Did::Unclear));
            self.leave_sightings(db, unclear.collect());
        }
        let discovery = &self.shared.discovery;
        let doings = doings.filter(|doings| !doings.is_empty());
        if interest == Interest::Script {
            discovery.script(request.get(1)?).showed(doings.is_some());
        }
        let mut doings = doings?;
        if takes_by_watch {
            doings = watched(doings);
        }
        for (key, did) in &doings {
            if matches!(did, Did::Acquire { .. } | Did::Counted(_)) {
                discovery.follow(db, key);
                // Writes sent after it do not wait for its reply.
                self.first_writes.end();
            }
        }
        let command = command?;
        // A command in a block is answered with the block, and a value may be very long.
        if self.connection.block.is_some() || may_answer_a_value(&command.op) {
            self.leave_sightings(db, doings);
            return None;
        }
        Some(Box::new(Sighted { command, db, doings }))
    }

    /// A key is read that may be a lock.
    #[inline]
    pub(crate) fn sight_read(&self, key: &[u8]) {
        let db = self.connection.db();
        if self.shared.discovery.may_tell_read(db, key) {
            let key = Bytes::copy_from_slice(key);
            self.leave(now_ms(), db, What::Did(smallvec![(key, Did::Read)]));
        }
    }

    /// What a judged command did to a lock of the namespace that exists only while no file names one. As soon as a
    /// file does, the key is no lock, and it should be known by then what it is.
    pub(crate) fn sight_judged(&self, command: &LockCommand, lock: &DbKey, answer: &Answer) {
        let discovery = &self.shared.discovery;
        if !discovery.may_look() {
            return;
        }
        let at_ms = now_ms();
        let mut doings = doings(command, at_ms).into_iter();
        let known = doings.find(|(key, _)| *key == lock.bytes());
        let did = match (&answer.outcome, known.map(|(_, did)| did)) {
            (_, Some(Did::Store { .. })) | (Outcome::Ungoverned | Outcome::Unrecorded, None) => return,
            (Outcome::Granted(granted), known) => {
                discovery.follow(lock.db(), lock.bytes());
                let script = || {
                    let stored = granted.old.as_deref().unwrap_or_default();
                    (Spelling::Script, Stored::of(stored))
                };
                let (spelling, value) = match known {
                    Some(Did::Acquire { spelling, value, .. }) => (spelling, value),
                    _ => script(),
                };
                let asked = granted.asked_ms.span();
                Did::Acquire {
                    spelling,
                    value,
                    ttl_ms: asked.and_then(|asked| u64::try_from(asked.as_millis()).ok()),
                    granted: Some(true),
                }
            }
            (Outcome::Busy { .. }, Some(Did::Acquire { spelling, value, ttl_ms, .. })) => {
                Did::Acquire { spelling, value, ttl_ms, granted: Some(false) }
            }
            (Outcome::Extended { ttl_ms, .. }, _) => {
                Did::Extend { ttl_ms: Some(ttl_ms.0).filter(|ms| *ms > 0), done: Some(true) }
            }
            (Outcome::Released { .. }, known) => Did::Release {
                compares: match known {
                    Some(Did::Release { compares, .. }) => compares,
                    _ => Compares::Unseen,
                },
                done: Some(true),
            },
            (Outcome::Absent { .. } | Outcome::Different { .. }, Some(Did::Release { compares, .. })) => {
                Did::Release { compares, done: Some(false) }
            }
            (Outcome::Ungoverned | Outcome::Unrecorded, Some(did)) => did,
            (
                Outcome::Busy { .. }
                | Outcome::Absent { .. }
                | Outcome::Different { .. }
                | Outcome::Refused(_)
                | Outcome::ConditionUnmet
                | Outcome::Untouched { .. }
                | Outcome::Unconfirmed(_)
                | Outcome::Failed,
                _,
            ) => return,
        };
        self.leave(at_ms, lock.db(), What::Did(smallvec![(Bytes::copy_from_slice(lock.bytes()), did)]));
    }

    /// Whether it calls, by its name, a script whose text was not seen.
    fn is_unknown(&self, request: &Request<'_>) -> bool {
        let sha = request.get(1).and_then(ScriptSha::from_hex);
        request.name().eq_ignore_ascii_case(b"evalsha")
            && sha.is_none_or(|sha| self.shared.script_cache.get(&sha).is_none())
    }

    /// Reports a call of an unknown script with its first key: what it does to that key is not seen.
    fn tell_unknown(&self, db: u32, request: &Request<'_>) {
        if !request.name().eq_ignore_ascii_case(b"evalsha") {
            return;
        }
        let (Some(sha), Some(key)) = (request.get(1).and_then(ScriptSha::from_hex), request.get(3)) else {
            return;
        };
        let has_keys = request.get(2).is_some_and(|count| count != b"0");
        let is_short = key.len() <= MAX_KEY;
        if has_keys && is_short && !self.shared.knows_script(&sha) && self.shared.discovery.may_look() {
            let key = Bytes::copy_from_slice(key);
            self.leave(now_ms(), db, What::CalledUnknown(sha, key));
        }
    }

    /// The reply to such a command.
    pub(crate) fn sighted(&mut self, sighted: Sighted, reply: &[u8]) {
        let Sighted { command, db, doings } = sighted;
        self.leave_sightings(db, answered(&command, doings, reply));
    }

    fn leave_sightings(&mut self, db: u32, doings: Doings) {
        let at_ms = now_ms();
        for (_, did) in &doings {
            let for_ms = match did {
                Did::Acquire { granted: Some(true) | None, ttl_ms, .. } => *ttl_ms,
                Did::Counted(Some(1) | None) => None,
                Did::Extend { ttl_ms, .. } if self.may_hold_until_ms != 0 => *ttl_ms,
                _ => continue,
            };
            let for_ms = for_ms.unwrap_or(HELD_MS).min(MAX_HELD_MS);
            self.may_hold_until_ms = self.may_hold_until_ms.max(at_ms.saturating_add(for_ms));
            self.has_taken_a_lock(db);
        }
        self.leave(at_ms, db, What::Did(doings));
    }

    fn leave(&self, at_ms: u64, db: u32, what: What) {
        self.shared.discovery.saw(Seen { at_ms, db, caller: self.caller(), what });
    }
}

/// The keys that a command writes.
fn written(request: &Request<'_>) -> SmallVec<[Bytes; 1]> {
    let mut keys = SmallVec::new();
    let Lookup::Known(spec) = lookup(request) else {
        return keys;
    };
    let mut each = |_: usize, key: &[u8], access: Access| {
        if access == Access::Write && keys.len() < MAX_KEYS && key.len() <= MAX_KEY {
            keys.push(Bytes::copy_from_slice(key));
        }
    };
    // Redis refuses what cannot be read to its end.
    if for_each_key(spec, request, &mut each).is_err() {
        keys.clear();
    }
    keys
}

/// Whether the reply may be what is stored.
fn may_answer_a_value(op: &LockOp) -> bool {
    match op {
        LockOp::Acquire { reply, .. } => matches!(reply, AcquireReply::OldValue),
        LockOp::Take { script, .. } => !script.has_plain_no(),
        LockOp::Store { wants_old, .. } => *wants_old,
        LockOp::Extend { spelling, .. } if spelling.answers_value() => true,
        LockOp::Release { spelling: ReleaseSpelling::GetDel, .. } => true,
        LockOp::Extend { comparison, .. } | LockOp::Release { comparison, .. } => {
            let comparison = comparison.as_ref();
            comparison.is_some_and(|comparison| !comparison.has_plain_no())
        }
        LockOp::AcquireAll { .. } | LockOp::ReleaseMany { .. } | LockOp::Wrapped { .. } => false,
    }
}
