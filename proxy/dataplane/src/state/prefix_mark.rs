//! The mark that says under which `companion_prefix` the proxies in front of one Redis keep their records. Proxies
//! with different prefixes do not see each other's leases, so only those with the marked prefix serve clients. The
//! mark has a fixed name in database 0, and Redis decides which proxy was first. Beside it, under a name of that
//! prefix, is the list of the proxies that serve under it, with their version and the hash of their rules: a mark
//! without a proxy in that list was written by no proxy. The heartbeat looks at it, and the first lock command that
//! could be granted a lock waits until it is there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::random;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::companion::Home;
use lockwarden_lock::plan::{self, Marked, ProxyNote};
use lockwarden_lock::record_version::VERSION;
use lockwarden_lock::token::hex;
use lockwarden_resp::Value;
use tokio::time::timeout;

use super::ProxyState;
use crate::backend::{Address, BackendError, Conversation, server_info};
use crate::registry::prefix_mark::{Known, PrefixMark};

/// How long writing the mark may take.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);
/// How often a proxy renews its entry that it serves.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// Differences to other proxies that are remembered as reported.
const MAX_TOLD: usize = 64;

impl PrefixMark {
    /// Why no client is served, if that is so.
    pub(crate) fn refusal(&self, prefix: &[u8], home: Option<Home>) -> Option<String> {
        Some(refusal((prefix, home?), &self.other()?))
    }

    /// Before a lock may be granted: makes sure that the mark is there. Returns false if another prefix is in use. If
    /// Redis does not answer in time the command goes on: it will not be answered either.
    pub(crate) async fn settle(&self, shared: &ProxyState) -> bool {
        let settling = async {
            let mut known = self.known.lock().await;
            if self.is_unsettled() {
                self.enter(&mut known, shared).await;
            }
        };
        if timeout(WRITE_PATIENCE, settling).await.is_err() {
            tracing::debug!("the prefix mark was not written in time");
        }
        let is_other = self.other().is_some();
        if is_other {
            shared.backend.server.doubt();
        }
        !is_other
    }

    /// The heartbeat. Writes the mark if there is none and there is something to mark: a database without locks, or
    /// one that was emptied, gets no key from the proxy.
    pub(crate) async fn look(&self, own: &mut Conversation, shared: &ProxyState) -> Result<(), BackendError> {
        let backend = &shared.backend.address;
        // A node without slots has no locks either.
        let Some(home) = shared.backend.server.home() else {
            return Ok(());
        };
        let active = shared.active.load_full();
        let prefix = &active.companion_prefix;
        let has_leases = shared.mirror.has_worked();
        let mut known = self.known.lock().await;
        match read(own, backend, (prefix, home)).await? {
            Found::Marked(marked) if marked == prefix => {
                known.own = Some(prefix.clone());
                self.is_own();
                let said = known.says(&active);
                if known.noted.as_ref().is_some_and(|(noted, at)| *noted == said && at.elapsed() < NOTED_EVERY) {
                    return Ok(());
                }
            }
            // A reload has given this proxy another prefix, as the operator's order asked.
            Found::Marked(marked) if known.own.as_ref() == Some(&marked) => {}
            Found::Marked(marked) => {
                self.is_other(&marked);
                return Ok(());
            }
            Found::Nonsense(_) => {}
            // A proxy that was refused never takes the mark over by itself: after a flush, those that serve come
            // first.
            Found::Nothing if has_leases && self.other().is_none() && !known.is_forbidden => {}
            Found::Nothing => {
                if !known.is_forbidden {
                    self.flushed();
                }
                return Ok(());
            }
            Found::Unreadable(error) => {
                self.cannot_be_known();
                known.report(home, &error);
                return Ok(());
            }
        }
        if !known.is_forbidden && timeout(WRITE_PATIENCE, self.enter(&mut known, shared)).await.is_err() {
            // While writes are paused no lock is taken either, and the next look tries again.
            tracing::debug!("the prefix mark was not written in time");
        }
        Ok(())
    }

    /// Writes the mark, and this proxy's entry beside it.
    async fn enter(&self, known: &mut Known, shared: &ProxyState) {
        let Some(home) = shared.backend.server.home() else {
            return;
        };
        let active = shared.active.load_full();
        let prefix = &active.companion_prefix;
        let said = known.says(&active);
        let before = known.noted.as_ref().map_or("", |(said, _)| said.as_str());
        let given_up = known.own.as_ref().filter(|own| *own != prefix).cloned().unwrap_or_default();
        let step = plan::enter_mark((prefix, home), &said, before, &given_up);
        // Over a connection of its own: while writes are paused, nothing else waits behind it.
        let written = async {
            let mut own = shared.backend.address.converse().await?;
            own.select(0).await?;
            own.execute(&step).await
        };
        let answer = match written.await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(%error, "the prefix mark could not be written");
                return;
            }
        };
        match plan::marked(&answer, prefix) {
            Some(Marked::Own { replaced, unnoted, proxies }) => {
                if let Some(replaced) = replaced.filter(|replaced| *replaced != given_up) {
                    tracing::warn!(
                        key = %String::from_utf8_lossy(&home.prefix_mark()),
                        held = ?String::from_utf8_lossy(&replaced),
                        "the key that says which companion_prefix is in use held what no proxy has written: it was written anew"
                    );
                }
                known.own = Some(prefix.clone());
                self.is_own();
                match unnoted {
                    Some(error) => known.report(home, &Value::Error(error)),
                    None => known.is_reported = false,
                }
                known.compare(&proxies, shared);
                known.noted = Some((said, Instant::now()));
            }
            Some(Marked::Other(other)) => self.is_other(&other),
            None => {
                known.is_forbidden = answer.as_error().is_some_and(|text| text.starts_with(b"NOPERM"));
                self.cannot_be_known();
                known.report(home, &answer);
            }
        }
    }
}

impl Known {
    /// This proxy's entry.
    fn says(&mut self, active: &Active) -> String {
        if self.run.is_empty() {
            self.run = hex(&random::sixteen()[..8]);
        }
        let (run, rules) = (self.run.clone(), active.meaning.hash().to_owned());
        ProxyNote { run, version: env!("CARGO_PKG_VERSION").to_owned(), record: VERSION, rules }.entry()
    }

    /// Logs, once for each kind of proxy, that its entry differs from this one's.
    fn compare(&mut self, proxies: &[ProxyNote], shared: &ProxyState) {
        let active = shared.active.load();
        let (version, rules) = (env!("CARGO_PKG_VERSION"), active.meaning.hash());
        let others = proxies.iter().filter(|proxy| proxy.run != self.run);
        let unlike: Vec<_> = others
            .filter(|other| other.version != version || other.record != VERSION || other.rules != rules)
            .collect();
        shared.metrics.proxies_unlike.set(i64::try_from(unlike.len()).unwrap_or(i64::MAX));
        for other in unlike {
            if other.record > VERSION {
                shared.later_records.met(other.record);
            }
            let kind = (other.version.clone(), other.record, other.rules.clone());
            if self.told.len() < MAX_TOLD && self.told.insert(kind) {
                tracing::warn!(
                    version,
                    record = %char::from(VERSION),
                    rules,
                    other_version = other.version,
                    other_record = %char::from(other.record),
                    other_rules = other.rules,
                    "another proxy in front of this Redis has another version or other rules about locks: what one allows the other \
                     may refuse, until both are the same (lockwarden check --fleet says where they differ)"
                );
            }
        }
        if self.told.len() >= MAX_TOLD {
            self.told.clear();
        }
    }

    /// It is not known which prefix is in use: that stops no client, and is logged once.
    fn report(&mut self, home: Home, answer: &Value) {
        let is_passing =
            |text: &[u8]| server_info::is_for_now(text) || home != Home::WHOLE && server_info::is_of_slot(text);
        if answer.as_error().is_some_and(|text| is_passing(text)) {
            return;
        }
        if !std::mem::replace(&mut self.is_reported, true) {
            let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
            tracing::warn!(
                key = %String::from_utf8_lossy(&home.prefix_mark()),
                error = error.as_deref().unwrap_or("no answer of the script's own"),
                "the key that says which companion_prefix is in use cannot be read or written: \
                 nothing stops another proxy with another prefix"
            );
        }
    }
}

/// Why a proxy with this prefix cannot serve beside those with the other one, and what to do.
fn refusal((prefix, home): (&[u8], Home), other: &[u8]) -> String {
    let mark = home.prefix_mark();
    let [prefix, other, mark] = [prefix, other, &mark].map(String::from_utf8_lossy);
    format!(
        "companion_prefix is {prefix:?}, but the records of locks on this Redis begin with {other:?}, and proxies \
         with different prefixes exclude nobody from each other's locks: set companion_prefix = {other:?}; or, once no \
         proxy with that is left, DEL {mark} and start this one again"
    )
}

/// What was found as the mark.
enum Found {
    Nothing,
    /// The prefix of a proxy.
    Marked(Bytes),
    /// A value that no proxy has written.
    Nonsense(String),
    /// Redis's error.
    Unreadable(Value),
}

/// Reads the mark. A read does not wait while writes are paused, so neither does the heartbeat.
async fn read(own: &mut Conversation, backend: &Address, (prefix, home): (&[u8], Home)) -> Result<Found, BackendError> {
    if backend.url.db != 0 {
        let selected = own.ask(&["SELECT", "0"]).await?;
        if selected.is_error() {
            return Ok(Found::Unreadable(selected));
        }
    }
    let mark = match own.ask(&[b"GET", &home.prefix_mark()[..]]).await? {
        Value::Null => return Ok(Found::Nothing),
        Value::Bulk(mark) => mark,
        error if error.as_error().is_some_and(|text| text.starts_with(b"WRONGTYPE")) => {
            return Ok(Found::Nonsense("no string".to_owned()));
        }
        unknown => return Ok(Found::Unreadable(unknown)),
    };
    let is_prefix = (1..=32).contains(&mark.len())
        && mark.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}'));
    // If the list cannot be read, it may be there.
    let is_used =
        mark == prefix || is_prefix && own.ask(&[b"EXISTS", &home.proxies_key(&mark)[..]]).await? != Value::Integer(0);
    Ok(match is_used {
        true => Found::Marked(mark),
        false => Found::Nonsense(format!("{:?}", String::from_utf8_lossy(&mark[..mark.len().min(64)]))),
    })
}

/// What `lockwarden check` reports of the mark and of the proxies beside it: it writes nothing.
#[derive(Default)]
pub struct Marks {
    /// What is as it should be.
    pub stands: Vec<String>,
    /// What is not.
    pub doubts: Vec<String>,
}

/// Looks at them for a proxy with this prefix and these rules.
pub async fn doubt(
    own: &mut Conversation,
    backend: &Address,
    (prefix, home): (&[u8], Home),
    rules: &str,
) -> Result<Marks, BackendError> {
    let mut marks = Marks::default();
    let key = home.prefix_mark();
    let key = String::from_utf8_lossy(&key);
    match read(own, backend, (prefix, home)).await? {
        Found::Nothing => {}
        Found::Marked(marked) if marked == prefix => {
            let proxies = proxies(own, (prefix, home)).await?;
            marks.doubts.extend(unlike(&proxies));
            marks.stands.extend(serving(&proxies, rules));
        }
        Found::Marked(marked) => marks.doubts.push(refusal((prefix, home), &marked)),
        Found::Nonsense(held) => marks.doubts.push(format!(
            "the key {key}, which says which companion_prefix is in use, holds {held}, under which no proxy serves: the proxies \
             write it anew; find out who wrote it"
        )),
        Found::Unreadable(answer) => {
            let error = answer.as_error().map(|text| String::from_utf8_lossy(text));
            marks.doubts.push(format!(
                "the key {key}, which says which companion_prefix is in use, cannot be read: {}",
                error.as_deref().unwrap_or("it holds no string")
            ));
        }
    }
    Ok(marks)
}

/// The entries of the proxies that serve under this prefix.
async fn proxies(own: &mut Conversation, (prefix, home): (&[u8], Home)) -> Result<Vec<ProxyNote>, BackendError> {
    let time = own.ask(&["TIME"]).await?;
    let seconds = time.as_items().and_then(|items| items.first()?.as_bytes().cloned()).unwrap_or_default();
    let since = [&seconds[..], b"000"].concat();
    let said = own.ask(&[b"ZRANGEBYSCORE", &home.proxies_key(prefix)[..], &since, b"+inf"]).await?;
    let said = said.as_items().unwrap_or_default().iter().filter_map(Value::as_bytes);
    Ok(said.filter_map(|entry| ProxyNote::read(entry)).collect())
}

/// A message if they are not all alike.
fn unlike(proxies: &[ProxyNote]) -> Option<String> {
    let mut kinds: Vec<String> = proxies.iter().map(words).collect();
    kinds.sort_unstable();
    kinds.dedup();
    (kinds.len() > 1).then(|| {
        format!(
            "the proxies that serve this Redis are not alike: {}; what one allows the other may refuse (lockwarden check --fleet \
             says where they differ)",
            kinds.join("; ")
        )
    })
}

/// A message that names those that serve.
fn serving(proxies: &[ProxyNote], rules: &str) -> Option<String> {
    let first = proxies.first()?;
    let others = match proxies.iter().all(|proxy| proxy.rules == rules) {
        true => "",
        false => "; this configuration has other rules",
    };
    Some(format!("proxies that serve this Redis: {} ({}){others}", proxies.len(), words(first)))
}

fn words(proxy: &ProxyNote) -> String {
    format!("version {}, records of version {}, rules {}", proxy.version, char::from(proxy.record), proxy.rules)
}
