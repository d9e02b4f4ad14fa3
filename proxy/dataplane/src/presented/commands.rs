//! The commands that a listener answers as a Sentinel, with the numbers of arguments that Redis requires.

use super::subscriptions::Kind;

/// A command or subcommand.
pub(super) struct Row<V> {
    /// In lower case.
    pub(super) name: &'static str,
    /// How many arguments, including all names; if negative, at least this many, as Redis writes it.
    pub(super) arity: i8,
    pub(super) verb: V,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Auth,
    Client,
    Command,
    Echo,
    Hello,
    Info,
    Ping,
    Publish,
    Quit,
    Reset,
    Role,
    Sentinel,
    Subscribe(Kind),
    Unsubscribe(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientVerb {
    GetName,
    Id,
    Info,
    /// Whether the connection may be closed, or touches keys, does not matter here.
    Indifferent,
    SetInfo,
    SetName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandVerb {
    Count,
    Docs,
    Info,
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentinelVerb {
    Help,
    Masters,
    Myid,
    /// About the primary of a name.
    Of(About),
    /// Commands that would change a real Sentinel.
    Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Address,
    Fields,
    Quorum,
    Replicas,
    Sentinels,
}

const fn row<V>(name: &'static str, arity: i8, verb: V) -> Row<V> {
    Row { name, arity, verb }
}

pub(super) const COMMANDS: &[Row<Verb>] = &[
    row("auth", -2, Verb::Auth),
    row("client", -2, Verb::Client),
    row("command", -1, Verb::Command),
    row("echo", 2, Verb::Echo),
    row("hello", -1, Verb::Hello),
    row("info", -1, Verb::Info),
    row("ping", -1, Verb::Ping),
    row("psubscribe", -2, Verb::Subscribe(Kind::Pattern)),
    row("publish", 3, Verb::Publish),
    row("punsubscribe", -1, Verb::Unsubscribe(Kind::Pattern)),
    row("quit", -1, Verb::Quit),
    row("reset", 1, Verb::Reset),
    row("role", 1, Verb::Role),
    row("sentinel", -2, Verb::Sentinel),
    row("subscribe", -2, Verb::Subscribe(Kind::Channel)),
    row("unsubscribe", -1, Verb::Unsubscribe(Kind::Channel)),
];

pub(super) const CLIENT: &[Row<ClientVerb>] = &[
    row("getname", 2, ClientVerb::GetName),
    row("id", 2, ClientVerb::Id),
    row("info", 2, ClientVerb::Info),
    row("no-evict", 3, ClientVerb::Indifferent),
    row("no-touch", 3, ClientVerb::Indifferent),
    row("setinfo", 4, ClientVerb::SetInfo),
    row("setname", 3, ClientVerb::SetName),
];

pub(super) const COMMAND: &[Row<CommandVerb>] = &[
    row("count", 2, CommandVerb::Count),
    row("docs", -2, CommandVerb::Docs),
    row("info", -2, CommandVerb::Info),
    row("list", -2, CommandVerb::List),
];

pub(super) const SENTINEL: &[Row<SentinelVerb>] = &[
    row("ckquorum", 3, SentinelVerb::Of(About::Quorum)),
    row("config", -3, SentinelVerb::Change),
    row("debug", -2, SentinelVerb::Change),
    row("failover", 3, SentinelVerb::Change),
    row("flushconfig", 2, SentinelVerb::Change),
    row("get-master-addr-by-name", 3, SentinelVerb::Of(About::Address)),
    row("help", 2, SentinelVerb::Help),
    row("master", 3, SentinelVerb::Of(About::Fields)),
    row("masters", 2, SentinelVerb::Masters),
    row("monitor", 6, SentinelVerb::Change),
    row("myid", 2, SentinelVerb::Myid),
    row("remove", 3, SentinelVerb::Change),
    row("replicas", 3, SentinelVerb::Of(About::Replicas)),
    row("reset", 3, SentinelVerb::Change),
    row("sentinels", 3, SentinelVerb::Of(About::Sentinels)),
    row("set", -5, SentinelVerb::Change),
    row("simulate-failure", -3, SentinelVerb::Change),
    row("slaves", 3, SentinelVerb::Of(About::Replicas)),
];

/// The row of a name in any case.
pub(super) fn find<'a, V>(table: &'a [Row<V>], name: &[u8]) -> Option<&'a Row<V>> {
    let is_it = |row: &&Row<V>| row.name.as_bytes().eq_ignore_ascii_case(name);
    table.iter().find(is_it)
}

impl<V> Row<V> {
    /// Whether it may have this many arguments, including all names.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        match self.arity < 0 {
            true => arguments >= wanted,
            false => arguments == wanted,
        }
    }
}
