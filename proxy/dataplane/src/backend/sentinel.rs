//! Where the primary is, according to sentinels. `members` keeps the last answer of each sentinel, and `candidates`
//! decides which server to follow. `lineage` is how a server proves that it is the next primary, `ask` the
//! conversation with one sentinel. `maintenance::sentinels` asks them again and again.

mod ask;
mod candidates;
mod lineage;
mod members;
pub(super) mod named;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lockwarden_control::config::SentinelTarget;
use lockwarden_control::net::tls::Connector;
use tokio::sync::{Notify, watch};

use super::heard::HeardMoments;
use super::own_login::OwnLogin;
pub use ask::SentinelConversation;
use ask::Way;
use candidates::Candidates;
pub use lineage::Lineage;
use members::Asked;
pub use named::{Named, Place, SentinelError, SentinelsError};

/// Sentinels that are known at most, including those that others name.
const MAX_KNOWN: usize = 32;
/// See the module.
pub struct Sentinels {
    target: SentinelTarget,
    way: Way,
    candidates: Mutex<Candidates>,
    moments: HeardMoments,
    named: watch::Sender<Option<Named>>,
    /// The primary that the proxy follows by now.
    turned_to: Mutex<Option<Named>>,
    /// What a successor of the primary can prove.
    lineage: Mutex<Option<Lineage>>,
    /// Signals that some sentinels name another primary, which may prove its descent.
    contended: Notify,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sentinels").field(&self.target.name).finish()
    }
}

impl Sentinels {
    pub(super) fn new(target: &SentinelTarget, connector: Option<Arc<Connector>>) -> Sentinels {
        let configured = target.sentinels.iter();
        let places = configured.map(|(host, port)| Place { host: host.clone(), port: *port });
        Sentinels {
            way: Way { login: target.login.clone().map(OwnLogin::new), connector },
            candidates: Mutex::new(Candidates::new(places, MAX_KNOWN)),
            moments: HeardMoments::default(),
            target: target.clone(),
            named: watch::Sender::new(None),
            turned_to: Mutex::default(),
            lineage: Mutex::default(),
            contended: Notify::new(),
        }
    }

    /// The name that the sentinels have for the primary.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// The addresses of all known sentinels.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.candidates().members.places()
    }

    /// Whether a sentinel with this address is known.
    pub(crate) fn knows(&self, place: &Place) -> bool {
        self.candidates().members.has(place)
    }

    /// The primary that is to be followed, once one was named.
    pub fn named(&self) -> Option<Named> {
        self.named.borrow().clone()
    }

    /// The primary that the proxy follows by now: all connections to the previous one were cut.
    pub(crate) fn turned_to(&self) -> Option<Named> {
        self.turned_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn turns_to(&self, named: &Named) {
        *self.turned_to.lock().unwrap_or_else(PoisonError::into_inner) = Some(named.clone());
    }

    /// Waits until another primary than this is to be followed.
    pub(crate) async fn changes(&self, from: &Named) -> Named {
        let mut named = self.named.subscribe();
        let is_another = |now: &Option<Named>| now.as_ref().is_some_and(|now| now != from);
        let changed = named.wait_for(is_another).await.map(|now| now.clone());
        match changed {
            Ok(Some(now)) => now,
            // The sender lives as long as this, and once a primary was named there always is one.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// How many sentinels answered lately, and how many there are.
    pub fn heard(&self, now: Instant) -> (usize, usize) {
        self.candidates().members.heard(now)
    }

    /// Since when most sentinels have been heard naming the primary that is followed; `None` if they never were.
    pub(crate) fn heard_by_most(&self) -> Option<Instant> {
        self.moments.naming()
    }

    /// Until when most sentinels named the previous primary: there was no other one until then. Returned once for
    /// each change.
    pub(crate) fn take_before(&self) -> Option<Instant> {
        self.moments.take_before()
    }

    /// Whether half of the sentinels or fewer have answered lately.
    pub(crate) fn are_few(&self, now: Instant) -> bool {
        self.moments.are_few(now)
    }

    /// The primary that most sentinels name now, if they agree.
    pub(crate) fn most_name(&self, now: Instant) -> Option<Named> {
        self.candidates().members.most_name(now)
    }

    /// Sentinels that are heard, and name another server than the one that is followed.
    pub(crate) fn dissenters(&self, now: Instant) -> Vec<(Place, Named)> {
        let followed = self.named();
        let is_other = |named: &Named| followed.as_ref().is_some_and(|followed| followed.place != named.place);
        let said = self.said(now).into_iter().filter_map(|(place, said)| Some((place, said.ok()?)));
        said.filter(|(_, named)| is_other(named)).collect()
    }

    /// Takes in the result of asking this sentinel at this moment: an answer may wait for its reader, and is as old
    /// as the question.
    pub fn told(&self, from: &Place, told: Result<Asked, SentinelError>, asked: Instant) {
        let (mut candidates, now) = (self.candidates(), Instant::now());
        candidates.told(from, told, asked, now);
        self.follow(&candidates, now);
        if !candidates.contenders(now).is_empty() {
            self.contended.notify_one();
        }
    }

    /// This server said that it is the primary.
    pub(crate) fn is_primary(&self, named: &Named) {
        self.candidates().is_primary(named);
    }

    /// This server could not be reached, or said that it is not the primary.
    pub(crate) fn is_not_primary(&self, named: &Named, now: Instant) {
        let mut candidates = self.candidates();
        candidates.is_not_primary(named, now);
        self.follow(&candidates, now);
    }

    /// What a successor of the primary that is followed can prove.
    pub fn lineage(&self) -> Option<Lineage> {
        self.lineage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_lineage(&self, lineage: Lineage) {
        *self.lineage.lock().unwrap_or_else(PoisonError::into_inner) = Some(lineage);
    }

    /// Waits until some sentinels name a newer primary than the one that is followed, and returns what they name.
    pub(crate) async fn contenders(&self) -> Vec<Named> {
        self.contended.notified().await;
        self.candidates().contenders(Instant::now())
    }

    /// This server has proved that it goes on with the data of the one that is followed.
    pub(crate) fn descends(&self, named: &Named) {
        let mut candidates = self.candidates();
        let now = Instant::now();
        candidates.descends(named, now);
        self.follow(&candidates, now);
    }

    /// A connection to this sentinel.
    pub async fn converse(&self, place: &Place) -> Result<SentinelConversation, SentinelError> {
        SentinelConversation::open(&self.way, place).await
    }

    /// Asks each sentinel once, and returns the primary to follow.
    pub(crate) async fn find(&self) -> Result<Named, SentinelsError> {
        for place in self.places() {
            self.ask(&place).await;
        }
        self.named().ok_or_else(|| self.silence())
    }

    /// Asks this sentinel once, over a connection that is made for it.
    pub async fn ask(&self, place: &Place) {
        let at = Instant::now();
        let asked = match self.converse(place).await {
            Ok(mut conversation) => conversation.ask(self.name()).await,
            Err(error) => Err(error),
        };
        self.told(place, asked, at);
    }

    /// Why no primary is known.
    pub(crate) fn silence(&self) -> SentinelsError {
        let each = self.said(Instant::now()).into_iter();
        let why = |(place, said): (Place, Result<_, Option<_>>)| Some((place, said.err()??));
        SentinelsError { name: self.target.name.clone(), each: each.filter_map(why).collect() }
    }

    /// What each sentinel says now; for one that is not heard: why, if that is known.
    pub fn said(&self, now: Instant) -> Vec<(Place, Result<Named, Option<SentinelError>>)> {
        self.candidates().members.said(now)
    }

    fn follow(&self, candidates: &Candidates, now: Instant) {
        self.named.send_if_modified(|now| {
            let is_news = now.as_ref() != candidates.followed();
            if is_news {
                self.moments.turn();
                *now = candidates.followed().cloned();
            }
            is_news
        });
        let naming = self.named().and_then(|followed| candidates.members.heard_by_most(&followed, now));
        self.moments.set(naming, candidates.members.most_heard_until(now));
    }

    fn candidates(&self) -> MutexGuard<'_, Candidates> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
