//! Checks at each heartbeat whether the server meets the needs of `durability = "strict:…"`. `state::quarantine`
//! reads the result; here it is logged, if it is news.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockwarden_control::ruleset::Active;

use crate::backend::server_info::is_for_now;
use crate::backend::strict::{Said, unmet};
use crate::backend::{BackendError, Conversation};
use crate::state::ProxyState;

/// Why a namespace grants no lock, by its name.
pub(super) type Unmet = BTreeMap<Arc<str>, String>;

/// Asks only if a namespace has strict `durability`.
pub(super) async fn look(shared: &ProxyState, own: &mut Conversation, known: &mut Unmet) -> Result<(), BackendError> {
    let active = shared.active.load();
    if active.details.iter().all(|details| details.strict().is_none()) {
        shared.backend.strict.set_said(None);
        known.clear();
        return Ok(());
    }
    let answer = own.ask(&["INFO"]).await?;
    // A server that is busy with a script grants nothing either.
    if !answer.as_error().is_some_and(|text| is_for_now(text)) {
        shared.backend.strict.set_said(Said::read(&answer));
    }
    report(shared, &active, known);
    Ok(())
}

/// Logs which namespaces grant no lock from now on, and which do again.
fn report(shared: &ProxyState, active: &Active, known: &mut Unmet) {
    let said = shared.backend.strict.said();
    let mut now = Unmet::new();
    for details in &active.details {
        let Some(replicas) = details.strict().filter(|_| details.is_enforced()) else {
            continue;
        };
        let why = unmet(said.as_deref(), replicas).join("; and ");
        let before = known.get(&details.name);
        if why.is_empty() {
            if before.is_some() {
                tracing::info!(namespace = &*details.name, "the server is what durability = \"strict\" needs again");
            }
            continue;
        }
        if before != Some(&why) {
            tracing::error!(
                namespace = &*details.name,
                why,
                "no free lock is granted: the server is not what durability = \"strict\" needs"
            );
        }
        now.insert(details.name.clone(), why);
    }
    *known = now;
}
