//! A shared connection on which nothing comes although replies are due. It gets no new sessions at once: whatever the
//! reason is, they need not wait behind it. It is given up only if the backend answers the same kind of request over
//! a new connection. A script that runs for long, writes that are held back (`CLIENT PAUSE`) and a server that stands
//! still keep all connections waiting, and end by themselves.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockwarden_resp::Value;
use tokio::time::{Instant, Sleep};

use super::SharedConnection;
use crate::backend::profile::{Profile, Traffic};
use crate::backend::{Backend, pool};

/// Between two checks whether something has come.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After this many checks in vain (10 s) the backend is asked whether it answers on other connections, and again
/// after as many more.
const LOOKS_IN_VAIN: u32 = 20;

/// Why a connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The backend answers on other connections.
    Frozen,
    /// No client waits for the replies that are due.
    Forsaken,
}

/// Checks whether something comes on a shared connection. Its timer runs only while a reply is due.
pub(super) struct Watch {
    connection: Rc<SharedConnection>,
    backend: Arc<Backend>,
    timer: Pin<Box<Sleep>>,
    is_running: bool,
    /// How often something has come, now and at the last check.
    came: u64,
    seen: u64,
    in_vain: u32,
    question: Option<Question>,
    /// The backend has answered on another connection since something came last. Replies that it held back for this
    /// connection may still be under way: it goes on with both at the same moment.
    others_answered: bool,
}

/// The question whether the backend answers on other connections.
struct Question {
    asked: Pin<Box<dyn Future<Output = bool>>>,
    /// How often something had come when it was asked.
    came: u64,
}

impl Watch {
    pub(super) fn new(connection: Rc<SharedConnection>, backend: Arc<Backend>) -> Watch {
        Watch {
            connection,
            backend,
            timer: Box::pin(tokio::time::sleep(LOOK_EVERY)),
            is_running: false,
            came: 0,
            seen: 0,
            in_vain: 0,
            question: None,
            others_answered: false,
        }
    }

    pub(super) fn something_came(&mut self) {
        self.came += 1;
    }

    /// Ready when the connection has to end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if let Some(Question { asked, came }) = &mut self.question
            && let Poll::Ready(is_answered) = asked.as_mut().poll(cx)
        {
            self.others_answered = is_answered && *came == self.came;
            (self.question, self.in_vain) = (None, 0);
            // The next check begins a whole interval from now.
            self.is_running = false;
        }
        loop {
            if !self.is_running {
                if self.connection.inner.borrow().due.is_empty() {
                    return Poll::Pending;
                }
                if self.came != self.seen {
                    (self.seen, self.in_vain, self.others_answered) = (self.came, 0, false);
                }
                self.timer.as_mut().reset(Instant::now() + LOOK_EVERY);
                self.is_running = true;
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.is_running = false;
            if self.came == self.seen
                && let Some(end) = self.looked_in_vain(cx)
            {
                return Poll::Ready(end);
            }
        }
    }

    /// Nothing has come since the last check.
    fn looked_in_vain(&mut self, cx: &mut Context<'_>) -> Option<End> {
        if self.connection.inner.borrow().due.is_empty() {
            return None;
        }
        if self.connection.is_forsaken() {
            return Some(End::Forsaken);
        }
        if self.others_answered {
            return Some(End::Frozen);
        }
        pool::set_aside(&self.connection);
        self.in_vain += 1;
        if self.in_vain >= LOOKS_IN_VAIN && self.question.is_none() {
            let (profile, traffic) = (self.connection.profile.clone(), self.connection.traffic);
            let mut asked = Box::pin(is_answered(profile, traffic, self.backend.clone()));
            // It has to be polled once to wake this task.
            if asked.as_mut().poll(cx).is_pending() {
                let came = self.came;
                self.question = Some(Question { asked, came });
            }
        }
        None
    }
}

/// Whether the backend answers a request of this traffic over a new connection. If this user may not ask, the proxy's
/// own user does.
async fn is_answered(profile: Profile, traffic: Traffic, backend: Arc<Backend>) -> bool {
    // Redis holds it back while writes are held back, because it may write; but it writes nothing.
    let words: &[&str] = match traffic {
        Traffic::Reads => &["PING"],
        Traffic::Writes => &["EVAL", "return 1", "0"],
    };
    let asked = async {
        let mut conversation = backend.converse_as(&profile).await?;
        let answer = conversation.ask(words).await?;
        if !lacks_rights(&answer) {
            return Ok(answer);
        }
        backend.address.converse().await?.ask(words).await
    };
    let answer: Result<Value, crate::backend::BackendError> = asked.await;
    answer.is_ok_and(|answer| !answer.is_error())
}

fn lacks_rights(answer: &Value) -> bool {
    let codes = [&b"NOPERM"[..], b"NOAUTH", b"ERR unknown command"];
    let begins = |text: &[u8]| codes.iter().any(|code| text.starts_with(code));
    answer.as_error().is_some_and(|text| begins(text))
}
