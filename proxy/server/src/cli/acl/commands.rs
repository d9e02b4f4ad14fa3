//! The commands that ACL rules allow, by the categories of the server itself. A server rewrites rules in another form, so only
//! the allowed commands can be compared.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use lockwarden_dataplane::backend::{BackendError, Conversation};
use lockwarden_resp::Value;

/// Categories that are asked about; Redis has 21, modules may bring some.
const MAX_CATEGORIES: usize = 200;

/// The commands of a server.
#[derive(Default)]
pub(crate) struct Commands {
    all: BTreeSet<String>,
    categories: HashMap<String, BTreeSet<String>>,
}

impl Commands {
    /// Asks the server; `None` where the asking user has no right to it.
    pub(crate) async fn ask(server: &mut Conversation) -> Result<Option<Commands>, BackendError> {
        let mut commands = Commands::default();
        let Some(categories) = words(&server.ask(&["ACL", "CAT"]).await?) else {
            return Ok(None);
        };
        for category in categories.into_iter().take(MAX_CATEGORIES) {
            let Some(names) = words(&server.ask(&["ACL", "CAT", &category]).await?) else {
                return Ok(None);
            };
            commands.all.extend(names.iter().cloned());
            commands.categories.insert(category, names);
        }
        Ok(Some(commands))
    }

    /// The commands that these rules allow, applied in order.
    pub(crate) fn allowed(&self, rules: &[Bytes]) -> BTreeSet<String> {
        let mut allowed = BTreeSet::new();
        for rule in rules {
            let rule = String::from_utf8_lossy(rule).to_ascii_lowercase();
            let Some(name) = rule.strip_prefix(['+', '-']) else {
                continue;
            };
            let meant = self.meant(name);
            match rule.starts_with('+') {
                true => allowed.extend(meant),
                false => allowed.retain(|command| !meant.contains(command)),
            }
        }
        allowed
    }

    /// Whether a set contains a command. Where the server does not know the subcommand, the command as a whole counts.
    pub(crate) fn has(&self, allowed: &BTreeSet<String>, command: &str) -> bool {
        let family = command.split('|').next().unwrap_or(command);
        allowed.contains(command) || (!self.all.contains(command) && allowed.contains(family))
    }

    /// The commands that a rule names: a category, a command with its subcommands, or one subcommand.
    fn meant(&self, name: &str) -> BTreeSet<String> {
        match name.strip_prefix('@') {
            Some("all") => self.all.clone(),
            Some(category) => self.categories.get(category).cloned().unwrap_or_default(),
            None => {
                let below = format!("{name}|");
                let subcommands = self.all.iter().filter(|known| known.starts_with(&below));
                subcommands.cloned().chain([name.to_owned()]).collect()
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(categories: &[(&str, &[&str])]) -> Commands {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let all = categories.iter().flat_map(|(_, names)| names.iter().copied());
        Commands {
            all: all.map(str::to_owned).collect(),
            categories: categories.iter().map(|(category, names)| ((*category).to_owned(), owned(names))).collect(),
        }
    }
}

fn words(answer: &Value) -> Option<BTreeSet<String>> {
    let items = answer.as_items()?.iter().filter_map(Value::as_bytes);
    Some(items.map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_in_their_order_and_categories_as_the_server_has_them() {
        let commands = Commands::of(&[
            ("read", &["get"]),
            ("write", &["set", "flushall", "function|load"]),
            ("admin", &["config|set", "config|get", "acl"]),
            ("dangerous", &["flushall", "config|set", "config|get", "acl"]),
        ]);
        for (rules, command, may) in [
            ("+@all", "flushall", true),
            ("+@all -flushall", "flushall", false),
            ("+@all -@dangerous", "flushall", false),
            ("+@all -@dangerous", "function|load", true),
            ("-@all +@write", "flushall", true),
            ("-@all +@write", "get", false),
            ("-@all +get", "flushall", false),
            ("+@all -config|set", "config|set", false),
            ("+@all -config|set", "config|get", true),
            ("+@all -config +config|get", "config|set", false),
            ("+@all -acl +acl|whoami", "acl", false),
            ("-@all +FLUSHALL", "flushall", true),
            ("-@all +@nosuch", "get", false),
        ] {
            let rules: Vec<Bytes> = rules.split(' ').map(|rule| rule.to_owned().into()).collect();
            let allowed = commands.allowed(&rules);
            assert_eq!(commands.has(&allowed, command), may, "{rules:?}: {command}");
        }
        // Before 7.0 there is only the command as a whole.
        let allowed = commands.allowed(&["+get".into()]);
        assert!(commands.has(&allowed, "get|it"));
    }
}
