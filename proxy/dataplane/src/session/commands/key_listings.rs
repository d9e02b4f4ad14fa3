//! `KEYS`, `SCAN` and `RANDOMKEY`: sent to Redis unchanged, and answered without the proxy's own keys.

use bytes::BytesMut;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::hidden::{self, Shown};
use lockwarden_lock::pass_through::{Kept, PassThrough};
use lockwarden_lock::table::Listing;

use crate::session::Session;
use crate::session::client::block::Place;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// How often Redis is asked for another random key when it has named one of the proxy's own.
const MAX_RANDOM_KEYS: usize = 16;

impl Session {
    pub(crate) async fn listing(
        &mut self,
        inbox: &mut RequestBuffer,
        kind: Listing,
        kept: &Kept,
        muted: Muted,
    ) -> Result<(), End> {
        self.client.count(CommandClass::PassThrough, CommandResult::Ok);
        let pass = kept.pass();
        if let Some(block) = &mut self.client.connection.block {
            block.hold(Place::Listing(kind));
            self.transport.forward(pass, muted);
            return Ok(());
        }
        match kind {
            Listing::Keys | Listing::Scan => {
                self.transport.forward_listing(pass, kind, muted);
                Ok(())
            }
            Listing::RandomKey => self.random_key(inbox, pass, muted).await,
        }
    }

    /// An order barrier, since it may have to be asked more than once.
    async fn random_key(&mut self, inbox: &mut RequestBuffer, pass: PassThrough<'_>, muted: Muted) -> Result<(), End> {
        let active = self.client.active();
        let mut tries = 0;
        let reply = loop {
            self.transport.forward_and_look(pass, Look::Answer, Muted::Yes);
            let answer = self.answer(inbox).await?;
            tries += 1;
            let own = active.own_keys();
            match hidden::listing(Listing::RandomKey, &answer, own, self.client.connection.protocol) {
                Shown::Instead(_) if tries < MAX_RANDOM_KEYS => {}
                Shown::Instead(none) => break none,
                Shown::Whole | Shown::Nothing => break BytesMut::from(&answer[..]),
            }
        };
        self.reply(&reply, muted);
        Ok(())
    }
}
