//! The host: one per process. It turns sources and chains into a [`Generation`], or into the list of everything that is
//! wrong with them. It asks no policy about a client's command; `chains.rs` does that.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use wasmtime::Engine;

use crate::bindings::v1;
use crate::check;
use crate::digest::hex;
use crate::engine::{self, POOLED_INSTANCES};
use crate::error::{HostError, LoadError};
use crate::generation::{Chain, Generation, PolicyInfo};
use crate::history::{History, Pretended};
use crate::instance::{Kind, Member};
use crate::loader::{self, Compiled, ModuleInfo};
use crate::meter::{Meters, Observer, PolicyCounters};
use crate::said::Said;
use crate::source::{BUILT_IN_NAMES, ModuleSource, PolicySource, RULES, builtin};
use crate::ticker::Ticker;

/// The engine, its ticker and the counters. Made once per process, dropped at its end.
pub struct PolicyHost {
    engine: Engine,
    ticker: Arc<Ticker>,
    pooled: bool,
    meters: Arc<Meters>,
    history: Arc<History>,
    generations: AtomicU64,
    /// The modules that the last load compiled, by digest.
    compiled: Mutex<BTreeMap<[u8; 32], Arc<Compiled>>>,
    /// The output of policies built for debugging; only an author's host loads these.
    said: Option<Arc<Said>>,
}

/// The chain of one namespace.
#[derive(Clone, Debug)]
pub struct ChainSpec {
    /// The namespace's name, for people. Its place among the chains is its `NamespaceId`.
    pub namespace: String,
    /// The policies in order, by name, each with its settings (names and values; arrays joined by
    /// commas).
    pub policies: Vec<(String, Vec<(String, String)>)>,
}

/// The result for a source: a compiled module, or an error that was already reported.
type Loaded<'a> = BTreeMap<&'a str, Option<(&'a PolicySource, Arc<Compiled>)>>;

impl PolicyHost {
    /// Starts the engine.
    ///
    /// # Errors
    /// If this machine cannot run it.
    pub fn new() -> Result<PolicyHost, HostError> {
        PolicyHost::start(None, None)
    }

    /// Starts the engine for an author, with the output of policies built for debugging.
    ///
    /// # Errors
    /// If this machine cannot run it.
    pub fn for_author(said: Arc<Said>) -> Result<PolicyHost, HostError> {
        PolicyHost::start(None, Some(said))
    }

    /// Starts the engine with an observer of evaluations and failures.
    ///
    /// # Errors
    /// If this machine cannot run it.
    pub fn with_observer(observer: Arc<dyn Observer>) -> Result<PolicyHost, HostError> {
        PolicyHost::start(Some(observer), None)
    }

    fn start(observer: Option<Arc<dyn Observer>>, said: Option<Arc<Said>>) -> Result<PolicyHost, HostError> {
        let new = engine::start()?;
        Ok(PolicyHost {
            ticker: Ticker::start(&new.engine)?,
            engine: new.engine,
            pooled: new.pooled,
            meters: Arc::new(Meters::new(observer)),
            history: Arc::new(History::new()),
            generations: AtomicU64::new(0),
            compiled: Mutex::default(),
            said,
        })
    }

    /// Compiles every module, configures each policy with the settings of each namespace, and asks
    /// every chain sample requests to find contradictions. A chain may name a built-in policy that
    /// is not among the sources. A module that the last load has compiled is not compiled again. Takes milliseconds for the built-in
    /// policies, and seconds for large modules: call it where no client waits.
    ///
    /// # Errors
    /// Everything that is wrong. Nothing is half loaded: what was in force stays in force.
    pub fn load(&self, sources: &[PolicySource], chains: &[ChainSpec]) -> Result<Generation, Vec<LoadError>> {
        let mut errors = Vec::new();
        let implied = implied(sources, chains);
        let mut loaded = Loaded::new();
        let mut policies = Vec::new();
        let sources: Vec<&PolicySource> = sources.iter().chain(&implied).collect();
        for (source, compiled) in sources.iter().zip(self.compile(&sources)) {
            let Entry::Vacant(entry) = loaded.entry(&source.name) else {
                errors.push(LoadError::DefinedTwice { policy: source.name.clone() });
                continue;
            };
            match compiled {
                Ok(compiled) => {
                    policies.push(self.info(source, &compiled));
                    entry.insert(Some((source, compiled)));
                }
                Err(error) => {
                    entry.insert(None);
                    errors.push(error);
                }
            }
        }
        let chains: Vec<Chain> = chains.iter().map(|spec| self.chain(spec, &loaded, &mut errors)).collect();
        self.check_room(&chains, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let kept = loaded.into_values().flatten();
        let kept = kept.map(|(_, compiled)| (compiled.sha256, compiled));
        *self.compiled.lock().unwrap_or_else(PoisonError::into_inner) = kept.collect();
        Ok(Generation {
            id: self.generations.fetch_add(1, Ordering::Relaxed) + 1,
            asks_holdings: chains.iter().any(Chain::asks_holdings),
            chains,
            policies,
            meters: self.meters.clone(),
        })
    }

    /// What a module contains about itself. It is read and compiled, and none of it is run.
    ///
    /// # Errors
    /// Why it could not be loaded.
    pub fn inspect(&self, source: &PolicySource) -> Result<ModuleInfo, LoadError> {
        loader::inspect(&self.engine, source)
    }

    /// Makes policies get these answers about clients' recent actions, and nothing that clients do counts: for an
    /// author, who asks the same question twice.
    pub fn pretend(&self, what: Pretended) {
        self.history.pretend(what);
    }

    /// Counters of every policy since the host was made, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(Arc<str>, PolicyCounters)> {
        self.meters.read()
    }

    /// Whether instances come from a pool. Without one, if the address space is limited (`ulimit -v`), making an
    /// instance takes 12 µs instead of 3, and their number is not limited.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Compiles all modules in parallel: each has parts that only one core can work on.
    fn compile(&self, sources: &[&PolicySource]) -> Vec<Result<Arc<Compiled>, LoadError>> {
        let compiled = self.compiled.lock();
        let kept = compiled.unwrap_or_else(PoisonError::into_inner).clone();
        let kept = |sha256: &[u8; 32]| kept.get(sha256).cloned();
        thread::scope(|threads| {
            let compiling: Vec<_> = sources
                .iter()
                .map(|source| threads.spawn(|| loader::compile(&self.engine, source, self.said.as_ref(), &kept)))
                .collect();
            let compiled = compiling.into_iter().map(ScopedJoinHandle::join);
            compiled.map(|compiled| compiled.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    fn info(&self, source: &PolicySource, compiled: &Compiled) -> PolicyInfo {
        PolicyInfo {
            name: self.meters.of(&source.name).policy().clone(),
            sha256: hex(&compiled.sha256),
            ships: matches!(source.module, ModuleSource::BuiltIn(_)),
            version: match &source.module {
                ModuleSource::BuiltIn(policy) => Some(policy.version.into()),
                ModuleSource::File(_) | ModuleSource::Bytes(_) | ModuleSource::Fetched { .. } => {
                    compiled.metadata.as_ref().map(|metadata| metadata.version.as_str().into())
                }
            },
            asks_clients: compiled.asks_clients,
        }
    }

    /// Builds one chain and tests it.
    fn chain(&self, spec: &ChainSpec, loaded: &Loaded<'_>, errors: &mut Vec<LoadError>) -> Chain {
        let mut chain = Chain { namespace: spec.namespace.clone(), members: Vec::with_capacity(spec.policies.len()) };
        for (place, (name, settings)) in spec.policies.iter().enumerate() {
            if spec.policies[..place].iter().any(|(earlier, _)| earlier == name) {
                errors.push(LoadError::TwiceInChain { namespace: spec.namespace.clone(), policy: name.clone() });
                continue;
            }
            match loaded.get(name.as_str()) {
                Some(Some((source, compiled))) => {
                    let member = |kind, settings: Vec<v1::Setting>| Member {
                        asks_clients: compiled.asks_clients && may_ask_clients(kind, &settings),
                        history: (compiled.asks_history && may_ask_history(kind, &settings))
                            .then(|| self.history.clone()),
                        asks_holdings: compiled.asks_history && may_ask_holdings(kind, &settings),
                        kind,
                        judges_kinds: matches!(source.module, ModuleSource::BuiltIn(policy) if policy.judges_kinds),
                        compiled: compiled.clone(),
                        settings,
                        judged: v1::Operations::all(),
                        most_fuel: 0,
                        limits: source.limits,
                        meter: self.meters.of(name),
                        ticker: self.ticker.clone(),
                    };
                    if !is_rules(source) {
                        chain.members.push(member(Kind::Policy, settings.iter().map(setting).collect()));
                        continue;
                    }
                    let (enforced, reported) = reported(settings);
                    chain.members.push(member(Kind::Rules, enforced));
                    if !reported.is_empty() {
                        chain.members.push(member(Kind::Reports, reported));
                    }
                }
                Some(None) => {}
                None => errors.push(LoadError::Unknown {
                    namespace: spec.namespace.clone(),
                    policy: name.clone(),
                    known: known(loaded),
                }),
            }
        }
        check::check(&mut chain, errors);
        chain
    }

    /// Checks the number of instances: every thread has one of every policy of every chain, and for a moment two.
    fn check_room(&self, chains: &[Chain], errors: &mut Vec<LoadError>) {
        let members: usize = chains.iter().map(|chain| chain.members.len()).sum();
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
        let instances = members.saturating_mul(threads).saturating_mul(2);
        let room = POOLED_INSTANCES as usize;
        if self.pooled && instances > room {
            errors.push(LoadError::TooMany { instances, members, threads, room });
        }
    }
}

impl fmt::Debug for PolicyHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyHost")
            .field("pooled", &self.pooled)
            .field("generations", &self.generations)
            .finish_non_exhaustive()
    }
}

/// The built-in policies that chains name and that are missing from the sources.
fn implied(sources: &[PolicySource], chains: &[ChainSpec]) -> Vec<PolicySource> {
    BUILT_IN_NAMES
        .into_iter()
        .filter(|name| sources.iter().all(|source| source.name != **name))
        .filter(|name| {
            let mut named = chains.iter().flat_map(|chain| &chain.policies);
            named.any(|(policy, _)| policy == name)
        })
        .filter_map(builtin)
        .map(PolicySource::built_in)
        .collect()
}

fn known(loaded: &Loaded<'_>) -> Vec<String> {
    let mut known: Vec<String> = BUILT_IN_NAMES.map(str::to_owned).to_vec();
    for name in loaded.keys() {
        if !known.iter().any(|listed| listed == name) {
            known.push((*name).to_owned());
        }
    }
    known
}

fn is_rules(source: &PolicySource) -> bool {
    matches!(source.module, ModuleSource::BuiltIn(policy) if policy.name == RULES)
}

/// Whether a policy that imports the clients' identities may ask for them. Rules may do so only if one of them names
/// them; looking them up for each question costs three texts.
fn may_ask_clients(kind: Kind, settings: &[v1::Setting]) -> bool {
    kind == Kind::Policy || settings.iter().any(|setting| setting.value.contains("client."))
}

/// The same for clients' recent actions.
fn may_ask_history(kind: Kind, settings: &[v1::Setting]) -> bool {
    let asks = |setting: &v1::Setting| setting.value.contains("tries.") || setting.name.ends_with(".rate");
    may_ask_holdings(kind, settings) || settings.iter().any(asks)
}

/// The same for clients' holdings.
fn may_ask_holdings(kind: Kind, settings: &[v1::Setting]) -> bool {
    let asks = |setting: &v1::Setting| setting.value.contains("held.") || setting.name.ends_with(".order");
    kind == Kind::Policy || settings.iter().any(asks)
}

/// The settings of rules that refuse, and of those with `only = "report"`, which are asked separately: the contract has
/// no answer that permits and says what would be refused. The second are empty if no rule only reports.
fn reported(settings: &[(String, String)]) -> (Vec<v1::Setting>, Vec<v1::Setting>) {
    let named =
        |name: &str| name.strip_prefix("rule.").and_then(|rest| rest.rsplit_once('.')).map(|(rule, _)| rule.to_owned());
    let only = settings.iter().filter(|(name, value)| name.ends_with(".only") && value == "report");
    let only: BTreeSet<String> = only.filter_map(|(name, _)| named(name)).collect();
    let (mut enforced, mut reported) = (Vec::new(), Vec::new());
    for one in settings {
        match named(&one.0) {
            // The changes of zones are for both.
            None => {
                enforced.push(setting(one));
                if !only.is_empty() {
                    reported.push(setting(one));
                }
            }
            Some(rule) if !only.contains(&rule) => enforced.push(setting(one)),
            Some(_) if one.0.ends_with(".only") => {}
            Some(_) => reported.push(setting(one)),
        }
    }
    (enforced, reported)
}

fn setting((name, value): &(String, String)) -> v1::Setting {
    v1::Setting { name: name.clone(), value: value.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_as_it_was_is_not_compiled_again() {
        let host = PolicyHost::new().expect("this machine runs it");
        let chain = |ceiling: &str, names: &[&str]| ChainSpec {
            namespace: "orders".to_owned(),
            policies: names
                .iter()
                .map(|name| {
                    let ceiling = ("ceiling".to_owned(), ceiling.to_owned());
                    let settings = (*name == "ttl-ceiling").then_some(ceiling);
                    ((*name).to_owned(), settings.into_iter().collect())
                })
                .collect(),
        };
        let load = |chain: ChainSpec| host.load(&[], &[chain]);
        let compiled = |generation: &Generation| {
            let members = generation.chains[0].members.iter();
            members.map(|member| member.compiled.clone()).collect::<Vec<_>>()
        };
        let names = ["fencing", "ttl-ceiling"];
        let first = compiled(&load(chain("1m", &names)).expect("it is right"));
        assert!(load(chain("a minute", &names)).is_err());
        let second = compiled(&load(chain("2m", &names)).expect("it is right"));
        assert!(first.iter().zip(&second).all(|(a, b)| Arc::ptr_eq(a, b)));

        // Modules that no chain names any more are dropped.
        load(chain("2m", &["fencing"])).expect("it is right");
        let third = compiled(&load(chain("2m", &names)).expect("it is right"));
        assert!(Arc::ptr_eq(&first[0], &third[0]) && !Arc::ptr_eq(&first[1], &third[1]));
    }
}
