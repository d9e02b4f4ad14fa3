//! The proxy's own connection to the backend: it finds out what the server is, and reports whether it is there. It
//! only reads, so that it is answered while the server takes no writes. Writes use other connections: see `chores`
//! and `renewals`.

pub mod ask_rights;
pub mod break_lease;
pub mod certificates;
pub mod chores;
pub mod cluster_map;
pub mod connection_age;
mod era;
mod holders_connected;
mod home;
mod orphans;
mod primary;
mod renewal_failures;
pub mod renewals;
pub mod sentinels;
pub mod standstill;
mod strict;
mod sweep;
pub mod upkeep;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::telemetry::vocabulary::{ConnectionState, ReconnectReason};
use lockwarden_resp::Value;
use prometheus::IntGauge;
use tokio::task::JoinHandle;

use crate::backend::sentinel::Lineage;
use crate::backend::server_info::{Role, RoleQuestion, Scripts, Standing, WithoutLogin};
use crate::backend::{BackendError, Conversation, server_info};
use crate::state::ProxyState;
use era::Eras;
use holders_connected::Holders;

/// Between two checks of a server that is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Between two tries to reach a server that is not there: doubled up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long new clients wait for a connection that is being made again. A server that is there needs some
/// milliseconds.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Heartbeats between two checks of the server's memory settings.
const BEATS_A_LOOK: u32 = 60;
/// Why clients are not served if locks are enforced.
const NO_SCRIPTS: &str = "the server has no EVAL or no EVALSHA, without which no lock can be governed: allow both, or set \
                          the namespaces to monitor mode, where lock commands are then forwarded unjudged";

/// The same for a server that has both but runs no script.
const REFUSES_SCRIPTS: &str = "the server runs no scripts, without which no lock can be governed: start it again, or fail over to \
                               a replica; or set the namespaces to monitor mode; it says";

/// The verdict on a report of the rule against opening an unprotected server to a network.
pub type Judgement = Arc<dyn Fn(&server_info::Report) -> Option<String> + Send + Sync>;

/// Runs until the process ends.
pub async fn run(shared: Arc<ProxyState>, refusal: Judgement) {
    let mut pause = FIRST_PAUSE;
    let mut known = Known::default();
    loop {
        let begun = Instant::now();
        let attempt = async {
            let followed = primary::followed(&shared).await?;
            tokio::select! {
                biased;
                changed = primary::changes(&shared, followed.as_ref()) => Err(changed),
                ended = connection(&shared, &refusal, &mut pause, &mut known) => ended,
            }
        };
        let ended = tokio::select! {
            ended = attempt => ended,
            never = end_the_wait(&shared, begun) => match never {},
        };
        match ended {
            Ok(()) => {}
            Err(BackendError::Replica) if shared.cluster_node => {
                known.was_demoted = true;
                known.eras.demoted();
                is_read_only(&shared, &refusal, begun).await;
            }
            Err(error) => {
                shared.metrics.backend_reconnects.at(reason(&error)).inc();
                if let Some((map, _)) = shared.backend.address.authority.map() {
                    map.want();
                }
                known.was_demoted = matches!(error, BackendError::Replica);
                if let BackendError::Replica | BackendError::WritableReplica = error {
                    known.eras.demoted();
                }
                let had_served = *shared.backend.server.standing() == Standing::Serving;
                if had_served && let BackendError::Broken(_) = error {
                    stand(&shared, Standing::Reconnecting(error.to_string()), "");
                    // A server that closes each new connection gets no more tries than a server that is not there.
                    if begun.elapsed() >= HEARTBEAT {
                        continue;
                    }
                } else {
                    serve_nobody(&shared, error.to_string());
                }
                // The replies to their writes would not show its clients that it is a replica. The server is not
                // served any more by now, so they move to no other connection.
                if had_served && let BackendError::WritableReplica = error {
                    primary::leave(&shared);
                }
                if let BackendError::PrimaryChanged { .. } = error {
                    primary::leave(&shared);
                    continue;
                }
            }
        }
        let followed = primary::last(&shared);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // The primary may be the one that it waits for.
            _ = primary::changes(&shared, followed.as_ref()) => primary::leave(&shared),
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// New clients stop waiting for a connection that has been in the making since then.
async fn end_the_wait(shared: &ProxyState, since: Instant) -> Infallible {
    tokio::time::sleep_until((since + RECONNECT_WITHIN).into()).await;
    if let Standing::Reconnecting(why) = &*shared.backend.server.standing() {
        serve_nobody(shared, why.clone());
    }
    std::future::pending().await
}

/// The backend does not answer.
fn serve_nobody(shared: &ProxyState, why: String) {
    shared.shows_up(false);
    stand(shared, Standing::NotServing(why), "");
}

/// The backend was asked at this moment, and is a replica in a cluster: what was known of it as a primary does not
/// count any more. It grants no lock, and itself redirects a client that wants one to its primary. From then on it is
/// asked each second whether it still is a replica.
async fn is_read_only(shared: &ProxyState, refusal: &Judgement, asked: Instant) {
    let server = &shared.backend.server;
    server.set_home(true, None);
    server.was_asked(asked);
    if server.reckoned().is_some() {
        server.set_reckoned(None);
    }
    shared.backend.strict.another_server();
    if *server.standing() == Standing::Serving {
        return;
    }
    shared.metrics.backend_reconnects.at(ReconnectReason::Demoted).inc();
    let judged = async {
        let mut own = shared.backend.address.converse().await?;
        Ok::<_, BackendError>(refusal(&learn(shared, &mut own).await?))
    };
    let why = match judged.await {
        Ok(None) => {
            shared.shows_up(true);
            server.set_standing(Standing::Serving);
            return tracing::info!(
                backend = %shared.backend.address,
                "the backend is a replica in a cluster: clients are served, and those who want a lock are sent to its primary"
            );
        }
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    serve_nobody(shared, why);
}

fn reason(error: &BackendError) -> ReconnectReason {
    match error {
        BackendError::Connect { .. } => ReconnectReason::Refused,
        BackendError::Broken(cause) if cause.kind() == std::io::ErrorKind::TimedOut => ReconnectReason::Timeout,
        BackendError::Broken(_) => ReconnectReason::Closed,
        BackendError::OutOfStep(_)
        | BackendError::Handshake { .. }
        | BackendError::Login(_)
        | BackendError::Password(_)
        | BackendError::Database { .. }
        | BackendError::NotNow(_) => ReconnectReason::Protocol,
        BackendError::NoSentinel(_) | BackendError::NoNode(_) => ReconnectReason::Refused,
        BackendError::Replica
        | BackendError::WritableReplica
        | BackendError::NoPrimary
        | BackendError::AnotherServer
        | BackendError::PrimaryChanged { .. } => ReconnectReason::Demoted,
    }
}

/// What is kept from one connection to the next.
#[derive(Default)]
struct Known {
    /// The id of the server's run.
    run_id: String,
    /// It said that it is a replica now: no write is lost on connections to it.
    was_demoted: bool,
    eras: Eras,
    /// Why namespaces with strict `durability` grant no lock, as it was last logged.
    unmet: strict::Unmet,
}

/// One connection, from its opening to its end.
async fn connection(
    shared: &Arc<ProxyState>,
    refusal: &Judgement,
    pause: &mut Duration,
    known: &mut Known,
) -> Result<(), BackendError> {
    let (mut conversation, role) = shared.backend.address.converse_with_primary().await?;
    let report = learn(shared, &mut conversation).await?;
    // A server that was started again counts as another one: it may have lost the locks that were held.
    known.eras.connected(&report.run_id, &known.run_id);
    if report.run_id != known.run_id {
        let is_first = known.run_id.is_empty();
        known.run_id.clone_from(&report.run_id);
        shared.prefix_mark.another_server().await;
        era::begin(shared, &conversation, known.was_demoted);
        shared.backend.strict.another_server();
        // When it is counted, connections to the previous server are cut already.
        if !is_first {
            shared.metrics.backend_eras.inc();
        }
    }
    let open = shared.metrics.backend_connections.at(ConnectionState::Open);
    open.inc();
    let mut own = Upkeep {
        conversation,
        open: open.clone(),
        role,
        commands: None,
        report,
        eras: &mut known.eras,
        unmet: &mut known.unmet,
        asking: None,
        beats: 0,
        refuses_scripts: None,
        is_untold: false,
    };
    own.look_after_home(shared).await?;
    shared.backend.server.set_scripts(server_info::ask_for_scripts(&mut own.conversation).await?);
    // Before clients are served, so that their first commands are judged by known rights.
    ask_rights::ask(shared, own.report.without_login).await;
    own.look_after_scripts(shared).await?;
    own.look_at_lineage(shared).await?;
    own.look_at_prefix_mark(shared).await?;
    own.look_at_era(shared).await;
    strict::look(shared, &mut own.conversation, own.unmet).await?;
    shared.shows_up(true);
    note_eviction(shared, own.report.eviction.as_deref());
    own.stand(shared, refusal);
    shared.backend.server.set_may_ask(own.report.may_ask);
    if !own.report.may_ask {
        tracing::warn!(
            backend = %shared.backend.address,
            "the proxy's own connection may not log in: name a user in the backend URL; \
             until then leases whose TTL the proxy chose are renewed over their holders' connections"
        );
    }
    *pause = FIRST_PAUSE;
    let ended = own.serve(shared, refusal).await;
    // Clients' connections lead to the same server: each new one looks the name up again.
    if let Err(BackendError::Replica) = ended {
        shared.backend.server.begin_era();
    }
    ended
}

/// Asks a server what it is, and takes the answer in.
async fn learn(shared: &ProxyState, own: &mut Conversation) -> Result<server_info::Report, BackendError> {
    // Over another connection: this one has logged in.
    let without_login = WithoutLogin::ask(&shared.backend.address).await;
    let server = &shared.backend.server;
    server.set_without_login(without_login);
    let (report, commands) = server_info::ask(own, without_login).await?;
    server.set_version(&report.version);
    if let Some(commands) = commands {
        server.set_commands(commands);
    }
    Ok(report)
}

/// Logs in one line that clients are served, or that they are not; only if that is news.
fn stand(shared: &ProxyState, standing: Standing, version: &str) {
    let Some(before) = shared.backend.server.set_standing(standing.clone()) else {
        return;
    };
    shared.shows_served_slots();
    match (standing, &*before) {
        (Standing::Serving, Standing::Reconnecting(why)) => {
            tracing::info!(backend = %shared.backend.address, why, "the proxy's own connection ended, and was made again");
        }
        (Standing::Serving, Standing::Serving | Standing::NotServing(_)) => {
            tracing::info!(backend = %shared.backend.address, version, "the backend is up: clients are served");
        }
        (Standing::Reconnecting(why), _) => {
            tracing::debug!(backend = %shared.backend.address, why, "the proxy's own connection ended");
        }
        (Standing::NotServing(why), _) => {
            tracing::error!(backend = %shared.backend.address, why, "no client is served");
        }
    }
}

/// Logs when the server begins to drop locks that are held.
fn note_eviction(shared: &ProxyState, policy: Option<&str>) {
    let did_before = shared.shows_eviction(policy.is_some());
    if let Some(policy) = policy
        && !did_before
    {
        tracing::warn!(policy, "the backend's maxmemory-policy: {}", server_info::EVICTION_TAKES_LOCKS);
    }
}

struct Upkeep<'a> {
    conversation: Conversation,
    /// Counts the connection.
    open: IntGauge,
    /// The question that the server answers with its role.
    role: RoleQuestion,
    /// How many commands the server had when it was last asked.
    commands: Option<i64>,
    /// What the server reported of itself.
    report: server_info::Report,
    /// Since when servers have been the primary.
    eras: &'a mut Eras,
    unmet: &'a mut strict::Unmet,
    /// Finds out whether a password is wanted.
    asking: Option<JoinHandle<()>>,
    /// Heartbeats so far.
    beats: u32,
    /// Its error for a script, if it ran none.
    refuses_scripts: Option<String>,
    /// It was logged that a node of a cluster does not report its slots.
    is_untold: bool,
}

impl Drop for Upkeep<'_> {
    fn drop(&mut self) {
        // Also if the connection is given up in the middle, because there is another primary.
        self.open.dec();
        if let Some(asking) = self.asking.take() {
            asking.abort();
        }
    }
}

impl Upkeep<'_> {
    /// Serves clients, or says why not.
    fn stand(&mut self, shared: &ProxyState, refusal: &Judgement) {
        self.report.without_login = shared.backend.server.without_login();
        let active = shared.active.load();
        let lacks_scripts = shared.backend.server.lacks_scripts() && active.enforces_any();
        let lacks_scripts = lacks_scripts.then(|| match &self.refuses_scripts {
            Some(error) => format!("{REFUSES_SCRIPTS}: {error}"),
            None => NO_SCRIPTS.to_owned(),
        });
        let other_prefix = shared.prefix_mark.refusal(&active.companion_prefix, shared.backend.server.home());
        let why = refusal(&self.report).or(lacks_scripts).or(other_prefix);
        let standing = match why {
            Some(why) => Standing::NotServing(why),
            None => Standing::Serving,
        };
        let version = match self.report.version.as_str() {
            "" => "unknown",
            version => version,
        };
        stand(shared, standing, version);
    }

    async fn serve(&mut self, shared: &Arc<ProxyState>, refusal: &Judgement) -> Result<(), BackendError> {
        let mut heartbeat = Instant::now() + HEARTBEAT;
        let mut holders = Holders::new(&self.report);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(heartbeat.into()) => {}
                () = shared.backend.server.is_doubted() => {
                    if shared.backend.server.take_another() {
                        return Err(BackendError::AnotherServer);
                    }
                    self.check_role(shared).await?;
                    self.stand(shared, refusal);
                }
            }
            let now = Instant::now();
            if now >= heartbeat {
                let address = &shared.backend.address;
                address.stay_logged_in(&mut self.conversation).await?;
                self.check_role(shared).await?;
                self.look_after_commands(shared).await?;
                self.look_after_eviction(shared).await?;
                self.look_after_home(shared).await?;
                self.look_after_scripts(shared).await?;
                self.check_password_wanted(shared);
                self.look_at_lineage(shared).await?;
                self.look_at_prefix_mark(shared).await?;
                self.look_at_era(shared).await;
                strict::look(shared, &mut self.conversation, self.unmet).await?;
                holders.keep_connected(shared, &mut self.conversation, now).await?;
                self.stand(shared, refusal);
                for folded in shared.refusals.drain(now) {
                    folded.log();
                }
                for line in shared.observations.drain(now) {
                    line.log();
                }
                heartbeat = Instant::now() + HEARTBEAT;
            }
        }
    }

    /// Checks whether slots have moved.
    async fn look_after_home(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        home::look(shared, &mut self.conversation, &self.report, &mut self.is_untold).await
    }

    /// Checks whether a server that did not know the commands for scripts knows them now, and whether one that ran
    /// them still does.
    async fn look_after_scripts(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        let server = &shared.backend.server;
        if server.scripts() == Scripts::Unknown {
            let scripts = server_info::ask_for_scripts(&mut self.conversation).await?;
            server.set_scripts(scripts);
        } else if server.reads_script_flags() && self.report.may_ask {
            // In monitor mode, commands go on without scripts.
            if !shared.active.load().enforces_any() && self.refuses_scripts.is_none() {
                return Ok(());
            }
            let Some(home) = server.home() else {
                return Ok(());
            };
            let before = self.refuses_scripts.take();
            self.refuses_scripts = server_info::refusal_of_scripts(&mut self.conversation, home).await?;
            match (&before, &self.refuses_scripts) {
                (_, Some(_)) => server.set_scripts(Scripts::Refused),
                (Some(_), None) => server.set_scripts(Scripts::Run),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// The heartbeat. A server that was made a replica is left, and the name is looked up again.
    async fn check_role(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        let asked = Instant::now();
        match self.role.ask(&mut self.conversation).await? {
            Role::Replica => return Err(BackendError::Replica),
            Role::WritableReplica => return Err(BackendError::WritableReplica),
            Role::Primary | Role::Unknown => {}
        }
        shared.backend.server.was_asked(asked);
        Ok(())
    }

    /// Asks over a new connection whether a password is wanted, and does not wait for the reply. Clients on
    /// connections that are logged in never see a `NOAUTH`, so only this can notice it.
    fn check_password_wanted(&mut self, shared: &Arc<ProxyState>) {
        if self.asking.as_ref().is_some_and(|asking| !asking.is_finished()) {
            return;
        }
        let shared = shared.clone();
        self.asking = Some(tokio::spawn(async move {
            let found = WithoutLogin::ask(&shared.backend.address).await;
            // A server that does not answer now is still the same server.
            if found != WithoutLogin::Unknown {
                shared.backend.server.set_without_login(found);
            }
        }));
    }

    /// Finds out what is not known yet of this era: when it began, what other proxies have entered of it, and which
    /// leases the server has.
    async fn look_at_era(&mut self, shared: &ProxyState) {
        if !self.report.may_ask {
            return;
        }
        // Without a namespace that uses `quarantine`, no key is written.
        if shared.active.load().quarantines {
            self.eras.look(shared, &self.report.run_id).await;
        }
        era::survey(shared).await;
    }

    /// Notes what the next primary can prove: a server without replicas changes its replication id from time to time.
    async fn look_at_lineage(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        let Some(sentinels) = shared.backend.address.authority.sentinels() else {
            return Ok(());
        };
        // Without INFO there is no run id either, and nothing that could be proved.
        if self.report.run_id.is_empty() {
            return Ok(());
        }
        let answer = self.conversation.ask(&["INFO", "replication"]).await?;
        if let Value::Bulk(info) = &answer {
            let info = String::from_utf8_lossy(info);
            sentinels.set_lineage(Lineage::read(&info, &self.report.run_id));
        }
        Ok(())
    }

    /// Checks whether other proxies keep their records under the same prefix.
    async fn look_at_prefix_mark(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        if !self.report.may_ask {
            shared.prefix_mark.cannot_be_known();
            return Ok(());
        }
        shared.prefix_mark.look(&mut self.conversation, shared).await
    }

    /// Any reply will do, even that a login is wanted. A new number means that a module added commands or removed
    /// some.
    async fn look_after_commands(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        let count = self.conversation.ask(&["COMMAND", "COUNT"]).await?.as_integer();
        let changed = count.is_some() && self.commands.is_some() && count != self.commands;
        if changed && let Some(table) = server_info::ask_commands(&mut self.conversation).await? {
            shared.backend.server.set_commands(table);
        }
        self.commands = count;
        Ok(())
    }

    /// An operator may change it while the server runs.
    async fn look_after_eviction(&mut self, shared: &ProxyState) -> Result<(), BackendError> {
        self.beats = self.beats.wrapping_add(1);
        if self.report.may_ask && self.beats.is_multiple_of(BEATS_A_LOOK) {
            let info = self.conversation.ask(&["INFO", "memory"]).await?;
            if let Value::Bulk(info) = &info {
                let policy = server_info::eviction(&String::from_utf8_lossy(info));
                note_eviction(shared, policy.as_deref());
            }
        }
        Ok(())
    }
}
