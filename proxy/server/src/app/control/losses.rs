//! Finds what a new configuration would take away from the locks that are governed now: half a file is often a valid one. A
//! loss is a part of the configuration in force that is missing in the new one: a namespace, keys, a mode, a policy, a setting.
//! A value that is only changed is no loss. This module compares and decides nothing.

use std::collections::BTreeSet;

use lockwarden_control::config::{
    ApplicationRule, ComputedNames, Config, EnforceFor, GuardConfig, NamespaceConfig, Quarantine, RuleConfig,
};
use lockwarden_control::ruleset::activate;
use lockwarden_lock::administration::ServerCommands;
use lockwarden_lock::data_guard::Unlocked;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::rules::{Mode, OpaqueScripts};
use lockwarden_policy::RULES;

/// Pairs of globs that are checked for common keys.
const MAX_PAIRS: usize = 100_000;

/// For how many clients a namespace is enforced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Watched,
    EnforcedForSome,
    Enforced,
}

impl Strength {
    fn of(namespace: &NamespaceConfig) -> Strength {
        match (namespace.mode, &namespace.enforce_for) {
            (Mode::Enforce, _) => Strength::Enforced,
            (Mode::Monitor, Some(_)) => Strength::EnforcedForSome,
            (Mode::Monitor, None) => Strength::Watched,
        }
    }
}

/// A configuration, indexed by its keys.
struct Side<'a> {
    config: &'a Config,
    index: Namespaces,
}

impl<'a> Side<'a> {
    fn new(config: &'a Config) -> Side<'a> {
        let index = activate::namespaces(config);
        Side { config, index }
    }

    fn of(&self, key: &[u8]) -> Option<&'a NamespaceConfig> {
        let id = self.index.find(key)?;
        self.config.namespaces.get(usize::from(id.0))
    }

    /// The glob that makes this key a lock, for messages.
    fn glob(&self, key: &[u8]) -> String {
        let mut globs = self.index.globs().map(|(_, glob)| glob);
        let first = globs.find(|glob| glob.matches(key));
        first.map_or(String::new(), |glob| glob.pattern().escape_ascii().to_string())
    }
}

/// The losses with `new`, each in a few words; empty if there are none.
pub(super) fn losses(old: &Config, new: &Config) -> Vec<String> {
    let mut losses = BTreeSet::new();
    let (before, after) = (Side::new(old), Side::new(new));
    for key in examples(&before.index, &after.index) {
        match (before.of(&key), after.of(&key)) {
            (None, _) => {}
            // An implied namespace: it exists only because no file names one, and gives way to the first that is named.
            (Some(was), None) if is_built_in(was) && !new.namespaces.is_empty() => {}
            (Some(was), None) => {
                let name = &was.name;
                let keys = before.glob(&key);
                losses.insert(format!("namespace {name}: {keys} would be no lock any more"));
            }
            (Some(was), Some(is)) => {
                weaker(was, is, &mut losses);
                let whom = (&was.enforce_for, &is.enforce_for);
                if let (Some(_), Some(is)) = whom {
                    told_otherwise(&is.applications, old, new, &mut losses);
                }
            }
        }
    }
    let (was, is) = (&old.administration, &new.administration);
    if was.server_commands == ServerCommands::Refuse && is.server_commands != was.server_commands {
        losses.insert("server_commands: administration would be refused to nobody".to_owned());
    }
    if is.computed_names == ComputedNames::Forward && is.computed_names != was.computed_names {
        losses.insert("computed_names: scripts that compute names of locks would run unjudged".to_owned());
    }
    if old.companion_prefix != new.companion_prefix {
        losses.insert(
            "companion_prefix: every record that there is would be lost, and every other proxy would have to change as well"
                .to_owned(),
        );
    }
    if old.audit.required && !new.audit.required {
        losses.insert("audit_required: decisions would no longer wait for the audit trail".to_owned());
    }
    for was in &old.guards {
        guard_losses(was, new, &mut losses);
    }
    losses.into_iter().collect()
}

/// Locks that are lost because the file now names namespaces, in a few words each: the operator did not choose the old
/// namespace, but may have relied on it.
pub(super) fn made_room(old: &Config, new: &Config) -> Vec<String> {
    let (before, after) = (Side::new(old), Side::new(new));
    let keys = examples(&before.index, &after.index);
    let gone = keys.filter_map(|key| {
        let was = before.of(&key).filter(|was| is_built_in(was))?;
        after.of(&key).is_none().then(|| {
            let keys = before.glob(&key);
            format!("{keys} of namespace {}, which was there as long as no file named any", was.name)
        })
    });
    gone.collect::<BTreeSet<String>>().into_iter().collect()
}

/// The writes of data that would no longer be checked.
fn guard_losses(was: &GuardConfig, new: &Config, losses: &mut BTreeSet<String>) {
    let name = &was.name;
    let mut lose = |what: String| losses.insert(format!("guard {name}: {what}"));
    let Some(is) = new.guards.iter().find(|is| is.name == *name) else {
        lose("it would be gone".to_owned());
        return;
    };
    if was.mode == Mode::Enforce && is.mode != was.mode {
        lose("enforce mode would become monitor".to_owned());
    }
    for key in was.keys.iter().filter(|key| !is.keys.contains(key)) {
        lose(format!("{key} would be guarded no more"));
    }
    if was.unlocked == Unlocked::Refuse && is.unlocked != was.unlocked {
        lose("data could be written without the lock (unlocked)".to_owned());
    }
    if !was.by_identity && is.by_identity {
        lose("other connections of the holder's client could write (proofs)".to_owned());
    }
    for whom in is.exempt.iter().filter(|whom| !was.exempt.contains(whom)) {
        lose(format!("{whom} would be judged no more (exempt)"));
    }
}

/// Whether it is the implied namespace, in monitor mode.
fn is_built_in(namespace: &NamespaceConfig) -> bool {
    namespace.line.is_none() && Strength::of(namespace) == Strength::Watched
}

/// Keys for the comparison of two configurations: some of every glob, and some that two globs of different configurations may
/// share.
fn examples<'a>(before: &'a Namespaces, after: &'a Namespaces) -> impl Iterator<Item = Vec<u8>> + 'a {
    let globs = |side: &'a Namespaces| side.globs().map(|(_, glob)| glob);
    let own = globs(before).chain(globs(after)).flat_map(Glob::examples);
    let pairs = globs(before).flat_map(move |a| globs(after).map(move |b| (a, b)));
    let shared = pairs.take(MAX_PAIRS).flat_map(|(a, b)| {
        [(a, b), (b, a)].map(|(begins, ends)| [begins.literal_prefix(), b"~", ends.literal_suffix()].concat())
    });
    own.chain(shared)
}

/// The losses of a lock that moves to another namespace, or whose namespace has changed.
fn weaker(was: &NamespaceConfig, is: &NamespaceConfig, losses: &mut BTreeSet<String>) {
    let name = &was.name;
    let mut lose = |what: String| losses.insert(format!("namespace {name}: {what}"));
    let (before, after) = (Strength::of(was), Strength::of(is));
    if after < before {
        lose(match (before, after) {
            (Strength::Enforced, Strength::EnforcedForSome) => "enforce mode would be for some clients only".to_owned(),
            (Strength::Enforced, _) => "enforce mode would become monitor".to_owned(),
            (_, _) => "enforce_for would be gone".to_owned(),
        });
    } else if let (Some(was), Some(is)) = (&was.enforce_for, &is.enforce_for)
        && is_for_fewer(was, is)
    {
        lose("enforce_for would be for fewer clients".to_owned());
    }
    for policy in &was.policies {
        if !is.policies.contains(policy) {
            lose(format!("policy {policy} would no longer be asked"));
            continue;
        }
        if policy == RULES {
            let is_gone = |rule: &&RuleConfig| is.rules.iter().all(|other| other.name != rule.name);
            for gone in was.rules.iter().filter(is_gone).filter(|_| was.name == is.name) {
                lose(format!("rule {} would be gone", gone.name));
            }
            continue;
        }
        // A lock that moves to another namespace gets the settings of that one.
        let settings = was.settings.get(policy).filter(|_| was.name == is.name);
        for (setting, _) in settings.into_iter().flatten() {
            if is.setting(policy, setting).is_none() {
                lose(format!("the setting {setting} of {policy} would be gone"));
            }
        }
    }
    if was.durability.is_some() && is.durability.is_none() {
        lose("grants would no longer wait for replicas (durability)".to_owned());
    } else if was.is_strict() && !is.is_strict() {
        let what = "locks would be granted whatever the server is (durability would not be strict)";
        lose(what.to_owned());
    }
    if was.quarantine != Quarantine::Off && is.quarantine == Quarantine::Off {
        lose("free locks would be granted at once after a failover (quarantine)".to_owned());
    }
    if is.opaque_scripts == OpaqueScripts::Forward && was.opaque_scripts != is.opaque_scripts {
        lose("unknown scripts would run unjudged (opaque_scripts)".to_owned());
    }
}

/// Enforced applications that would lose clients: a condition is gone or changed, or another application now comes first.
fn told_otherwise(enforced: &[String], old: &Config, new: &Config, losses: &mut BTreeSet<String>) {
    for name in enforced {
        let is_its = |rule: &&ApplicationRule| rule.name == *name;
        let mut were = old.applications.iter().filter(is_its);
        let all_stay = were.all(|rule| new.applications.contains(rule));
        let last = new.applications.iter().rposition(|rule| rule.name == *name);
        let mut in_front = new.applications[..last.unwrap_or(0)].iter();
        let takes_some = in_front
            .any(|rule| rule.process.is_none() && !enforced.contains(&rule.name) && !old.applications.contains(rule));
        let was_there = old.applications.iter().any(|rule| rule.name == *name);
        if was_there && (!all_stay || takes_some) {
            losses
                .insert(format!("application {name}: some clients that enforce_for means would belong to it no more"));
        }
    }
}

fn is_for_fewer(was: &EnforceFor, is: &EnforceFor) -> bool {
    let everybody = is.clients.iter().any(|glob| &glob[..] == b"*");
    let all_stay = was.clients.iter().all(|glob| is.clients.contains(glob))
        && (was.applications.iter()).all(|name| is.applications.contains(name))
        && (was.certificates.iter()).all(|glob| is.certificates.contains(glob));
    is.percent < was.percent || !(everybody || all_stay)
}

#[cfg(test)]
mod tests {
    use lockwarden_control::config;

    use super::*;

    fn read(text: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lockwarden.toml");
        std::fs::write(&file, text).unwrap();
        let loaded = config::load(Some(&file), &config::Overrides::default(), std::iter::empty());
        let report = config::Report(&loaded.findings).to_string();
        loaded.config.unwrap_or_else(|| panic!("{report}"))
    }

    fn namespace(name: &str, keys: &str, more: &str) -> String {
        format!("[[namespace]]\nname = \"{name}\"\nkeys = [{keys}]\n{more}\n")
    }

    fn enforced(name: &str, keys: &str, more: &str) -> String {
        namespace(name, keys, &format!("mode = \"enforce\"\n{more}"))
    }

    #[track_caller]
    fn loses(old: &str, new: &str, expected: &[&str]) {
        assert_eq!(losses(&read(old), &read(new)), expected, "{old}\n->\n{new}");
    }

    #[test]
    fn the_built_in_namespace_makes_room_for_the_first_that_is_named() {
        let named = namespace("orders", "\"order:*:lock\"", "");
        loses("", &named, &[]);
        let said = made_room(&read(""), &read(&named));
        let expected = "lock:* of namespace default, which was there as long as no file named any";
        assert_eq!(said, [expected]);
        let with_it = format!("{named}{}", namespace("more", "\"lock:*\"", ""));
        assert!(made_room(&read(""), &read(&with_it)).is_empty());
        let gone = ["namespace default: lock:* would be no lock any more"];
        loses("", "namespace = []", &gone);
        loses(&namespace("default", "\"lock:*\"", ""), &named, &gone);
        let mut enforced = read("");
        enforced.namespaces[0].switch(Mode::Enforce);
        assert_eq!(losses(&enforced, &read(&named)), gone);
    }

    #[test]
    fn a_guard_that_is_weaker_is_a_loss() {
        let guard = |more: &str| {
            let locks = namespace("orders", "\"lock:*\"", "");
            let keys = "keys = [\"stock:{id}\", \"order:{id}\"]";
            format!("{locks}[[guard]]\nname = \"stock\"\n{keys}\nlock = \"lock:{{id}}\"\n{more}")
        };
        let old = guard("mode = \"enforce\"\nproofs = [\"session\"]");
        loses(&old, &old, &[]);
        loses(&old, &namespace("orders", "\"lock:*\"", ""), &["guard stock: it would be gone"]);
        let weaker = guard("unlocked = \"allow\"\nexempt = [\"import\"]");
        loses(
            &old,
            &weaker.replace("order:{id}", "orders:{id}"),
            &[
                "guard stock: data could be written without the lock (unlocked)",
                "guard stock: enforce mode would become monitor",
                "guard stock: import would be judged no more (exempt)",
                "guard stock: order:{id} would be guarded no more",
                "guard stock: other connections of the holder's client could write (proofs)",
            ],
        );
    }

    #[test]
    fn what_the_new_file_says_no_more_is_lost() {
        let old = enforced("orders", "\"lock:*\", \"mutex:?\"", "");
        loses(&old, &old, &[]);
        let gone = ["namespace orders: mutex:? would be no lock any more"];
        loses(&old, &enforced("orders", "\"lock:*\"", ""), &gone);
        let monitor = ["namespace orders: enforce mode would become monitor"];
        loses(&old, &namespace("orders", "\"*\"", ""), &monitor);
        loses(
            &old,
            "namespace = []",
            &[
                "namespace orders: lock:* would be no lock any more",
                "namespace orders: mutex:? would be no lock any more",
            ],
        );
        let settings = "[namespace.settings.ttl-ceiling]\nceiling = \"60s\"";
        loses(
            &enforced("orders", "\"lock:*\"", settings),
            &enforced("orders", "\"lock:*\"", ""),
            &["namespace orders: the setting ceiling of ttl-ceiling would be gone"],
        );
        loses(
            &enforced("orders", "\"lock:*\"", ""),
            &enforced("orders", "\"lock:*\"", "policies = [\"owner-token\", \"ttl-ceiling\"]"),
            &["namespace orders: policy fencing would no longer be asked"],
        );
        let durable = |text: &str| enforced("orders", "\"lock:*\"", &format!("durability = \"{text}\""));
        loses(&durable("wait:2:1s"), &durable("wait:1:50ms"), &[]);
        loses(
            &durable("wait:1:50ms"),
            &durable("none"),
            &["namespace orders: grants would no longer wait for replicas (durability)"],
        );
        loses(&durable("wait:1:50ms"), &durable("strict:1:50ms"), &[]);
        let whatever =
            "namespace orders: locks would be granted whatever the server is (durability would not be strict)";
        let at_once = "namespace orders: free locks would be granted at once after a failover (quarantine)";
        loses(&durable("strict:1:50ms"), &durable("wait:1:50ms"), &[at_once, whatever]);
        let careful = |text: &str| enforced("orders", "\"lock:*\"", &format!("quarantine = \"{text}\""));
        loses(&careful("auto"), &careful("45s"), &[]);
        loses(
            &careful("auto"),
            &careful("off"),
            &["namespace orders: free locks would be granted at once after a failover (quarantine)"],
        );
        loses(
            "server_commands = \"refuse\"\ncompanion_prefix = \"own:\"",
            "",
            &[
                "companion_prefix: every record that there is would be lost, and every other proxy would have to change as well",
                "server_commands: administration would be refused to nobody",
            ],
        );
    }

    #[test]
    fn a_namespace_that_is_only_watched_can_be_lost_too() {
        let watched = namespace("orders", "\"lock:*\"", "");
        let gone = ["namespace orders: lock:* would be no lock any more"];
        loses(&watched, "namespace = []", &gone);
        let some = |clients: &str| namespace("orders", "\"lock:*\"", &format!("enforce_for = {{ {clients} }}"));
        let ten = some("clients = [\"billing*\"], percent = 10");
        loses(&ten, &watched, &["namespace orders: enforce_for would be gone"]);
        let fewer = ["namespace orders: enforce_for would be for fewer clients"];
        loses(&ten, &some("clients = [\"billing*\"], percent = 5"), &fewer);
        loses(&ten, &some("clients = [\"other\"]"), &fewer);
        loses(&ten, &some("percent = 20"), &[]);
        let certified = some("certificates = [\"spiffe://corp/*\"]");
        loses(&certified, &some("certificates = [\"*\"]"), &fewer);
        loses(&certified, &some("percent = 100"), &[]);
        loses(&ten, &enforced("orders", "\"lock:*\"", ""), &[]);
    }

    #[test]
    fn an_application_that_is_enforced_by_name_keeps_its_clients() {
        let whom = "enforce_for = { applications = [\"billing\"] }";
        let locks = namespace("orders", "\"lock:*\"", whom);
        let application = |name: &str, condition: &str| format!("[[application]]\nname = \"{name}\"\n{condition}\n");
        let billing = application("billing", "user = \"billing\"") + &locks;
        let shop = application("shop", "client = \"shop-*\"");
        let fewer = ["application billing: some clients that enforce_for means would belong to it no more"];
        loses(&billing, &billing, &[]);
        let narrower = application("billing", "user = \"billing\"\nclient = \"a\"") + &locks;
        loses(&billing, &narrower, &fewer);
        loses(&billing, &(shop.clone() + &billing), &fewer);
        // It was so before, or comes later, or takes no client away.
        let both = shop.clone() + &billing;
        loses(&both, &both, &[]);
        loses(&billing, &(billing.clone() + &shop), &[]);
        let by_process = application("cron", "process = \"cron*\"");
        loses(&billing, &(by_process + &billing), &[]);
        let more = application("billing", "from = [\"10.0.0.0/8\"]") + &billing;
        loses(&billing, &more, &[]);
    }

    #[test]
    fn what_only_moves_or_changes_its_value_is_not_lost() {
        let settings = |ceiling: &str| {
            let ceiling = format!("[namespace.settings.ttl-ceiling]\nceiling = \"{ceiling}\"");
            enforced("orders", "\"lock:*\"", &ceiling)
        };
        loses(&settings("60s"), &settings("2h"), &[]);
        let old = enforced("orders", "\"lock:order:*\"", "");
        loses(&old, &enforced("everything", "\"*\"", ""), &[]);
        let both = enforced("a", "\"lock:a:*\"", "") + &enforced("b", "\"lock:*\"", "");
        loses(&enforced("b", "\"lock:*\"", ""), &both, &[]);
    }

    #[test]
    fn a_namespace_in_front_takes_keys_away_from_one_behind_it() {
        let behind = enforced("orders", "\"lock:*\"", "");
        let monitor = ["namespace orders: enforce mode would become monitor"];
        for keys in ["\"lock:a:*\"", "\"*:running\"", "\"*\"", "\"lock:[0-9]*\""] {
            let front = namespace("new", keys, "");
            loses(&behind, &(front.clone() + &behind), &monitor);
            // It was so before.
            loses(&(front.clone() + &behind), &(front + &behind), &[]);
        }
        loses(&behind, &(namespace("new", "\"job:*\"", "") + &behind), &[]);
    }
}
