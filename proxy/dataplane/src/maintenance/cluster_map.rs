//! Asks the nodes of a cluster which node has which slots. All primaries are asked each second, which also shows
//! whether most of them still name each other; the replicas are asked too when the map was found to be wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::backend::cluster::ClusterMap;
use crate::backend::cluster::nodes::{self, NodeLine};
use crate::backend::sentinel::Place;
use crate::backend::{Address, BackendError, Conversation};
use crate::state::ProxyState;

/// Between two rounds if nothing has happened.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two rounds.
const BREATH: Duration = Duration::from_millis(100);
/// How long one node may take to be reached and to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// Runs until the process ends; returns at once if there is no cluster.
pub async fn run(shared: Arc<ProxyState>) {
    let Some(map) = shared.shards.map().cloned() else {
        return;
    };
    let mut asking = Asking { shared, map: map.clone(), open: HashMap::new(), hears_few: false };
    // Before anything is known, all are asked.
    let mut all = true;
    loop {
        let answers = asking.ask(all).await;
        asking.look_at_silence();
        sleep(BREATH).await;
        all = tokio::select! {
            () = map.is_wanted() => true,
            () = sleep(ASK_EVERY) => answers == 0,
        };
    }
}

struct Asking {
    shared: Arc<ProxyState>,
    map: Arc<ClusterMap>,
    /// Connections to nodes.
    open: HashMap<Place, Conversation>,
    /// It was logged that few primaries are heard.
    hears_few: bool,
}

impl Asking {
    /// Asks all nodes, or the primaries, at the same time. Returns how many have reported slots that are served.
    async fn ask(&mut self, all: bool) -> usize {
        let asked = Instant::now();
        let known = self.map.places();
        self.open.retain(|place, _| known.contains(place));
        let places = if all { known } else { self.map.primaries() };
        let mut asking = JoinSet::new();
        for place in places {
            let address = self.shared.backend.address.of_node(&place);
            let own = self.open.remove(&place);
            asking.spawn(async move { (ask_one(address, own).await, place) });
        }
        let mut silent = Vec::new();
        let mut answers = 0;
        while let Some(done) = asking.join_next().await {
            let Ok((answer, place)) = done else {
                continue;
            };
            match answer.and_then(|(own, told)| self.take_in(own, told, &place, asked)) {
                Ok(()) => answers += 1,
                Err(why) => {
                    tracing::debug!(node = %place, why, "a node of the cluster does not tell who has which slots");
                    silent.push(format!("{place}: {why}"));
                }
            }
        }
        self.map.were_asked(asked);
        if answers == 0 && !silent.is_empty() {
            self.map.is_silent(silent.join("; "));
        }
        answers
    }

    fn take_in(
        &mut self,
        own: Conversation,
        told: Result<Vec<NodeLine>, String>,
        place: &Place,
        asked: Instant,
    ) -> Result<(), String> {
        self.open.insert(place.clone(), own);
        if self.map.told(&told?, place, asked) {
            let slots = self.map.slots();
            tracing::debug!(node = %place, served = slots.served(), "the map of the cluster has changed");
        }
        match self.map.slots().served() {
            0 => Err("it knows of no slots that are served".to_owned()),
            _ => Ok(()),
        }
    }

    fn look_at_silence(&mut self) {
        let (heard, primaries) = self.map.heard(Instant::now());
        let hears_few = heard * 2 <= primaries;
        // Until a primary is known no client is served, and that is logged with the reason.
        if primaries == 0 || hears_few == std::mem::replace(&mut self.hears_few, hears_few) {
            return;
        }
        match hears_few {
            true => tracing::warn!(
                heard,
                primaries,
                "half of the primaries of the cluster or more are not heard: a failover might not be noticed, so where there \
                 is a quarantine no free lock is granted"
            ),
            false => tracing::info!(heard, primaries, "most primaries of the cluster are heard again"),
        }
    }
}

/// The report of a node, over this connection or a new one.
async fn ask_one(
    address: Address,
    own: Option<Conversation>,
) -> Result<(Conversation, Result<Vec<NodeLine>, String>), String> {
    let asked = async {
        let mut own = match own {
            Some(own) => own,
            None => address.converse().await?,
        };
        let told = nodes::ask(&mut own).await?;
        Ok::<_, BackendError>((own, told))
    };
    match timeout(PATIENCE, asked).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
