//! Renews the leases whose TTL the proxy chose, over a connection of its own, so that no other work of the proxy can
//! delay a renewal. The lease that ends first is renewed first, many leases in one call. If that connection may not
//! log in, each holder's own connection renews. The same connection writes the index of kept leases and finds those
//! that other proxies leave (`orphans`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use lockwarden_control::telemetry::vocabulary::{ConnectionState, DurabilityResult, KeepAliveOutcome};
use lockwarden_lock::companion::Home;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::plan::{self, Form, IndexEntry, Plan};
use lockwarden_lock::rules::Durability;
use lockwarden_resp::Value;
use tokio::sync::{mpsc, oneshot};

use super::orphans::{MAX_BATCH, Orphans};
use super::renewal_failures::Failures;
use crate::backend::{BackendError, Conversation};
use crate::registry::renewals::{IndexWork, KeptLease};
use crate::state::{ProxyState, effects, quarantine};

/// Calls that are under way at once: the second hides the round trip, so that a long way to Redis does not limit how
/// many leases can be kept alive.
const MAX_CALLS: usize = 2;
/// Between two tries to connect: doubled up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Between two checks whether the proxy's own connection may log in by now.
const NO_LOGIN_PAUSE: Duration = Duration::from_secs(10);
/// Between two checks whether there may be anything to renew.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A renewal waits for a watched key until this part of the TTL is left.
const WATCHED_UNTIL: u32 = 4;

/// An order to renew every kept lease to its full TTL, and to say when that is done.
pub type RenewAll = oneshot::Sender<()>;

/// Runs until the process ends.
pub async fn run(shared: Arc<ProxyState>, mut orders: mpsc::Receiver<RenewAll>) {
    let mut pause = FIRST_PAUSE;
    loop {
        // There is no connection while no lease is renewed or could need it.
        while shared.renewals.is_empty() && !shared.active.load().enforces_any() {
            tokio::select! {
                () = shared.renewals.changed() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                order = orders.recv() => match order {
                    // The caller may have stopped waiting.
                    Some(done) => { let _ = done.send(()); }
                    None => return,
                },
            }
        }
        let ended = match Renewals::connect(&shared).await {
            Ok(mut renewals) => {
                pause = FIRST_PAUSE;
                renewals.serve(&mut orders).await
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => return,
            Err(Unusable::NoLogin) => {
                let until = Instant::now() + NO_LOGIN_PAUSE;
                shared.renewals.renew_over_holders(true);
                over_holders(&shared, until, &mut orders).await;
                shared.renewals.renew_over_holders(false);
            }
            // The holders' connections are left alone: if one breaks after a request was sent on it, its client loses
            // it.
            Err(Unusable::Broken(error)) => {
                tracing::debug!(%error, "the connection that renews leases was lost");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
}

/// Why the connection cannot be used.
enum Unusable {
    /// It wants a password that the proxy does not have.
    NoLogin,
    Broken(BackendError),
}

impl From<BackendError> for Unusable {
    fn from(error: BackendError) -> Unusable {
        Unusable::Broken(error)
    }
}

/// Has the holders' own connections renew the leases that become due until then.
async fn over_holders(shared: &ProxyState, until: Instant, orders: &mut mpsc::Receiver<RenewAll>) {
    loop {
        let now = Instant::now();
        if now >= until {
            return;
        }
        // Without a limit: each renewal uses its holder's connection, and they do not share one call.
        for lease in shared.renewals.take_due(now, usize::MAX) {
            if lease.ends < now {
                shared.renewals.ended(&lease);
            } else {
                lease.wakeup.work();
            }
        }
        let next = shared.renewals.next_due(now, false).map_or(until, |due| due.min(until));
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shared.renewals.changed() => {}
            order = orders.recv() => match order {
                Some(done) => {
                    shared.renewals.all_are_due();
                    // The sessions have been asked to; the caller may have stopped waiting.
                    let _ = done.send(());
                }
                None => return,
            },
        }
    }
}

/// The connection, and the calls that are under way.
struct Renewals<'a> {
    shared: &'a Arc<ProxyState>,
    /// The era in which the backend's name was looked up for it.
    era: u64,
    conversation: Conversation,
    /// The database that is selected, if that is known.
    db: Option<u32>,
    calls: VecDeque<Call>,
    orphans: Orphans,
    failures: Failures,
    /// It was logged that it cannot wait for replicas.
    cannot_wait: bool,
}

/// One call, in the order in which they are answered.
struct Call {
    question: Question,
    /// A SELECT was sent before it.
    selects: bool,
    /// An ASKING was sent before it: a lease may be here already while its slot still moves here.
    asks: bool,
    form: Form,
    sent: Instant,
    /// The confirmation that replicas are asked for after it.
    waits: Option<Durability>,
}

/// What a call is about.
enum Question {
    /// Leases of one database.
    Renew(Vec<KeptLease>),
    /// What is written to the index in this place; the reply says what is overdue.
    Index(IndexWork, Home),
    /// Overdue entries of leases of one database, and since when each is overdue.
    Orphans(Vec<(IndexEntry, Instant)>),
}

impl Question {
    fn db(&self) -> u32 {
        match self {
            Question::Renew(leases) => leases.first().map_or(0, |lease| lease.lock().db()),
            Question::Index(..) => 0,
            Question::Orphans(entries) => entries.first().map_or(0, |(entry, _)| entry.lock.db()),
        }
    }
}

impl Call {
    /// Whether the record of this lease is given a TTL, too.
    fn with_record(&self, lease: &KeptLease) -> bool {
        lease.record_until <= self.sent
    }

    fn plan(&self, shared: &ProxyState, skip: usize, prefix: &[u8]) -> Plan {
        match &self.question {
            Question::Renew(leases) => {
                let leases = leases.iter();
                let renewals = leases.map(|lease| {
                    let longest = quarantine::longest_ms(shared, lease.lock(), self.sent);
                    (&lease.renewal, longest, self.with_record(lease))
                });
                plan::renew(renewals, prefix)
            }
            Question::Index(work, home) => {
                plan::index(&work.written, &work.removed, (MAX_BATCH, skip), (prefix, *home))
            }
            Question::Orphans(entries) => plan::orphans(entries.iter().map(|(entry, _)| entry), prefix),
        }
    }
}

impl<'a> Renewals<'a> {
    async fn connect(shared: &'a Arc<ProxyState>) -> Result<Renewals<'a>, Unusable> {
        let era = shared.backend.server.era();
        let mut conversation = shared.backend.address.converse().await?;
        if let Value::Error(text) = conversation.ask(&["PING"]).await? {
            if text.starts_with(b"NOAUTH") {
                return Err(Unusable::NoLogin);
            }
            // A user who may not send PING may still renew, and so may any user of a server that has no PING.
            if !text.starts_with(b"NOPERM") && !text.starts_with(b"ERR unknown command") {
                return Err(refused(&text));
            }
        }
        Ok(Renewals {
            shared,
            era,
            conversation,
            db: Some(0),
            calls: VecDeque::new(),
            orphans: Orphans::new(),
            failures: Failures::new(
                "leases could not be renewed: they are tried again until they end",
                "leases are renewed again",
            ),
            cannot_wait: false,
        })
    }

    async fn serve(&mut self, orders: &mut mpsc::Receiver<RenewAll>) -> Result<(), Unusable> {
        let open = self.shared.metrics.backend_connections.at(ConnectionState::Open);
        open.inc();
        let ended = self.renew(orders).await;
        open.dec();
        ended
    }

    async fn renew(&mut self, orders: &mut mpsc::Receiver<RenewAll>) -> Result<(), Unusable> {
        let mut asked: Option<RenewAll> = None;
        loop {
            if self.era != self.shared.backend.server.era() {
                return Err(refused(b"another server stands behind the backend's name"));
            }
            // A renewal on a server that is not the primary any more is lost.
            if !self.shared.standstill.look(Instant::now()) {
                self.shared.standstill.is_over().await;
                continue;
            }
            let now = Instant::now();
            while self.calls.len() < MAX_CALLS {
                let due = self.shared.renewals.take_due(now, MAX_BATCH);
                if due.is_empty() {
                    break;
                }
                self.send_renewals(due, now).await?;
            }
            if let Some((work, home)) = self.orphans.next_question(self.shared, now) {
                self.send(Question::Index(work, home), Form::Sha).await?;
            }
            if let Some(call) = self.calls.pop_front() {
                self.read(call).await?;
                continue;
            }
            let address = &self.shared.backend.address;
            address.stay_logged_in(&mut self.conversation).await?;
            // Nothing is due and no call is under way, so all leases are renewed.
            if let Some(done) = asked.take() {
                // The caller may have stopped waiting.
                let _ = done.send(());
            }
            let due = self.shared.renewals.next_due(now, self.orphans.writes(now));
            let due = due.into_iter().chain(self.orphans.due()).min();
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.shared.renewals.changed() => {}
                () = address.login_changes(self.conversation.logged_in_with) => {}
                order = orders.recv() => match order {
                    Some(done) => {
                        self.shared.renewals.all_are_due();
                        asked = Some(done);
                    }
                    None => return Ok(()),
                },
            }
        }
    }

    /// Sends calls for these leases, one for each database and each number of replicas that have to confirm.
    async fn send_renewals(&mut self, leases: Vec<KeptLease>, now: Instant) -> Result<(), BackendError> {
        let leases = promised(self.shared, leases, now);
        let mut leases = wait_for_watchers(self.shared, leases, now);
        while let Some(first) = leases.first() {
            let (db, waits) = (first.lock().db(), self.durability(first));
            let (these, others) =
                leases.into_iter().partition(|lease| lease.lock().db() == db && self.durability(lease) == waits);
            leases = others;
            for these in in_calls(these, self.locks_a_call()) {
                self.send(Question::Renew(these), Form::Sha).await?;
            }
        }
        Ok(())
    }

    fn locks_a_call(&self) -> usize {
        self.shared.backend.server.locks_a_call(MAX_BATCH)
    }

    /// The confirmation by replicas that a renewal of this lease needs.
    fn durability(&self, lease: &KeptLease) -> Option<Durability> {
        let active = self.shared.active.load();
        let details = active.of_lock(lease.lock().bytes());
        details.and_then(|details| details.rules.durability)
    }

    async fn send(&mut self, question: Question, form: Form) -> Result<(), BackendError> {
        let mut request = BytesMut::new();
        let waits = match &question {
            Question::Renew(leases) => leases.first().and_then(|lease| self.durability(lease)),
            Question::Index(..) | Question::Orphans(_) => None,
        };
        let db = question.db();
        let selects = self.db != Some(db);
        if selects {
            let word = db.to_string();
            lockwarden_resp::put_request(&mut request, &[b"SELECT", word.as_bytes()]);
            self.db = Some(db);
        }
        let asks = self.shared.backend.server.in_cluster() && matches!(question, Question::Renew(_));
        if asks {
            OwnRequest::Asking.put(&mut request);
        }
        let call = Call { question, selects, asks, form, sent: Instant::now(), waits };
        let prefix = self.shared.active.load().companion_prefix.clone();
        let plan = call.plan(self.shared, self.orphans.skip(), &prefix);
        plan.put(&mut request, form);
        if let Some(Durability { replicas, within_ms, is_strict: _ }) = waits {
            let wait = OwnRequest::Wait { replicas, within_ms };
            wait.put(&mut request);
        }
        self.conversation.send(&request).await?;
        self.calls.push_back(call);
        Ok(())
    }

    /// Reads the reply to a call.
    async fn read(&mut self, call: Call) -> Result<(), Unusable> {
        let selected = match call.selects {
            true => Some(self.conversation.read().await?),
            false => None,
        };
        if call.asks {
            self.conversation.read().await?;
        }
        let answer = self.conversation.read().await?;
        let confirmed = match call.waits {
            Some(_) => Some(self.conversation.read().await?),
            None => None,
        };
        let refusal = selected.as_ref().and_then(Value::as_error);
        // A call in the wrong database changed nothing there: no lease has that name.
        let refusal = refusal.inspect(|_| self.db = None);
        let mut succeeded = false;
        match refusal.or(answer.as_error()) {
            // Nothing has run, so this is no repetition.
            Some(text) if text.starts_with(b"NOSCRIPT") && call.form == Form::Sha => {
                self.send(call.question, Form::Text).await?;
            }
            Some(text) if means_another_server(text) => {
                self.shared.backend.server.doubt();
                self.failures.count(text);
                self.failures.log(false);
                return Err(refused(text));
            }
            Some(text) => self.refused(call, text).await?,
            None => {
                succeeded = matches!(call.question, Question::Renew(_));
                self.answered(&call, &answer).await?;
                self.confirmed(&call, confirmed.as_ref());
            }
        }
        self.failures.log(succeeded);
        Ok(())
    }

    async fn refused(&mut self, call: Call, text: &[u8]) -> Result<(), BackendError> {
        match call.question {
            // One lock that this user may not touch must not affect the others.
            Question::Renew(leases) if leases.len() > 1 => {
                for lease in leases {
                    self.send(Question::Renew(vec![lease]), call.form).await?;
                }
            }
            Question::Renew(_) => self.failures.count(text),
            Question::Index(..) => self.orphans.failed(text, self.shared.backend.server.in_cluster()),
            Question::Orphans(_) => {}
        }
        Ok(())
    }

    /// Handles the replicas' confirmation of a call: if too few have it, the leases are due again in half the time.
    fn confirmed(&mut self, call: &Call, confirmed: Option<&Value>) {
        let (Question::Renew(leases), Some(wanted), Some(confirmed)) = (&call.question, call.waits, confirmed) else {
            return;
        };
        let result = match (confirmed.as_integer(), confirmed.as_error()) {
            (Some(replicas), _) if replicas >= i64::from(wanted.replicas) => DurabilityResult::Enough,
            (Some(_), _) => DurabilityResult::TooFew,
            (None, error) => {
                if let Some(error) = error.filter(|_| !self.cannot_wait) {
                    self.cannot_wait = true;
                    tracing::warn!(
                        error = %String::from_utf8_lossy(error),
                        "the proxy's own connection cannot wait for replicas: renewals may be lost in a failover"
                    );
                }
                DurabilityResult::Unknown
            }
        };
        let now = Instant::now();
        for lease in leases {
            effects::count_confirmation(self.shared, lease.lock(), result);
            if result == DurabilityResult::TooFew {
                self.shared.renewals.try_sooner(lease, now);
            }
        }
    }

    async fn answered(&mut self, call: &Call, answer: &Value) -> Result<(), BackendError> {
        let now = Instant::now();
        match &call.question {
            Question::Renew(leases) => {
                let renewed = plan::renewed(answer).unwrap_or_default();
                for (lease, renewed) in leases.iter().zip(renewed) {
                    let with_record = call.with_record(lease);
                    effects::renewed(self.shared, lease, renewed, with_record, now);
                }
            }
            Question::Index(work, _) => {
                if !work.written.is_empty() {
                    self.orphans.were_written();
                }
                for overdue in self.orphans.overdue(self.shared, answer, call.sent) {
                    for overdue in in_calls(overdue, self.locks_a_call()) {
                        self.send(Question::Orphans(overdue), Form::Sha).await?;
                    }
                }
            }
            Question::Orphans(entries) => self.orphans.found(self.shared, entries, answer, call.sent),
        }
        Ok(())
    }
}

/// Splits these into calls, with as many in each as a call may name.
fn in_calls<T>(all: Vec<T>, most: usize) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || {
        let call: Vec<T> = all.by_ref().take(most).collect();
        (!call.is_empty()).then_some(call)
    })
}

/// A lease to which nothing may be promised now is not renewed: the lock may be another client's by the time that its
/// TTL ends.
fn promised(shared: &ProxyState, mut due: Vec<KeptLease>, now: Instant) -> Vec<KeptLease> {
    due.retain(|lease| {
        if quarantine::longest_ms(shared, lease.lock(), now) != Some(0) {
            return true;
        }
        match lease.ends <= now {
            true => effects::unpromised(shared, lease, now),
            false => effects::count_renewal(shared, lease.lock(), KeepAliveOutcome::Skipped),
        }
        false
    });
    due
}

/// Whether an error means that leases cannot be renewed on this server now: the backend's name may lead to another
/// server by now.
fn means_another_server(error: &[u8]) -> bool {
    [&b"READONLY"[..], b"MASTERDOWN", b"LOADING", b"NOAUTH"].iter().any(|code| error.starts_with(code))
}

fn refused(error: &[u8]) -> Unusable {
    let text = String::from_utf8_lossy(error).into_owned();
    Unusable::Broken(BackendError::Login(text))
}

/// Delays the renewal of keys that a session of this proxy watches, as long as there is time.
fn wait_for_watchers(shared: &ProxyState, mut due: Vec<KeptLease>, now: Instant) -> Vec<KeptLease> {
    // A renewal changes the key's TTL, which Redis counts as a change: it would make the watcher's EXEC fail.
    due.retain(|lease| {
        let ttl = lease.ttl();
        let latest = lease.ends.instant().checked_sub(ttl / WATCHED_UNTIL).unwrap_or(now);
        if !shared.watched_keys.is_watched(lease.lock()) || now >= latest {
            return true;
        }
        let again = (now + ttl / 16).min(latest);
        let again = again.max(now + Duration::from_millis(5));
        shared.renewals.postpone(lease, again);
        effects::count_renewal(shared, lease.lock(), KeepAliveOutcome::Skipped);
        false
    });
    due
}
