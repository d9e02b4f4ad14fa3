//! `next`: a future version of what judges a namespace, asked beside the chain in force. It is another version of a
//! policy (`[policy.next]`), or another chain with other settings and rules (`[namespace.next]`). What it does not set
//! is as in the namespace. `stage` sets which clients it answers.

use std::collections::{BTreeMap, HashMap};

use lockwarden_policy::RULES;

use super::finding::Position;
use super::keys::belongs_on_top;
use super::reader::{Reader, Section, key_table};
use super::rule::{self, RuleConfig};
use super::stage::{NEXT, Stage, stage};
use super::{chain, settings};

key_table! { pub(super) KEYS =
    stage: "\"shadow\"" = "\"shadow\"",
    policies: "[\"owner-token\", \"fencing\", \"ttl-ceiling\"]" = "(as in the namespace)",
    settings: "{ ttl-ceiling = { ceiling = \"10s\" } }",
    rule: "[{ name = \"ttl\", deny = 'ttl > 5s' }]",
}

/// Settings that the proxy itself uses, and not a policy's answer: they cannot be tried beside those in force.
const OF_THE_PROXY: [(&str, &str); 6] = [
    ("owner-token", "trust_address"),
    ("owner-token", "doubt"),
    ("owner-token", "debt_max_age"),
    ("ttl-ceiling", "grace"),
    ("ttl-ceiling", "keep_alive_by"),
    ("ttl-ceiling", "keep_alive.ttl"),
];

/// The chain that is asked beside the one in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextChain {
    pub stage: Stage,
    /// The whole chain; a policy's next version has a name of its own.
    pub policies: Vec<String>,
    /// The settings of each policy of that chain, by the policy's name in the file.
    pub(crate) settings: BTreeMap<String, Vec<(String, String)>>,
    pub(crate) rules: Vec<RuleConfig>,
    pub(super) policy_positions: HashMap<String, Position>,
    pub(super) setting_positions: HashMap<(String, String), Position>,
}

impl NextChain {
    /// The settings of this policy.
    pub(crate) fn settings_of(&self, policy: &str) -> &[(String, String)] {
        let settings = self.settings.get(policy.strip_suffix(NEXT).unwrap_or(policy));
        settings.map_or(&[], Vec::as_slice)
    }
}

/// What a namespace is judged by now.
pub(super) struct InForce<'a> {
    /// `None` where it could not be read.
    pub(super) chain: Option<&'a [String]>,
    pub(super) settings: &'a BTreeMap<String, Vec<(String, String)>>,
    pub(super) rules: &'a [RuleConfig],
}

/// Reads `[namespace.next]`, if the namespace has a usable one.
pub(super) fn read(
    reader: &mut Reader<'_>,
    namespace: &Section<'_, '_>,
    in_force: &InForce<'_>,
    known_policies: &[&str],
) -> Option<NextChain> {
    let table = reader.table(namespace, "next")?;
    let scope = format!("{}next: ", namespace.scope);
    let section = Section { table: table.value, span: table.span, known: KEYS, scope };
    let stage = reader.parsed(&section, "stage", stage).map_or(Stage::default(), |found| found.value);
    let mut policy_positions = HashMap::new();
    let mut chain =
        chain::read(reader, &section, known_policies, in_force.chain.unwrap_or_default(), &mut policy_positions);
    let rules = match section.table.contains_key("rule") {
        true => {
            let rules = rule::read(reader, &section);
            rule::in_chain(reader, &section, &rules, chain.as_mut());
            rules
        }
        false => in_force.rules.to_vec(),
    };
    let said = settings::read(reader, &section, chain.as_deref(), known_policies, &mut policy_positions);
    for (policy, setting) in OF_THE_PROXY {
        let is_said = said.positions.contains_key(&(policy.to_owned(), setting.to_owned()));
        if let (true, Some(table)) = (is_said, section.table.get("settings")) {
            let scope = &section.scope;
            reader.error(table.span(), || {
                format!(
                    "{scope}settings.{policy}.{setting}: the proxy itself goes by it and no policy's answer, so it cannot \
                     be tried beside what is in force; write it in the namespace"
                )
            });
        }
    }
    reader.unknown_keys(&section, belongs_on_top);
    let policies = chain?;
    let settings = policies.iter().filter_map(|policy| {
        let of = |settings: &BTreeMap<String, Vec<(String, String)>>| settings.get(policy).cloned();
        let settings = match (policy == RULES, of(in_force.settings), of(&said.values)) {
            (true, ..) => rule::settings(&rules),
            (false, Some(was), Some(is)) => over(was, is),
            (false, was, is) => is.or(was)?,
        };
        Some((policy.clone(), settings))
    });
    let next = NextChain {
        stage,
        settings: settings.collect(),
        policies,
        rules,
        policy_positions,
        setting_positions: said.positions,
    };
    Some(next)
}

/// Merges settings: those of `is` override those of `was`. Sorted by key.
fn over(mut was: Vec<(String, String)>, is: Vec<(String, String)>) -> Vec<(String, String)> {
    was.retain(|(key, _)| is.iter().all(|(other, _)| other != key));
    was.extend(is);
    was.sort();
    was
}
