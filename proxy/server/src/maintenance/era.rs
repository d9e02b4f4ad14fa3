//! What another primary means for the leases that the one before had granted. Since when it is the primary is entered on
//! the server itself, so that all proxies, and one that starts later, say the same; and of every lease that this proxy has
//! seen granted it is asked whether it is there.

use std::time::{Duration, Instant};

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::{End, Lease};
use lockwarden_lock::plan::{self, Surveyed};
use tokio::time::timeout;

use crate::backend::server_info::PrimarySince;
use crate::backend::{BackendError, Conversation};
use crate::state::{ProxyState, effects};

/// How long the entry may take: while writes are paused it waits, and is tried again.
const ENTER_WITHIN: Duration = Duration::from_secs(1);
/// How long clients wait for the look at all leases. What was not looked at then is unknown for longer.
const SURVEY_WITHIN: Duration = Duration::from_secs(2);
/// Leases in one call.
const BATCH: usize = 128;

/// Another server is the primary, or the same one was started again. Connections to one that says itself that it is a
/// replica are left to their clients: they are told so by their next write.
pub(super) fn begin(shared: &ProxyState, conversation: &Conversation, was_demoted: bool) {
    let server = &shared.backend.server;
    let era = server.begin_era();
    conversation.leads_to(era);
    server.set_primary_since(None);
    let connections = match was_demoted {
        true => 0,
        false => server.cut_older(),
    };
    let leases = shared.mirror.doubt();
    tracing::debug!(era, connections, leases, "another era has begun");
    // What is held may have little time left.
    shared.renewals.all_are_due();
}

/// Finds out since when the server is the primary. Returns whether it is of use to try again.
pub(super) async fn enter(shared: &ProxyState, run: &str) -> bool {
    // Its name is a word of the entry.
    if run.is_empty() || run.contains(char::is_whitespace) {
        return false;
    }
    let prefix = shared.active.load().companion_prefix.clone();
    let entering = async {
        let mut own = shared.backend.address.converse().await?;
        own.select(0).await?;
        own.execute(&plan::enter_era(run, &prefix)).await
    };
    let answer = match timeout(ENTER_WITHIN, entering).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the era could not be entered");
            return true;
        }
        Err(_) => {
            tracing::debug!("the era was not entered in time");
            return true;
        }
    };
    if let Some((since, now)) = plan::entered(&answer) {
        let now = (now, Instant::now());
        let server = &shared.backend.server;
        let run = run.to_owned();
        server.set_primary_since(Some(PrimarySince { run, since, now }));
        return false;
    }
    let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
    tracing::debug!(?error, "the era could not be entered");
    !answer
        .as_error()
        .is_some_and(|text| text.starts_with(b"NOPERM"))
}

/// Looks for the leases of which nobody knows whether they are there.
pub(super) async fn survey(shared: &ProxyState) {
    let unknown = shared.mirror.unknown();
    if unknown.is_empty() {
        return;
    }
    let asked = unknown.len();
    match timeout(SURVEY_WITHIN, survey_all(shared, unknown)).await {
        Ok(Ok(lost)) => {
            tracing::info!(
                leases = asked,
                lost,
                "looked for the leases of the primary before"
            );
        }
        Ok(Err(error)) => tracing::debug!(%error, "leases could not be looked for"),
        Err(_) => tracing::debug!("leases were not looked for in time"),
    }
}

/// Returns how many are lost.
async fn survey_all(
    shared: &ProxyState,
    mut unknown: Vec<(DbKey, Lease)>,
) -> Result<usize, BackendError> {
    let prefix = shared.active.load().companion_prefix.clone();
    let mut own = shared.backend.address.converse().await?;
    unknown.sort_by_key(|(key, _)| key.db);
    let mut lost = 0;
    for of_one_db in unknown.chunk_by(|(one, _), (other, _)| one.db == other.db) {
        own.select(of_one_db[0].0.db).await?;
        for batch in of_one_db.chunks(BATCH) {
            let leases = batch.iter().map(|(key, lease)| (&key.key[..], lease.grant));
            let asked = Instant::now();
            let answer = own.execute(&plan::survey(leases, &prefix)).await?;
            let Some(found) = plan::surveyed(&answer) else {
                let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
                let error = error.as_deref().unwrap_or("no answer of the script's own");
                return Err(BackendError::OutOfStep(error.to_owned()));
            };
            for ((key, lease), found) in batch.iter().zip(found) {
                lost += usize::from(settle(shared, key, lease, (found, asked)));
            }
        }
    }
    Ok(lost)
}

/// What the look at one lease means. Returns whether its holder works on, and knows nothing of it.
fn settle(
    shared: &ProxyState,
    key: &DbKey,
    lease: &Lease,
    (found, asked): (Surveyed, Instant),
) -> bool {
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
    let Some(over) = over.filter(|over| over.end == End::Lost) else {
        return false;
    };
    if shared.renewals.keeps(key, lease.grant) {
        shared.renewals.remove(key, None);
    }
    effects::lost(shared, key, &over, &shared.active.load());
    true
}
