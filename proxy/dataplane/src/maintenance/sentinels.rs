//! Asks every sentinel each second where the primary is, and at once when one of them reports a failover.
//! `backend::sentinel` weighs their answers; a server that only some of them name is asked here whether it can prove
//! its descent.

mod hearing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_lock::companion::Home;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::backend::sentinel::{Place, SentinelError, Sentinels};
use crate::state::ProxyState;
use hearing::Hearing;

/// Between two questions to one sentinel. What it pushes comes sooner.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between two checks whether sentinels have named others, and whether they are heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to prove its descent. It is asked again as long as some sentinel names it.
const PROVED_WITHIN: Duration = Duration::from_secs(1);

/// Runs until the process ends; returns at once if there are no sentinels.
pub async fn run(shared: Arc<ProxyState>) {
    let Some(sentinels) = shared.backend.address.authority.sentinels().cloned() else {
        return;
    };
    let proving = tokio::spawn(prove_descent(shared.clone(), sentinels.clone()));
    let mut asked: HashMap<Place, JoinHandle<()>> = HashMap::new();
    let mut hearing = Hearing::default();
    while !proving.is_finished() {
        asked.retain(|_, task| !task.is_finished());
        for place in sentinels.places() {
            let asking = || tokio::spawn(ask_one(sentinels.clone(), place.clone()));
            asked.entry(place.clone()).or_insert_with(asking);
        }
        hearing.look(&sentinels, &shared.metrics, Instant::now());
        sleep(LOOK_EVERY).await;
    }
}

/// Asks servers that only some sentinels name whether they go on with the data of the primary that is followed.
async fn prove_descent(shared: Arc<ProxyState>, sentinels: Arc<Sentinels>) {
    loop {
        let contenders = sentinels.contenders().await;
        let Some(lineage) = sentinels.lineage() else {
            continue;
        };
        let mut asking = JoinSet::new();
        for named in contenders {
            let (shared, lineage) = (shared.clone(), lineage.clone());
            asking.spawn(async move {
                let key = Home::WHOLE.era_key(&shared.active.load().companion_prefix);
                let proof = shared.backend.address.descends(&named, &lineage, &key);
                (timeout(PROVED_WITHIN, proof).await, named)
            });
        }
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((Ok(Ok(true)), named)) => sentinels.descends(&named),
                Ok((Ok(Err(error)), named)) => tracing::debug!(place = %named.place, %error, "no descent is proved"),
                Ok((Ok(Ok(false)) | Err(_), named)) => tracing::debug!(place = %named.place, "no descent is proved"),
                Err(error) => tracing::debug!(%error, "a server could not be asked for its descent"),
            }
        }
    }
}

/// Asks one sentinel, until it is forgotten.
async fn ask_one(sentinels: Arc<Sentinels>, place: Place) {
    let mut was: Option<SentinelError> = None;
    while sentinels.knows(&place) {
        let Err(error) = converse(&sentinels, &place).await;
        if was.as_ref() != Some(&error) {
            tracing::debug!(sentinel = %place, %error, "a sentinel cannot be asked");
        }
        sentinels.told(&place, Err(error.clone()), Instant::now());
        was = Some(error);
        sleep(ASK_EVERY).await;
    }
}

/// One connection that asks and one that listens, from their opening to the end of either.
async fn converse(sentinels: &Sentinels, place: &Place) -> Result<std::convert::Infallible, SentinelError> {
    let mut asking = sentinels.converse(place).await?;
    let mut listening = sentinels.converse(place).await?;
    listening.subscribe().await?;
    loop {
        let at = Instant::now();
        let asked = asking.ask(sentinels.name()).await?;
        sentinels.told(place, Ok(asked), at);
        // It reported a failover, or it is time to ask.
        if let Ok(Err(error)) = timeout(ASK_EVERY, listening.hear()).await {
            return Err(error);
        }
    }
}
