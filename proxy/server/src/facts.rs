//! What is known of the server: whether it is there, whether it may be served, what commands it
//! has. Asked by the upkeep connection; sessions and `/ready` only read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use lockwarden_lock::table::{ForeignSpec, ForeignTable};
use lockwarden_resp::Value;

use crate::backend::{BackendError, Conversation};

/// Whether clients can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// They can.
    Serving,
    /// They cannot; why, in one line.
    NotServing(String),
}

/// What the server said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// For example `redis 7.0.15`; empty where the proxy may not ask.
    pub(crate) version: String,
    /// It is part of a Redis Cluster.
    pub(crate) cluster: bool,
    /// It lets anybody in without a password.
    pub(crate) open: bool,
    /// The proxy's own connection is logged in, or needs no login.
    pub(crate) may_ask: bool,
    /// Keys may be evicted whatever their TTL.
    pub(crate) evicts_all: bool,
}

/// The server as known now.
pub(crate) struct Server {
    standing: ArcSwap<Standing>,
    commands: ArcSwapOption<ForeignTable>,
    wants_password: AtomicBool,
    names_scripts: AtomicU8,
    version: ArcSwapOption<String>,
}

/// Whether the server puts the name of a script into the errors that it raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesScripts {
    /// Nobody has looked yet.
    Unknown,
    /// `script: 1f2e…, on @user_script:1.`
    Yes,
    /// `script: on @user_script:1.`, as Valkey 9 does.
    No,
}

impl Default for Server {
    fn default() -> Server {
        let standing = Standing::NotServing("the backend has not answered yet".into());
        Server {
            standing: ArcSwap::from_pointee(standing),
            commands: ArcSwapOption::empty(),
            wants_password: AtomicBool::new(false),
            names_scripts: AtomicU8::new(0),
            version: ArcSwapOption::empty(),
        }
    }
}

impl Server {
    pub(crate) fn standing(&self) -> Arc<Standing> {
        self.standing.load_full()
    }

    /// Answers whether that is news.
    pub(crate) fn set_standing(&self, standing: Standing) -> bool {
        let before = self.standing.swap(Arc::new(standing.clone()));
        *before != standing
    }

    /// The server's own commands, once they are known.
    pub(crate) fn commands(&self) -> arc_swap::Guard<Option<Arc<ForeignTable>>> {
        self.commands.load()
    }

    pub(crate) fn set_commands(&self, commands: ForeignTable) {
        self.commands.store(Some(Arc::new(commands)));
    }

    /// Whether a client has to log in before it may send much.
    pub(crate) fn wants_password(&self) -> bool {
        self.wants_password.load(Ordering::Relaxed)
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

    /// What it says it is, for example `redis 7.0.15`, once it was asked and said so.
    pub(crate) fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
    }

    pub(crate) fn set_version(&self, version: &str) {
        let version = (!version.is_empty()).then(|| Arc::new(version.to_owned()));
        self.version.store(version);
    }

    pub(crate) fn set_wants_password(&self, wants: bool) {
        self.wants_password.store(wants, Ordering::Relaxed);
    }
}

/// Asks a server what it is. `stranger` is a connection that did not log in.
pub(crate) async fn ask(
    own: &mut Conversation,
    stranger: &mut Conversation,
) -> Result<(Report, Option<ForeignTable>), BackendError> {
    let open = !matches!(stranger.ask(&["PING"]).await?, Value::Error(_));
    let mut report = Report {
        open,
        ..Report::default()
    };
    let info = own.ask(&["INFO"]).await?;
    let Value::Bulk(info) = &info else {
        return Ok((report, None));
    };
    report.may_ask = true;
    let info = String::from_utf8_lossy(info);
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    report.cluster =
        field("cluster_enabled:") == Some("1") || field("redis_mode:") == Some("cluster");
    report.version = match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("valkey {version}"),
        (None, Some(version)) => format!("redis {version}"),
        (None, None) => String::new(),
    };
    report.evicts_all =
        field("maxmemory_policy:").is_some_and(|policy| policy.starts_with("allkeys"));
    Ok((report, ask_commands(own).await?))
}

/// The server's commands, if it tells them. `COMMAND` says the names that commands were made with;
/// whether they go by them is told by `COMMAND INFO`, which looks for them as a client would.
pub(crate) async fn ask_commands(
    own: &mut Conversation,
) -> Result<Option<ForeignTable>, BackendError> {
    let listed = own.ask(&["COMMAND"]).await?;
    let Some(mut table) = listed.as_items().map(foreign_table) else {
        return Ok(None);
    };
    let mut question = vec!["COMMAND", "INFO"];
    question.extend(
        table
            .writing()
            .filter_map(|name| std::str::from_utf8(name).ok()),
    );
    let found = own.ask(&question).await?;
    let is_missing = |row: &Value| row.as_items().is_none_or(<[Value]>::is_empty);
    if found
        .as_items()
        .is_some_and(|rows| rows.iter().any(is_missing))
    {
        table.note_other_names();
    }
    Ok(Some(table))
}

/// `COMMAND`'s reply as a table; rows that are no rows are passed over.
fn foreign_table(rows: &[Value]) -> ForeignTable {
    let mut table = ForeignTable::default();
    for row in rows {
        add(&mut table, row);
    }
    table
}

fn add(table: &mut ForeignTable, row: &Value) -> Option<()> {
    let fields = row.as_items()?;
    let name = fields.first()?.as_bytes()?;
    let flags = fields.get(2)?.as_items()?;
    let has = |flag: &str| {
        flags.iter().any(|value| {
            value
                .as_bytes()
                .is_some_and(|bytes| bytes == flag.as_bytes())
        })
    };
    let number = |at: usize| fields.get(at).and_then(Value::as_integer);
    let spec = ForeignSpec {
        arity: number(1)?,
        write: has("write"),
        readonly: has("readonly"),
        movable_keys: has("movablekeys"),
        first: number(3)?,
        last: number(4)?,
        step: number(5)?,
    };
    table.insert(name, spec);
    for sub in fields.get(9).and_then(Value::as_items).unwrap_or_default() {
        add(table, sub);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

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
