//! `/events`: the changed parts of the page, at most once a second, as server-sent events. Each listener costs one connection
//! and, for each update, one query of the view; their number is limited, and a page without a place tries again later. A
//! connection of the admin address lives 30 s at most (`connection_limits.rs`), so a reply ends before that and the browser
//! reconnects by itself: this also removes a listener that does not read within half a minute.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::HeaderMap;
use axum::http::{StatusCode, Uri};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use lockwarden_control::text::escape::readable_lines;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::asked::{Asked, site};
use super::page::parts;
use super::parts::Pace;
use super::shown::Shown;
use crate::admin::control::Control;
use crate::admin::reply::{in_background, problem};

/// Pages that get updates at the same time.
const MAX_LISTENERS: usize = 16;
/// Pause between two queries of the view.
const PAUSE: Duration = Duration::from_secs(1);
/// After a slow query the pause is this many times its duration: with a million locks the board still takes no more than a
/// twentieth of a thread's time.
const REST: u32 = 20;
/// The length of one reply; then the page reconnects. So the same lifetime limit holds for all connections, and a listener that
/// does not read is removed as soon as any other.
const ANSWER: Duration = Duration::from_secs(25);
/// The delay before a browser reconnects after that.
const AGAIN: Duration = Duration::from_millis(500);

/// The places for listening pages.
#[derive(Clone)]
pub(super) struct Listeners(Arc<Semaphore>);

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners(Arc::new(Semaphore::new(MAX_LISTENERS)))
    }
}

/// The content of an event.
#[derive(Serialize)]
struct News {
    now: u64,
    /// By the ids of their elements.
    parts: serde_json::Map<String, serde_json::Value>,
}

pub(super) async fn listen(
    State(control): State<Arc<dyn Control>>,
    uri: Uri,
    headers: HeaderMap,
    port: Option<u16>,
    listeners: Listeners,
) -> Response {
    let asked = match Asked::of(&uri) {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let Ok(place) = listeners.0.try_acquire_owned() else {
        let text = "too many pages are being kept up to date";
        return problem(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let (sender, receiver) = mpsc::channel(1);
    let look = Look { control, asked, site: site(&headers), port };
    tokio::spawn(tell(look, sender));
    Sse::new(Told { receiver, _place: place }).into_response()
}

struct Look {
    control: Arc<dyn Control>,
    asked: Asked,
    site: String,
    port: Option<u16>,
}

impl Look {
    /// The time, and every part at that time.
    fn parts(&self) -> (u64, Vec<(&'static str, String)>) {
        let shown = Shown::look(&*self.control, &self.asked, self.port);
        let parts = parts(&shown, &self.asked, &self.site, Pace::Script);
        let script_cache =
            parts.into_iter().map(|(id, part)| (id, readable_lines(&part.into_string()).into_owned())).collect();
        (shown.overview.now, script_cache)
    }
}

/// Sends the changes until the time is over or the listener is gone.
async fn tell(look: Look, listener: mpsc::Sender<Event>) {
    let look = Arc::new(look);
    let end = Instant::now() + ANSWER;
    let mut told: Vec<(&'static str, String)> = Vec::new();
    while Instant::now() < end {
        let before = Instant::now();
        let looking = look.clone();
        let Ok((now, parts)) = in_background(move || looking.parts()).await else {
            return;
        };
        let changed: serde_json::Map<_, _> = parts
            .iter()
            .filter(|part| !told.contains(part))
            .map(|(id, text)| ((*id).to_owned(), text.as_str().into()))
            .collect();
        if !changed.is_empty() {
            let news = News { now, parts: changed };
            let Ok(text) = serde_json::to_string(&news) else {
                return;
            };
            if listener.send(Event::default().retry(AGAIN).data(text)).await.is_err() {
                return;
            }
        }
        told = parts;
        let rest = PAUSE.max(before.elapsed() * REST);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = listener.closed() => return,
        }
    }
}

/// The events of one reply; dropping it frees its place.
struct Told {
    receiver: mpsc::Receiver<Event>,
    _place: OwnedSemaphorePermit,
}

impl Stream for Told {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(cx).map(|event| event.map(Ok))
    }
}
