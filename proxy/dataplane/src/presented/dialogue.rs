//! One client of a sentinel: a request comes in, and its reply is written after those before it. Does no I/O and
//! reads no clock. Replies are those of Redis's Sentinel; commands that it refuses but libraries send nevertheless
//! (`AUTH`, `ECHO`, `QUIT`, `RESET`, `CLIENT SETINFO`) are answered as by Redis.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::net::peer::PeerAddress;
use lockwarden_control::text::unknown_command::{MAX_REPEATED, cut, unknown_command};
use lockwarden_resp::{Protocol, Request, Value, put_error, put_null_array, put_value};

use super::answer::{Answer, bulk, simple, text, wrong_number};
use super::commands::{
    self, About, CLIENT, COMMAND, COMMANDS, ClientVerb, CommandVerb, Row, SENTINEL, SentinelVerb, Verb,
};
use super::sentinel::{REDIS_VERSION, Sentinel};
use super::subscriptions::{Kind, Subscriptions, TooMany};

const NO_SUCH_MASTER: &str = "ERR No such master with that name";
const BAD_CLIENT_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
const TOO_MANY: &[u8] = b"ERR too many subscriptions for one client of a sentinel";
const CHANGES_NOTHING: &str = "ERR lockwarden only says here where it is itself; ask the sentinels of Redis for this";
const HELP: &[&str] = &[
    "SENTINEL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CKQUORUM <master-name>",
    "    Count the sentinels that are configured as peers, and this one.",
    "GET-MASTER-ADDR-BY-NAME <master-name>",
    "    Return where clients of lockwarden connect.",
    "MASTER <master-name>",
    "    Show the same as a master.",
    "MASTERS",
    "    Show it by every name that it has.",
    "MYID",
    "    Return the ID of this sentinel.",
    "REPLICAS <master-name>",
    "    Show none: clients are not led past lockwarden.",
    "SENTINELS <master-name>",
    "    Show the sentinels that are configured as peers.",
    "HELP",
    "    Print this help.",
];

/// Whether further requests of the client are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    Close,
}

/// See the module.
pub(super) struct Dialogue<'a> {
    sentinel: &'a Sentinel,
    /// The number of the connection.
    number: i64,
    peer: PeerAddress,
    /// The address that the client connected to.
    entrance: SocketAddr,
    since: Instant,
    protocol: Protocol,
    name: Bytes,
    subscriptions: Subscriptions,
}

impl<'a> Dialogue<'a> {
    pub(super) fn new(sentinel: &'a Sentinel, peer: PeerAddress, entrance: SocketAddr, now: Instant) -> Dialogue<'a> {
        Dialogue {
            sentinel,
            number: sentinel.next_connection(),
            peer,
            entrance,
            since: now,
            protocol: Protocol::Resp2,
            name: Bytes::new(),
            subscriptions: Subscriptions::default(),
        }
    }

    /// Writes the reply to one request.
    pub(super) fn answer(&mut self, request: Request<'_>, now: Instant, out: &mut BytesMut) -> Next {
        match self.reply(request, now) {
            Answer::Value(value) => put_value(out, &value, self.protocol),
            Answer::Several(values) => {
                for value in values {
                    put_value(out, &value, self.protocol);
                }
            }
            Answer::NoArray => put_null_array(out, self.protocol),
            Answer::Error(text) => put_error(out, text),
            Answer::Goodbye => {
                put_value(out, &simple("OK"), self.protocol);
                return Next::Close;
            }
        }
        Next::GoOn
    }

    fn reply(&mut self, request: Request<'_>, now: Instant) -> Answer {
        let Some(row) = commands::find(COMMANDS, request.name()) else {
            return Answer::Error(unknown_command(request, true));
        };
        if !row.takes(request.len()) {
            return wrong_number(row.name);
        }
        let while_subscribed = match row.verb {
            Verb::Ping | Verb::Quit | Verb::Reset | Verb::Subscribe(_) | Verb::Unsubscribe(_) => true,
            Verb::Auth | Verb::Client | Verb::Command | Verb::Echo | Verb::Hello | Verb::Info => false,
            Verb::Publish | Verb::Role | Verb::Sentinel => false,
        };
        if self.only_listens() && !while_subscribed {
            return format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                whole_name(row, request)
            )
            .as_str()
            .into();
        }
        match row.verb {
            Verb::Ping => self.ping(request),
            Verb::Echo => bulk(request.arg(1)).into(),
            // A password would protect nothing here.
            Verb::Auth if request.len() > 3 => "ERR syntax error".into(),
            Verb::Auth => simple("OK").into(),
            Verb::Hello => self.hello(request),
            Verb::Client => self.client(request, now),
            Verb::Command => command(request),
            Verb::Info => {
                let words: Vec<&[u8]> = (1..request.len()).map(|at| request.arg(at)).collect();
                text(self.sentinel.info(&words, self.entrance.ip(), now)).into()
            }
            Verb::Role => self.sentinel.role().into(),
            Verb::Sentinel => self.sentinel(request, now),
            Verb::Publish => "ERR Only HELLO messages are accepted by Sentinel instances.".into(),
            Verb::Subscribe(kind) => self.subscribe(kind, request),
            Verb::Unsubscribe(kind) => self.unsubscribe(kind, request),
            Verb::Reset => {
                self.protocol = Protocol::Resp2;
                self.name = Bytes::new();
                self.subscriptions = Subscriptions::default();
                simple("RESET").into()
            }
            Verb::Quit => Answer::Goodbye,
        }
    }

    /// Whether most commands are refused, because a client of RESP2 could not tell their replies from published
    /// messages.
    fn only_listens(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions.count() > 0
    }

    fn subscribe(&mut self, kind: Kind, request: Request<'_>) -> Answer {
        let mut confirmations = Vec::new();
        for at in 1..request.len() {
            let name = request.arg(at);
            confirmations.push(match self.subscriptions.add(kind, name) {
                Ok(()) => self.confirm(verb_of(kind, true), bulk(name)),
                Err(TooMany) => Value::Error(Bytes::from_static(TOO_MANY)),
            });
        }
        Answer::Several(confirmations)
    }

    fn unsubscribe(&mut self, kind: Kind, request: Request<'_>) -> Answer {
        let mut names: Vec<Bytes> = (1..request.len()).map(|at| Bytes::copy_from_slice(request.arg(at))).collect();
        if request.len() == 1 {
            names = self.subscriptions.all(kind);
            if names.is_empty() {
                let none = self.confirm(verb_of(kind, false), Value::Null);
                return Answer::Several(vec![none]);
            }
        }
        let mut confirmations = Vec::new();
        for name in names {
            self.subscriptions.remove(kind, &name);
            confirmations.push(self.confirm(verb_of(kind, false), Value::Bulk(name)));
        }
        Answer::Several(confirmations)
    }

    fn confirm(&self, verb: &str, name: Value) -> Value {
        let count = i64::try_from(self.subscriptions.count()).unwrap_or(i64::MAX);
        Value::Push(vec![text(verb), name, Value::Integer(count)])
    }

    fn ping(&self, request: Request<'_>) -> Answer {
        let said = match request.len() {
            1 => None,
            2 => Some(request.arg(1)),
            _ => return wrong_number("ping"),
        };
        match (said, self.only_listens()) {
            (said, true) => {
                let said = bulk(said.unwrap_or_default());
                Value::Array(vec![text("pong"), said]).into()
            }
            (None, false) => simple("PONG").into(),
            (Some(said), false) => bulk(said).into(),
        }
    }

    fn hello(&mut self, request: Request<'_>) -> Answer {
        let mut protocol = self.protocol;
        if request.len() > 1 {
            let version = std::str::from_utf8(request.arg(1)).ok();
            protocol = match version.and_then(|version| version.parse::<i64>().ok()) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return "NOPROTO unsupported protocol version".into(),
                None => return "ERR Protocol version is not an integer or out of range".into(),
            };
        }
        let mut name = None;
        let mut at = 2;
        while at < request.len() {
            let option = request.arg(at);
            let behind = request.len() - at - 1;
            if option.eq_ignore_ascii_case(b"AUTH") && behind >= 2 {
                at += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && behind >= 1 {
                name = Some(request.arg(at + 1));
                at += 2;
            } else {
                let mut error = b"ERR Syntax error in HELLO option '".to_vec();
                error.extend_from_slice(cut(option, MAX_REPEATED));
                error.push(b'\'');
                return Answer::Error(error);
            }
        }
        if let Some(name) = name {
            if !is_client_name(name) {
                return BAD_CLIENT_NAME.into();
            }
            self.name = Bytes::copy_from_slice(name);
        }
        self.protocol = protocol;
        let proto = match protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        let greeting = [
            ("server", text("redis")),
            ("version", text(REDIS_VERSION)),
            ("proto", Value::Integer(proto)),
            ("id", Value::Integer(self.number)),
            ("mode", text("sentinel")),
            ("modules", Value::Array(Vec::new())),
        ];
        Value::Map(greeting.map(|(key, value)| (text(key), value)).into()).into()
    }

    fn client(&mut self, request: Request<'_>, now: Instant) -> Answer {
        let row = match subcommand(CLIENT, "client", request) {
            Ok(row) => row,
            Err(error) => return error,
        };
        match row.verb {
            ClientVerb::GetName if self.name.is_empty() => Value::Null.into(),
            ClientVerb::GetName => Value::Bulk(self.name.clone()).into(),
            ClientVerb::Id => Value::Integer(self.number).into(),
            ClientVerb::Indifferent | ClientVerb::SetInfo => simple("OK").into(),
            ClientVerb::SetName if !is_client_name(request.arg(2)) => BAD_CLIENT_NAME.into(),
            ClientVerb::SetName => {
                self.name = Bytes::copy_from_slice(request.arg(2));
                simple("OK").into()
            }
            ClientVerb::Info => {
                Value::Verbatim { format: Bytes::from_static(b"txt"), data: Bytes::from(self.line(now)) }.into()
            }
        }
    }

    /// The connection as `CLIENT INFO` shows it.
    fn line(&self, now: Instant) -> String {
        let age = now.saturating_duration_since(self.since).as_secs();
        format!(
            "id={} addr={} laddr={} name={} age={age} idle=0 flags=N db=0 sub={} psub={} cmd=client|info user=default resp={}\n",
            self.number,
            self.peer,
            self.entrance,
            String::from_utf8_lossy(&self.name),
            self.subscriptions.all(Kind::Channel).len(),
            self.subscriptions.all(Kind::Pattern).len(),
            match self.protocol {
                Protocol::Resp2 => 2,
                Protocol::Resp3 => 3,
            }
        )
    }

    fn sentinel(&self, request: Request<'_>, now: Instant) -> Answer {
        let row = match subcommand(SENTINEL, "sentinel", request) {
            Ok(row) => row,
            Err(error) => return error,
        };
        let (sentinel, entrance) = (self.sentinel, self.entrance.ip());
        let about = match row.verb {
            SentinelVerb::Masters => return sentinel.masters(entrance, now).into(),
            SentinelVerb::Myid => return text(sentinel.id()).into(),
            SentinelVerb::Help => {
                return Value::Array(HELP.iter().map(|line| simple(line)).collect()).into();
            }
            SentinelVerb::Change => return CHANGES_NOTHING.into(),
            SentinelVerb::Of(about) => about,
        };
        match (about, sentinel.name(request.arg(2))) {
            (About::Address, None) => Answer::NoArray,
            (_, None) => NO_SUCH_MASTER.into(),
            (About::Address, Some(_)) => sentinel.address(entrance).into(),
            (About::Fields, Some(name)) => sentinel.master(name, entrance, now).into(),
            (About::Sentinels, Some(_)) => sentinel.sentinels().into(),
            // Clients must not be led past the proxy.
            (About::Replicas, Some(_)) => Value::Array(Vec::new()).into(),
            (About::Quorum, Some(_)) => simple(&format!(
                "OK {} usable Sentinels. Quorum and failover authorization can be reached",
                sentinel.all()
            ))
            .into(),
        }
    }
}

/// The reply to `COMMAND` about the commands that exist.
fn command(request: Request<'_>) -> Answer {
    if request.len() == 1 {
        return Value::Array(COMMANDS.iter().map(described).collect()).into();
    }
    let row = match subcommand(COMMAND, "command", request) {
        Ok(row) => row,
        Err(error) => return error,
    };
    match row.verb {
        CommandVerb::Count => Value::Integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX)).into(),
        CommandVerb::Docs => Value::Map(Vec::new()).into(),
        CommandVerb::List => Value::Array(COMMANDS.iter().map(|row| text(row.name)).collect()).into(),
        CommandVerb::Info => {
            let wanted = (2..request.len()).map(|at| commands::find(COMMANDS, request.arg(at)));
            let rows = wanted.map(|row| row.map_or(Value::Null, described));
            Value::Array(rows.collect()).into()
        }
    }
}

/// Name, arity, flags, three places of keys, categories, hints, keys, subcommands.
fn described(row: &Row<Verb>) -> Value {
    let none = || Value::Array(Vec::new());
    let mut fields = vec![text(row.name), Value::Integer(i64::from(row.arity))];
    fields.push(Value::Set(vec![simple("sentinel")]));
    fields.extend([0, 0, 0].map(Value::Integer));
    fields.push(Value::Set(Vec::new()));
    fields.extend([none(), none(), none()]);
    Value::Array(fields)
}

/// The row of the second argument, which must be there.
fn subcommand<V>(table: &'static [Row<V>], container: &str, request: Request<'_>) -> Result<&'static Row<V>, Answer> {
    let name = request.arg(1);
    match commands::find(table, name) {
        Some(row) if row.takes(request.len()) => Ok(row),
        Some(row) => Err(wrong_number(&format!("{container}|{}", row.name))),
        None => {
            let mut error = b"ERR unknown subcommand '".to_vec();
            error.extend_from_slice(cut(name, MAX_REPEATED));
            let advice = format!("'. Try {} HELP.", container.to_uppercase());
            error.extend_from_slice(advice.as_bytes());
            Err(Answer::Error(error))
        }
    }
}

/// The name of a command with that of its subcommand, in lower case.
fn whole_name(row: &Row<Verb>, request: Request<'_>) -> String {
    let behind = (request.len() > 1).then(|| request.arg(1));
    let name_in = |names: Option<&'static str>| match names {
        Some(name) => format!("{}|{name}", row.name),
        None => row.name.to_owned(),
    };
    match (row.verb, behind) {
        (Verb::Client, Some(name)) => name_in(commands::find(CLIENT, name).map(|row| row.name)),
        (Verb::Command, Some(name)) => name_in(commands::find(COMMAND, name).map(|row| row.name)),
        (Verb::Sentinel, Some(name)) => name_in(commands::find(SENTINEL, name).map(|row| row.name)),
        _ => row.name.to_owned(),
    }
}

fn verb_of(kind: Kind, begins: bool) -> &'static str {
    match (kind, begins) {
        (Kind::Channel, true) => "subscribe",
        (Kind::Channel, false) => "unsubscribe",
        (Kind::Pattern, true) => "psubscribe",
        (Kind::Pattern, false) => "punsubscribe",
    }
}

fn is_client_name(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}
