//! `sessions = "multiplexed"`: which requests travel with those of other clients, and which need a
//! connection of the session's own. What a connection can be opened with (login, database, protocol)
//! makes it one of a kind, and sessions of one kind share; whatever else Redis remembers of a
//! connection, or would keep others waiting, is the session's own affair.

use bytes::Bytes;
use lockwarden_lock::classify::Class;
use lockwarden_lock::companion::companion_key;
use lockwarden_lock::table::SessionVerb;
use lockwarden_resp::Request;

use super::{Look, Session};
use crate::inbox::Inbox;
use crate::trunk::{self, Lane, Port};
use crate::wires::End;

/// A request above this goes by a connection of its own: nothing is gained by sharing it, and a server
/// may hang up on one that is longer (`proto-max-bulk-len` is at least 1 MiB).
const LARGEST_SHARED: usize = 1024 * 1024;

/// What a command leaves behind on the connection that it was sent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    /// Nothing, once it was answered, that is not tracked.
    None,
    /// Something that only commands about the connection show: its name, its number.
    Mark,
    /// Something that later commands depend on, until `RESET`.
    Pin,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// It may travel with others'.
    Nothing,
    /// A connection of its own.
    Own(Trace),
    /// The same, on which the replication offset of the session's writes is known.
    Offset,
}

impl Session {
    /// Whether the request at the front needs another connection to the backend than the one in use.
    /// One that may travel with others' does so from here on, where nothing is under way.
    pub(crate) fn needs_own_connection(
        &mut self,
        class: &Class<'_>,
        request: &Request<'_>,
    ) -> bool {
        let needs = match self.is_bound() {
            true => Needs::Own(Trace::None),
            false => needs(class, request),
        };
        if let Needs::Own(trace) = needs {
            self.state.is_marked |= trace != Trace::None;
            self.state.is_pinned |= trace == Trace::Pin;
        }
        match (needs, self.wires.is_shared()) {
            (Needs::Nothing, false) => {
                self.share_again();
                false
            }
            (Needs::Nothing, true) => false,
            (Needs::Own(_) | Needs::Offset, shared) => shared,
        }
    }

    /// Whether Redis remembers something of this connection that commands depend on.
    fn is_bound(&self) -> bool {
        self.state.is_pinned
            || self.state.is_watching
            || self.state.block.is_some()
            || self.state.tracking
            || self.wires.pushes.is_listening()
            // Before a login Redis hangs up on requests that are longer than it wants.
            || (self.state.login.is_none() && self.shared.server.wants_password())
    }

    /// The kind of connection that this session needs.
    fn lane(&self) -> Lane {
        Lane {
            login: self.state.login.clone(),
            db: self.state.selected,
            protocol: self.state.protocol,
        }
    }

    /// Goes on with a connection of its own, once everything was answered that went by the other.
    /// Answers an error that stands in the way of the request at the front.
    pub(crate) async fn use_own_connection(
        &mut self,
        inbox: &mut Inbox,
    ) -> Result<Option<Bytes>, End> {
        self.all_answered(inbox).await?;
        let lane = self.lane();
        let link = match self.wires.uplink().has_own() {
            true => None,
            false => Some(match trunk::spare(&lane) {
                Some(link) => link,
                None => {
                    let opened = self.shared.backend.open(&lane, &self.shared.metrics).await;
                    opened.map_err(|error| {
                        tracing::debug!(peer = %self.peer, %error, "no connection of its own");
                        End::Backend
                    })?
                }
            }),
        };
        self.wires.uplink().use_own(link);
        if needs_offset(inbox.request().name()) {
            return self.write_own_offset(inbox).await;
        }
        Ok(None)
    }

    /// `WAIT` is about the writes of its own connection, and until now others carried them. A write
    /// behind them all is as good: whoever has that one has them.
    async fn write_own_offset(&mut self, inbox: &mut Inbox) -> Result<Option<Bytes>, End> {
        let active = self.active();
        let key = companion_key(&active.companion_prefix, b"lockwarden:offset");
        self.wires
            .inquire(&[b"SET", &key, b"", b"PX", b"1"], Look::Answer);
        let answer = self.answer(inbox).await?;
        Ok(answer.starts_with(b"-").then_some(answer))
    }

    /// Shares a connection again, where nothing is under way and a place is to be had.
    fn share_again(&mut self) {
        if !self.wires.may_change_uplink() {
            return;
        }
        let lane = self.lane();
        let same = self
            .wires
            .uplink()
            .port()
            .is_some_and(|port| *port.lane() == lane);
        let port = match same {
            true => None,
            false => match Port::new(&lane, &self.shared) {
                Some(port) => Some(port),
                None => return,
            },
        };
        self.wires.uplink().use_port(port);
        if !self.state.is_marked
            && let Some(link) = self.wires.uplink().give_up_own()
        {
            trunk::keep_spare(&lane, link);
        }
    }
}

/// What a request needs of a connection that has no state.
fn needs(class: &Class<'_>, request: &Request<'_>) -> Needs {
    match class {
        Class::PassThrough(pass) if pass.is_blocking() => match needs_offset(request.name()) {
            true => Needs::Offset,
            false => Needs::Own(Trace::None),
        },
        Class::PassThrough(pass) if pass.frame().len() > LARGEST_SHARED => Needs::Own(Trace::None),
        Class::PassThrough(_) => by_name(request),
        Class::Session(verb, _) => match verb {
            SessionVerb::Exec
            | SessionVerb::Discard
            | SessionVerb::Unwatch
            | SessionVerb::ClientReply
            | SessionVerb::Quit
            | SessionVerb::Replication => Needs::Nothing,
            SessionVerb::ClientSetName | SessionVerb::ClientSetInfo => Needs::Own(Trace::Mark),
            SessionVerb::Auth
            | SessionVerb::Hello
            | SessionVerb::Select
            | SessionVerb::Multi
            | SessionVerb::Watch
            | SessionVerb::Reset
            | SessionVerb::ClientTracking
            | SessionVerb::Subscribe(_)
            | SessionVerb::Unsubscribe(_)
            | SessionVerb::Monitor => Needs::Own(Trace::None),
        },
        Class::Admin(_) => Needs::Own(Trace::None),
        Class::Read(..)
        | Class::Trusted(..)
        | Class::ScriptLoad(_)
        | Class::ScriptExists(_)
        | Class::Listing(..)
        | Class::Judge(_)
        | Class::UnknownScript(_)
        | Class::TooLong(..)
        | Class::Fence(..)
        | Class::Error(_) => Needs::Nothing,
    }
}

/// What passes through and is about its connection all the same.
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
        6 if is(b"ASKING") => Needs::Own(Trace::Pin),
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

/// Whether a subcommand of `CLIENT` shows or does something about connections, and leaves nothing
/// behind on this one but what is known of it.
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
    SHOWING
        .iter()
        .any(|word| subcommand.eq_ignore_ascii_case(word))
}

fn needs_offset(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"WAIT") || name.eq_ignore_ascii_case(b"WAITAOF")
}
