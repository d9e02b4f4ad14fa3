//! What is known of the server: whether it is there, whether it may be served, what commands it has. The upkeep
//! connection asks for it; sessions and `/ready` only read it.

mod cluster;
mod login;
pub(super) mod role;
mod scripts;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use lockwarden_lock::companion::Home;
use lockwarden_lock::era::Reckoned;
use lockwarden_lock::outcome::Missing;
use lockwarden_lock::table::{Categories, ForeignSpec, ForeignTable};
use lockwarden_resp::Value;
use tokio::sync::{Notify, watch};

use super::conversation::{BackendError, Conversation};
pub(crate) use super::info::info_field;
use super::open_connections::OpenConnections;

pub(crate) use cluster::is_of_slot;
pub use cluster::{NodeView, ask_node};
pub use login::{WithoutLogin, open_network_refusal};
pub use role::{Role, RoleQuestion, is_for_now, is_of_replica};
use scripts::is_missing;
pub(crate) use scripts::{Scripts, ask_for_scripts, refusal_of_scripts};

/// How long a lock command waits for the era to be known, counted from when a new era began.
const SETTLES_WITHIN: Duration = Duration::from_secs(4);
/// Between two checks whether it is known.
const SETTLES_EVERY: Duration = Duration::from_millis(20);

/// Whether clients can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They can.
    Serving,
    /// They could, until the proxy's own connection ended, for this reason. It is being made again at once; until it
    /// has asked again what the server is, new clients wait.
    Reconnecting(String),
    /// They cannot; why, in one line.
    NotServing(String),
}

/// What the server said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// For example `redis 7.0.15`; empty if the proxy may not ask.
    pub version: String,
    /// It is part of a Redis Cluster.
    pub cluster: bool,
    /// What it allows a connection that has not logged in.
    pub without_login: WithoutLogin,
    /// The proxy's own connection is logged in, or needs no login.
    pub may_ask: bool,
    /// Its `maxmemory-policy`, if it drops locks that are held when its memory is full.
    pub eviction: Option<String>,
    /// After how many seconds it closes idle connections, 0 for never; `None` if the proxy may not ask.
    pub timeout: Option<u64>,
    /// The id of the server's run; empty if the proxy may not ask.
    pub(crate) run_id: String,
}

/// The server as known now.
pub struct Server {
    standing: watch::Sender<Arc<Standing>>,
    commands: ArcSwapOption<ForeignTable>,
    without_login: AtomicU8,
    connections: Arc<OpenConnections>,
    doubts: Notify,
    names_scripts: AtomicU8,
    scripts: AtomicU8,
    may_ask: AtomicBool,
    has_answered: Notify,
    absent: ArcSwapOption<Vec<String>>,
    reads_flags: AtomicBool,
    version: ArcSwapOption<String>,
    reckoned: ArcSwapOption<Reckoned>,
    unreckoned: ArcSwap<Instant>,
    another: AtomicBool,
    /// It is a node of a cluster.
    in_cluster: AtomicBool,
    home: Mutex<Option<Home>>,
    /// It was logged that it cannot send keys after the others of their slot.
    pub(crate) cannot_migrate: AtomicBool,
    /// The addresses of the nodes of its cluster.
    nodes: ArcSwap<Vec<IpAddr>>,
    asked: ArcSwap<Instant>,
}

/// Whether the server puts the name of a script into the errors that it raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesScripts {
    /// It was not found out yet.
    Unknown,
    /// `script: 1f2e…, on @user_script:1.`
    Yes,
    /// `script: on @user_script:1.`, as Valkey 9 does.
    No,
}

impl Server {
    /// A server of which nothing is known yet.
    pub fn new(connections: Arc<OpenConnections>) -> Server {
        let standing = Standing::NotServing("the backend has not answered yet".into());
        Server {
            standing: watch::Sender::new(Arc::new(standing)),
            commands: ArcSwapOption::empty(),
            without_login: AtomicU8::new(WithoutLogin::Unknown as u8),
            connections,
            doubts: Notify::new(),
            names_scripts: AtomicU8::new(0),
            scripts: AtomicU8::new(0),
            may_ask: AtomicBool::new(false),
            has_answered: Notify::new(),
            absent: ArcSwapOption::empty(),
            reads_flags: AtomicBool::new(false),
            version: ArcSwapOption::empty(),
            reckoned: ArcSwapOption::empty(),
            unreckoned: ArcSwap::from_pointee(Instant::now()),
            another: AtomicBool::new(false),
            in_cluster: AtomicBool::new(false),
            home: Mutex::new(None),
            cannot_migrate: AtomicBool::new(false),
            nodes: ArcSwap::default(),
            asked: ArcSwap::from_pointee(Instant::now()),
        }
    }

    pub fn standing(&self) -> Arc<Standing> {
        self.standing.borrow().clone()
    }

    /// The same, once the proxy's own connection has been made again, or could not be.
    pub async fn settled_standing(&self) -> Arc<Standing> {
        let is_settled = |now: &Arc<Standing>| !matches!(**now, Standing::Reconnecting(_));
        let mut standing = self.standing.subscribe();
        let settled = standing.wait_for(is_settled).await;
        settled.map_or_else(|_| self.standing(), |settled| settled.clone())
    }

    /// Returns the previous standing, if it was another one.
    pub(crate) fn set_standing(&self, standing: Standing) -> Option<Arc<Standing>> {
        let before = self.standing.send_replace(Arc::new(standing.clone()));
        (*before != standing).then_some(before)
    }

    /// The server's own commands, once they are known.
    pub fn commands(&self) -> arc_swap::Guard<Option<Arc<ForeignTable>>> {
        self.commands.load()
    }

    pub(crate) fn set_commands(&self, commands: ForeignTable) {
        self.commands.store(Some(Arc::new(commands)));
    }

    /// Takes in the server's reply about a name that it does not list.
    pub(crate) fn learn_command(&self, found: &[Asked]) {
        self.commands.rcu(|commands| {
            commands.as_ref().map(|commands| {
                let mut commands = ForeignTable::clone(commands);
                for (name, spec) in found {
                    commands.learn(name, *spec);
                }
                Arc::new(commands)
            })
        });
    }

    /// What a client may do before it logs in.
    pub(crate) fn without_login(&self) -> WithoutLogin {
        WithoutLogin::from_number(self.without_login.load(Ordering::Relaxed))
    }

    /// Whether a client has to log in before it may send much.
    pub(crate) fn wants_password(&self) -> bool {
        self.without_login() == WithoutLogin::Nothing
    }

    /// The same, or that is unknown.
    pub(crate) fn may_want_password(&self) -> bool {
        matches!(self.without_login(), WithoutLogin::Nothing | WithoutLogin::Unknown)
    }

    pub(crate) fn set_without_login(&self, found: WithoutLogin) {
        self.without_login.store(found as u8, Ordering::Relaxed);
    }

    /// Counts the servers that have been behind the backend's name: connections of an older era may lead to a server
    /// that takes no writes any more.
    pub(crate) fn era(&self) -> u64 {
        self.connections.era()
    }

    /// Another server is behind the name now, or the same one as a replica. Returns the number of the new era.
    pub(crate) fn begin_era(&self) -> u64 {
        self.connections.begin_era()
    }

    /// Whether connections of this era were cut: bytes on one came from a server that is not followed any more.
    pub(crate) fn is_left(&self, era: u64) -> bool {
        self.connections.are_cut(era)
    }

    /// Cuts every connection of an older era, whatever is under way there: it may lead to a server that goes on
    /// taking writes, all of which will be lost. Returns how many were cut.
    pub(crate) fn cut_older(&self) -> usize {
        self.connections.cut_older()
    }

    /// Since when the server has been the primary; `None` if that is not known yet.
    pub fn reckoned(&self) -> Option<Arc<Reckoned>> {
        self.reckoned.load_full()
    }

    pub(crate) fn set_reckoned(&self, reckoned: Option<Reckoned>) {
        if reckoned.is_none() {
            self.unreckoned.store(Arc::new(Instant::now()));
        }
        self.reckoned.store(reckoned.map(Arc::new));
    }

    /// Waits until it is known since when the server has been the primary, but not for long: an extension that is
    /// refused meanwhile would cost a holder its lock, and sentinels inform each other of a failover within two
    /// seconds.
    pub(crate) async fn era_settles(&self) {
        while self.reckoned.load().is_none() && self.unreckoned.load().elapsed() < SETTLES_WITHIN {
            tokio::time::sleep(SETTLES_EVERY).await;
        }
    }

    /// Where the keys are kept that belong to no lock; `None` until the server has said so, and for a node of a
    /// cluster that has no slots or does not say which.
    pub fn home(&self) -> Option<Home> {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in whether it is a node of a cluster, and where those keys are kept. Returns whether they were elsewhere
    /// before.
    pub(crate) fn set_home(&self, in_cluster: bool, home: Option<Home>) -> bool {
        self.in_cluster.store(in_cluster, Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.home.lock().unwrap_or_else(PoisonError::into_inner), home);
        before != home
    }

    /// Takes in the addresses of the nodes of its cluster.
    pub(crate) fn set_nodes(&self, nodes: Vec<IpAddr>) {
        if **self.nodes.load() != nodes {
            self.nodes.store(Arc::new(nodes));
        }
    }

    /// Whether a node of its cluster has this address.
    pub(crate) fn is_node_at(&self, address: IpAddr) -> bool {
        self.nodes.load().contains(&address)
    }

    /// Whether it is a node of a cluster.
    pub(crate) fn in_cluster(&self) -> bool {
        self.in_cluster.load(Ordering::Relaxed)
    }

    /// How many locks one call may name: in a cluster one, as the next may be in another slot.
    pub(crate) fn locks_a_call(&self, most: usize) -> usize {
        if self.in_cluster() { 1 } else { most }
    }

    /// At the backend's address, another server has answered than the one that the proxy's own connection leads to.
    pub(crate) fn another_answered(&self) {
        self.another.store(true, Ordering::Relaxed);
        self.doubt();
    }

    /// Whether another one has answered since the last call.
    pub(crate) fn take_another(&self) -> bool {
        self.another.swap(false, Ordering::Relaxed)
    }

    /// A client found that its connection leads to a replica: the next heartbeat is due now.
    pub fn doubt(&self) {
        self.doubts.notify_one();
    }

    /// When it was asked at this moment, it said that it is the primary, or a replica that is read like one.
    pub(crate) fn was_asked(&self, at: Instant) {
        self.asked.store(Arc::new(at));
    }

    /// Whether it was asked after this, and said so.
    pub(crate) fn was_asked_since(&self, then: Instant) -> bool {
        **self.asked.load() >= then
    }

    /// Waits until there are doubts.
    pub(crate) async fn is_doubted(&self) {
        self.doubts.notified().await;
    }

    pub(crate) fn names_scripts(&self) -> NamesScripts {
        match self.names_scripts.load(Ordering::Relaxed) {
            1 => NamesScripts::Yes,
            2 => NamesScripts::No,
            _ => NamesScripts::Unknown,
        }
    }

    pub(crate) fn set_names_scripts(&self, names: bool) {
        let value = if names { 1 } else { 2 };
        self.names_scripts.store(value, Ordering::Relaxed);
    }

    pub(crate) fn scripts(&self) -> Scripts {
        match self.scripts.load(Ordering::Relaxed) {
            1 => Scripts::Unknown,
            2 => Scripts::Refused,
            _ => Scripts::Run,
        }
    }

    /// Whether no lock can be governed, because the server runs no scripts.
    pub(crate) fn lacks_scripts(&self) -> bool {
        self.scripts() != Scripts::Run
    }

    pub(crate) fn set_scripts(&self, scripts: Scripts) {
        self.scripts.store(scripts as u8, Ordering::Relaxed);
    }

    /// Whether the proxy's own connections may log in, or need not.
    pub(crate) fn may_ask(&self) -> bool {
        self.may_ask.load(Ordering::Relaxed)
    }

    pub(crate) fn set_may_ask(&self, may: bool) {
        self.may_ask.store(may, Ordering::Relaxed);
        self.has_answered.notify_one();
    }

    /// Commands that steps take and the server was found not to have, by their ACL names: no right helps.
    pub(crate) fn set_absent(&self, commands: Vec<String>) {
        self.absent.store(Some(Arc::new(commands)));
    }

    /// Those of these that the server was found not to have, and the rights that are then still missing.
    pub(crate) fn without_absent(&self, missing: Missing) -> (Vec<String>, Missing) {
        let absent = self.absent.load_full().unwrap_or_default();
        let absent: Vec<String> = absent.iter().filter(|command| missing.names(command)).cloned().collect();
        let missing = missing.but(&absent.iter().map(String::as_str).collect::<Vec<_>>());
        (absent, missing)
    }

    /// Waits until the server was asked for that.
    pub(crate) async fn answered(&self) {
        self.has_answered.notified().await;
    }

    /// What it says it is, for example `redis 7.0.15`, once it was asked and has answered.
    pub fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
    }

    /// Whether it reads flags in the first line of a script (`#!lua flags=…`), according to its version.
    pub(crate) fn reads_script_flags(&self) -> bool {
        self.reads_flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_version(&self, version: &str) {
        let reads_flags = match version.split_once(' ') {
            // Flags came with Redis 7.0, and every Valkey is younger.
            Some(("valkey", _)) => true,
            Some((_, number)) => {
                let major = number.split('.').next();
                major.and_then(|major| major.parse().ok()) >= Some(7)
            }
            None => false,
        };
        self.reads_flags.store(reads_flags, Ordering::Relaxed);
        let version = (!version.is_empty()).then(|| Arc::new(version.to_owned()));
        self.version.store(version);
    }
}

/// The text used wherever `eviction` finds a policy.
pub const EVICTION_TAKES_LOCKS: &str = "when its memory is full, Redis drops locks that are held, and their \
     records; set noeviction, or keep locks in a Redis of their own";

/// The `maxmemory-policy`, if it may drop locks or their records: `allkeys-*` drops any key, `volatile-*` those with
/// a TTL, which locks and records have. Without `maxmemory` no key is ever dropped.
pub(crate) fn eviction(info: &str) -> Option<String> {
    let policy = info_field(info, "maxmemory_policy:")?;
    let takes_locks = policy.starts_with("allkeys") || policy.starts_with("volatile");
    let is_limited = info_field(info, "maxmemory:").is_none_or(|bytes| bytes != "0");
    (takes_locks && is_limited).then(|| policy.to_owned())
}

/// Asks a server what it is. What it allows without a login was asked over another connection. A server that has no
/// `INFO`, or refuses it to a user who has logged in, is assumed to be fit, and asked the rest.
pub async fn ask(
    own: &mut Conversation,
    without_login: WithoutLogin,
) -> Result<(Report, Option<ForeignTable>), BackendError> {
    let mut report = Report { without_login, ..Report::default() };
    let info = own.ask(&["INFO"]).await?;
    let info = match &info {
        Value::Bulk(info) => info,
        // It will answer later; what it says now is about a script that runs for long.
        Value::Error(text) if is_for_now(text) => {
            return Err(BackendError::NotNow(String::from_utf8_lossy(text).into_owned()));
        }
        Value::Error(text) if text.starts_with(b"ERR unknown command") => &Bytes::new(),
        // A connection that has not logged in gets NOAUTH.
        Value::Error(text) if text.starts_with(b"NOPERM") => &Bytes::new(),
        // The proxy's user may not ask; such a server is assumed to be fit.
        _ => return Ok((report, None)),
    };
    report.may_ask = true;
    let info = String::from_utf8_lossy(info);
    let field = |name: &str| info_field(&info, name);
    report.cluster = field("cluster_enabled:") == Some("1") || field("redis_mode:") == Some("cluster");
    report.version = match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("valkey {version}"),
        (None, Some(version)) => format!("redis {version}"),
        (None, None) => String::new(),
    };
    if info.is_empty() {
        // Every user may send `HELLO`, and every server answers it from 6.0 on.
        report.cluster = role::is_cluster_node(&own.ask(&["HELLO"]).await?);
    }
    report.run_id = field("run_id:").unwrap_or_default().to_owned();
    report.eviction = eviction(&info);
    report.timeout = ask_timeout(own).await?;
    Ok((report, ask_commands(own).await?))
}

/// After how many seconds the server closes idle connections, if it says so.
pub(crate) async fn ask_timeout(own: &mut Conversation) -> Result<Option<u64>, BackendError> {
    let answer = own.ask(&["CONFIG", "GET", "timeout"]).await?;
    let seconds = answer.as_items().and_then(|items| items.get(1)?.as_bytes());
    let seconds = seconds.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Ok(seconds)
}

/// The server's commands, if it lists them. `COMMAND` lists the names that commands were made with. `COMMAND INFO`
/// looks them up as a client would, and so shows whether they still have these names.
pub(crate) async fn ask_commands(own: &mut Conversation) -> Result<Option<ForeignTable>, BackendError> {
    let listed = own.ask(&["COMMAND"]).await?;
    let Some(mut table) = listed.as_items().map(foreign_table) else {
        return Ok(None);
    };
    let mut question = vec!["COMMAND", "INFO"];
    question.extend(table.names().filter_map(|name| std::str::from_utf8(name).ok()));
    let found = own.ask(&question).await?;
    if found.as_items().is_some_and(|rows| rows.iter().any(is_missing)) {
        table.note_other_names();
    }
    let about_set = own.ask(&["COMMAND", "DOCS", "SET"]).await?;
    table.note_set_conditions(|word| says(&about_set, word.as_bytes()));
    Ok(Some(table))
}

/// Whether a word occurs anywhere in a reply.
fn says(value: &Value, word: &[u8]) -> bool {
    match value.as_items() {
        Some(items) => items.iter().any(|item| says(item, word)),
        None => value.as_bytes().is_some_and(|bytes| bytes.eq_ignore_ascii_case(word)),
    }
}

/// `COMMAND`'s reply as a table; invalid rows are skipped.
fn foreign_table(rows: &[Value]) -> ForeignTable {
    let mut table = ForeignTable::default();
    for row in rows {
        add(&mut table, row);
    }
    table
}

fn add(table: &mut ForeignTable, row: &Value) -> Option<()> {
    let fields = row.as_items()?;
    table.insert(fields.first()?.as_bytes()?, spec_of(fields)?);
    for sub in fields.get(9).and_then(Value::as_items).unwrap_or_default() {
        add(table, sub);
    }
    Some(())
}

/// The command that a row describes.
fn spec_of(fields: &[Value]) -> Option<ForeignSpec> {
    let flags = fields.get(2)?.as_items()?;
    let has = |flag: &str| {
        let mut flags = flags.iter().filter_map(Value::as_bytes);
        flags.any(|word| word == flag.as_bytes())
    };
    let number = |at: usize| fields.get(at).and_then(Value::as_integer);
    let categories = fields.get(6).and_then(Value::as_items);
    Some(ForeignSpec {
        arity: number(1)?,
        write: has("write"),
        readonly: has("readonly"),
        movable_keys: has("movablekeys"),
        first: number(3)?,
        last: number(4)?,
        step: number(5)?,
        categories: categories
            .map(|words| Categories::of(words.iter().filter_map(|word| word.as_bytes().map(|word| &word[..])))),
    })
}

/// A name that a client sent, with `|` and a subcommand or without, and the command that has this name.
pub type Asked = (Vec<u8>, Option<ForeignSpec>);

/// Which command has a name that `COMMAND` does not list, and which subcommands it has; empty if the server does not
/// say.
pub(crate) async fn ask_name(own: &mut Conversation, name: &[u8]) -> Result<Vec<Asked>, BackendError> {
    let answer = own.ask(&[b"COMMAND".as_slice(), b"INFO", name]).await?;
    let Some(row) = answer.as_items().and_then(<[Value]>::first) else {
        return Ok(Vec::new());
    };
    let fields = row.as_items().unwrap_or_default();
    let mut found = vec![(name.to_owned(), spec_of(fields))];
    let subcommands = fields.get(9).and_then(Value::as_items).unwrap_or_default();
    for fields in subcommands.iter().filter_map(Value::as_items) {
        // The server still gives the family's old name.
        let own = fields.first().and_then(|own| own.as_bytes());
        let bar = own.and_then(|own| own.iter().position(|byte| *byte == b'|'));
        if let (Some(own), Some(bar)) = (own, bar) {
            found.push(([name, &own[bar..]].concat(), spec_of(fields)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_command_become_a_table() {
        let text = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        let flags = Value::Array(vec![Value::Simple(Bytes::from_static(b"write"))]);
        let numbers = [1, 1, 1].map(Value::Integer);
        let mut row = vec![text("json.set"), Value::Integer(-4), flags];
        row.extend(numbers);
        let table = foreign_table(&[Value::Array(row), Value::Null, Value::Array(vec![])]);
        assert_eq!(table.len(), 1);
    }
}
