//! The end of a client's connection: its last replies, and the sessions that stay for as long as they hold leases of the client.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;

use super::leg::Leg;
use super::{Front, Over};

/// How long a client gets to take some of its last replies before the connection is closed anyway.
const LAST_REPLIES: Duration = Duration::from_secs(5);
/// How often to check whether an ended leg still has leases of the client.
const LOOK_FOR_LEASES: Duration = Duration::from_secs(1);

impl Front {
    /// Ends the client's connection, and waits until its sessions have ended.
    pub(super) async fn finish(mut self: Box<Self>, over: Over) {
        match over {
            Over::Client(why) => self.close_legs(why),
            Over::Evicted => {
                self.to_client = BytesMut::new();
                self.close_legs(Some(io::ErrorKind::ConnectionAborted));
            }
            Over::Done => {
                self.last_replies().await;
                self.close_legs(None);
            }
            Over::Backend => {
                self.last_replies().await;
                // The client is told, as it would be by Redis. Until it closes its own end it counts as present, and
                // its locks are kept alive.
                let _ = self.socket.stream().shutdown_write();
                self.socket.was_told_goodbye();
                self.wait_for_holder().await;
                self.close_legs(None);
            }
        }
        let mut legs: Vec<Leg> = self.legs.drain(..).flatten().chain(self.left.drain(..)).collect();
        let all_gone = poll_fn(|cx| {
            legs.retain_mut(|leg| {
                while let Poll::Ready(Ok(1..)) = leg.pipe.poll_take(&mut leg.from, cx) {
                    leg.from.clear();
                }
                leg.pipe.poll_alone(cx).is_pending()
            });
            if legs.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        all_gone.await;
    }

    fn close_legs(&mut self, why: Option<io::ErrorKind>) {
        for leg in self.legs.iter().flatten().chain(&self.left) {
            leg.pipe.close(why);
        }
    }

    /// Writes the replies that are there for the client; replies that are due and have not come are lost.
    async fn last_replies(&mut self) {
        let writing = async {
            while !self.to_client.is_empty() {
                if self.flush().is_err() {
                    return;
                }
                if !self.to_client.is_empty() && poll_fn(|cx| self.socket.stream().poll_write_ready(cx)).await.is_err()
                {
                    return;
                }
            }
        };
        // A client that takes nothing any more is closed anyway.
        let _ = tokio::time::timeout(LAST_REPLIES, writing).await;
    }

    /// Waits as long as sessions hold leases of a client that sends nothing more.
    async fn wait_for_holder(&mut self) {
        let mut drain = self.shared.drain.subscribe();
        let mut legs: Vec<Leg> = self.legs.drain(..).flatten().chain(self.left.drain(..)).collect();
        while !*drain.borrow() {
            let (holding, others): (Vec<Leg>, Vec<Leg>) = legs.into_iter().partition(Leg::holds);
            legs = holding;
            for leg in others {
                leg.pipe.close(None);
                self.left.push(leg);
            }
            if legs.is_empty() {
                return;
            }
            let stirs = poll_fn(|cx| self.socket.stream().poll_peek(cx));
            tokio::select! {
                _ = stirs => break,
                _ = drain.changed() => {}
                () = tokio::time::sleep(LOOK_FOR_LEASES) => {}
            }
        }
        self.left.extend(legs);
    }
}
