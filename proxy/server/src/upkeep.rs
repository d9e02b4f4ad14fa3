//! The proxy's own connection to the backend: it finds out what the server is, says whether it is
//! there, and looks after leases that run out, are broken or were not delivered. It never touches a
//! client's traffic; keep-alive has a connection of its own, see `keep_alive`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockwarden_lock::lease::Lapse;
use lockwarden_lock::plan::{self, Form};
use lockwarden_resp::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::backend::{BackendError, Conversation};
use crate::breaking::{BreakError, BreakOrder};
use crate::facts::{self, Role, RoleQuestion, Standing, WithoutLogin};
use crate::metrics::{ConnectionState, ReconnectReason, UndeliveredOutcome};
use crate::mirror;
use crate::rights;
use crate::session::ending;
use crate::shared::{NamespaceDetails, Shared};
use crate::sweep::Sweeper;
use crate::trail::{Entry, Happened};
use crate::unheard::Undelivered;

/// Between two looks at a server that is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Between two tries to reach one that is not: doubled up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Heartbeats between two looks at the server's memory settings.
const BEATS_A_LOOK: u32 = 60;
/// Why clients are not served where locks are enforced.
const NO_SCRIPTS: &str = "the server has no EVAL or no EVALSHA, without which no lock can be governed: allow both, or set \
                          the namespaces to monitor mode, where lock commands are then forwarded unjudged";
/// Notices or marks sent at once.
const BATCH: usize = 256;

/// An order to the upkeep connection.
pub(crate) enum Order {
    /// End a lease, then say what came of it.
    Break(BreakOrder),
}

/// What the rule against opening an unprotected server to a network says to a report.
pub(crate) type Judgement = Box<dyn Fn(&facts::Report) -> Option<String> + Send + Sync>;

/// Runs until the process ends.
pub(crate) async fn run(
    shared: Arc<Shared>,
    refusal: Judgement,
    mut orders: mpsc::Receiver<Order>,
) {
    let mut pause = FIRST_PAUSE;
    let mut run_id = String::new();
    loop {
        match connection(&shared, &refusal, &mut orders, &mut pause, &mut run_id).await {
            Ok(()) => return,
            Err(error) => {
                shared.metrics.backend_reconnects.at(reason(&error)).inc();
                shared.metrics.backend_up.set(0);
                stand(&shared, Standing::NotServing(error.to_string()), "");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            order = orders.recv() => match order {
                Some(Order::Break(order)) => order.refuse(BreakError::Down),
                None => return,
            },
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn reason(error: &BackendError) -> ReconnectReason {
    match error {
        BackendError::Connect { .. } => ReconnectReason::Refused,
        BackendError::Broken(cause) if cause.kind() == std::io::ErrorKind::TimedOut => {
            ReconnectReason::Timeout
        }
        BackendError::Broken(_) => ReconnectReason::Closed,
        BackendError::OutOfStep(_)
        | BackendError::Login(_)
        | BackendError::Database { .. }
        | BackendError::NotNow(_) => ReconnectReason::Protocol,
        BackendError::Replica => ReconnectReason::Demoted,
    }
}

/// One connection, from its making to its end. `run_id` names the server of the one before.
async fn connection(
    shared: &Arc<Shared>,
    refusal: &Judgement,
    orders: &mut mpsc::Receiver<Order>,
    pause: &mut Duration,
    run_id: &mut String,
) -> Result<(), BackendError> {
    let open = shared.metrics.backend_connections.at(ConnectionState::Open);
    let (mut conversation, role) = shared.backend.converse_with_primary().await?;
    let without_login = WithoutLogin::ask(&shared.backend).await;
    shared.server.set_without_login(without_login);
    let (report, commands) = facts::ask(&mut conversation, without_login).await?;
    shared.server.set_version(&report.version);
    if let Some(commands) = commands {
        shared.server.set_commands(commands);
    }
    if report.run_id != *run_id {
        run_id.clone_from(&report.run_id);
        shared.server.begin_era();
        // What is held may have little time left.
        shared.kept.all_are_due();
    }
    let mut own = Upkeep {
        conversation,
        role,
        db: None,
        commands: None,
        may_ask: report.may_ask,
        report,
        asking: None,
        beats: 0,
    };
    rights::ask(shared, without_login).await;
    shared.metrics.backend_up.set(1);
    note_eviction(shared, own.report.eviction.as_deref());
    own.stand(shared, refusal);
    if !own.may_ask {
        tracing::warn!(
            backend = %shared.backend,
            "the proxy's own connection may not log in: name a user in the backend URL; \
             until then leases whose TTL the proxy chose are renewed over their holders' connections"
        );
    }
    *pause = FIRST_PAUSE;
    open.inc();
    let ended = own.serve(shared, refusal, orders).await;
    open.dec();
    if let Err(BackendError::Replica) = ended {
        shared.server.begin_era();
    }
    ended
}

/// Says in one log line that clients are served, or that they are not; only when it is news.
fn stand(shared: &Shared, standing: Standing, version: &str) {
    if !shared.server.set_standing(standing.clone()) {
        return;
    }
    match standing {
        Standing::Serving => {
            tracing::info!(backend = %shared.backend, version, "the backend is up: clients are served");
        }
        Standing::NotServing(why) => {
            tracing::error!(backend = %shared.backend, why, "no client is served");
        }
    }
}

/// Says when the server begins to drop locks that are held.
fn note_eviction(shared: &Shared, policy: Option<&str>) {
    let shown = &shared.metrics.backend_evicts_locks;
    if let Some(policy) = policy
        && shown.get() == 0
    {
        tracing::warn!(
            policy,
            "the backend's maxmemory-policy: {}",
            facts::EVICTION_TAKES_LOCKS
        );
    }
    shown.set(policy.is_some().into());
}

struct Upkeep {
    conversation: Conversation,
    /// By which it tells whether it is the primary.
    role: RoleQuestion,
    /// The database that is selected, once one was.
    db: Option<u32>,
    /// How many commands the server had when it was asked last.
    commands: Option<i64>,
    /// Whether this connection is logged in.
    may_ask: bool,
    /// What the server said of itself.
    report: facts::Report,
    /// Finds out whether a password is wanted.
    asking: Option<JoinHandle<()>>,
    /// Heartbeats so far.
    beats: u32,
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        if let Some(asking) = self.asking.take() {
            asking.abort();
        }
    }
}

impl Upkeep {
    /// Serves clients, or says why not.
    fn stand(&mut self, shared: &Shared, refusal: &Judgement) {
        self.report.without_login = shared.server.without_login();
        let lacks_scripts = !shared.server.has_scripts() && shared.active.load().enforces_any();
        let lacks_scripts = lacks_scripts.then(|| NO_SCRIPTS.to_owned());
        let standing = match refusal(&self.report).or(lacks_scripts) {
            Some(why) => Standing::NotServing(why),
            None => Standing::Serving,
        };
        let version = match self.report.version.as_str() {
            "" => "unknown",
            version => version,
        };
        stand(shared, standing, version);
    }

    /// Whether a server that had no scripts has them now.
    async fn look_after_scripts(&mut self, shared: &Shared) -> Result<(), BackendError> {
        if !shared.server.has_scripts() {
            let answer = self.conversation.ask(&["EVAL", "return 1", "0"]).await?;
            let unknown = |error: &Bytes| error.starts_with(b"ERR unknown command");
            let lacks = answer.as_error().is_some_and(unknown);
            shared.server.set_has_scripts(!lacks);
        }
        Ok(())
    }

    async fn serve(
        &mut self,
        shared: &Arc<Shared>,
        refusal: &Judgement,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<(), BackendError> {
        let mut heartbeat = Instant::now() + HEARTBEAT;
        let mut sweeper = Sweeper::new(shared.sweep.filter(|_| self.may_ask));
        loop {
            let now = Instant::now();
            let due = sweeper.due().map_or(heartbeat, |due| due.min(heartbeat));
            tokio::select! {
                () = tokio::time::sleep(due.saturating_duration_since(now)) => {}
                () = shared.undelivered.changed() => self.mark_undelivered(shared).await?,
                () = shared.server.is_doubted() => self.check_role().await?,
                order = orders.recv() => match order {
                    Some(Order::Break(order)) => self.break_lease(shared, order).await?,
                    None => return Ok(()),
                },
            }
            let now = Instant::now();
            if sweeper.due().is_some_and(|due| due <= now)
                && let Some(db) = sweeper.step(shared, &mut self.conversation).await?
            {
                self.db = Some(db);
            }
            if now >= heartbeat {
                self.check_role().await?;
                self.look_after_commands(shared).await?;
                self.look_after_eviction(shared).await?;
                self.look_after_scripts(shared).await?;
                self.check_password_wanted(shared);
                self.stand(shared, refusal);
                for folded in shared.refusals.drain(now) {
                    let (reason, repeated) = (folded.reason.word(), folded.repeated);
                    tracing::info!(
                        reason,
                        repeated,
                        "refused again; the same client, key and reason"
                    );
                }
                for line in shared.observations.drain(now) {
                    line.log();
                }
                self.notice(shared, shared.mirror.expire(now)).await?;
                heartbeat = Instant::now() + HEARTBEAT;
            }
        }
    }

    /// The heartbeat. A server that was made a replica is left, and the name is looked up anew.
    async fn check_role(&mut self) -> Result<(), BackendError> {
        match self.role.ask(&mut self.conversation).await? {
            Role::Replica => Err(BackendError::Replica),
            Role::Primary | Role::Unknown => Ok(()),
        }
    }

    /// Asks over a new connection whether a password is wanted, and does not wait for the answer: clients
    /// on connections that are logged in never see a `NOAUTH`.
    fn check_password_wanted(&mut self, shared: &Arc<Shared>) {
        if self
            .asking
            .as_ref()
            .is_some_and(|asking| !asking.is_finished())
        {
            return;
        }
        let shared = shared.clone();
        self.asking = Some(tokio::spawn(async move {
            let found = WithoutLogin::ask(&shared.backend).await;
            // A server that does not answer now is still the same server.
            if found != WithoutLogin::Unknown {
                shared.server.set_without_login(found);
            }
        }));
    }

    /// Any answer will do, also that a login is wanted; a new number says that a module brought commands
    /// or took them away.
    async fn look_after_commands(&mut self, shared: &Shared) -> Result<(), BackendError> {
        let count = self
            .conversation
            .ask(&["COMMAND", "COUNT"])
            .await?
            .as_integer();
        let changed = count.is_some() && self.commands.is_some() && count != self.commands;
        if changed && let Some(table) = facts::ask_commands(&mut self.conversation).await? {
            shared.server.set_commands(table);
        }
        self.commands = count;
        Ok(())
    }

    /// An operator may change it while the server runs.
    async fn look_after_eviction(&mut self, shared: &Shared) -> Result<(), BackendError> {
        self.beats = self.beats.wrapping_add(1);
        if self.may_ask && self.beats.is_multiple_of(BEATS_A_LOOK) {
            let info = self.conversation.ask(&["INFO", "memory"]).await?;
            if let Value::Bulk(info) = &info {
                let policy = facts::eviction(&String::from_utf8_lossy(info));
                note_eviction(shared, policy.as_deref());
            }
        }
        Ok(())
    }

    /// Asks whether leases that seem to have run out really did, and counts those that did.
    async fn notice(&mut self, shared: &Shared, lapses: Vec<Lapse>) -> Result<(), BackendError> {
        let active = shared.active.load();
        let lapses = if self.may_ask { lapses } else { Vec::new() };
        for batch in lapses.chunks(BATCH) {
            let mut requests = BytesMut::new();
            let mut selected = Vec::with_capacity(batch.len());
            for lapse in batch {
                selected.push(self.select(lapse.key.db, &mut requests));
                let step = plan::notice(&lapse.key.key, lapse.grant, &active.companion_prefix);
                step.put(&mut requests, Form::Text);
            }
            self.conversation.send(&requests).await?;
            for (lapse, select) in batch.iter().zip(selected) {
                if select {
                    self.conversation.read().await?;
                }
                if self.conversation.read().await?.as_integer() == Some(1) {
                    mirror::count(&lapse.transition, &active);
                    let namespace = usize::from(lapse.transition.namespace.0);
                    if let Some(details) = active.details.get(namespace) {
                        details.metrics.expired_while_held.inc();
                        shared.trail.leave(ran_out(lapse, details));
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a lease for an operator.
    async fn break_lease(
        &mut self,
        shared: &Shared,
        order: BreakOrder,
    ) -> Result<(), BackendError> {
        if !self.may_ask {
            order.refuse(BreakError::NoLogin);
            return Ok(());
        }
        let answer = match self.ask_for_break(shared, &order).await {
            Ok(answer) => answer,
            Err(error) => {
                order.refuse(BreakError::Unknown(error.to_string()));
                return Err(error);
            }
        };
        order.settle(shared, &answer);
        Ok(())
    }

    async fn ask_for_break(
        &mut self,
        shared: &Shared,
        order: &BreakOrder,
    ) -> Result<Value, BackendError> {
        let mut request = BytesMut::new();
        if self.select(order.key().db, &mut request) {
            self.conversation.send(&request).await?;
            let selected = self.conversation.read().await?;
            // An operator may name a database that the server does not have.
            if selected.is_error() {
                self.db = None;
                return Ok(selected);
            }
            request.clear();
        }
        let prefix = shared.active.load().companion_prefix.clone();
        order.plan(&prefix).put(&mut request, Form::Text);
        self.conversation.send(&request).await?;
        self.conversation.read().await
    }

    /// Marks the grants that nobody heard of whose sessions could not do it themselves.
    async fn mark_undelivered(&mut self, shared: &Shared) -> Result<(), BackendError> {
        let prefix = shared.active.load().companion_prefix.clone();
        loop {
            let batch = shared.undelivered.take(BATCH);
            if batch.is_empty() {
                return Ok(());
            }
            if !self.may_ask {
                for lease in &batch {
                    ending::count(shared, lease, UndeliveredOutcome::Failed);
                }
                continue;
            }
            let mut requests = BytesMut::new();
            let mut selected = Vec::with_capacity(batch.len());
            for lease in &batch {
                selected.push(self.select(lease.key.db, &mut requests));
                lease.plan(&prefix).put(&mut requests, Form::Text);
            }
            let mut waiting = batch.into_iter();
            let told = self
                .hear_of_marks(shared, &requests, &selected, &mut waiting)
                .await;
            for lease in waiting {
                ending::count(shared, &lease, UndeliveredOutcome::Failed);
            }
            told?;
        }
    }

    async fn hear_of_marks(
        &mut self,
        shared: &Shared,
        requests: &[u8],
        selected: &[bool],
        waiting: &mut impl Iterator<Item = Undelivered>,
    ) -> Result<(), BackendError> {
        self.conversation.send(requests).await?;
        for select in selected {
            if *select {
                self.conversation.read().await?;
            }
            let answer = self.conversation.read().await?;
            if let Some(lease) = waiting.next() {
                ending::settle_last(shared, lease, &answer);
            }
        }
        Ok(())
    }

    /// Writes a SELECT where another database is selected; answers whether it did.
    fn select(&mut self, db: u32, requests: &mut BytesMut) -> bool {
        if self.db == Some(db) {
            return false;
        }
        let word = db.to_string();
        lockwarden_resp::put_request(requests, &[b"SELECT", word.as_bytes()]);
        self.db = Some(db);
        true
    }
}

/// A lease ran out before its holder gave it back.
fn ran_out(lapse: &Lapse, details: &NamespaceDetails) -> Entry {
    let mut entry = Entry::noticed(Happened::RanOut, details, lapse.key.clone());
    entry.held_ms = u64::try_from(lapse.transition.held.as_millis()).ok();
    entry
}
