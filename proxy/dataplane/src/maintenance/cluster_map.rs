//! Asks the nodes of a cluster who has which slots: one of them each second, in turn, and all of them when the map was found not to
//! be right any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backend::cluster::{ClusterMap, nodes};
use crate::backend::sentinel::Place;
use crate::backend::{BackendError, Conversation};
use crate::state::ProxyState;

/// Between two questions, where nothing has happened.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Between two rounds at least.
const BREATH: Duration = Duration::from_millis(100);
/// How long one node may take to be reached and to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// Runs until the process ends; returns at once where there is no cluster.
pub async fn run(shared: Arc<ProxyState>) {
    let Some(map) = shared.shards.map().cloned() else {
        return;
    };
    let mut asking = Asking { shared, map: map.clone(), open: HashMap::new(), turn: 0 };
    // Before anything is known, all are asked.
    let mut all = true;
    loop {
        asking.ask(all).await;
        sleep(BREATH).await;
        all = tokio::select! {
            () = map.is_wanted() => true,
            () = sleep(ASK_EVERY) => map.slots().served() == 0,
        };
    }
}

struct Asking {
    shared: Arc<ProxyState>,
    map: Arc<ClusterMap>,
    /// Connections to nodes.
    open: HashMap<Place, Conversation>,
    /// Whose turn it is.
    turn: usize,
}

impl Asking {
    /// Asks all nodes, or the next one that answers.
    async fn ask(&mut self, all: bool) {
        let places = self.map.places();
        self.open.retain(|place, _| places.contains(place));
        let mut silent = Vec::new();
        for step in 0..places.len() {
            let place = &places[(self.turn + step) % places.len()];
            match self.ask_one(place).await {
                Ok(()) if all => {}
                Ok(()) => {
                    self.turn = (self.turn + step + 1) % places.len();
                    return;
                }
                Err(why) => {
                    tracing::debug!(node = %place, why, "a node of the cluster does not tell who has which slots");
                    silent.push(format!("{place}: {why}"));
                }
            }
        }
        if silent.len() == places.len() {
            self.map.is_silent(silent.join("; "));
        }
    }

    async fn ask_one(&mut self, place: &Place) -> Result<(), String> {
        let asked = async {
            let mut own = match self.open.remove(place) {
                Some(own) => own,
                None => self.shared.backend.address.of_node(place).converse().await?,
            };
            let told = nodes::ask(&mut own).await?;
            Ok::<_, BackendError>((own, told))
        };
        let (own, told) = match timeout(PATIENCE, asked).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer within {PATIENCE:?}")),
        };
        self.open.insert(place.clone(), own);
        let told = told?;
        if self.map.told(&told, place) {
            let slots = self.map.slots();
            tracing::debug!(node = %place, served = slots.served(), "the map of the cluster has changed");
        }
        if self.map.slots().served() == 0 {
            return Err("it knows of no slots that are served".to_owned());
        }
        Ok(())
    }
}
