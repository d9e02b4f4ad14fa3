//! Overrides of the file by the environment and the command line. Parses each spelling, reports errors at the variable
//! or flag, and knows every `LOCKWARDEN_` variable; the file's own keys are in `file`.

use std::fmt::Display;

use lockwarden_lock::rules::Mode;

use super::draft::{Draft, Layered};
use super::finding::{Findings, Place};
use super::guard::GUARD;
use super::logging::LOG_FORMATS;
use super::namespace::MODES;
use super::reader::one_of;
use super::suggest::{did_you_mean, listed, quoted};
use super::{backend, listener, secret, value};

/// The command line's overrides of the file and the environment, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`.
    pub listen: Option<String>,
    /// `--backend-url`.
    pub backend: Option<String>,
    /// `--admin`.
    pub admin: Option<String>,
    /// `--metrics`.
    pub metrics: Option<String>,
    /// `--log-format`.
    pub log_format: Option<String>,
    /// `--mode`, each `monitor` (for all namespaces) or `orders=monitor`.
    pub modes: Vec<String>,
}

impl Overrides {
    /// The text typed after a flag that stands for one key.
    fn of(&self, flag: &str) -> Option<&str> {
        let text = match flag {
            "--listen" => &self.listen,
            "--backend-url" => &self.backend,
            "--admin" => &self.admin,
            "--metrics" => &self.metrics,
            "--log-format" => &self.log_format,
            _ => &None,
        };
        text.as_deref()
    }
}

type Put = fn(&mut Draft, Place, &str, &mut Findings);

/// Each key of the file that can also be set by a variable: the key, the variable, its flag (or none), and the field.
const SAID_ELSEWHERE: [(&str, &str, &str, Put); 9] = [
    ("admin", "LOCKWARDEN_ADMIN", "--admin", |draft, place, text, findings| {
        put(&mut draft.admin, place, value::address_or_off(text), findings);
    }),
    ("admin_token", "LOCKWARDEN_ADMIN_TOKEN", "", |draft, place, text, findings| {
        put(&mut draft.admin_token, place, secret::admin_token(text).map(Some), findings);
    }),
    ("allow_open", "LOCKWARDEN_ALLOW_OPEN", "", |draft, place, text, findings| match value::boolean(text) {
        Ok(allow_open) => draft.config.allow_open = allow_open,
        Err(wrong) => findings.error(place, wrong.to_string()),
    }),
    ("backend", "LOCKWARDEN_BACKEND", "--backend-url", |draft, place, text, findings| {
        put(&mut draft.backend, place, backend::backend(text), findings);
    }),
    ("backend_password_file", "LOCKWARDEN_BACKEND_PASSWORD", "", |draft, place, text, findings| {
        put(&mut draft.backend_password, place, secret::password(text).map(Some), findings);
    }),
    ("cluster_node", "LOCKWARDEN_CLUSTER_NODE", "", |draft, place, text, findings| {
        put(&mut draft.cluster_node, place, value::boolean(text), findings);
    }),
    ("listen", "LOCKWARDEN_LISTEN", "--listen", |draft, place, text, findings| {
        put(&mut draft.listen, place, listener::listen_or_off(text), findings);
    }),
    ("log_format", "LOCKWARDEN_LOG_FORMAT", "--log-format", |draft, place, text, findings| {
        match one_of(text, &LOG_FORMATS) {
            Ok(format) => draft.config.log_format = format,
            Err(wrong) => findings.error(place, wrong.to_string()),
        }
    }),
    ("metrics", "LOCKWARDEN_METRICS", "--metrics", |draft, place, text, findings| {
        put(&mut draft.metrics, place, value::address_or_off(text), findings);
    }),
];
const MODE: &str = "LOCKWARDEN_MODE";
const READ_ELSEWHERE: [&str; 2] = ["LOCKWARDEN_CONFIG", "LOCKWARDEN_LOG"];
/// Set by `lockwarden lock` for its command, which may be another lockwarden command.
const FOR_COMMANDS: &str = "LOCKWARDEN_FENCE";

/// Puts the environment over the draft. An empty variable counts as not set, as in compose files and unit files.
pub(super) fn environment(
    draft: &mut Draft,
    variables: impl Iterator<Item = (String, String)>,
    findings: &mut Findings,
) {
    let mut ours: Vec<(String, String)> =
        variables.filter(|(name, text)| name.starts_with("LOCKWARDEN_") && !text.is_empty()).collect();
    // The environment has no order, but findings must be the same at each start.
    ours.sort();
    for (name, text) in ours {
        let place = Place::Environment(name.clone());
        let known = SAID_ELSEWHERE.iter().find(|(_, variable, ..)| *variable == name);
        if let Some((key, .., put)) = known {
            draft.config.said.put(key, &text, place.clone());
            put(draft, place, &text, findings);
        } else if name == MODE {
            modes(draft, text.split(','), &place, findings);
        } else if let Some(advice) = unknown_variable(&name, &text) {
            findings.warning(place, format!("no such variable, so it does nothing; {advice}"));
        }
    }
}

/// Puts the command line over the draft.
pub(super) fn flags(draft: &mut Draft, overrides: &Overrides, findings: &mut Findings) {
    for (key, _, flag, put) in SAID_ELSEWHERE {
        if let Some(text) = overrides.of(flag) {
            draft.config.said.put(key, text, Place::Flag(flag));
            put(draft, Place::Flag(flag), text, findings);
        }
    }
    let typed = overrides.modes.iter().flat_map(|text| text.split(','));
    modes(draft, typed, &Place::Flag("--mode"), findings);
}

fn put<T>(target: &mut Layered<T>, place: Place, parsed: Result<T, impl Display>, findings: &mut Findings) {
    match parsed {
        Ok(value) => target.set(Some(value), place),
        Err(wrong) => {
            findings.error(place.clone(), wrong.to_string());
            target.set(None, place);
        }
    }
}

/// Modes for all namespaces are applied first, so that the order of the words does not matter. Of two for the same
/// namespace the later one wins.
fn modes<'a>(draft: &mut Draft, words: impl Iterator<Item = &'a str>, place: &Place, findings: &mut Findings) {
    let (for_one, for_all): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
    for word in for_all {
        match one_of::<Mode>(word.trim(), &MODES) {
            Ok(mode) => {
                for namespace in &mut draft.config.namespaces {
                    namespace.switch(mode);
                    let name = &namespace.name;
                    draft.config.said.put_mode(name, mode.word(), place.clone());
                }
                // Monitor mode for all also covers guards; enforcing a guard requires its name.
                let guards = draft.guards.iter_mut().filter(|_| mode == Mode::Monitor);
                for (guard, _) in guards {
                    guard.mode = mode;
                    let name = format!("{GUARD}{}", guard.name);
                    draft.config.said.put_mode(&name, mode.word(), place.clone());
                }
            }
            Err(wrong) => findings
                .error(place.clone(), format!("{wrong}, or a namespace and one of them, as in \"orders=monitor\"")),
        }
    }
    for word in for_one {
        // `partition` already found the `=`.
        let (name, mode) = word.split_once('=').unwrap_or((word, ""));
        let (name, mode) = (name.trim(), one_of::<Mode>(mode.trim(), &MODES));
        if let Err(wrong) = &mode {
            findings.error(place.clone(), format!("{}: {wrong}", quoted(word)));
        }
        if let Some(guard) = name.strip_prefix(GUARD) {
            let mut guards = draft.guards.iter_mut().map(|(guard, _)| guard);
            match (guards.find(|known| known.name == guard), mode) {
                (Some(known), Ok(mode)) => {
                    known.mode = mode;
                    draft.config.said.put_mode(name, mode.word(), place.clone());
                }
                (None, _) => {
                    findings.error(place.clone(), format!("{}: there is no guard {}", quoted(word), quoted(guard)))
                }
                (Some(_), Err(_)) => {}
            }
            continue;
        }
        match draft.config.namespaces.iter_mut().find(|namespace| namespace.name == name) {
            Some(namespace) => {
                if let Ok(mode) = mode {
                    namespace.switch(mode);
                    draft.config.said.put_mode(name, mode.word(), place.clone());
                }
            }
            None if draft.all_named => {
                let message = unknown_namespace(draft, word, name);
                findings.error(place.clone(), message);
            }
            None => {}
        }
    }
}

fn unknown_namespace(draft: &Draft, word: &str, name: &str) -> String {
    let names = || draft.config.namespaces.iter().map(|namespace| namespace.name.as_str());
    let advice = match did_you_mean(name, names()) {
        Some(meant) => meant,
        None if draft.config.namespaces.is_empty() => "there is none".to_owned(),
        None => format!("there is {}", listed(names().take(10), "and")),
    };
    format!("{}: no namespace is called {}; {advice}", quoted(word), quoted(name))
}

/// The message for an unknown variable; `None` where none is needed.
fn unknown_variable(name: &str, text: &str) -> Option<String> {
    // Kubernetes sets these in every pod beside a service named lockwarden.
    let by_kubernetes = name.starts_with("LOCKWARDEN_SERVICE_")
        || name.starts_with("LOCKWARDEN_PORT") && (text.contains("://") || name.contains("_TCP_"));
    if READ_ELSEWHERE.contains(&name) || name == FOR_COMMANDS || by_kubernetes {
        return None;
    }
    // Suggesting the variable without _FILE would invite people to put a path where a secret belongs.
    let advice = match name {
        "LOCKWARDEN_ADMIN_TOKEN_FILE" | "LOCKWARDEN_BACKEND_PASSWORD_FILE" => {
            let key = name.trim_start_matches("LOCKWARDEN_").to_lowercase();
            format!("{key} is a key of the configuration file")
        }
        // Compared without our prefix, which would make all names look alike.
        _ => {
            let short = |name: &'static str| name.trim_start_matches("LOCKWARDEN_");
            let known = SAID_ELSEWHERE.map(|(_, variable, ..)| variable).into_iter();
            let known = known.chain([MODE]).chain(READ_ELSEWHERE);
            match super::suggest::nearest(name.trim_start_matches("LOCKWARDEN_"), known.clone().map(short)) {
                Some(meant) => format!("did you mean \"LOCKWARDEN_{meant}\"?"),
                None => format!("known are {}", listed(known, "and")),
            }
        }
    };
    Some(advice)
}
