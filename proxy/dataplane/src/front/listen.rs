//! Subscriptions. The nodes of a cluster tell one another what is published, so one session hears everything. With RESP2 a client that
//! listens can say little else, and all of it goes to that session; with RESP3 what is published comes between replies.

use lockwarden_control::net::buffer_pool::put;
use lockwarden_lock::table::{Channel, SessionVerb};
use lockwarden_resp::Protocol;

use super::bound::Listening;
use super::route::Route;
use super::{Front, MAX_UNREAD, Over, out_of_step};
use crate::session::error_frame;

/// What Redis says to other commands.
const ALLOWED: &str = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

impl Front {
    /// Whether the client listens by a protocol that lets it say little else.
    pub(super) fn listens_alone(&self) -> bool {
        self.listening.is_some() && self.protocol == Protocol::Resp2
    }

    /// `SUBSCRIBE`, `UNSUBSCRIBE` and their like, of a client that does not listen yet or listens by RESP3.
    pub(super) async fn subscribe(&mut self, verb: SessionVerb) -> Result<(), Over> {
        if let SessionVerb::Subscribe(Channel::Shard) | SessionVerb::Unsubscribe(Channel::Shard) = verb {
            let error =
                "ERR lockwarden stands before a whole cluster, and does not serve sharded channels: SUBSCRIBE to them";
            self.answer(error_frame(error));
            return Ok(());
        }
        let at = match &self.listening {
            Some(listening) => listening.at,
            None => self.home().await?,
        };
        self.settle().await?;
        if self.listening.is_none() {
            self.listening = Some(Listening { at, channels: 0, patterns: 0, awaited: 0 });
        }
        self.send_as_listener(verb);
        if self.protocol == Protocol::Resp3 {
            self.confirmed().await?;
        }
        Ok(())
    }

    /// Hands on pushes up to the last confirmation that is due, or the error in place of one: nothing else is said meanwhile.
    async fn confirmed(&mut self) -> Result<(), Over> {
        while let Some(listening) = &mut self.listening
            && listening.awaited > 0
        {
            let Some(leg) = &mut self.legs[listening.at] else {
                return Err(Over::Backend);
            };
            if let Some(frame) = leg.take_frame().map_err(out_of_step)? {
                leg.hand_on(&frame, &mut self.to_client, self.sent);
                listening.hears(&frame);
                continue;
            }
            if leg.ended {
                return Err(Over::Backend);
            }
            self.flush()?;
            self.wait().await?;
        }
        Ok(())
    }

    /// Takes a request of a client that listens by RESP2. Returns whether it has, or it waits until it is known whether the client
    /// still listens.
    pub(super) async fn take_as_listener(&mut self) -> Result<bool, Over> {
        let Some(listening) = &self.listening else {
            return Ok(false);
        };
        if listening.awaited > 0 {
            return Ok(false);
        }
        match self.route() {
            Route::Session(SessionVerb::Quit) => {
                return Box::pin(self.session_verb(SessionVerb::Quit)).await.map(|()| true);
            }
            Route::Session(SessionVerb::Reset) => {
                self.listening = None;
                Box::pin(self.session_verb(SessionVerb::Reset)).await?;
            }
            Route::Session(verb) => self.send_as_listener(verb),
            // The session says which few commands are taken from who listens.
            Route::Any => self.send_as_listener(SessionVerb::Multi),
            // On another server it would not come to that.
            _ => {
                let name = String::from_utf8_lossy(self.inbox.request().name()).to_lowercase();
                put(&mut self.to_client, &error_frame(&format!("ERR Can't execute '{name}': {ALLOWED}")));
            }
        }
        Ok(true)
    }

    fn send_as_listener(&mut self, verb: SessionVerb) {
        let named = i64::try_from(self.inbox.request().len()).unwrap_or(i64::MAX) - 1;
        let frame = self.request_frame();
        let Some(listening) = &mut self.listening else {
            return;
        };
        let all_of = |listened: i64| if named > 0 { named } else { listened.max(1) };
        listening.awaited += match verb {
            SessionVerb::Subscribe(_) => named,
            SessionVerb::Unsubscribe(Channel::Pattern) => all_of(listening.patterns),
            SessionVerb::Unsubscribe(_) => all_of(listening.channels),
            _ => 1,
        };
        if let Some(leg) = &mut self.legs[listening.at] {
            leg.send(&frame);
        }
    }

    /// Hands on what has come for a client that listens by RESP2.
    pub(super) fn deliver_as_listener(&mut self) -> Result<(), Over> {
        while let Some(listening) = &mut self.listening {
            let Some(leg) = &mut self.legs[listening.at] else {
                return Err(Over::Backend);
            };
            if self.to_client.len() >= MAX_UNREAD {
                leg.is_collecting = false;
                return Ok(());
            }
            let Some(frame) = leg.take_frame().map_err(out_of_step)? else {
                return Ok(());
            };
            leg.hand_on(&frame, &mut self.to_client, self.sent);
            listening.hears(&frame);
            if listening.awaited <= 0 && listening.channels + listening.patterns == 0 {
                self.listening = None;
            }
        }
        Ok(())
    }
}
