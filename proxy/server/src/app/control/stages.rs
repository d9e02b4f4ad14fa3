//! The stages of the chains that are evaluated beside those in force, and their differing answers.

use std::sync::Arc;

use lockwarden_console::admin::ControlError;
use lockwarden_console::view::api;
use lockwarden_control::config;
use lockwarden_control::config::{Config, Stage};
use lockwarden_control::ruleset::activate::meaning;
use lockwarden_control::ruleset::{Active, Rollouts};
use lockwarden_control::telemetry::audit;
use lockwarden_control::telemetry::changes::Compared;
use lockwarden_dataplane::state::ProxyState;

/// Applies an order. Like an order about the mode, it holds until the configuration is loaded again.
pub(super) fn order(
    (shared, config): (&ProxyState, &mut Config),
    namespace: Option<&str>,
    stage: &str,
    by: audit::Client,
) -> Result<Vec<api::Next>, ControlError> {
    let stage = match stage {
        "back" => Stage::default(),
        word => config::stage(word).map_err(|error| ControlError::Invalid(error.to_string()))?,
    };
    let before = shared.active.load_full();
    let mut details = before.details.clone();
    let mut switched = Vec::new();
    for (details, configured) in details.iter_mut().zip(&mut config.namespaces) {
        let is_meant = namespace.is_none_or(|name| name == &*details.name);
        if let (true, Some(next), Some(chain)) = (is_meant, &mut details.next, &mut configured.next) {
            (next.stage, chain.stage) = (stage, stage);
            config.said.order_stage(&details.name, stage);
            switched.push(details.name.clone());
        }
    }
    if switched.is_empty() {
        let those = before.details.iter().filter(|details| details.next.is_some());
        let those: Vec<&str> = those.map(|details| &*details.name).collect();
        let text = match (namespace, those.is_empty()) {
            (_, true) => "nothing is asked beside what is in force: write [policy.next] or [namespace.next]".to_owned(),
            (name, false) => {
                let (name, those) = (name.unwrap_or_default(), those.join(", "));
                format!("nothing is asked beside what is in force in {name:?}, only in {those}")
            }
        };
        return Err(ControlError::NotFound(text));
    }
    let rollouts = Rollouts::of(&details);
    let meaning = Arc::new(meaning(config, &before.generation));
    shared.metrics.set_config_hash(meaning.hash());
    let active = Arc::new(Active { rollouts, meaning, ..before.with_details(details) });
    shared.active.store(active.clone());
    let words: Vec<String> = switched.iter().map(|name| format!("{name}={stage}")).collect();
    shared.audit.ordered("stage-switched", || active.in_force(), Some(&words.join(" ")), Some(by));
    for namespace in &switched {
        tracing::warn!(namespace = &**namespace, %stage, "stage of what is asked beside switched");
    }
    Ok(compared(&active))
}

/// The answers of the chains that are evaluated beside those in force.
pub(super) fn compared(active: &Active) -> Vec<api::Next> {
    let nexts = active.details.iter().filter_map(|details| {
        let next = details.next.as_ref()?;
        let Compared { since, same, changes } = next.beside.found();
        Some(api::Next {
            namespace: details.name.to_string(),
            stage: next.stage.to_string(),
            policies: active.generation.chain(next.chain).map(|name| name.to_string()).collect(),
            since,
            same,
            changes,
        })
    });
    nexts.collect()
}
