//! The next versions of policies (`[policy.next]`) in the `next` chains of namespaces.

use std::collections::HashMap;

use super::finding::{Place, Position};
use super::namespace::NamespaceConfig;
use super::next::NextChain;
use super::policy::PolicyModule;
use super::reader::Reader;
use super::stage::{NEXT, Stage};
use super::suggest::quoted;

/// Puts the next version of a policy into the `next` chains of the namespaces that use the policy.
pub(super) fn follow_policies(reader: &mut Reader<'_>, namespaces: &mut [NamespaceConfig], modules: &[PolicyModule]) {
    for namespace in namespaces {
        let table = namespace.next.take();
        let chain = table.as_ref().map_or(&namespace.policies, |next| &next.policies);
        let nexts = |policy: &String| {
            let name = format!("{policy}{NEXT}");
            let module = modules.iter().find(|module| module.name == name)?;
            Some((module.stage?, name))
        };
        let stages: Vec<(Stage, String)> = chain.iter().filter_map(nexts).collect();
        let Some(stage) = table.as_ref().map(|next| next.stage).or_else(|| stages.first().map(|(stage, _)| *stage))
        else {
            continue;
        };
        let place = Place::File {
            path: reader.document.path.to_owned(),
            position: namespace.line.map(|line| Position { line, column: 1 }),
        };
        let scope = format!("namespace {}: ", quoted(&namespace.name));
        if table.is_none() && stages.iter().any(|(other, _)| *other != stage) {
            let named = stages.iter().map(|(stage, policy)| format!("{policy} ({stage})"));
            let named = named.collect::<Vec<String>>().join(" and ");
            let message = format!("{scope}its policies have next versions in other stages: {named}; give them one");
            reader.findings.error(place, message);
            continue;
        }
        let policies =
            chain.iter().map(|policy| nexts(policy).map_or_else(|| policy.clone(), |(_, name)| name)).collect();
        let next = match table {
            Some(next) => NextChain { policies, ..*next },
            None => NextChain {
                stage,
                policies,
                settings: namespace.settings.clone(),
                rules: namespace.rules.clone(),
                policy_positions: HashMap::new(),
                setting_positions: HashMap::new(),
            },
        };
        if next.policies == namespace.policies
            && next.policies.iter().all(|policy| next.settings.get(policy) == namespace.settings.get(policy))
        {
            let message = format!("{scope}next: it is what is in force, so nothing is compared");
            reader.findings.warning(place, message);
            continue;
        }
        namespace.next = Some(Box::new(next));
    }
}
