//! The current primary, the reports of the sentinels about it, and what a failover means for the locks of each namespace.

use std::time::{Duration, Instant};

use lockwarden_control::clock::ms;
use lockwarden_control::clock::now_ms;
use lockwarden_control::ruleset::{Active, NamespaceDetails};
use lockwarden_control::text::numbers::{counted, time_of_day};
use lockwarden_dataplane::backend::sentinel::Sentinels;
use lockwarden_dataplane::backend::server_info::Standing;
use lockwarden_dataplane::backend::strict;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_dataplane::state::quarantine::{Left, left};

use super::api;

/// Lost leases reported beside the locks, by the application that lost them.
pub(super) const MAX_TOLD: usize = 5;

/// The state of the server behind the proxy, or of a whole cluster.
pub(super) fn backend(shared: &ProxyState) -> api::Backend {
    let Some(map) = shared.shards.map() else {
        let now = Instant::now();
        let sentinels = (shared.backend.address.authority.sentinels()).map(|all| sentinels(all, now));
        return api::Backend { sentinels, ..server(shared) };
    };
    let slots = map.slots();
    let shards = slots.shards().filter_map(|(id, told)| {
        let shard = shared.shards.get(id)?;
        let api::Backend { address, version, up, problem, primary_since, .. } = server(&shard);
        let id = id.to_string();
        Some(api::Shard { id, slots: told.slots.into(), primary: address, version, up, problem, primary_since })
    });
    let shards: Vec<api::Shard> = shards.collect();
    let down = shards.iter().find_map(|shard| Some(format!("shard {}: {}", shard.primary, shard.problem.as_ref()?)));
    let first = server(shared);
    api::Backend {
        address: shared.backend.address.url.to_string(),
        up: shared.readiness().is_ok(),
        problem: if shards.is_empty() { first.problem } else { down },
        primary_since: None,
        version: first.version,
        sentinels: None,
        shards,
    }
}

fn server(shared: &ProxyState) -> api::Backend {
    let server = &shared.backend.server;
    let problem = match &*server.standing() {
        Standing::Serving | Standing::Reconnecting(_) => None,
        Standing::NotServing(why) => Some(why.clone()),
    };
    let reckoned = server.reckoned();
    api::Backend {
        address: shared.backend.address.to_string(),
        version: server.version().map(|version| version.to_string()),
        up: problem.is_none(),
        problem,
        primary_since: reckoned.map(|known| now_ms().saturating_sub(ms(known.age(Instant::now())))),
        sentinels: None,
        shards: Vec::new(),
    }
}

fn sentinels(all: &Sentinels, now: Instant) -> api::Sentinels {
    let followed = all.named();
    let (heard, known) = all.heard(now);
    let each = all.said(now).into_iter().map(|(place, said)| {
        let (named, problem) = match said {
            Ok(named) => (Some(named), None),
            Err(problem) => (None, problem),
        };
        api::Sentinel {
            address: place.to_string(),
            primary: named.as_ref().map(|named| named.place.to_string()),
            epoch: named.map(|named| named.epoch),
            problem: problem.map(|problem| problem.to_string()),
        }
    });
    api::Sentinels {
        name: all.name().to_owned(),
        primary: followed.as_ref().map(|named| named.place.to_string()),
        epoch: followed.map(|named| named.epoch),
        heard: heard as u64,
        known: known as u64,
        each: each.collect(),
    }
}

/// The rest of a namespace's quarantine, on one of the servers. Where nothing is enforced there is none.
pub(super) fn quarantine_left(details: &NamespaceDetails, shared: &ProxyState) -> Option<Left> {
    let now = Instant::now();
    let left = || shared.shards.each().iter().find_map(|shard| left(details, shard, now));
    details.is_enforced().then(left).flatten()
}

/// The same in the types of the API.
pub(super) fn quarantine(details: &NamespaceDetails, shared: &ProxyState) -> Option<api::Quarantine> {
    let left = quarantine_left(details, shared)?;
    Some(api::Quarantine {
        until: match left {
            Left::For(left) | Left::ClockJumped(left) => {
                Some(now_ms().saturating_add(ms(left)))
            }
            Left::Unheard | Left::NoEra | Left::Unfit(_) => None,
        },
        why: match left {
            Left::For(_) => "another server has become the primary, or the same one was started again".to_owned(),
            Left::Unheard => {
                let members = shared.backend.address.authority.members();
                format!("half of the {members} or more are not heard, so another primary might not be noticed")
            }
            Left::NoEra => "it is not known yet since when the server is the primary".to_owned(),
            Left::Unfit(replicas) => {
                let said = shared.backend.strict.said();
                let unmet = strict::unmet(said.as_deref(), replicas);
                format!("durability is strict, and {}", unmet.join("; and "))
            }
            Left::ClockJumped(_) => {
                "durability is strict, and the server's clock has jumped, so leases have ended at another time than their holders reckon"
                    .to_owned()
            }
        },
    })
}

/// What a failover means for the locks of these namespaces now, one sentence each. `lost` are sentences about lost leases.
pub(super) fn notices(
    shared: &ProxyState,
    active: &Active,
    namespace: Option<&str>,
    unknown: u64,
    lost: impl Iterator<Item = String>,
) -> Vec<String> {
    let mut notices = Vec::new();
    if unknown > 0 {
        let locks = match unknown {
            1 => "1 lock is".to_owned(),
            _ => format!("{} are", counted(unknown, "lock", "locks")),
        };
        notices.push(format!(
            "{locks} unknown since the failover: nobody has looked yet whether the new primary has them"
        ));
    }
    let meant = active.details.iter();
    let meant = meant.filter(|details| namespace.is_none_or(|name| name == &*details.name));
    for details in meant {
        if let Some(quarantine) = quarantine(details, shared) {
            notices.push(sentence(&details.name, &quarantine));
        }
    }
    notices.extend(lost);
    notices.extend(shared.processes.sight.notice());
    notices
}

/// `quarantine until 04:13:22` of a namespace, and its meaning.
fn sentence(namespace: &str, quarantine: &api::Quarantine) -> String {
    format!("namespace {namespace} is in {}: no free lock is granted, because {}", quarantine.words(), quarantine.why)
}

impl api::Quarantine {
    /// `quarantine until 04:13:22`.
    pub fn words(&self) -> String {
        match self.until {
            Some(until) => {
                // The first full second at which it is surely over.
                let until = until.next_multiple_of(ms(Duration::from_secs(1)));
                let time = time_of_day(until);
                let seconds = time.split('.').next().unwrap_or(&time);
                format!("quarantine until {seconds} UTC")
            }
            None => "quarantine without a known end".to_owned(),
        }
    }
}
