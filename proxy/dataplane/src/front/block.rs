//! `MULTI` blocks and `WATCH`. A block belongs to the shard of its first key, or of the keys that are watched. Before
//! that is known no shard is told of the block, so the client is answered here. A block over several shards is not
//! carried out.

use lockwarden_lock::companion::slot;
use lockwarden_lock::table::SessionVerb;

use super::bound::Block;
use super::route::Route;
use super::{CROSS_SLOT, Due, Front, NOT_SERVED, OK, Over};
use crate::session::error_frame;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";
const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

impl Front {
    /// `MULTI`.
    pub(super) fn begin_block(&mut self) {
        self.answer(OK);
        self.block = Some(Block::default());
    }

    /// Takes a request inside of a block.
    pub(super) async fn take_in_block(&mut self) -> Result<(), Over> {
        match self.route() {
            Route::Session(SessionVerb::Exec) => self.end_block(true).await,
            Route::Session(SessionVerb::Discard) => self.end_block(false).await,
            // A server that has begun the block gives the replies to these; they begin none.
            Route::Session(SessionVerb::Multi | SessionVerb::Watch)
                if self.block.as_ref().is_some_and(|block| block.leg.is_some()) =>
            {
                self.queue(None).await
            }
            Route::Session(SessionVerb::Multi) => {
                self.answer(error_frame("ERR MULTI calls can not be nested"));
                Ok(())
            }
            Route::Session(SessionVerb::Watch) => {
                self.answer(error_frame("ERR WATCH inside MULTI is not allowed"));
                Ok(())
            }
            Route::Session(SessionVerb::Reset | SessionVerb::Quit) => {
                self.drop_block().await?;
                self.settle().await?;
                self.watching = None;
                let route = self.route();
                Box::pin(self.take_alone(route)).await
            }
            // Only one database can be selected, so no other shard needs to know.
            Route::Session(SessionVerb::Unwatch | SessionVerb::Select) | Route::Any | Route::AnyInfo => {
                self.queue(None).await
            }
            Route::Slot(slot) => self.queue(Some(slot)).await,
            Route::Cross | Route::Split(_) => {
                self.breaks(self.cross_slot());
                Ok(())
            }
            Route::Refused(error) => {
                self.breaks(error);
                Ok(())
            }
            Route::Okay
            | Route::Face
            | Route::Every(_)
            | Route::Flush
            | Route::Scan
            | Route::Draw
            | Route::Wait
            | Route::Caching
            | Route::Flag
            | Route::Session(_) => {
                self.breaks(
                    "ERR lockwarden stands before a whole cluster, and this command is not for one block of it",
                );
                Ok(())
            }
        }
    }

    async fn queue(&mut self, slot: Option<u16>) -> Result<(), Over> {
        let (before, leg) = self.block.as_ref().map_or((None, None), |block| (block.slot, block.leg));
        if before.is_some() && slot.is_some() && before != slot {
            self.breaks(self.cross_slot());
            return Ok(());
        }
        let wanted = match slot.filter(|_| before.is_none()) {
            Some(slot) => match self.reach(slot).await? {
                Ok(at) => Some(at),
                Err(error) => {
                    self.breaks(error);
                    return Ok(());
                }
            },
            None => None,
        };
        let bound = leg.or(self.watching);
        let at = match (bound, wanted) {
            (Some(bound), Some(wanted)) if bound != wanted => {
                self.breaks(self.cross_slot());
                return Ok(());
            }
            (Some(at), _) | (None, Some(at)) => at,
            (None, None) => self.home().await?,
        };
        if leg.is_none()
            && let Err(error) = self.opens_block(at).await?
        {
            self.breaks(&error);
            return Ok(());
        }
        if let Some(block) = &mut self.block {
            block.leg = Some(at);
            block.slot = before.or(slot);
        }
        self.send(at);
        Ok(())
    }

    /// Has a server begin the block. Commands are queued only after that: otherwise they would be executed at once.
    /// An error is the server's.
    async fn opens_block(&mut self, at: usize) -> Result<Result<(), String>, Over> {
        // CLIENT CACHING before MULTI is for the whole block.
        self.send_ahead(at);
        self.settle().await?;
        let reply = self.ask_aside(at, MULTI).await?;
        Ok(match reply.strip_prefix(b"-") {
            Some(error) => Err(String::from_utf8_lossy(error).trim_end().to_owned()),
            None => Ok(()),
        })
    }

    /// An error inside of the block: it will not be carried out.
    fn breaks(&mut self, error: &str) {
        self.answer(error_frame(error));
        if let Some(block) = &mut self.block {
            block.is_broken = true;
        }
    }

    /// `EXEC` or `DISCARD`.
    async fn end_block(&mut self, carry_out: bool) -> Result<(), Over> {
        let (leg, is_broken) = self.block.as_ref().map_or((None, false), |block| (block.leg, block.is_broken));
        match leg {
            Some(at) if !is_broken => self.send(at),
            Some(_) => {
                self.drop_block().await?;
                self.answer(if carry_out { error_frame(ABORTED).freeze() } else { OK.into() });
            }
            // Nothing was queued; but keys may be watched, and then their server says whether they were changed.
            None => match self.watching {
                Some(at) if carry_out && !is_broken => match self.opens_block(at).await? {
                    Ok(()) => self.send(at),
                    Err(error) => self.answer(error_frame(&error)),
                },
                watched => {
                    if let Some(at) = watched {
                        self.send_hidden(at, UNWATCH);
                    }
                    self.answer(match (carry_out, is_broken) {
                        (true, true) => error_frame(ABORTED).freeze(),
                        (true, false) => b"*0\r\n"[..].into(),
                        (false, _) => OK.into(),
                    });
                }
            },
        }
        self.block = None;
        self.watching = None;
        self.ahead = None;
        Ok(())
    }

    /// Has the server discard the queued commands.
    async fn drop_block(&mut self) -> Result<(), Over> {
        if let Some(at) = self.block.take().and_then(|block| block.leg) {
            self.send_hidden(at, DISCARD);
        }
        Ok(())
    }

    /// `WATCH`.
    pub(super) async fn watch(&mut self) -> Result<(), Over> {
        let mut slots = self.words().into_iter().skip(1).map(|key| slot(&key));
        let Some(slot) = slots.next() else {
            let at = self.home().await?;
            self.send(at);
            return Ok(());
        };
        let at = match slots.all(|other| other == slot) {
            true => self.reach(slot).await?,
            false => Err(CROSS_SLOT),
        };
        match at {
            Ok(at) if self.watching.is_none_or(|watching| watching == at) => {
                self.settle().await?;
                let frame = self.request_frame();
                let reply = self.ask(at, &frame).await?;
                let (at, reply) = self.follow(at, &frame, reply).await?;
                if reply.starts_with(b"+") {
                    self.watching = Some(at);
                }
                self.answer(reply);
            }
            Ok(_) | Err(CROSS_SLOT) => {
                let error = self.cross_slot();
                self.answer(error_frame(error));
            }
            Err(_) => self.answer(error_frame(NOT_SERVED)),
        }
        Ok(())
    }

    /// `UNWATCH`.
    pub(super) async fn unwatch(&mut self) -> Result<(), Over> {
        match self.watching.take() {
            Some(at) => self.send(at),
            None => self.answer(OK),
        }
        Ok(())
    }

    /// The error for a block whose slot is being moved: none of it is carried out.
    pub(super) fn moved_in_block(&mut self) {
        self.want_map();
        self.is_answered();
        let error =
            "TRYAGAIN lockwarden: the slot of this transaction moves to another server; none of it was done, try again";
        self.due.push_front(Due::Local(error_frame(error).freeze()));
    }
}
