//! Commands about the server as a whole: which clients may send them, and a FLUSH that looks for live leases before
//! it erases them. The lock crate decides; here its ruling is carried out and counted, and logged wherever locks
//! could have been erased.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::{Active, mode_label};
use lockwarden_control::telemetry::events::{EventKind, Verdict};
use lockwarden_control::telemetry::logging::Refusal;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, DecisionKind, UnjudgedWhy};
use lockwarden_lock::administration::{AdminCommand, Flush, ForwardWhy, Ruling, ServerCommands, Setting, rule};
use lockwarden_lock::decision::Operation;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::op::Target;
use lockwarden_lock::outcome::{
    BulkRefusal, FlushAnswer, Found, LiveLeases, Looked, bulk_line, debug_line, not_permitted_line, read_flush,
};
use lockwarden_lock::plan::{self, Needs};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_resp::{Value, parse_reply, put_value};

use crate::backend::rights::lacks_rights;
use crate::session::client::Client;
use crate::session::client::block::Place;
use crate::session::step::awaited::{Look, Queued, QueuedStep, StateChange};
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use crate::session::{OK, Session, error_frame};

/// The policy name under which decisions about many keys at once are counted: they come from no chain.
const POLICY: &str = "lockwarden";

/// What became of a command that can erase locks, for the log.
#[derive(Clone, Copy)]
enum Told {
    Refused,
    WouldRefuse,
    Listed,
}

impl Session {
    /// Handles an administration command.
    pub(crate) async fn administer(
        &mut self,
        inbox: &mut RequestBuffer,
        command: AdminCommand,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        if command.is_ruled_on(active.administration.server_commands)
            && let Some(error) = self.barred(inbox, command.name().as_bytes()).await?
        {
            self.reply(&error, muted);
            return Ok(());
        }
        let active = &self.client.seen(active.clone());
        let (name, erases) = (command.name(), command.may_erase_locks());
        match self.client.rule(command, active) {
            Ruling::Forward(forward) => {
                match forward.why {
                    ForwardWhy::Harmless => {}
                    ForwardWhy::Listed => self.client.tell(Told::Listed, name, &refusal_id(), None),
                    ForwardWhy::Watched => {
                        self.client.tell(Told::WouldRefuse, name, &refusal_id(), None);
                        decided_everywhere(DecisionKind::WouldDeny, Mode::Monitor, why(name), active);
                    }
                }
                self.client.count(CommandClass::PassThrough, CommandResult::Ok);
                if name.starts_with("function|") {
                    self.client.shared.functions.forget();
                    self.change_state(StateChange::Functions, forward.pass(), muted);
                    return Ok(());
                }
                self.transport.forward(forward.pass(), muted);
                self.client.queued();
            }
            Ruling::Flush(flush) => {
                if let Some(line) = self.client.unrecordable_flush(flush.name, active) {
                    self.error(&line, muted);
                    return Ok(());
                }
                return self.flush(inbox, flush, active, muted).await;
            }
            Ruling::NotPermitted => {
                if erases {
                    self.client.tell(Told::Refused, name, &refusal_id(), None);
                }
                self.not_permitted(name, muted);
            }
            Ruling::SwapRefused => {
                let id = self.client.refused_everywhere(name, active);
                self.error(&bulk_line(&BulkRefusal::Swap, name, &id), muted);
            }
            Ruling::ForeignRefused => {
                let id = self.client.refused_everywhere(name, active);
                self.error(&bulk_line(&BulkRefusal::Foreign, name, &id), muted);
            }
            Ruling::DebugRefused => {
                let id = self.client.refused_everywhere(name, active);
                self.error(&debug_line(name, &id), muted);
            }
            Ruling::Judge(command) => {
                return self.govern(inbox, command.into(), active, muted).await;
            }
        }
        Ok(())
    }

    /// Whether this client may administer the server by a command that changes its connection. If not, the client has
    /// been told so.
    pub(crate) async fn may_administer(
        &mut self,
        inbox: &mut RequestBuffer,
        command: &str,
        muted: Muted,
    ) -> Result<bool, End> {
        let active = self.client.active();
        match active.administration.server_commands {
            ServerCommands::Forward => return Ok(true),
            ServerCommands::Refuse => {}
        }
        if let Some(error) = self.barred(inbox, command.as_bytes()).await? {
            self.reply(&error, muted);
            return Ok(false);
        }
        if self.client.is_listed(&active) {
            return Ok(true);
        }
        self.not_permitted(command, muted);
        Ok(false)
    }

    fn not_permitted(&mut self, command: &str, muted: Muted) {
        self.client.count(CommandClass::Admin, CommandResult::Denied);
        self.error(&not_permitted_line(command), muted);
    }

    /// Looks for live leases and empties the database, or all of them, in one step.
    async fn flush(
        &mut self,
        inbox: &mut RequestBuffer,
        mut flush: Box<Flush>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        flush.only_looks = self.transport.is_trying();
        if flush.only_looks && flush.lenient {
            self.reply(&BytesMut::from(OK), muted);
            return Ok(());
        }
        // In a block, a script that Redis refuses would spoil the block.
        let certain = !self.client.shared.backend.server.lacks_scripts()
            && (self.client.connection.block.is_none()
                || self.client.shared.rights.runs_scripts(self.client.connection.user()));
        if !certain && flush.unseen().is_some() {
            self.forward_unseen(&flush, active, muted);
            return Ok(());
        }
        let mode = |namespace: NamespaceId| active.rules(namespace).mode;
        let prefix = &active.companion_prefix;
        let step = plan::flush(&flush, &active.namespaces, &mode, prefix);
        if let Some(block) = &mut self.client.connection.block {
            let look = Look::Queued(Box::new(QueuedStep {
                what: Queued::Step,
                command: flush.name,
                namespace: Arc::default(),
                needs: Needs::of_flush(flush.name),
            }));
            block.hold(Place::Flush(flush, active.clone()));
            self.transport.execute_queued(&step, look, muted);
            return Ok(());
        }
        let begun = Instant::now();
        let answer = self.execute(inbox, &step).await?;
        match self.client.read_flush(&answer)? {
            FlushAnswer::Error(error) | FlushAnswer::Run(Value::Error(error), _)
                if flush.unseen().is_some() && flush_rights_line(&error, flush.name).is_some() =>
            {
                self.forward_unseen(&flush, active, muted);
            }
            answer @ (FlushAnswer::Error(_) | FlushAnswer::Run(..) | FlushAnswer::Refused(_)) => {
                let reply = self.client.word_flush(&flush, answer, begun, active);
                self.reply(&reply, muted);
            }
        }
        Ok(())
    }

    /// Forwards a FLUSH if Redis does not let this client look for leases, and what would be found decides nothing.
    fn forward_unseen(&mut self, flush: &Flush, active: &Active, muted: Muted) {
        let Some(pass) = flush.unseen() else { return };
        self.client.shared.prefix_mark.flushed();
        unjudged(active);
        if flush.listed {
            self.client.tell(Told::Listed, flush.name, &refusal_id(), None);
        }
        self.forward(CommandClass::Policy, pass, muted);
    }
}

impl Client {
    /// A command about all locks is refused: logs and counts that, and returns the refusal's name.
    fn refused_everywhere(&mut self, name: &'static str, active: &Active) -> String {
        let id = refusal_id();
        self.tell(Told::Refused, name, &id, None);
        decided_everywhere(DecisionKind::Deny, Mode::Enforce, why(name), active);
        self.count(CommandClass::Policy, CommandResult::Denied);
        id
    }

    fn rule(&self, command: AdminCommand, active: &Active) -> Ruling {
        let setting = Setting {
            server_commands: active.administration.server_commands,
            listed: self.is_listed(active),
            is_node: self.is_node(),
            namespaces: &active.namespaces,
            mode: &|namespace| active.rules(namespace).mode,
        };
        rule(command, &setting)
    }

    /// Whether the client's address is that of a cluster node. A client there could reach that node without the
    /// proxy.
    fn is_node(&self) -> bool {
        let address = self.connection.peer().client.ip();
        address.is_some_and(|address| self.shared.backend.server.is_node_at(address))
    }

    /// Whether it is one of `admin_identities`.
    pub(crate) fn is_listed(&self, active: &Active) -> bool {
        let identities = &active.administration.identities;
        let (user, name) = (self.connection.user(), self.connection.name());
        identities.has(user, name, self.certificate())
    }

    /// The reply to a FLUSH, and all that follows from it.
    pub(crate) fn conclude_flush(
        &mut self,
        flush: &Flush,
        answer: &Bytes,
        begun: Instant,
        active: &Active,
    ) -> Result<BytesMut, End> {
        let answer = self.read_flush(answer)?;
        Ok(self.word_flush(flush, answer, begun, active))
    }

    fn read_flush(&self, answer: &Bytes) -> Result<FlushAnswer, End> {
        let value = parse_reply(answer, self.connection.protocol)
            .map_err(|_| End::OutOfStep("a script's answer is no reply".to_owned()))?;
        read_flush(&value).map_err(|_| End::OutOfStep("a script's answer is not its own".to_owned()))
    }

    fn word_flush(&mut self, flush: &Flush, answer: FlushAnswer, begun: Instant, active: &Active) -> BytesMut {
        match answer {
            FlushAnswer::Error(error) => {
                self.count(CommandClass::Policy, CommandResult::Error);
                match flush_rights_line(&error, flush.name) {
                    Some(line) => error_frame(&line),
                    None => self.encoded(&Value::Error(error)),
                }
            }
            FlushAnswer::Run(Value::Error(error), _) => {
                self.count(CommandClass::Policy, CommandResult::Error);
                if lacks_rights(&String::from_utf8_lossy(&error)) {
                    // Redis's words are about a script, which the client did not send; it sent the FLUSH.
                    let name = flush.name;
                    return error_frame(&format!("NOPERM this user has no permissions to run the '{name}' command"));
                }
                self.encoded(&Value::Error(error))
            }
            FlushAnswer::Run(..) if flush.only_looks => BytesMut::from(OK),
            FlushAnswer::Run(native, found) => {
                let db = (!flush.all).then(|| self.connection.db());
                self.shared.mirror.forget(db, begun);
                self.shared.prefix_mark.flushed();
                self.flushed(flush, &found, active);
                self.count(CommandClass::Policy, CommandResult::Ok);
                self.encoded(&native)
            }
            FlushAnswer::Refused(found) => {
                let id = refusal_id();
                self.tell(Told::Refused, flush.name, &id, Some(&found));
                decided_where_found(DecisionKind::Deny, Mode::Enforce, &found, active);
                self.count(CommandClass::Policy, CommandResult::Denied);
                error_frame(&bulk_line(&refusal(&found, active), flush.name, &id))
            }
        }
    }

    /// A FLUSH was carried out: reports what there was to refuse about it.
    fn flushed(&mut self, flush: &Flush, found: &Found, active: &Active) {
        if found.trouble.is_some() {
            unjudged(active);
        }
        if flush.listed {
            self.tell(Told::Listed, flush.name, &refusal_id(), Some(found));
            return;
        }
        if found.trouble.is_some() {
            return;
        }
        if found.looked == Looked::Not || !found.leases.is_empty() {
            self.tell(Told::WouldRefuse, flush.name, &refusal_id(), Some(found));
            decided_where_found(DecisionKind::WouldDeny, Mode::Monitor, found, active);
        }
    }

    /// One log line about a command that can erase locks. If the locks were not counted on Redis, it gives the number
    /// that this proxy knows of.
    fn tell(&self, told: Told, command: &'static str, id: &str, found: Option<&Found>) {
        let client = self.peer.to_string();
        let repeated = match told {
            // Each of these may have erased locks.
            Told::Listed => 0,
            Told::Refused | Told::WouldRefuse => {
                let refusal = Refusal {
                    client: &client,
                    namespace: None,
                    key: b"",
                    command,
                    reason: why(command).0,
                    mode: match told {
                        Told::WouldRefuse => Mode::Monitor,
                        Told::Refused | Told::Listed => Mode::Enforce,
                    },
                };
                match self.shared.refusals.admit(refusal, Instant::now()) {
                    Some(repeated) => repeated,
                    None => return,
                }
            }
        };
        let first = found.and_then(|found| found.leases.first());
        self.leave_bulk(told, command, id, first);
        let counted = found.and_then(Found::locks);
        let locks = counted.unwrap_or_else(|| {
            let held = self.shared.mirror.held(&self.shared.active.load());
            held.iter().map(|one| one.held_finite + one.held_none).sum()
        });
        tracing::info!(
            id,
            cmd = %command.replace('|', " ").to_ascii_uppercase(),
            db = self.connection.db(),
            reason = why(command).0.word(),
            locks,
            counted_by = if counted.is_some() { "redis" } else { "proxy" },
            key = %first.map_or_else(Default::default, |first| String::from_utf8_lossy(&first.key)),
            client,
            user = %String::from_utf8_lossy(self.connection.user()),
            name = %String::from_utf8_lossy(self.connection.name()),
            certificate = self.certificate(),
            repeated,
            "{}",
            match told {
                Told::Refused => "refused",
                Told::WouldRefuse => "would have been refused",
                Told::Listed => "let through for one of admin_identities",
            }
        );
    }

    /// One event for all locks that a command could erase; the first lock that was found is its example.
    fn leave_bulk(&self, told: Told, command: &'static str, id: &str, first: Option<&LiveLeases>) {
        let active = self.shared.active.load();
        let namespace = first.map_or(0, |first| usize::from(first.namespace.0));
        let Some(details) = active.details.get(namespace) else {
            return;
        };
        let (reason, policy) = why(command);
        let refused = |kind| Some(Verdict::refused(kind, reason, policy, None));
        let (happened, verdict) = match told {
            Told::Refused => (EventKind::Refused, refused(DecisionKind::Deny)),
            Told::WouldRefuse => (EventKind::Forwarded, refused(DecisionKind::WouldDeny)),
            Told::Listed => (EventKind::Forwarded, None),
        };
        let target = Target {
            namespace: NamespaceId(u16::try_from(namespace).unwrap_or(0)),
            key: first.map_or_else(Bytes::new, |first| first.key.clone()),
        };
        let mut entry = self.entry(happened, &target, command, Some(Operation::Write), &active);
        entry.mode = match told {
            Told::Refused => Mode::Enforce,
            Told::WouldRefuse => Mode::Monitor,
            Told::Listed => details.rules.mode,
        };
        entry.id = Some(id.into());
        entry.verdict = verdict;
        self.shared.events.leave(entry);
    }

    fn encoded(&self, value: &Value) -> BytesMut {
        let mut reply = BytesMut::new();
        put_value(&mut reply, value, self.connection.protocol);
        reply
    }
}

/// A reason, and the name used for the policy that gives it.
type Cause = (Reason, &'static str);

const BULK: Cause = (Reason::BulkDelete, POLICY);

/// Why a command about all locks is refused.
fn why(command: &str) -> Cause {
    match command {
        "script|debug" | "keydb.cron" | "rreplay" => (Reason::UnsafeScript, "scripts"),
        _ => BULK,
    }
}

/// Counts a decision in each namespace with this mode that had leases in question; if Redis could not be searched for
/// leases, in all of them.
fn decided_where_found(kind: DecisionKind, mode: Mode, found: &Found, active: &Active) {
    if found.looked == Looked::Not {
        decided_everywhere(kind, mode, BULK, active);
        return;
    }
    for leases in &found.leases {
        decided_for(kind, mode, BULK, usize::from(leases.namespace.0), active);
    }
}

fn decided_everywhere(kind: DecisionKind, mode: Mode, why: Cause, active: &Active) {
    for namespace in 0..active.details.len() {
        decided_for(kind, mode, why, namespace, active);
    }
}

fn decided_for(kind: DecisionKind, mode: Mode, why: Cause, namespace: usize, active: &Active) {
    let Some(details) = active.details.get(namespace) else {
        return;
    };
    if details.rules.mode == mode {
        let (reason, policy) = why;
        let label = mode_label(mode);
        details.metrics.decision(Operation::Write, kind, Some(reason), policy, label);
    }
}

fn unjudged(active: &Active) {
    for details in &active.details {
        details.metrics.unjudged.at(UnjudgedWhy::NoRights).inc();
    }
}

/// What the command was refused for: a lease of an enforcing namespace, or the number of keys.
fn refusal<'a>(found: &'a Found, active: &Active) -> BulkRefusal<'a> {
    let enforces = |namespace: NamespaceId| {
        let details = active.details.get(usize::from(namespace.0));
        details.is_some_and(|details| details.rules.mode == Mode::Enforce)
    };
    let held = || found.leases.iter().filter(|one| enforces(one.namespace));
    match held().next().or(found.leases.first()) {
        Some(first) => BulkRefusal::Held {
            locks: held().map(|leases| leases.count).sum::<u64>().max(1),
            key: &first.key,
            db: first.db,
        },
        None => BulkRefusal::Unseen { keys: found.keys },
    }
}

/// The line for a client whose FLUSH was not run, because Redis would not let it look for leases or has no scripts;
/// `None` for any other error.
pub(crate) fn flush_rights_line(error: &Bytes, command: &'static str) -> Option<String> {
    let text = String::from_utf8_lossy(error);
    let mut line = format!(
        "NOPERM lockwarden runs {} as a script that looks for held locks first: ",
        command.to_ascii_uppercase()
    );
    if text.starts_with("ERR unknown command") {
        line.push_str("the server has no EVAL or no EVALSHA");
        return Some(line);
    }
    if !lacks_rights(&text) {
        return None;
    }
    line.push_str(&format!("this user needs +{command} +eval +evalsha"));
    for command in Needs::of_flush(command).commands() {
        line.push_str(" +");
        line.push_str(command);
    }
    line.push_str(&format!(" on all keys ({text})"));
    Some(line)
}
