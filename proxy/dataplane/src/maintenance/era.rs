//! What another primary means for the leases that the previous one had granted. The time since when it is the primary
//! is entered on the server itself, so that all proxies, even one that starts later, use the same time. And for every
//! lease that this proxy has seen granted, the server is asked whether it has it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::clock;
use lockwarden_lock::companion::Home;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::era::{Era, Look, Reading, Reckoned};
use lockwarden_lock::lease::{End, GRAIN, Lease};
use lockwarden_lock::plan::{self, Surveyed};
use lockwarden_lock::time::{RedisTime, Tick};
use lockwarden_lock::token::Grant;
use lockwarden_resp::Value;
use tokio::time::timeout;

use crate::backend::{Agreement, BackendError, Conversation, server_info};
use crate::registry::lease_mirror::Over;
use crate::state::{ProxyState, effects};

/// How long a look may take: while writes are paused it waits, and is tried again.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
/// How often an entry is read again because another proxy has written it meanwhile.
const MAX_TRIES: usize = 4;
/// Runs of servers that are remembered.
const MAX_FORMER: usize = 16;
/// How long clients wait for the look at all leases. Leases that were not looked at by then stay unknown for longer.
const SURVEY_WITHIN: Duration = Duration::from_secs(2);
/// Leases in one call.
const BATCH: usize = 128;

/// Another server is the primary, or the same one was started again. Connections to a server that itself says that it
/// is a replica are left open: their clients get an error for their next write.
pub(super) fn begin(shared: &ProxyState, conversation: &Conversation, was_demoted: bool) {
    let server = &shared.backend.server;
    let era = server.begin_era();
    conversation.leads_to(era);
    server.set_reckoned(None);
    let connections = match was_demoted {
        true => 0,
        false => server.cut_older(),
    };
    let leases = shared.mirror.doubt();
    let before = shared.backend.address.authority.take_before();
    let over = before.map_or(0, |before| shared.mirror.doubt_over(before));
    tracing::debug!(era, connections, leases, over, "another era has begun");
    // Leases that are held may have little time left.
    shared.renewals.all_are_due();
}

/// What is known of eras from one look to the next.
#[derive(Default)]
pub(super) struct Eras {
    /// The connection for the entry, in database 0.
    own: Option<Conversation>,
    /// Runs that were the primary before.
    former: Vec<String>,
    /// The server that is the primary was not the primary all the time, so another one may have granted locks
    /// meanwhile.
    is_anew: bool,
    /// It said itself that it is a replica.
    was_demoted: bool,
    /// The entry was written since the proxy's own connection was made.
    is_written: bool,
    /// The last entry, on whichever server.
    known: Option<Era>,
    /// Where it was entered.
    home: Option<Home>,
    /// The reading of its server's clock at that time.
    read: Option<Reading>,
    /// It was logged that the entry cannot be read or written.
    is_reported: bool,
}

impl Eras {
    /// The server said itself that it is a replica.
    pub(super) fn demoted(&mut self) {
        self.was_demoted = true;
    }

    /// The proxy's own connection leads to `run` now, after it led to `before`.
    pub(super) fn connected(&mut self, run: &str, before: &str) {
        (self.own, self.is_written) = (None, false);
        let was_demoted = std::mem::take(&mut self.was_demoted);
        if run == before {
            self.is_anew |= was_demoted;
            return;
        }
        self.is_anew = self.former.iter().any(|former| former == run);
        if !before.is_empty() {
            self.former.retain(|former| former != before);
            self.former.push(before.to_owned());
            if self.former.len() > MAX_FORMER {
                self.former.remove(0);
            }
        }
    }

    /// Reads what the server has entered of its era, and adds what this proxy knows. With sentinels or a cluster this
    /// happens only once most of them name this server: until then another server may go on as the primary.
    pub(super) async fn look(&mut self, shared: &ProxyState, run: &str) {
        // The run id is one word of the entry.
        if run.is_empty() || run.contains(char::is_whitespace) {
            return;
        }
        // A node without slots has no locks either.
        let Some(home) = shared.backend.server.home() else {
            return;
        };
        let epoch = match shared.backend.address.authority.agreement(Instant::now()) {
            Agreement::Needless => None,
            Agreement::Reached(epoch) => epoch,
            Agreement::Missing => return,
        };
        match timeout(LOOK_WITHIN, self.enter(shared, run, epoch, home)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.own = None;
                let is_of_slot =
                    matches!(&error, BackendError::OutOfStep(text) if server_info::is_of_slot(text.as_bytes()));
                if !is_of_slot && !std::mem::replace(&mut self.is_reported, true) {
                    tracing::warn!(%error, "the era of the server cannot be looked at: where there is a quarantine, no free lock is granted until it can");
                }
            }
            Err(_) => {
                self.own = None;
                tracing::debug!("the era of the server was not looked at in time");
            }
        }
    }

    /// The present time on the clock of fencing tokens that was known last, whichever server's it was: no token is
    /// higher by now.
    fn tokens(&self, now: Instant) -> Option<RedisTime> {
        let (era, read) = (self.known.as_ref()?, self.read?);
        let passed = clock::ms(now.saturating_duration_since(read.sent));
        Some(RedisTime(read.redis.0.saturating_add(passed).saturating_add(era.ahead_ms)))
    }

    async fn enter(
        &mut self,
        shared: &ProxyState,
        run: &str,
        epoch: Option<u64>,
        home: Home,
    ) -> Result<(), BackendError> {
        let active = shared.active.load_full();
        let prefix = &active.companion_prefix;
        let longest = active.details.iter().filter_map(|details| details.quarantine);
        let longest = longest.max().unwrap_or_default().as_millis();
        let mut own = match self.own.take() {
            Some(own) => own,
            None => {
                let mut own = shared.backend.address.converse().await?;
                own.select(0).await?;
                own
            }
        };
        for _ in 0..MAX_TRIES {
            let sent = Instant::now();
            let found = own.ask(&[b"GET", &home.era_key(prefix)[..]]).await?;
            let answer = own.ask(&["TIME"]).await?;
            let refused = found.as_error().or(answer.as_error());
            let Some(redis) = time(&answer).filter(|_| refused.is_none()) else {
                return Err(unusable(refused));
            };
            let heard = Instant::now();
            let read = Reading { redis, sent, heard };
            if let Some(by) = shared.backend.strict.read_clock(read) {
                self.is_anew = true;
                tracing::warn!(
                    by_ms = clock::ms(by),
                    "the server's clock has jumped forward, so leases end before their holders reckon: where there is a \
                     quarantine, it begins anew"
                );
            }
            let text = found.as_bytes().map_or_else(String::new, |entry| String::from_utf8_lossy(entry).into_owned());
            // In a cluster the place of the entry changes with the slots of the node. An entry that is found in the
            // new place may have been left there by another node; what this proxy knows of the era stays valid.
            let is_moved = self.home.is_some_and(|before| before != home);
            let before = Era::read(&text).filter(|era| !is_moved || *era.run == *run);
            let before = before.or_else(|| self.known.clone().filter(|_| is_moved));
            let look = Look {
                run: run.into(),
                epoch,
                rules: active.meaning.hash().into(),
                longest_ms: longest.try_into().unwrap_or(u64::MAX),
                now: redis,
                age: shared.backend.server.reckoned().map(|known| known.age(heard)),
                tokens: self.tokens(heard),
                anew: self.is_anew,
            };
            let era = Era::after(before.as_ref(), self.known.as_ref(), &look);
            if before.as_ref() != Some(&era) || is_moved || !self.is_written {
                let entry = era.entry();
                let answer = own.execute(&plan::enter_era(&text, &entry, (prefix, home))).await?;
                if answer.as_bytes().is_none() {
                    return Err(unusable(answer.as_error()));
                }
                // Another proxy was faster.
                if answer.as_bytes().is_some_and(|now| **now != *entry.as_bytes()) {
                    continue;
                }
            }
            (self.is_anew, self.is_written, self.is_reported) = (false, true, false);
            (self.known, self.read, self.own, self.home) = (Some(era.clone()), Some(read), Some(own), Some(home));
            let server = &shared.backend.server;
            let is_first = server.reckoned().is_none();
            server.set_reckoned(Some(Reckoned { era, read }));
            if is_first {
                // In namespaces with a quarantine, no lease was renewed until then.
                shared.renewals.all_are_due();
            }
            return Ok(());
        }
        tracing::debug!("other proxies entered something at each try");
        Ok(())
    }
}

/// Why the entry cannot be looked at.
fn unusable(refused: Option<&Bytes>) -> BackendError {
    let refused = refused.map(|text| String::from_utf8_lossy(text).into_owned());
    BackendError::OutOfStep(refused.unwrap_or_else(|| "no answer of its own".to_owned()))
}

/// Reads the answer to `TIME`.
fn time(answer: &Value) -> Option<RedisTime> {
    let [seconds, micros] = answer.as_items()? else {
        return None;
    };
    let number = |value: &Value| -> Option<u64> { std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok() };
    let ms = number(seconds)?.checked_mul(1000)?;
    ms.checked_add(number(micros)? / 1000).map(RedisTime)
}

/// Looks for the leases for which it is unknown whether the server has them.
pub(super) async fn survey(shared: &ProxyState) {
    let (unknown, over) = (shared.mirror.unknown(), shared.mirror.doubted());
    if unknown.is_empty() && over.is_empty() {
        return;
    }
    let asked = unknown.len() + over.len();
    let unknown = unknown.into_iter().map(|(key, lease)| (key, lease.grant, lease)).collect();
    let over = over.into_iter().map(|over| (over.key.clone(), over.grant, over)).collect();
    let all = async {
        let lost = survey_all(shared, unknown, |key, lease, found| settle(shared, key, lease, found)).await?;
        let missed = survey_all(shared, over, |_, over, found| was_lost(shared, over, found)).await?;
        shared.mirror.no_more_doubted();
        Ok::<usize, BackendError>(lost + missed)
    };
    match timeout(SURVEY_WITHIN, all).await {
        Ok(Ok(lost)) => {
            tracing::info!(leases = asked, lost, "looked for the leases of the primary before");
        }
        Ok(Err(error)) => tracing::debug!(%error, "leases could not be looked for"),
        Err(_) => tracing::debug!("leases were not looked for in time"),
    }
}

/// Returns how many are lost.
async fn survey_all<T>(
    shared: &ProxyState,
    mut unknown: Vec<(DbKey, Grant, T)>,
    settle: impl Fn(&DbKey, &T, (Surveyed, Instant)) -> bool,
) -> Result<usize, BackendError> {
    if unknown.is_empty() {
        return Ok(0);
    }
    let prefix = shared.active.load().companion_prefix.clone();
    let mut own = shared.backend.address.converse().await?;
    unknown.sort_by_key(|(key, ..)| key.db());
    let mut lost = 0;
    for of_one_db in unknown.chunk_by(|(one, ..), (other, ..)| one.db() == other.db()) {
        own.select(of_one_db[0].0.db()).await?;
        for batch in of_one_db.chunks(shared.backend.server.locks_a_call(BATCH)) {
            let leases = batch.iter().map(|(key, grant, _)| (key.bytes(), *grant));
            let asked = Instant::now();
            let answer = own.execute(&plan::survey(leases, &prefix)).await?;
            let Some(found) = plan::surveyed(&answer) else {
                let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
                let error = error.as_deref().unwrap_or("no answer of the script's own");
                return Err(BackendError::OutOfStep(error.to_owned()));
            };
            for ((key, _, lease), found) in batch.iter().zip(found) {
                lost += usize::from(settle(key, lease, (found, asked)));
            }
        }
    }
    Ok(lost)
}

/// Handles the look at one lease. Returns whether its holder works on without knowing that the lease is lost.
fn settle(shared: &ProxyState, key: &DbKey, lease: &Lease, (found, asked): (Surveyed, Instant)) -> bool {
    let now = Instant::now();
    let (end, at) = match found {
        Surveyed::Held(ttl) => {
            shared.mirror.is_there(key, lease.grant, ttl);
            return false;
        }
        Surveyed::Ended => (End::Released, now),
        Surveyed::RanOut => (End::Expired, now),
        Surveyed::Lost => (End::Lost, now),
        Surveyed::Another(age) => (End::Lost, asked.checked_sub(age).unwrap_or(asked)),
    };
    let over = shared.mirror.is_not_there(key, lease.grant, end, at);
    let Some(over) = over else {
        return false;
    };
    if over.end != End::Lost {
        let at = lease.ends.map_or(asked, Tick::instant);
        let over = Over { key: key.clone(), grant: lease.grant, transition: over, at, unheard: false };
        let doubted = shared.mirror.as_doubted(over);
        return doubted.is_some_and(|over| was_lost(shared, &over, (found, asked)));
    }
    if shared.renewals.keeps(key, lease.grant) {
        shared.renewals.remove(key, None);
    }
    effects::lost(shared, key, &over, &shared.active.load());
    true
}

/// Handles the look at a lease that was over before. Returns whether the new primary has never had it: then another
/// client may have been granted the lock while it was held.
fn was_lost(shared: &ProxyState, over: &Over, (found, asked): (Surveyed, Instant)) -> bool {
    let is_lost = match found {
        Surveyed::Held(_) | Surveyed::Ended | Surveyed::RanOut => false,
        Surveyed::Lost => true,
        // A lease that began when this one was over is its successor, unless there were others that this proxy did
        // not hear of.
        Surveyed::Another(age) => over.unheard || asked.checked_sub(age).is_none_or(|began| began + GRAIN < over.at),
    };
    if is_lost {
        effects::lost_meanwhile(shared, &over.key, &over.transition, &shared.active.load());
    }
    is_lost
}
