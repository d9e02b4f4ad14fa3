//! Redirects, which a node gives for a slot that is not its own, or not any more, are followed here. Nothing of such
//! a request was carried out, so it is sent to the server that has the slot.

use bytes::Bytes;
use lockwarden_resp::Redirect;
use tokio::time::Instant;

use super::route::Route;
use super::{Due, Front, LOOK_EVERY, NOT_SERVED, Over, decoded};
use crate::session::error_frame;

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";
pub(super) const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// How often a request is sent on without a pause.
const MAX_HOPS: usize = 3;

impl Front {
    /// The request at the head got a redirect: another server gives its reply. Until all others are answered no new
    /// request is taken.
    pub(super) async fn follow_head(&mut self, redirect: Bytes) -> Result<(), Over> {
        let Some(&Due::Leg { at, shown, kept, in_block, .. }) = self.due.front() else {
            return Ok(());
        };
        if in_block {
            self.moved_in_block();
            return Ok(());
        }
        self.is_settling = true;
        if kept == 0 {
            // It was too long to be kept; nothing of it was executed.
            self.want_map();
            self.is_answered();
            let error = error_frame(TRY_AGAIN).freeze();
            self.due.push_front(Due::Local(if shown { error } else { Bytes::new() }));
            return Ok(());
        }
        let request = Bytes::copy_from_slice(&self.kept[..kept]);
        let (_, reply) = self.follow(at, &request, redirect).await?;
        self.is_answered();
        if shown {
            self.due.push_front(Due::Local(reply));
        }
        Ok(())
    }

    /// The final reply to a request for which one leg gave this redirect, and the leg that gave the reply.
    pub(super) async fn follow(
        &mut self,
        mut at: usize,
        request: &[u8],
        mut redirect: Bytes,
    ) -> Result<(usize, Bytes), Over> {
        let since = Instant::now();
        let mut hops = 0;
        loop {
            // Where it is sent next, once that is known.
            let next = match Redirect::of(&redirect) {
                None => return Ok((at, redirect)),
                Some(Redirect::Moved(host, port)) => {
                    self.want_map();
                    let slot = self.slot_of(request);
                    self.next(at, (host, port), slot).await?
                }
                Some(Redirect::Ask(host, port)) => self.next(at, (host, port), None).await?,
                Some(Redirect::TryAgain) => {
                    self.rest(LOOK_EVERY).await?;
                    Some(at)
                }
                // Another server may have the slot by now.
                Some(Redirect::Down) => {
                    self.want_map();
                    self.rest(LOOK_EVERY).await?;
                    self.slot_of(request).and_then(|slot| self.leg_of(slot))
                }
            };
            if since.elapsed() >= self.shared.moving_patience {
                let error = match Redirect::of(&redirect) {
                    Some(Redirect::TryAgain | Redirect::Ask(..)) => TRY_AGAIN,
                    _ => NOT_SERVED,
                };
                return Ok((at, error_frame(error).freeze()));
            }
            let Some(to) = next else {
                self.rest(LOOK_EVERY).await?;
                continue;
            };
            // While a slot's move is being completed, both nodes may redirect to each other for a moment.
            hops += 1;
            if hops > MAX_HOPS {
                self.rest(LOOK_EVERY).await?;
            }
            at = to;
            self.take_early(at).await?;
            if let Some(Redirect::Ask(..)) = Redirect::of(&redirect) {
                self.ask_aside(at, ASKING).await?;
            }
            redirect = self.ask(at, request).await?;
        }
    }

    /// The leg to the primary that a redirect of this leg names, or else to the one that has the slot by now.
    async fn next(
        &mut self,
        from: usize,
        (host, port): (&[u8], u16),
        slot: Option<u16>,
    ) -> Result<Option<usize>, Over> {
        let (Some(leg), Some(map)) = (&self.legs[from], self.shared.shards.map()) else {
            return Ok(None);
        };
        let sender = leg.shard.backend.shard;
        let home = || map.home(slot?).filter(|id| *id != sender);
        let shard = map.at(host, port, sender).or_else(home);
        let Some(shard) = shard.and_then(|id| self.shared.shards.get(id)) else {
            self.want_map();
            return Ok(None);
        };
        self.leg_for(&shard).await
    }

    /// The slot of a request that was sent before.
    fn slot_of(&self, request: &[u8]) -> Option<u16> {
        decoded(request, |request| match self.route_of(request) {
            Route::Slot(slot) => Some(slot),
            _ => None,
        })
        .flatten()
    }

    /// Takes the replies to all requests under way on a leg, before anything else is sent there; those replies wait
    /// for their turn.
    async fn take_early(&mut self, at: usize) -> Result<(), Over> {
        loop {
            let head_is_here = matches!(self.due.front(), Some(Due::Leg { at: head, .. }) if *head == at);
            let Some(leg) = &self.legs[at] else {
                return Err(Over::Backend);
            };
            // The reply to the request that is followed has come.
            if leg.early() + usize::from(head_is_here) >= leg.due {
                return Ok(());
            }
            let frame = self.next_frame(at).await?;
            if let Some(leg) = &mut self.legs[at] {
                leg.keep_early(frame);
            }
        }
    }
}
