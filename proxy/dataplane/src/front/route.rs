//! Where in a cluster a request is sent: to the shard that has its keys, to any, or to several. Pure: it knows slots
//! and no servers.

use std::sync::Arc;

use lockwarden_lock::companion::slot;
use lockwarden_lock::table::{
    CommandSpec, Effect, ForeignTable, KeySpec, Listing, Lookup, ScriptVerb, SessionVerb, arity_ok,
    for_each_foreign_key, for_each_key, lookup,
};
use lockwarden_resp::Request;

/// Redis's error, without a cluster, for commands about a cluster.
const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";
/// The error for commands that make the connection a part of one server.
const ONE_SERVER: &str = "ERR lockwarden stands before a whole cluster, and this command is about one server: ask that";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To the shard that has this slot.
    Slot(u16),
    /// To any shard, always the same for one client: it names no key.
    Any,
    /// The same, but the reply shows that the server is part of a cluster, which the client must not see.
    AnyInfo,
    /// Its keys are in several slots, and it can be taken apart.
    Split(Parts),
    /// Its keys are in several slots, and it cannot.
    Cross,
    /// To all shards.
    Every(Joined),
    /// To all shards, unless one of them would refuse it.
    Flush,
    /// To all shards, one after the other.
    Scan,
    /// To one shard, drawn at each call.
    Draw,
    /// How many replicas have what was written.
    Wait,
    /// Changes the state of the connection.
    Session(SessionVerb),
    /// `CLIENT CACHING`: for the next command, wherever that goes.
    Caching,
    /// `CLIENT NO-EVICT`, `CLIENT NO-TOUCH`: the state of the connection to every shard.
    Flag,
    /// It is not available to a client of a cluster.
    Refused(&'static str),
    /// Answered with `+OK`; nothing has to be done.
    Okay,
    /// It asks about the cluster that the client is shown, which has only one node.
    Face,
}

/// How the replies to the parts of a request become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// Their sum.
    Sum,
    /// Each in the place of its key.
    InOrder,
    /// `+OK`, if all replied that; the arguments are pairs of key and value.
    Pairs,
}

/// How the replies of all shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Their sum.
    Sum,
    /// All names, one after the other.
    Names,
    /// That of the first, if all agree that it was done.
    First,
    /// At every place, 1 if each shard replied 1 there.
    Everywhere,
}

/// The route of a request; `foreign` are the server's own commands, once they are known.
pub(super) fn route(request: &Request<'_>, foreign: impl FnOnce() -> Option<Arc<ForeignTable>>) -> Route {
    match lookup(request) {
        Lookup::Known(spec) => known(spec, request),
        Lookup::UnknownSubcommand if request.arg(0).eq_ignore_ascii_case(b"cluster") => Route::Refused(NO_CLUSTER),
        Lookup::UnknownSubcommand => Route::Any,
        Lookup::Unknown if request.arg(0).eq_ignore_ascii_case(b"lockwarden") => about_lease(request),
        Lookup::Unknown => {
            let mut slots = Slots::default();
            let table = foreign();
            // If its keys cannot be determined, the server that gets it gives the error.
            let spec = table.as_ref().and_then(|table| table.find(request)).filter(|spec| !spec.movable_keys);
            if let Some(spec) = spec {
                for_each_foreign_key(Some(spec), request, &mut |_, key, _| slots.add(key));
            }
            slots.route().unwrap_or(Route::Any)
        }
    }
}

/// `LOCKWARDEN FENCE key`, `CHECK` and `LEASE` are about one lock; all other questions to the proxy are about all of
/// it.
fn about_lease(request: &Request<'_>) -> Route {
    const OF_A_LOCK: [&str; 3] = ["fence", "check", "lease"];
    let is_of_lock =
        request.len() > 2 && OF_A_LOCK.iter().any(|word| request.arg(1).eq_ignore_ascii_case(word.as_bytes()));
    if is_of_lock { Route::Slot(slot(request.arg(2))) } else { Route::Any }
}

fn known(spec: &CommandSpec, request: &Request<'_>) -> Route {
    if let KeySpec::None | KeySpec::Subcommands = spec.keys {
        return without_keys(spec, request);
    }
    if let Effect::Session(verb) = spec.effect {
        return Route::Session(verb);
    }
    let mut slots = Slots::default();
    // A request that Redis refuses can be sent to any of them.
    if !arity_ok(spec, request.len()) || for_each_key(spec, request, &mut |_, key, _| slots.add(key)).is_err() {
        return Route::Any;
    }
    match slots.route() {
        None => Route::Any,
        Some(Route::Cross) => match spec.name {
            "del" | "unlink" | "exists" | "touch" => Route::Split(Parts::Sum),
            "mget" => Route::Split(Parts::InOrder),
            "mset" => Route::Split(Parts::Pairs),
            _ => Route::Cross,
        },
        Some(route) => route,
    }
}

fn without_keys(spec: &CommandSpec, request: &Request<'_>) -> Route {
    match spec.effect {
        Effect::Session(SessionVerb::Asking) => return Route::Refused(NO_CLUSTER),
        Effect::Session(SessionVerb::Monitor | SessionVerb::Replication) => return Route::Refused(ONE_SERVER),
        Effect::Session(verb) => return Route::Session(verb),
        _ if !arity_ok(spec, request.len()) => return Route::Any,
        Effect::Listing(Listing::Keys) => return Route::Every(Joined::Names),
        Effect::Listing(Listing::Scan) => return Route::Scan,
        Effect::Listing(Listing::RandomKey) => return Route::Draw,
        Effect::Script(ScriptVerb::ScriptLoad | ScriptVerb::ScriptFlush) => return Route::Every(Joined::First),
        Effect::Script(ScriptVerb::ScriptExists) => return Route::Every(Joined::Everywhere),
        _ => {}
    }
    match spec.name {
        "dbsize" => Route::Every(Joined::Sum),
        "flushall" | "flushdb" => Route::Flush,
        "function|load" | "function|delete" | "function|flush" | "function|restore" => Route::Every(Joined::First),
        "info" => Route::AnyInfo,
        "wait" | "waitaof" => Route::Wait,
        "client|caching" => Route::Caching,
        "client|no-evict" | "client|no-touch" => Route::Flag,
        "spublish" => Route::Slot(slot(request.arg(1))),
        "readonly" | "readwrite" | "cluster" => Route::Refused(NO_CLUSTER),
        name if name.starts_with("cluster|") => Route::Refused(NO_CLUSTER),
        _ => Route::Any,
    }
}

/// The slots of the keys that were met.
#[derive(Default)]
struct Slots {
    first: Option<u16>,
    are_several: bool,
}

impl Slots {
    fn add(&mut self, key: &[u8]) {
        let slot = slot(key);
        let first = *self.first.get_or_insert(slot);
        self.are_several |= first != slot;
    }

    fn route(&self) -> Option<Route> {
        let slot = self.first?;
        Some(if self.are_several { Route::Cross } else { Route::Slot(slot) })
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use lockwarden_lock::table::Channel;
    use lockwarden_resp::{RequestDecoder, RequestLimits, put_request};

    use super::*;

    fn routed(line: &str) -> Route {
        let mut bytes = BytesMut::new();
        put_request(&mut bytes, &line.split(' ').collect::<Vec<_>>());
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        decoder.decode(&bytes).expect("a request");
        route(&decoder.request(&bytes), || None)
    }

    #[test]
    fn each_request_has_its_way() {
        let slot_of = |key: &str| Route::Slot(slot(key.as_bytes()));
        for (line, expected) in [
            ("GET a", slot_of("a")),
            ("SET lock:a 1 NX PX 5000", slot_of("lock:a")),
            ("EVAL return(1) 1 a b", slot_of("a")),
            ("EVAL return(1) 0 b", Route::Any),
            ("EVAL return(1) 2 a b", Route::Cross),
            ("EVAL return(1) 2 {a}1 {a}2", slot_of("a")),
            ("EVAL return(1) -1 a", Route::Any),
            ("RENAME a b", Route::Cross),
            ("XREAD STREAMS a 0", slot_of("a")),
            ("DEL a b", Route::Split(Parts::Sum)),
            ("DEL a", slot_of("a")),
            ("MGET a b a", Route::Split(Parts::InOrder)),
            ("MSET a 1 b 2", Route::Split(Parts::Pairs)),
            ("MSET a 1 b", Route::Any),
            ("MSETNX a 1 b 2", Route::Cross),
            ("PING", Route::Any),
            ("GET", Route::Any),
            ("nosuch a", Route::Any),
            ("LOCKWARDEN FENCE lock:a", slot_of("lock:a")),
            ("lockwarden check lock:a 7", slot_of("lock:a")),
            ("LOCKWARDEN LOCKS lock:a", Route::Any),
            ("DBSIZE", Route::Every(Joined::Sum)),
            ("KEYS *", Route::Every(Joined::Names)),
            ("SCAN 0", Route::Scan),
            ("FLUSHALL", Route::Flush),
            ("SCRIPT LOAD return(1)", Route::Every(Joined::First)),
            ("SCRIPT EXISTS x", Route::Every(Joined::Everywhere)),
            ("INFO", Route::AnyInfo),
            ("WAIT 1 0", Route::Wait),
            ("CLUSTER NODES", Route::Refused(NO_CLUSTER)),
            ("CLUSTER NOSUCH", Route::Refused(NO_CLUSTER)),
            ("READONLY", Route::Refused(NO_CLUSTER)),
            ("ASKING", Route::Refused(NO_CLUSTER)),
            ("MONITOR", Route::Refused(ONE_SERVER)),
            ("CLIENT CACHING yes", Route::Caching),
            ("CLIENT NO-TOUCH on", Route::Flag),
            ("CLIENT ID", Route::Any),
            ("MULTI", Route::Session(SessionVerb::Multi)),
            ("WATCH a b", Route::Session(SessionVerb::Watch)),
            ("SUBSCRIBE a", Route::Session(SessionVerb::Subscribe(Channel::Channel))),
            ("SPUBLISH a x", slot_of("a")),
        ] {
            assert_eq!(routed(line), expected, "{line}");
        }
    }
}
