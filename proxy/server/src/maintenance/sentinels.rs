//! Asks every sentinel each second where the primary is, and at once when one of them tells of a failover. What they say
//! is weighed in `backend::sentinel`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::backend::sentinel::{Place, SentinelError, Sentinels};
use crate::state::ProxyState;
use crate::telemetry::metrics::Metrics;

/// Between two questions to one sentinel. What it pushes comes sooner.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks whether sentinels have named others, and whether they are heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until the process ends; returns at once where there are no sentinels.
pub(crate) async fn run(shared: Arc<ProxyState>) {
    let Some(sentinels) = shared.backend.address.authority.sentinels().cloned() else {
        return;
    };
    let mut asked = HashSet::new();
    let mut silence = Silence::default();
    loop {
        for place in sentinels.places() {
            if asked.insert(place.clone()) {
                tokio::spawn(ask_one(sentinels.clone(), place));
            }
        }
        silence.look(&sentinels, &shared.metrics);
        sleep(LOOK_EVERY).await;
    }
}

/// Asks one sentinel, as long as the process runs.
async fn ask_one(sentinels: Arc<Sentinels>, place: Place) {
    let mut was: Option<SentinelError> = None;
    loop {
        let Err(error) = converse(&sentinels, &place).await;
        if was.as_ref() != Some(&error) {
            tracing::debug!(sentinel = %place, %error, "a sentinel cannot be asked");
        }
        sentinels.told(&place, Err(error.clone()), Instant::now());
        was = Some(error);
        sleep(ASK_EVERY).await;
    }
}

/// One connection that asks and one that listens, from their making to the end of either.
async fn converse(sentinels: &Sentinels, place: &Place) -> Result<std::convert::Infallible, SentinelError> {
    let mut asking = sentinels.converse(place).await?;
    let mut listening = sentinels.converse(place).await?;
    listening.subscribe().await?;
    loop {
        let at = Instant::now();
        let asked = asking.ask(sentinels.name()).await?;
        sentinels.told(place, Ok(asked), at);
        // It told of a failover, or it is time to ask.
        if let Ok(Err(error)) = timeout(ASK_EVERY, listening.hear()).await {
            return Err(error);
        }
    }
}

/// Says when no sentinel is heard any more, and when one is again.
#[derive(Default)]
struct Silence {
    is_told: bool,
}

impl Silence {
    fn look(&mut self, sentinels: &Sentinels, metrics: &Metrics) {
        let (heard, known) = sentinels.heard(Instant::now());
        metrics.sentinels_heard.set(i64::try_from(heard).unwrap_or(i64::MAX));
        metrics.sentinels_known.set(i64::try_from(known).unwrap_or(i64::MAX));
        if sentinels.named().is_none() {
            // Until then nobody is served, and that says why.
            return;
        }
        match (heard, self.is_told) {
            (0, false) => {
                tracing::warn!(
                    name = sentinels.name(),
                    sentinels = known,
                    why = %sentinels.silence(),
                    "no sentinel is heard: the primary is served on, and a failover would not be noticed"
                );
                self.is_told = true;
            }
            (1.., true) => {
                tracing::info!(name = sentinels.name(), heard, "sentinels are heard again");
                self.is_told = false;
            }
            _ => {}
        }
    }
}
