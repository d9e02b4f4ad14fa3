//! `sessions = "multiplexed"`: which requests share a connection with other clients, and which need a connection of
//! the session's own. The values that a connection can be opened with (login, database, protocol) define its kind,
//! and sessions of one kind share. Whatever else Redis remembers of a connection, or would keep others waiting, needs
//! the session's own connection.

use bytes::Bytes;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::classify::Class;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::table::{Lookup, SessionVerb, lookup};
use lockwarden_resp::Request;

use crate::backend::pool;
use crate::backend::profile::{Profile, Traffic};
use crate::backend::shared_connection::Attachment;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::connection_state::Library;
use crate::session::client::sharing::{Trace, Turn};
use crate::session::step::awaited::Look;
use crate::session::step::awaited::Tracking;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use bytes::BytesMut;

/// A request with more bytes uses a connection of its own: nothing is gained by sharing it, requests behind it would
/// wait, and a server may close the connection on a longer one (`proto-max-bulk-len` is at least 1 MiB, and the
/// script that is sent in its place is a little longer).
const MAX_SHARED: usize = 256 * 1024;

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// It may be sent on a shared connection.
    Nothing,
    /// A connection of its own.
    Own(Trace),
    /// The same, and the replication offset of the session's writes must be known on it.
    Offset,
    /// The same; what is left behind depends on whether the server has such a command.
    Unknown,
    /// A connection on which the server sends messages unasked: none is available.
    Notices,
}

/// Which connection a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The one in use.
    InUse,
    /// The shared one for this traffic, once everything sent over the other is answered.
    Shared(Traffic),
    /// One of the session's own.
    Own,
    /// None: where connections are shared, no server knows such a command.
    Nowhere,
}

impl Session {
    /// Changes to another connection before the request is sent. Returns whether the request may be sent; if not, its
    /// client was told why.
    pub(crate) async fn go_by(&mut self, way: Way, inbox: &mut RequestBuffer, muted: Muted) -> Result<bool, End> {
        if way == Way::Nowhere {
            let what = String::from_utf8_lossy(inbox.request().arg(1)).into_owned();
            let text = format!("ERR unknown subcommand '{what}'. Try CLIENT HELP.");
            self.client.count(CommandClass::Admin, CommandResult::Error);
            self.error(&text, muted);
            return Ok(false);
        }
        if let Some(error) = self.change_way(way, inbox).await? {
            self.reply(&BytesMut::from(&error[..]), muted);
            return Ok(false);
        }
        Ok(true)
    }

    /// Which connection the request at the front uses. One that may share a connection does so from here on, if
    /// nothing is under way.
    pub(crate) fn way(&mut self, class: &Class<'_>, request: &Request<'_>, more_follow: bool) -> Way {
        if !self.multiplexed {
            return self.way_of_its_own(class, request);
        }
        let needs = match needs(class, request) {
            Needs::Nothing if !self.is_bound() && !self.goes_alone() => {
                if !self.transport.is_shared() {
                    self.share_again();
                }
                if self.transport.is_shared() {
                    self.client.connection.sharing.shares();
                }
                return self.shared_way(class, more_follow);
            }
            Needs::Notices => return Way::Nowhere,
            Needs::Nothing => Needs::Own(Trace::None),
            // There it is answered at once, or is an error.
            Needs::Offset if self.client.connection.block.is_some() => Needs::Own(Trace::None),
            Needs::Offset if self.transport.pushes.takes_no_commands() => Needs::Own(Trace::None),
            Needs::Unknown if self.client.is_known_to_server(request) => Needs::Own(Trace::None),
            Needs::Unknown => Needs::Own(Trace::Pin),
            needs @ (Needs::Own(_) | Needs::Offset) => needs,
        };
        if let Needs::Own(trace) = needs {
            self.client.connection.sharing.leave(trace);
        }
        // Also if a connection of the session's own is in use: WAIT needs a write on it first (`write_own_offset`).
        match self.transport.is_shared() || (needs == Needs::Offset && self.client.connection.sharing.has_shared()) {
            true => Way::Own,
            false => Way::InUse,
        }
    }

    /// The same for a session with a connection of its own: it keeps that, and this notes what state only that
    /// connection has.
    fn way_of_its_own(&mut self, class: &Class<'_>, request: &Request<'_>) -> Way {
        let may_be_any = match class {
            Class::PassThrough(pass) => pass.is_unknown(),
            Class::OtherName(_) => true,
            _ => false,
        };
        if may_be_any {
            self.client.connection.sharing.leave(Trace::Pin);
        }
        let connection = &self.client.connection;
        // Steps of this session were sent over another connection.
        let is_elsewhere =
            connection.sharing.has_shared() && connection.block.is_none() && needs_offset(request.name());
        if is_elsewhere { Way::Own } else { Way::InUse }
    }

    /// Reads and writes use different shared connections.
    fn shared_way(&mut self, class: &Class<'_>, more_follow: bool) -> Way {
        let Some(in_use) = self.transport.backend_link().traffic() else {
            return Way::InUse;
        };
        let may_change = self.transport.may_change_uplink();
        match self.client.connection.sharing.turn(traffic(class), in_use, may_change, more_follow) {
            Turn::Stay => Way::InUse,
            Turn::Now(traffic) => {
                self.transport.backend_link().turn_to(traffic);
                Way::InUse
            }
            Turn::OnceAnswered(traffic) => Way::Shared(traffic),
        }
    }

    /// What the proxy is about to send for this session may write, and so is sent where writes go. If something is
    /// under way, it keeps its order after that.
    pub(crate) fn turn_to_writes(&mut self) {
        if self.transport.is_shared() && self.transport.may_change_uplink() {
            self.transport.backend_link().turn_to(Traffic::Writes);
        }
    }

    /// Changes to another connection, once everything sent over the one in use was answered. Returns an error if the
    /// request at the front cannot be sent.
    pub(crate) async fn change_way(&mut self, way: Way, inbox: &mut RequestBuffer) -> Result<Option<Bytes>, End> {
        self.all_answered(inbox).await?;
        match way {
            Way::InUse | Way::Nowhere => Ok(None),
            Way::Shared(traffic) => {
                self.transport.backend_link().turn_to(traffic);
                Ok(None)
            }
            Way::Own => self.use_own_connection(inbox).await,
        }
    }

    /// Changes to a connection of the session's own, if it shares one. Returns false if that is impossible, which its
    /// client was told.
    pub(crate) async fn takes_own_connection(&mut self, inbox: &mut RequestBuffer, muted: Muted) -> Result<bool, End> {
        if !self.transport.is_shared() {
            return Ok(true);
        }
        let error = self.change_way(Way::Own, inbox).await?;
        if let Some(error) = &error {
            self.reply(&BytesMut::from(&error[..]), muted);
        }
        Ok(error.is_none())
    }

    /// Whether Redis remembers state of this connection that commands depend on, or other clients would have to wait
    /// for this one.
    pub(crate) fn is_bound(&self) -> bool {
        self.client.connection.sharing.trace() == Trace::Pin
            || self.client.connection.watch.is_any()
            || self.client.connection.block.is_some()
            || self.transport.asks()
            || self.client.connection.tracking != Tracking::Off
            || self.transport.pushes.is_listening()
            || self.transport.has_spoken()
            || self.transport.has_much_unread()
            // Before a login Redis closes the connection on requests that are longer than it accepts.
            || self.client.is_stranger()
    }

    /// Whether its replies are so long that others would wait for them.
    fn goes_alone(&mut self) -> bool {
        self.transport.backend_link().port().is_some_and(Attachment::goes_alone)
    }

    /// Changes to a connection of the session's own. Returns an error if the request at the front cannot be sent.
    async fn use_own_connection(&mut self, inbox: &mut RequestBuffer) -> Result<Option<Bytes>, End> {
        if self.transport.backend_link().has_own() {
            self.transport.backend_link().use_own(None);
        } else {
            let profile = self.client.profile();
            let spare = match self.client.is_stranger() {
                true => None,
                false => {
                    let backend = &self.client.shared.backend;
                    pool::spare(backend.shard, &profile, backend.server.era())
                }
            };
            let link = match spare {
                Some(link) => link,
                None => {
                    let opened = self.client.shared.backend.open(&profile).await;
                    opened.map_err(|error| {
                        tracing::debug!(peer = %self.client.peer, %error, "no connection of its own");
                        match error.for_client() {
                            Some(error) => {
                                self.transport.reply(&error);
                                End::Done
                            }
                            None => End::Backend,
                        }
                    })?
                }
            };
            self.transport.backend_link().use_own(Some(link));
            self.say_again();
        }
        if needs_offset(inbox.request().name()) && self.client.connection.sharing.has_shared() {
            return self.write_own_offset(inbox).await;
        }
        Ok(None)
    }

    /// Repeats what the client said of its library on its new connection, which then stays its own.
    fn say_again(&mut self) {
        for (what, value) in self.client.connection.library.said() {
            self.transport.inquire(&OwnRequest::Library { what, value }, Look::Own);
            self.client.connection.sharing.leave(Trace::Mark);
        }
    }

    /// `WAIT` is about the writes of its own connection, but until now shared connections carried this session's
    /// writes. A new write after all of them serves as well: a replica that has that one has them all.
    async fn write_own_offset(&mut self, inbox: &mut RequestBuffer) -> Result<Option<Bytes>, End> {
        let active = self.client.active();
        let companion_prefix = &active.companion_prefix;
        self.transport.inquire(&OwnRequest::Offset { companion_prefix }, Look::Answer);
        let answer = self.answer(inbox).await?;
        // On a replica nothing was written before either, and Redis's own error says so.
        if answer.starts_with(b"-") && !answer.starts_with(b"-READONLY") {
            return Ok(Some(answer));
        }
        self.client.connection.sharing.caught_up();
        Ok(None)
    }

    /// Returns to a shared connection, if nothing is under way and a place is available.
    fn share_again(&mut self) {
        if !self.transport.may_change_uplink() {
            return;
        }
        let profile = self.client.profile();
        let same = self.transport.backend_link().port().is_some_and(|port| *port.profile() == profile);
        let port = match same {
            true => None,
            false => match Attachment::new(&profile, Traffic::Reads, &self.client.shared.backend) {
                Some(port) => Some(port),
                None => return,
            },
        };
        self.transport.backend_link().use_port(port);
        let trace = self.client.connection.sharing.trace();
        if trace < Trace::Mark
            && let Some(link) = self.transport.backend_link().give_up_own()
        {
            self.client.connection.sharing.gave_up_own();
            // A connection whose number the client knows, and may name later, is closed instead.
            if trace == Trace::None {
                pool::keep_spare(self.client.shared.backend.shard, &profile, link);
            }
        }
    }
}

impl Client {
    /// Whether the server lists a command of this name. A name that it does not list may stand for a renamed command,
    /// and do anything.
    fn is_known_to_server(&self, request: &Request<'_>) -> bool {
        let commands = self.shared.backend.server.commands();
        commands.as_ref().is_some_and(|table| table.find(request).is_some())
    }

    /// Whether it has yet to log in. It is not known whether an open connection was let in when the server still
    /// asked for no password, so the client gets a new one.
    fn is_stranger(&self) -> bool {
        let wanted = self.shared.backend.server.may_want_password();
        self.connection.login.is_stranger() && wanted
    }

    /// The kind of connection that this session needs.
    pub(crate) fn profile(&self) -> Profile {
        Profile {
            login: self.connection.login.shared().cloned(),
            db: self.connection.selected,
            protocol: self.connection.protocol,
        }
    }
}

/// What a request needs, on a connection without state.
fn needs(class: &Class<'_>, request: &Request<'_>) -> Needs {
    if request.frame().len() > MAX_SHARED {
        return match by_name(request) {
            Needs::Nothing => Needs::Own(Trace::None),
            needs => needs,
        };
    }
    match class {
        Class::PassThrough(pass) if pass.is_blocking() => match lookup(request) {
            Lookup::Known(_) if needs_offset(request.name()) => Needs::Offset,
            Lookup::Known(_) => Needs::Own(Trace::None),
            Lookup::UnknownSubcommand | Lookup::Unknown => match by_name(request) {
                Needs::Nothing => Needs::Unknown,
                needs => needs,
            },
        },
        Class::PassThrough(_) => by_name(request),
        Class::Session(verb, _) => by_verb(*verb, request),
        Class::Admin(_) => match by_name(request) {
            Needs::Nothing => Needs::Own(Trace::None),
            needs => needs,
        },
        // It may be any command.
        Class::OtherName(_) => Needs::Unknown,
        // In monitor mode it is forwarded, and may wait for long: BLPOP of a lock.
        Class::Opaque(_) | Class::TooLong(..) => Needs::Own(Trace::None),
        Class::Read(..)
        | Class::Trusted(..)
        | Class::ScriptLoad(_)
        | Class::ScriptExists(_)
        | Class::Listing(..)
        | Class::Judge(_)
        | Class::UnknownScript(_)
        | Class::UnseenScript(_)
        | Class::Computed(_)
        | Class::ComputedFunction(_)
        | Class::UnknownFunction(_)
        | Class::Fence(..)
        | Class::Lease(_)
        | Class::Operator(_)
        | Class::UnknownName(_)
        | Class::Error(_)
        | Class::ErrorOfOthers(..) => Needs::Nothing,
    }
}

/// Which shared connection a request uses.
fn traffic(class: &Class<'_>) -> Traffic {
    let only_reads = match class {
        Class::PassThrough(pass) => pass.only_reads(),
        Class::Read(..)
        | Class::Listing(..)
        | Class::ScriptExists(_)
        | Class::Fence(..)
        | Class::Operator(_)
        | Class::Session(..)
        | Class::UnknownName(_)
        | Class::Error(_)
        | Class::ErrorOfOthers(..) => true,
        // A look at a lease is a step, too.
        Class::Judge(_)
        | Class::Lease(_)
        | Class::Opaque(_)
        | Class::UnknownScript(_)
        | Class::UnseenScript(_)
        | Class::Computed(_)
        | Class::ComputedFunction(_)
        | Class::UnknownFunction(_)
        | Class::TooLong(..)
        | Class::Trusted(..)
        | Class::ScriptLoad(_)
        | Class::OtherName(_)
        | Class::Admin(_) => false,
    };
    match only_reads {
        true => Traffic::Reads,
        false => Traffic::Writes,
    }
}

/// What a command that changes the connection itself needs.
fn by_verb(verb: SessionVerb, request: &Request<'_>) -> Needs {
    let says = |word: &[u8]| request.args().any(|said| said.eq_ignore_ascii_case(word));
    match verb {
        SessionVerb::Exec
        | SessionVerb::Discard
        | SessionVerb::Unwatch
        | SessionVerb::ClientReply
        | SessionVerb::Quit
        | SessionVerb::Replication => Needs::Nothing,
        SessionVerb::ClientMaintNotifications => Needs::Notices,
        SessionVerb::ClientSetName => Needs::Own(Trace::Mark),
        SessionVerb::Hello if says(b"SETNAME") => Needs::Own(Trace::Mark),
        // Its reply contains the number of the connection.
        SessionVerb::Hello => Needs::Own(Trace::Personal),
        SessionVerb::ClientSetInfo => match request.get(3) {
            Some(value) if Library::keeps(value) => Needs::Own(Trace::Personal),
            Some(_) | None => Needs::Own(Trace::Mark),
        },
        SessionVerb::Asking
        | SessionVerb::Auth
        | SessionVerb::Select
        | SessionVerb::Multi
        | SessionVerb::Watch
        | SessionVerb::Reset
        | SessionVerb::ClientTracking
        | SessionVerb::Subscribe(_)
        | SessionVerb::Unsubscribe(_)
        | SessionVerb::Monitor => Needs::Own(Trace::None),
    }
}

/// What a command needs that passes through but concerns its connection.
fn by_name(request: &Request<'_>) -> Needs {
    let name = request.name();
    let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
    match name.len() {
        4 if is(b"WAIT") => Needs::Offset,
        5 if is(b"DEBUG") => Needs::Own(Trace::Pin),
        6 if is(b"CLIENT") => match request.get(1) {
            Some(what) if shows_only(what) => Needs::Own(Trace::Mark),
            Some(_) => Needs::Own(Trace::Pin),
            None => Needs::Nothing,
        },
        6 if is(b"SCRIPT") => match request.get(1) {
            Some(what) if what.eq_ignore_ascii_case(b"DEBUG") => Needs::Own(Trace::Pin),
            _ => Needs::Nothing,
        },
        7 if is(b"WAITAOF") => Needs::Offset,
        8 if is(b"READONLY") => Needs::Own(Trace::Pin),
        9 if is(b"READWRITE") => Needs::Own(Trace::Pin),
        _ => Needs::Nothing,
    }
}

/// Whether a subcommand of `CLIENT` only shows or does something about connections, and leaves nothing behind on this
/// one but what is known of it.
fn shows_only(subcommand: &[u8]) -> bool {
    const SHOWING: [&[u8]; 11] = [
        b"ID",
        b"INFO",
        b"GETNAME",
        b"LIST",
        b"KILL",
        b"PAUSE",
        b"UNPAUSE",
        b"UNBLOCK",
        b"TRACKINGINFO",
        b"GETREDIR",
        b"HELP",
    ];
    SHOWING.iter().any(|word| subcommand.eq_ignore_ascii_case(word))
}

fn needs_offset(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"WAIT") || name.eq_ignore_ascii_case(b"WAITAOF")
}
