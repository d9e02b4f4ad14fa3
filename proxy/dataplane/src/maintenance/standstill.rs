//! Notices that this process stood still, and then asks which server is the primary: each sentinel again, or each
//! server itself. Until then sessions forward nothing, and connections to another server are cut before they do.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lockwarden_control::clock;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::backend::sentinel::Sentinels;
use crate::state::ProxyState;
use crate::state::standstill::TOO_LONG;

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(100);
/// A reply is not waited for longer than this: a server that is down is noticed elsewhere.
const ASK_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs until the process ends.
pub async fn run(shared: Arc<ProxyState>) {
    tokio::join!(look_at_the_time(&shared), ask_after_gaps(&shared));
}

/// A machine's sleep may not count on the monotonic clock, but it does on the clock of the day.
async fn look_at_the_time(shared: &ProxyState) {
    let (mut was, mut day) = (Instant::now(), SystemTime::now());
    loop {
        let (now, today) = (Instant::now(), SystemTime::now());
        shared.standstill.tick(now);
        let (passed, of_day) = (now.saturating_duration_since(was), today.duration_since(day));
        if of_day.is_ok_and(|of_day| of_day.saturating_sub(passed) > TOO_LONG) {
            shared.standstill.notice();
        }
        (was, day) = (now, today);
        sleep(TICK).await;
    }
}

async fn ask_after_gaps(shared: &Arc<ProxyState>) {
    loop {
        let gaps = shared.standstill.gaps().await;
        let begun = Instant::now();
        tracing::warn!(
            "this process stood still for more than {TOO_LONG:?}: nothing is forwarded until it was asked who is the primary"
        );
        let asked = timeout(ASK_WITHIN, ask(shared, begun)).await.is_ok();
        let ms = clock::ms(begun.elapsed());
        tracing::info!(ms, asked, "commands are forwarded again");
        shared.standstill.was_asked(gaps);
    }
}

async fn ask(shared: &Arc<ProxyState>, begun: Instant) {
    if let Some(map) = shared.shards.map() {
        map.want();
    }
    if let Some(sentinels) = shared.backend.address.authority.sentinels() {
        ask_sentinels(sentinels).await;
        // Connections to another server than they name are cut by then.
        while sentinels.turned_to() != sentinels.named() {
            sleep(LOOK_EVERY).await;
        }
        return;
    }
    let servers = shared.shards.each();
    for server in &servers {
        server.backend.server.doubt();
    }
    let map = shared.shards.map();
    while !servers.iter().all(|server| server.backend.server.was_asked_since(begun))
        || map.is_some_and(|map| !map.was_asked_since(begun))
    {
        sleep(LOOK_EVERY).await;
    }
}

/// Asks all at the same time: one that is not there takes half a second.
async fn ask_sentinels(sentinels: &Arc<Sentinels>) {
    let mut asking = JoinSet::new();
    for place in sentinels.places() {
        let sentinels = sentinels.clone();
        asking.spawn(async move { sentinels.ask(&place).await });
    }
    while asking.join_next().await.is_some() {}
}
