//! Operator commands over RESP: the replies of the admin address for people with `redis-cli`. Keys and names are spelled as
//! there, and fields have the same names. This module limits the length of a reply.

use std::str;

use bytes::Bytes;
use lockwarden_console::admin::{Control as _, Leap};
use lockwarden_console::view::api::{Connection, KeyGlob, Lock, LockState, NamedLock};
use lockwarden_console::view::{ConnectionsQuery, LocksQuery, Views};
use lockwarden_control::telemetry::audit;
use lockwarden_control::telemetry::events::Caller;
use lockwarden_control::text::escape::spell;
use lockwarden_dataplane::state::operator::{AnswerOperator, error};
use lockwarden_lock::glob::Glob;
use lockwarden_lock::operator_command::OperatorCommand;
use lockwarden_lock::rules::Mode;
use lockwarden_resp::Value;

use super::control::Controller;

/// Locks or clients in a reply, at most.
const MAX_LISTED: usize = 200;
/// Bytes of their texts, at most, because a key may be long.
const MAX_LISTED_BYTES: usize = 1024 * 1024;
/// Records shown for one id, at most.
const MAX_RECORDS: usize = 8;

/// The text of `LOCKWARDEN HELP`, in the form of Redis's own `HELP`.
const HELP: [&str; 23] = [
    "LOCKWARDEN <subcommand> [<arg> [value] ...]. Subcommands are:",
    "FENCE <key>",
    "    The fencing token of the lease that this connection was granted.",
    "CHECK <key> <fence>",
    "    1 if this fencing token is that of the lease that holds the lock now, else 0.",
    "LEASE <key>",
    "    What is known of the lease that holds the lock, but for the owner token.",
    "LOCKS [<pattern>]",
    "    The locks that are held, those with problems first, then the oldest.",
    "WHY <id>",
    "    One decision in words, by the id of an error reply.",
    "MODE [<namespace>] enforce|monitor [ANYWAY]",
    "    Switch a namespace, or all, until the configuration is loaded again. To enforce what",
    "    the report speaks against takes ANYWAY.",
    "CLIENTS",
    "    Who is connected, those that hold most first, with what each holds and waits for.",
    "HELP",
    "    Print this help.",
    "LOCKS, WHY, MODE and CLIENTS are for admin_identities only. The lists name 200",
    "entries at most; `matching` says how many there are. Keys and names are spelled:",
    "what cannot be printed is \\xNN, a backslash \\\\.",
    "At the proxy's admin address there is more: the lock board, the JSON API and what",
    "`lockwarden help` lists.",
];

impl AnswerOperator for Controller {
    fn answer(&self, command: &OperatorCommand, by: &Caller) -> Value {
        match command {
            OperatorCommand::Locks { pattern } => locks(self.views(), pattern.clone()),
            OperatorCommand::Why { id } => told(self.views(), id),
            OperatorCommand::Mode { namespace, mode, anyway } => {
                self.switch(namespace.as_deref(), *mode, Leap::from(*anyway), by)
            }
            OperatorCommand::Clients => clients(self.views()),
            OperatorCommand::Help => lines(HELP.iter().copied()),
            OperatorCommand::Mistaken { usage, .. } => error(format!("ERR syntax error: {usage}")),
            OperatorCommand::Unknown { word } => {
                let word = spell(word);
                error(format!("ERR unknown subcommand '{word}'. Try LOCKWARDEN HELP."))
            }
        }
    }
}

impl Controller {
    fn switch(&self, namespace: Option<&[u8]>, mode: Mode, leap: Leap, by: &Caller) -> Value {
        let named = match namespace.map(str::from_utf8).transpose() {
            Ok(named) => named,
            Err(_) => return error("ERR no such namespace: its name is no text"),
        };
        match self.set_mode(named, mode.word(), leap, audit::Client::of(by)) {
            Ok(modes) => {
                tracing::info!(
                    client = %by.address,
                    user = spell(&by.user),
                    name = spell(&by.name),
                    namespace = named.unwrap_or("(all)"),
                    mode = mode.word(),
                    "mode set for one of admin_identities"
                );
                let modes = modes.iter();
                Value::Map(modes.map(|(name, mode)| (text(name), text(mode))).collect())
            }
            Err(why) => error(format!("ERR {why}")),
        }
    }
}

fn locks(views: &dyn Views, pattern: Option<Bytes>) -> Value {
    let locks = views.locks(&LocksQuery {
        pattern: pattern.map(|pattern| KeyGlob(Glob::new(pattern))),
        limit: Some(MAX_LISTED),
        ..LocksQuery::default()
    });
    listed(locks.matching, "locks", locks.locks.iter().map(lock))
}

fn lock(lock: &Lock) -> Value {
    let holder = lock.holder.as_ref();
    map([
        ("key", text(&lock.key)),
        ("db", number(lock.db.into())),
        ("namespace", text(&lock.namespace)),
        ("state", text(state(lock.state))),
        ("application", maybe(holder.map(|one| &*one.application))),
        ("address", maybe(holder.map(|one| &*one.address))),
        ("age_ms", number(lock.age_ms)),
        ("ttl_left_ms", lock.ttl_left_ms.map_or(Value::Null, number)),
        ("fence", number(lock.fence)),
        ("waiters", number(lock.waiters)),
        ("seen", text(&lock.seen)),
    ])
}

/// The words of the JSON API.
fn state(state: LockState) -> &'static str {
    match state {
        LockState::Overlap => "overlap",
        LockState::Deadlock => "deadlock",
        LockState::Unknown => "unknown",
        LockState::NoTtl => "no-ttl",
        LockState::Held => "held",
    }
}

fn clients(views: &dyn Views) -> Value {
    let clients = views.connections(&ConnectionsQuery { limit: Some(MAX_LISTED), ..ConnectionsQuery::default() });
    let connections = clients.connections.iter().map(client);
    listed(clients.matching, "clients", connections)
}

fn client(one: &Connection) -> Value {
    let process = one.process.as_ref().map(|process| match &process.program {
        Some(program) => format!("{program} ({})", process.id),
        None => process.id.to_string(),
    });
    map([
        ("session", number(one.session)),
        ("application", text(&one.client.application)),
        ("address", text(&one.client.address)),
        ("name", maybe(one.client.name.as_deref())),
        ("user", maybe(one.client.user.as_deref())),
        ("library", maybe(one.client.library.as_deref())),
        ("certificate", maybe(one.client.certificate.as_deref())),
        ("process", maybe(process.as_deref())),
        ("age_ms", number(one.age_ms)),
        ("holding", number(one.holding)),
        ("holds", Value::Array(one.holds.iter().map(name).collect())),
        ("waiting", number(one.waiting)),
        ("waits_for", Value::Array(one.waits_for.iter().map(name).collect())),
    ])
}

fn name(lock: &NamedLock) -> Value {
    match lock.db {
        0 => text(&lock.key),
        db => text(&format!("{} (db {db})", lock.key)),
    }
}

/// The decision in the words of `lockwarden why`, one line each.
fn told(views: &dyn Views, id: &[u8]) -> Value {
    let id = spell(id);
    let found = views.why(&id);
    if found.is_empty() {
        return error(format!(
            "ERR this proxy does not remember {id}; what is older, or was decided by another proxy, stands in \
             its audit trail"
        ));
    }
    let mut words = Vec::new();
    for why in found.into_iter().take(MAX_RECORDS) {
        words.push(format!("{}: {}", why.id, why.headline));
        let lines = why.lines.into_iter();
        words.extend(lines.map(|line| format!("  {:<8} {}", line.about, line.words)));
    }
    lines(words.iter().map(String::as_str))
}

/// The number of matches, and as many of them as a reply may have.
fn listed(matching: u64, name: &'static str, entries: impl Iterator<Item = Value>) -> Value {
    let mut bytes = 0;
    let entries = entries.take_while(|entry| {
        bytes += size(entry);
        bytes <= MAX_LISTED_BYTES
    });
    let entries = entries.collect();
    map([("matching", number(matching)), (name, Value::Array(entries))])
}

/// Its approximate size in bytes.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, item)| size(key) + size(item)).sum(),
        other => 8 + other.as_bytes().map_or(0, Bytes::len),
    }
}

fn lines<'a>(lines: impl Iterator<Item = &'a str>) -> Value {
    let simple = |line: &str| Value::Simple(Bytes::copy_from_slice(line.as_bytes()));
    Value::Array(lines.map(simple).collect())
}

fn map<const N: usize>(pairs: [(&'static str, Value); N]) -> Value {
    let pairs = pairs.into_iter();
    Value::Map(pairs.map(|(name, value)| (text(name), value)).collect())
}

fn text(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn maybe(some: Option<&str>) -> Value {
    some.map_or(Value::Null, text)
}

fn number(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_where_its_keys_are_long() {
        let long = text(&"k".repeat(MAX_LISTED_BYTES / 3));
        let entries = std::iter::repeat_n(map([("key", long)]), 200);
        let Value::Map(listed) = listed(200, "locks", entries) else {
            panic!("no map");
        };
        assert_eq!(listed[0], (text("matching"), number(200)));
        assert_eq!(listed[1].1.as_items().map(<[Value]>::len), Some(2));
    }
}
