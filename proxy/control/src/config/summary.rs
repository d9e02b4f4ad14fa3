//! A short description of a namespace for people: `lockwarden check` prints it, and the log starts with it.

use super::enforce_for::EnforceFor;
use super::namespace::NamespaceConfig;

/// The most globs that are listed.
const MAX_SHOWN: usize = 20;

/// See the module.
pub struct Summary {
    /// Its globs.
    pub keys: String,
    /// Its mode.
    pub mode: &'static str,
    /// The clients for which it is enforced although it is in monitor mode.
    pub enforced_for: Option<String>,
    /// Its chain.
    pub policies: String,
}

impl Summary {
    pub fn of(namespace: &NamespaceConfig) -> Summary {
        let globs = namespace.keys.iter().take(MAX_SHOWN);
        let mut keys: Vec<String> = globs.map(|glob| String::from_utf8_lossy(glob).into_owned()).collect();
        if let Some(more) = namespace.keys.len().checked_sub(MAX_SHOWN + 1) {
            keys.push(format!("and {} more", more + 1));
        }
        Summary {
            mode: namespace.mode.word(),
            enforced_for: namespace.enforce_for.as_ref().map(for_whom),
            keys: match keys.is_empty() {
                true => "no key".to_owned(),
                false => keys.join(" "),
            },
            policies: match namespace.policies.is_empty() {
                true => "none".to_owned(),
                false => namespace.policies.join(" "),
            },
        }
    }
}

/// The clients for which a namespace in monitor mode is enforced.
fn for_whom(enforced: &EnforceFor) -> String {
    let clients = enforced.clients.iter();
    let clients = clients.map(|glob| String::from_utf8_lossy(glob).into_owned());
    let applications = enforced.applications.iter();
    let applications = applications.map(|name| format!("application {name}"));
    let certificates = enforced.certificates.iter();
    let certificates = certificates.map(|glob| format!("certificate {}", String::from_utf8_lossy(glob)));
    let all = clients.chain(applications).chain(certificates);
    let clients = all.collect::<Vec<_>>().join(" ");
    match enforced.percent {
        100 => clients,
        percent => format!("{percent} % of the applications {clients}"),
    }
}
