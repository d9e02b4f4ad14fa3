//! Clients of listeners that are Sentinels (`present = "sentinel"`): an application that is configured with sentinels
//! finds the proxy through them. They need no backend, so they are answered even while there is none: a client that
//! waits for the proxy is better off than one that gives up. Nothing is ever published: from outside the primary
//! never changes. `dialogue` has the replies.

mod answer;
mod commands;
mod dialogue;
mod sentinel;
mod subscriptions;

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use lockwarden_control::net::buffer_pool;
use lockwarden_control::net::peer::PeerAddress;
use lockwarden_control::net::stream::{Stream, poll_read};
use lockwarden_control::telemetry::vocabulary::{ProtocolErrorKind, Side};
use lockwarden_resp::{RequestDecoder, RequestError, RequestLimits, Step, put_error};
use prometheus::IntGauge;
use tokio::io::AsyncWriteExt;

use crate::state::ProxyState;
use dialogue::{Dialogue, Next};
pub use sentinel::{Primary, Sentinel};

/// Requests to a sentinel are short, and its clients need not log in.
const LIMITS: RequestLimits = RequestLimits {
    max_args: 64,
    max_bulk: 16 * 1024,
    max_inline: 16 * 1024,
    max_header_line: 32,
    max_frame: 16 * 1024,
    unauthenticated: false,
};

/// Bytes of unsent replies beyond which further requests wait.
const MAX_UNSENT: usize = 64 * 1024;

/// The connection of a client that takes none of its replies for this long is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a client was closed.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the client left")]
    Client,
    #[error("the proxy stops")]
    Drain,
    #[error(transparent)]
    Malformed(RequestError),
    #[error(transparent)]
    Io(io::Error),
    #[error("the client did not read its replies")]
    Stalled,
}

/// Answers a client until it closes its connection or the proxy stops. `said` is what the client has sent already.
pub async fn serve(shared: &ProxyState, sentinel: &Sentinel, mut stream: Stream, peer: PeerAddress, said: BytesMut) {
    let _counted = Counted::new(&shared.metrics.client_connections);
    // Without a port there would be no listener.
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let entrance = stream.local_ip().unwrap_or(nowhere);
    let conversation = Conversation {
        dialogue: Dialogue::new(sentinel, peer, entrance, Instant::now()),
        decoder: RequestDecoder::new(LIMITS),
        inbox: said,
        out: BytesMut::new(),
    };
    let mut drain = shared.drain.subscribe();
    let end = tokio::select! {
        end = conversation.go_on(&mut stream) => end,
        // Clients that ask from now on should ask another proxy.
        _ = drain.wait_for(|draining| *draining) => End::Drain,
    };
    match end {
        End::Malformed(error) => {
            let kind = match error {
                RequestError::Tls => ProtocolErrorKind::Tls,
                _ => error.kind().into(),
            };
            let errors = shared.metrics.protocol_errors.at(Side::Client);
            errors.at(kind).inc();
            tracing::info!(client = %peer, %error, "closing a connection to a sentinel: not a request");
        }
        End::Client | End::Drain | End::Io(_) | End::Stalled => {
            tracing::debug!(client = %peer, %end, "a client's connection to a sentinel ended");
        }
    }
    let _ = stream.shutdown_write();
}

/// One client and the bytes of both directions.
struct Conversation<'a> {
    dialogue: Dialogue<'a>,
    decoder: RequestDecoder,
    inbox: BytesMut,
    out: BytesMut,
}

impl Conversation<'_> {
    async fn go_on(mut self, stream: &mut Stream) -> End {
        loop {
            let asked = self.answer_what_is_here();
            if let Err(End::Malformed(error)) = &asked
                && let Some(line) = error.reply()
            {
                put_error(&mut self.out, &*line);
            }
            let is_full = self.out.len() >= MAX_UNSENT;
            if let Err(end) = self.send(stream).await {
                return end;
            }
            if let Err(end) = asked {
                return end;
            }
            if is_full {
                continue;
            }
            match poll_fn(|cx| poll_read(stream, &mut self.inbox, cx)).await {
                Ok(0) => return End::Client,
                Ok(_) => {}
                Err(error) => return End::Io(error),
            }
        }
    }

    /// Answers the requests that have come, as long as there is room for replies.
    fn answer_what_is_here(&mut self) -> Result<(), End> {
        let now = Instant::now();
        buffer_pool::open(&mut self.out);
        while self.out.len() < MAX_UNSENT {
            let consumed = match self.decoder.decode(&self.inbox).map_err(End::Malformed)? {
                Step::Request { consumed } => {
                    let request = self.decoder.request(&self.inbox);
                    if self.dialogue.answer(request, now, &mut self.out) == Next::Close {
                        return Err(End::Client);
                    }
                    consumed
                }
                Step::Ignored { consumed } => consumed,
                Step::Incomplete { .. } => break,
            };
            self.inbox.advance(consumed);
        }
        self.keep_little();
        Ok(())
    }

    /// While the client sends nothing, it uses no buffer of its thread.
    fn keep_little(&mut self) {
        let rest = BytesMut::from(&self.inbox[..]);
        self.inbox.clear();
        buffer_pool::give_back(&mut self.inbox);
        self.inbox = rest;
    }

    async fn send(&mut self, stream: &mut Stream) -> Result<(), End> {
        while !self.out.is_empty() {
            let written = tokio::time::timeout(PATIENCE, stream.write_buf(&mut self.out)).await;
            match written {
                Ok(Ok(0)) => return Err(End::Client),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(End::Io(error)),
                Err(_) => return Err(End::Stalled),
            }
        }
        buffer_pool::give_back(&mut self.out);
        Ok(())
    }
}

/// Counts a connection of a client while it lives.
struct Counted<'a>(&'a IntGauge);

impl<'a> Counted<'a> {
    fn new(gauge: &'a IntGauge) -> Counted<'a> {
        gauge.inc();
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
