//! Subscriptions. The nodes of a cluster pass on published messages to each other, so one session hears everything;
//! but messages of a sharded channel come only from the server that has its slot. Under RESP2 a client that listens
//! may send few other commands, and those are sent to the sessions on which it listens; under RESP3 messages come
//! between replies.

use bytes::Bytes;
use lockwarden_control::net::buffer_pool::put;
use lockwarden_lock::companion::slot;
use lockwarden_lock::table::{Channel, SessionVerb};
use lockwarden_resp::{Protocol, Redirect};

use super::bound::Listening;
use super::follow::TRY_AGAIN;
use super::route::Route;
use super::{CROSS_SLOT, Front, MAX_UNREAD, Over, out_of_step};
use crate::session::error_frame;

/// The end of Redis's error for other commands.
const ALLOWED: &str = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

impl Front {
    /// Whether the client listens under a protocol that allows it few other commands.
    pub(super) fn listens_alone(&self) -> bool {
        !self.listening.is_empty() && self.protocol == Protocol::Resp2
    }

    /// `SUBSCRIBE`, `UNSUBSCRIBE` and their like, of a client that does not listen yet or listens by RESP3.
    pub(super) async fn subscribe(&mut self, verb: SessionVerb) -> Result<(), Over> {
        self.settle().await?;
        if let Err(error) = self.send_as_listener(verb).await? {
            self.answer(error_frame(error));
            return Ok(());
        }
        if self.protocol == Protocol::Resp3 {
            self.confirmed().await?;
        }
        Ok(())
    }

    /// Hands on pushes up to the last confirmation that is due, or the error in place of one: nothing else is sent
    /// meanwhile.
    async fn confirmed(&mut self) -> Result<(), Over> {
        while let Some(number) = self.listening.iter().position(|listening| listening.awaited > 0) {
            let Some(leg) = &mut self.legs[self.listening[number].at] else {
                return Err(Over::Backend);
            };
            if let Some(frame) = leg.take_frame().map_err(out_of_step)? {
                self.hears(number, frame);
                continue;
            }
            if leg.ended {
                return Err(Over::Backend);
            }
            self.flush()?;
            self.wait().await?;
        }
        self.listening.retain(|listening| !listening.is_over());
        Ok(())
    }

    /// Takes a request of a client that listens under RESP2. Returns true if it was taken, false if it waits until it
    /// is known whether the client still listens.
    pub(super) async fn take_as_listener(&mut self) -> Result<bool, Over> {
        if self.listening.iter().any(|listening| listening.awaited > 0) {
            return Ok(false);
        }
        let sent = match self.route() {
            Route::Session(SessionVerb::Quit) => {
                return Box::pin(self.session_verb(SessionVerb::Quit)).await.map(|()| true);
            }
            Route::Session(SessionVerb::Reset) => {
                self.listening.clear();
                return Box::pin(self.session_verb(SessionVerb::Reset)).await.map(|()| true);
            }
            Route::Session(verb) => self.send_as_listener(verb).await?,
            // The session decides which few commands a listening client may send.
            Route::Any => self.send_as_listener(SessionVerb::Multi).await?,
            // On another server the command would be executed.
            _ => {
                let name = String::from_utf8_lossy(self.inbox.request().name()).to_lowercase();
                put(&mut self.to_client, &error_frame(&format!("ERR Can't execute '{name}': {ALLOWED}")));
                Ok(())
            }
        };
        if let Err(error) = sent {
            put(&mut self.to_client, &error_frame(error));
        }
        Ok(true)
    }

    /// Hands the request to the sessions that it concerns. An error is for the client.
    async fn send_as_listener(&mut self, verb: SessionVerb) -> Result<Result<(), &'static str>, Over> {
        let is_sharded =
            matches!(verb, SessionVerb::Subscribe(Channel::Shard) | SessionVerb::Unsubscribe(Channel::Shard));
        let words = self.words();
        let named = words.len() - 1;
        if is_sharded && named == 0 && self.listening.iter().any(|listening| listening.sharded > 0) {
            // It ends the subscriptions on all of them.
            for number in 0..self.listening.len() {
                if self.listening[number].sharded > 0 {
                    self.hand_to(number, verb, named);
                }
            }
            return Ok(Ok(()));
        }
        let at = match is_sharded && named > 0 {
            true if words[2..].iter().any(|other| slot(other) != slot(&words[1])) => return Ok(Err(CROSS_SLOT)),
            true => match self.reach(slot(&words[1])).await? {
                Ok(at) => at,
                Err(error) => return Ok(Err(error)),
            },
            false => match self.listening.first() {
                Some(listening) => listening.at,
                None => self.home().await?,
            },
        };
        let number = self.listening.iter().position(|listening| listening.is_on(at)).unwrap_or_else(|| {
            self.listening.push(Listening { at, ..Listening::default() });
            self.listening.len() - 1
        });
        self.hand_to(number, verb, named);
        Ok(Ok(()))
    }

    fn hand_to(&mut self, number: usize, verb: SessionVerb, named: usize) {
        let frame = self.request_frame();
        let listening = &mut self.listening[number];
        let named = i64::try_from(named).unwrap_or(i64::MAX);
        let all_of = |listened: i64| if named > 0 { named } else { listened.max(1) };
        listening.awaited += match verb {
            SessionVerb::Subscribe(_) => named,
            SessionVerb::Unsubscribe(Channel::Pattern) => all_of(listening.patterns),
            SessionVerb::Unsubscribe(Channel::Shard) => all_of(listening.sharded),
            SessionVerb::Unsubscribe(_) => all_of(listening.channels),
            _ => 1,
        };
        if let Some(leg) = &mut self.legs[listening.at] {
            leg.send(&frame);
        }
    }

    /// Hands on what has come for a client that listens by RESP2.
    pub(super) fn deliver_as_listener(&mut self) -> Result<(), Over> {
        let mut number = 0;
        while let Some(listening) = self.listening.get(number) {
            let Some(leg) = &mut self.legs[listening.at] else {
                return Err(Over::Backend);
            };
            if self.to_client.len() >= MAX_UNREAD {
                leg.is_collecting = false;
            } else if let Some(frame) = leg.take_frame().map_err(out_of_step)? {
                self.hears(number, frame);
                continue;
            }
            number += 1;
        }
        self.listening.retain(|listening| !listening.is_over());
        Ok(())
    }

    /// A frame has come from a leg on which the client listens.
    fn hears(&mut self, number: usize, frame: Bytes) {
        let is_sharded = self.listening[number].hears(&frame);
        let (at, here) = (self.listening[number].at, self.listening[number].sharded);
        let all: i64 = self.listening.iter().map(|listening| listening.sharded).sum();
        let has_moved = Redirect::of(&frame).is_some();
        let Some(leg) = &mut self.legs[at] else {
            return;
        };
        let shown = match has_moved {
            true => error_frame(TRY_AGAIN).freeze(),
            false if is_sharded && here != all => counted(&frame, all),
            false => return leg.hand_on(&frame, &mut self.to_client, self.sent),
        };
        leg.pipe.drops(frame.len());
        put(&mut self.to_client, &shown);
        if has_moved {
            self.want_map();
        }
    }
}

/// A confirmation with the number of all sharded channels, instead of those that one server has.
fn counted(frame: &Bytes, all: i64) -> Bytes {
    let end = memchr::memrchr(b':', frame).unwrap_or(frame.len());
    [&frame[..end], format!(":{all}\r\n").as_bytes()].concat().into()
}
