//! Answers requests: joins the view, the mirror and the configuration in force into the types of the API. The list of locks is
//! in `lock_list.rs`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lockwarden_control::clock::ms;
use lockwarden_control::clock::{self, Moment, now_ms};
use lockwarden_control::net::tls::ENDS_SOON;
use lockwarden_control::ruleset::Active;
use lockwarden_control::ruleset::mode_label;
use lockwarden_control::telemetry::metrics::NamespaceMirror;
use lockwarden_control::telemetry::vocabulary::Label;
use lockwarden_control::text::escape::spell;
use lockwarden_dataplane::registry::ungoverned::Equal;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_dataplane::state::quarantine::Left;
use lockwarden_lock::decision::FaultKind;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::rules::{Doubt, Mode, OnRepeat};

use super::api::{ConnectionsQuery, DecisionsQuery, LocksQuery, PatternsQuery, ReportQuery};
use super::applications::Here;
use super::connections::connections;
use super::decisions::{decisions, lost};
use super::key_patterns::KeyPatterns;
use super::lock_list::{lock, locks};
use super::pattern_list::patterns;
use super::service::{View, ViewService, Views};
use super::tally::Tally;
use super::wait_cycles::Circle;
use super::{api, discovery, incidents, pattern_list, report, topology, why};

/// Locks without a TTL that the report names, per namespace.
const MAX_EXAMPLES: usize = 20;
/// Locks with equal values that the report names.
const MAX_ALIKE: usize = 2;

impl Views for ViewService {
    fn overview(&self) -> api::Overview {
        overview(self)
    }

    fn locks(&self, query: &LocksQuery) -> api::Locks {
        locks(self, query)
    }

    fn lock(&self, key: &[u8], db: u32) -> Option<api::LockDetail> {
        lock(self, key, db)
    }

    fn connections(&self, query: &ConnectionsQuery) -> api::Connections {
        connections(self, query)
    }

    fn decisions(&self, query: &DecisionsQuery) -> Vec<api::Moment> {
        decisions(self, query)
    }

    fn lost(&self, query: &DecisionsQuery) -> Vec<api::Moment> {
        lost(self, query)
    }

    fn incidents(&self, query: &DecisionsQuery) -> Vec<api::Incident> {
        incidents::incidents(self, query)
    }

    fn why(&self, id: &str) -> Vec<api::Why> {
        why::why(self, id)
    }

    fn applications(&self) -> Vec<api::Application> {
        applications(self)
    }

    fn version(&self) -> api::Version {
        let active = self.shared.active.load_full();
        let policies = active.generation.policies().iter();
        api::Version {
            in_force: Some(policies.map(api::PolicyDigest::of).collect()),
            config_hash: Some(active.meaning.hash().to_owned()),
            ..api::Version::of_this()
        }
    }

    fn meaning(&self) -> api::ConfigMeaning {
        (&*self.shared.active.load().meaning).into()
    }

    fn guards(&self) -> Vec<api::Guard> {
        guards(self)
    }

    fn policies(&self) -> Vec<api::Policy> {
        policies(self)
    }

    fn hot(&self) -> api::Hot {
        hot(self)
    }

    fn report(&self, query: &ReportQuery) -> api::Report {
        reported(self, query)
    }

    fn patterns(&self, query: &PatternsQuery) -> api::LockPatterns {
        patterns(self, query)
    }

    fn namespaces(&self) -> Vec<api::Namespace> {
        namespaces(self)
    }

    fn discovery(&self) -> api::Discovery {
        self.discovered()
    }
}

/// `GET /api/v1/overview`.
fn overview(service: &ViewService) -> api::Overview {
    let namespaces = namespaces(service);
    let (now, now_ms) = (Instant::now(), now_ms());
    let seen = service.view.seen();
    let uptime = service.shared.started.elapsed();
    api::Overview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: now_ms.saturating_sub(ms(uptime)),
        now: now_ms,
        backend: topology::backend(&service.shared),
        totals: api::Totals {
            held: namespaces.iter().map(|namespace| namespace.held).sum(),
            waiting: seen.namespaces.values().map(|seen| seen.waiting).sum(),
            refused_last_hour: seen.refused.count(now),
            would_refuse_last_hour: seen.would_refuse.count(now),
            overlaps_last_day: seen.overlaps.count(now),
            without_ttl: namespaces.iter().map(|namespace| namespace.without_ttl).sum(),
            unclaimed_patterns: discovery::unclaimed(&service.shared),
            unknown: namespaces.iter().map(|namespace| namespace.unknown).sum(),
            lost_last_day: seen.lost_lately.count(now),
        },
        policies: policies(service),
        namespaces,
        unseen: service.shared.events.dropped(),
        certificates_end: certificates_end(&service.shared),
    }
}

fn certificates_end(shared: &ProxyState) -> BTreeMap<String, u64> {
    let soon = SystemTime::now() + ENDS_SOON;
    let ends = shared.certificates.ends(&shared.backend.address);
    let ends = ends.into_iter().filter(|(_, end)| *end <= soon);
    ends.map(|(name, end)| {
        let at = end.duration_since(UNIX_EPOCH).unwrap_or_default();
        (name.to_owned(), ms(at))
    })
    .collect()
}

/// `GET /api/v1/config`: the namespaces in force.
fn namespaces(service: &ViewService) -> Vec<api::Namespace> {
    let active = service.shared.active.load_full();
    let held = service.shared.shards.held(&active);
    let seen = service.view.seen();
    active
        .details
        .iter()
        .zip(held)
        .enumerate()
        .map(|(index, (details, held))| {
            let id = NamespaceId(u16::try_from(index).unwrap_or(u16::MAX));
            let globs = active.namespaces.globs();
            let known = seen.namespaces.get(&details.name);
            api::Namespace {
                name: details.name.to_string(),
                keys: globs.filter(|(of, _)| *of == id).map(|(_, glob)| spell(glob.pattern())).collect(),
                mode: details.rules.mode.word().to_owned(),
                enforced_for_some: details.rollout.is_some(),
                policies: chain(&active, id),
                ceiling_ms: details.ceiling_ms(),
                held: held.held_finite + held.held_none,
                without_ttl: held.held_none,
                unknown: held.unknown,
                quarantine: topology::quarantine(details, &service.shared),
                ungoverned: details.metrics.ungoverned_found(),
                harm: seen.aftermath.harm(&details.name),
                holds: known.map_or_else(Default::default, |known| known.holds.summary()),
                advice: pattern_list::advice(&seen, &details.name),
            }
        })
        .collect()
}

fn chain(active: &Active, id: NamespaceId) -> Vec<String> {
    let chain = active.generation.chain(id);
    chain.map(ToString::to_string).collect()
}

/// `GET /api/v1/guards`.
fn guards(service: &ViewService) -> Vec<api::Guard> {
    let active = service.shared.active.load_full();
    let words = |word: &str, count| (word.to_owned(), count);
    let told = active.guards.details.iter().map(|guard| {
        let (config, mode) = (&guard.config, mode_label(guard.rules.mode));
        let said = guard.metrics.said(mode);
        let not_judged = guard.metrics.not_judged();
        api::Guard {
            name: config.name.clone(),
            mode: mode.word().to_owned(),
            keys: config.keys.clone(),
            lock: config.locks.clone(),
            unlocked: config.unlocked().to_owned(),
            proofs: config.proofs().map(str::to_owned).collect(),
            exempt: config.exempt.clone(),
            writes: said.map(|(result, count)| words(result.word(), count)).collect(),
            unchecked: not_judged.map(|(why, count)| words(why.word(), count)).collect(),
            again: guard.metrics.again.get(),
        }
    });
    told.collect()
}

/// `GET /api/v1/policies`.
fn policies(service: &ViewService) -> Vec<api::Policy> {
    let active = service.shared.active.load_full();
    let counters: HashMap<_, _> = active.generation.counters().into_iter().collect();
    let policies = active.generation.policies().iter();
    policies
        .map(|policy| {
            let counters = counters.get(&policy.name);
            let failures = FaultKind::ALL.into_iter();
            api::Policy {
                name: policy.name.to_string(),
                version: policy.version.as_deref().unwrap_or_default().to_owned(),
                digest: policy.digest().to_owned(),
                mode: policy_mode(&active, &policy.name).to_owned(),
                evaluations: counters.map_or(0, |counters| counters.calls),
                failures: failures.map(|kind| counters.map_or(0, |counters| counters.failures(kind))).sum(),
            }
        })
        .collect()
}

fn policy_mode(active: &Active, policy: &str) -> &'static str {
    let serves = |id: u16| {
        let mut chain = active.generation.chain(NamespaceId(id));
        chain.any(|name| &**name == policy)
    };
    let served = (0..=u16::MAX).zip(&active.details);
    let mut modes =
        served.filter(|(id, _)| serves(*id)).map(|(_, details)| (details.rules.mode, details.rollout.is_some()));
    match modes.next() {
        None => "unused",
        Some(first @ (mode, false)) if modes.all(|other| other == first) => mode.word(),
        // Also where the mode depends on the client.
        Some(_) => "mixed",
    }
}

/// `GET /api/v1/clients`.
fn applications(service: &ViewService) -> Vec<api::Application> {
    let seen = service.view.seen();
    applications_of(service, &seen.periods.total(), &seen.patterns)
}

fn applications_of(service: &ViewService, tally: &Tally, patterns: &KeyPatterns) -> Vec<api::Application> {
    let active = service.shared.active.load_full();
    let mut connections: HashMap<String, u64> = HashMap::new();
    for caller in service.shared.clients.callers() {
        *connections.entry(caller.application()).or_default() += 1;
    }
    let here = |name: &str| {
        let details = active.named(name);
        details.map_or_else(Here::default, |details| Here {
            mode: details.rules.mode.word(),
            grants_repeats: details.rules.on_repeat == OnRepeat::Grant,
            believes: details.rules.doubt == Doubt::Believe,
        })
    };
    tally.applications.told(&connections, patterns, here)
}

/// `GET /api/v1/hot`.
fn hot(service: &ViewService) -> api::Hot {
    let seen = service.view.seen();
    let hottest = seen.hot.hottest(Instant::now());
    let locks = hottest.into_iter().map(|(key, count)| api::HotLock {
        key: spell(key.bytes()),
        db: key.db(),
        namespace: count.namespace.to_string(),
        tries: count.tries,
        error: count.error,
        contended: count.contended,
    });
    api::Hot { locks: locks.collect(), cycles: seen.circles.iter().map(cycle).collect() }
}

fn cycle(circle: &Circle) -> api::Cycle {
    let edges = &circle.edges;
    let before = edges.iter().cycle().skip(edges.len() - 1);
    let members = edges.iter().zip(before).map(|(edge, before)| api::CycleMember {
        client: api::Client::of(&edge.waiter),
        holds: spell(before.key.bytes()),
        waits_for: spell(edge.key.bytes()),
    });
    api::Cycle { since: circle.since_ms(), members: members.collect() }
}

/// `GET /api/v1/report`.
fn reported(service: &ViewService, query: &ReportQuery) -> api::Report {
    let active = service.shared.active.load_full();
    let held = service.shared.shards.held(&active);
    let endless = endless(service, &active);
    let now = Moment::now();
    let started = service.started(now);
    let seen = service.view.seen();
    let (tally, since) = match query.since {
        Some(since) => {
            let from = seen.marks.begin(since, now);
            let from = from.filter(|from| from.at > started.at);
            seen.periods.since(from.unwrap_or(started))
        }
        None => (seen.periods.total(), seen.periods.reset.unwrap_or(started).unix_ms),
    };
    let names: Vec<String> = active.details.iter().map(|one| one.name.to_string()).collect();
    let watched =
        report::Watched { patterns: &seen.patterns, since, now: now.unix_ms, enough: query.enough, names: &names };
    let namespaces = active.details.iter().zip(held).zip(endless);
    let equal = service.shared.ungoverned.equal();
    let namespaces = namespaces.map(|((details, held), endless)| {
        let keys = endless.iter().map(|key| &key[..]);
        let equal: Vec<&Equal> = equal.iter().filter(|(of, _)| *of == details.name).map(|(_, equal)| equal).collect();
        let alike = equal.first().into_iter().flat_map(|equal| &equal.keys);
        let alike = alike.map(|key| &key[..]);
        let standing = report::Standing {
            namespace: &details.name,
            enforced: details.rules.mode == Mode::Enforce,
            grants_repeats: details.rules.on_repeat == OnRepeat::Grant,
            harm: seen.aftermath.harm(&details.name),
            without_ttl: held.held_none + details.metrics.endless_found(),
            without_ttl_examples: report::examples(keys, MAX_EXAMPLES),
            equal_values: equal.iter().map(|equal| equal.count).sum(),
            equal_values_examples: report::examples(alike, MAX_ALIKE),
            watched,
        };
        report::namespace(standing, &tally)
    });
    api::Report {
        since,
        now: now.unix_ms,
        namespaces: namespaces.collect(),
        unclaimed_patterns: discovery::unclaimed(&service.shared),
        hidden_processes: service.shared.processes.sight.notice(),
        applications: applications_of(service, &tally, &seen.patterns),
        patterns: pattern_list::told(&seen, &PatternsQuery::default(), since),
    }
}

/// Some locks without a TTL of each namespace: held, or found by the last scan of the server.
fn endless(service: &ViewService, active: &Active) -> Vec<Vec<Bytes>> {
    let mut endless = vec![Vec::new(); active.details.len()];
    let mut note = |key: &[u8]| {
        let namespace = active.namespaces.find(key);
        if let Some(keys) = namespace.and_then(|id| endless.get_mut(usize::from(id.0)))
            && keys.len() < MAX_EXAMPLES
        {
            keys.push(Bytes::copy_from_slice(key));
        }
    };
    service.shared.shards.visit(|key, lease| {
        if lease.ends.is_none() {
            note(key.bytes());
        }
    });
    service.shared.ungoverned.endless().iter().for_each(|key| note(key));
    endless
}

/// Stands for an unknown end, Unix seconds: the last second of the year 9999.
const FAR_AHEAD: u64 = 253_402_300_799;

/// When a quarantine ends, Unix seconds.
fn ends_at(left: Left) -> u64 {
    let ends = match left {
        Left::For(left) | Left::ClockJumped(left) => clock::unix_now().checked_add(left),
        Left::Unheard | Left::NoEra | Left::Unfit(_) => None,
    };
    ends.map_or(FAR_AHEAD, |ends| ends.as_secs().min(FAR_AHEAD))
}

/// The values of the gauges on the metrics page.
pub fn gauges(shared: &ProxyState, view: &View) -> Vec<NamespaceMirror> {
    let active = shared.active.load();
    let mut gauges = shared.shards.held(&active);
    let seen = view.seen();
    for (gauge, details) in gauges.iter_mut().zip(&active.details) {
        let known = seen.namespaces.get(&details.name);
        gauge.waiting = known.map_or(0, |known| known.waiting);
        gauge.enforced = details.is_enforced();
        gauge.harms = seen.aftermath.harm(&details.name).is_some();
        let left = topology::quarantine_left(details, shared);
        gauge.quarantine_until = left.map_or(0, ends_at);
    }
    gauges
}
