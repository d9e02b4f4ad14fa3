//! Changes what is in force: modes by an order, everything else by a reload of the configuration. A change is prepared
//! separately and published as a whole; an invalid one is refused and changes nothing.

pub(crate) mod aftermath;
mod changes;
mod losses;
mod stages;
mod what_if;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use changes::KEYS_OF_A_RESTART;
use lockwarden_console::admin::{Control, ControlError, Harm, Leap, NotReady, ReloadError, Weaker};
use lockwarden_console::view;
use lockwarden_console::view::api;
use lockwarden_console::view::api::{Break, Broken, LogChanged};
use lockwarden_console::view::{Mark, ReportQuery, ViewService};
use lockwarden_control::config::{Config, GUARD, NamespaceConfig, Overrides, Unusable};
use lockwarden_control::ruleset::activate::{activate, labels, meaning, policy_infos};
use lockwarden_control::ruleset::{Active, Rollouts, load_policies};
use lockwarden_control::telemetry::audit;
use lockwarden_control::telemetry::logging::LogFilter;
use lockwarden_control::telemetry::metrics::PolicyUse;
use lockwarden_control::text::numbers::counted;
use lockwarden_control::{clock, config};
use lockwarden_dataplane::maintenance::break_lease;
use lockwarden_dataplane::maintenance::break_lease::BreakError;
use lockwarden_dataplane::maintenance::upkeep::Upkeep;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::token::FencingToken;
use lockwarden_policy::PolicyHost;

/// The sources of a reload beside the file.
pub(crate) struct Source {
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
}

impl Source {
    /// Reads the configuration.
    pub(crate) fn load(&self) -> config::Loaded {
        config::load(self.file.as_deref(), &self.overrides, environment())
    }
}

/// The environment as text; a variable that is not text is not ours.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Namespaces that get a line at the start.
const MAX_ANNOUNCED: usize = 50;

/// Changes modes and configuration at run time.
pub(crate) struct Controller {
    shared: Arc<ProxyState>,
    host: PolicyHost,
    source: Source,
    /// Takes orders to break leases.
    upkeep: Arc<Upkeep>,
    views: ViewService,
    log: LogFilter,
    /// The settings at the start of the proxy.
    started: Vec<config::Setting>,
    /// The last configuration that was read; its mutex allows one change at a time.
    config: Mutex<Config>,
    /// Existing namespaces that were enforced at some time since the start.
    once_enforced: Mutex<HashSet<String>>,
}

impl Controller {
    pub(crate) fn new(
        shared: Arc<ProxyState>,
        host: PolicyHost,
        (source, config): (Source, Config),
        log: LogFilter,
        upkeep: Arc<Upkeep>,
        views: ViewService,
    ) -> Controller {
        let controller = Controller {
            shared,
            host,
            source,
            upkeep,
            views,
            log,
            started: config.settings(),
            config: Mutex::new(config),
            once_enforced: Mutex::default(),
        };
        let config = controller.config.lock();
        controller.note_enforced(&config.unwrap_or_else(PoisonError::into_inner));
        controller
    }

    /// Logs what is in force: the hash of the configuration, and a line for each namespace.
    pub(crate) fn announce(&self) {
        let config_hash = self.config_hash();
        tracing::info!(config_hash, "configuration in force");
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        for namespace in config.namespaces.iter().take(MAX_ANNOUNCED) {
            let config::Summary { keys, mode, enforced_for, policies } = config::Summary::of(namespace);
            let namespace = &namespace.name;
            tracing::info!(namespace, keys, mode, enforced_for, policies, "in force");
        }
        if let Some(more) = config.namespaces.len().checked_sub(MAX_ANNOUNCED + 1) {
            let more = more + 1;
            tracing::info!(more, "and so many namespaces more");
        }
        for guard in &config.guards {
            tracing::info!(guard = guard.name, "in force: {}", guard.summary());
        }
    }

    fn config_hash(&self) -> String {
        self.shared.active.load().meaning.hash().to_owned()
    }

    /// Reopens the audit file whether the reload succeeded or not: log rotation moves the file away and sends the same signal.
    fn tell_audit(&self, reloaded: &Result<String, ReloadError>) {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let (audit, active) = (&self.shared.audit, self.shared.active.load());
        audit.reload(&config.audit, &self.shared.events);
        match reloaded {
            Ok(done) => audit.notice("reloaded", || active.in_force(), Some(done)),
            Err(why) => {
                let why = why.to_string();
                audit.notice("reload-rejected", || active.in_force(), Some(&why));
            }
        }
    }

    /// The reasons against enforcing each of these namespaces.
    fn harms(&self, enforced: &[String]) -> Vec<Harm> {
        if enforced.is_empty() {
            return Vec::new();
        }
        let report = self.views().report(&ReportQuery::default());
        let hidden = report.hidden_processes;
        let wanted = report.namespaces.into_iter();
        let wanted = wanted.filter(|one| enforced.contains(&one.namespace));
        let harms = wanted.map(|mut one| {
            // A namespace that was enforced before is known well enough.
            let too_little = one.too_little();
            one.against.extend(too_little.filter(|_| !self.was_enforced(&one.namespace)));
            // A client that releases without an owner token is distinguished by its process.
            if one.tokenless_releases > 0 {
                one.against.extend(hidden.clone());
            }
            Harm { namespace: one.namespace, reasons: one.against }
        });
        harms.filter(|harm| !harm.reasons.is_empty()).collect()
    }

    fn was_enforced(&self, namespace: &str) -> bool {
        let once_enforced = self.once_enforced.lock();
        let once_enforced = once_enforced.unwrap_or_else(PoisonError::into_inner);
        once_enforced.contains(namespace)
    }

    /// Remembers which namespaces are enforced.
    fn note_enforced(&self, config: &Config) {
        let enforced = config.namespaces.iter().filter(|one| one.mode == Mode::Enforce);
        let once_enforced = self.once_enforced.lock();
        let mut once_enforced = once_enforced.unwrap_or_else(PoisonError::into_inner);
        once_enforced.retain(|name| config.namespaces.iter().any(|one| one.name == *name));
        once_enforced.extend(enforced.map(|one| one.name.clone()));
    }

    /// The namespaces among these that are not enforced now.
    fn newly_enforced<'a>(&self, wanted: impl Iterator<Item = &'a str>) -> Vec<String> {
        let active = self.shared.active.load();
        let is_watched = |name: &&str| {
            let mut details = active.details.iter();
            details.any(|details| &*details.name == *name && details.rules.mode == Mode::Monitor)
        };
        wanted.filter(is_watched).map(str::to_owned).collect()
    }

    fn reload_now(&self, weaker: Weaker, leap: Leap) -> Result<String, ReloadError> {
        let mut current = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.source.load().usable()?;
        let losses = losses::losses(&current, &new).join("; ");
        let made_room = losses::made_room(&current, &new).join("; ");
        if !losses.is_empty() && weaker == Weaker::Refused {
            return Err(ReloadError::Weaker { losses });
        }
        let enforces = |namespace: &&NamespaceConfig| namespace.mode == Mode::Enforce;
        let enforced = new.namespaces.iter().filter(enforces);
        let enforced = self.newly_enforced(enforced.map(|namespace| &*namespace.name));
        let harms = self.harms(&enforced);
        if !harms.is_empty() && leap == Leap::Looks {
            return Err(ReloadError::Harmful(harms));
        }
        let generation = load_policies::load(&self.host, &new).map_err(Unusable)?;
        let before = self.shared.active.load_full();
        let mut changes = changes::changes(&current, &new);
        changes.extend(changes::modules(&before.generation, &generation));
        let fixed = changes::unchangeable(&current, &new);
        let mut active = activate(&new, generation, &self.shared.metrics)?;
        active.go_on(&before);
        // No step from here on can fail: a reload is applied as a whole, or not at all.
        self.shared.naming.replace(active.applications.clone());
        self.shared.metrics.set_config_hash(active.meaning.hash());
        self.shared.active.store(Arc::new(active));
        *current = new;
        self.note_enforced(&current);
        if !losses.is_empty() {
            tracing::warn!(losses, "what is in force governs less than before, as was asked for");
        }
        let changed = !changes.is_empty();
        self.views.mark(Mark::Reloaded { changed });
        let number = current.namespaces.len() as u64;
        let mut done = format!("{} in force", counted(number, "namespace", "namespaces"));
        if !changes.is_empty() {
            done.push_str(&format!("; changed: {}", changes.join(", ")));
        }
        if !made_room.is_empty() {
            tracing::warn!(keys = made_room, "keys are no locks any more, because the file names namespaces now");
            done.push_str(&format!("; no locks any more: {made_room}"));
        }
        if !fixed.is_empty() {
            done.push_str(&format!("; a restart is needed for: {}", fixed.join(", ")));
        }
        Ok(done)
    }
}

impl Control for Controller {
    fn metrics(&self) -> Vec<u8> {
        let counters = self.host.counters().into_iter();
        let uses: Vec<(Arc<str>, PolicyUse)> = counters
            .map(|(policy, counters)| {
                let used = PolicyUse {
                    calls: counters.calls,
                    fuel: counters.fuel,
                    memory_bytes: counters.memory_bytes,
                    open_breakers: counters.open_breakers,
                };
                (policy, used)
            })
            .collect();
        self.shared.metrics.policies_used(&uses);
        self.shared.metrics.render()
    }

    fn readiness(&self) -> Result<(), NotReady> {
        if *self.shared.drain.borrow() {
            return Err(NotReady::Stopping);
        }
        self.shared.readiness().map_err(NotReady::Backend)
    }

    fn set_mode(
        &self,
        namespace: Option<&str>,
        mode: &str,
        leap: Leap,
        by: audit::Client,
    ) -> Result<Vec<(String, String)>, ControlError> {
        let mode = match mode {
            "enforce" => Mode::Enforce,
            "monitor" => Mode::Monitor,
            other => {
                let text = format!("no such mode: {other:?}; there are \"enforce\" and \"monitor\"");
                return Err(ControlError::Invalid(text));
            }
        };
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if (mode, leap) == (Mode::Enforce, Leap::Looks) {
            let names = config.namespaces.iter().map(|one| &*one.name);
            let meant = names.filter(|name| namespace.is_none_or(|wanted| wanted == *name));
            let harms = self.harms(&self.newly_enforced(meant));
            if !harms.is_empty() {
                return Err(ControlError::Harmful(harms));
            }
        }
        let before = self.shared.active.load_full();
        let mut details = before.details.clone();
        let mut switched = Vec::new();
        let config = &mut *config;
        let said = &mut config.said;
        for (details, configured) in details.iter_mut().zip(&mut config.namespaces) {
            if namespace.is_none_or(|name| name == &*details.name) {
                // The mode is an order for all clients: after "monitor" nothing is refused.
                details.rules.mode = mode;
                let rollout = details.rollout.take().is_some();
                configured.switch(mode);
                said.order_mode(&details.name, mode.word());
                if rollout {
                    tracing::warn!(
                        namespace = &*details.name,
                        "enforce_for is off until the configuration is loaded again"
                    );
                }
                switched.push((details.name.to_string(), mode.word().to_owned()));
            }
        }
        for guard in &mut config.guards {
            let name = format!("{GUARD}{}", guard.name);
            // An operator who wants nothing refused includes guarded data; enforcing a guard needs its name.
            let is_meant = match namespace {
                Some(namespace) => namespace == name,
                None => mode == Mode::Monitor,
            };
            if is_meant {
                guard.mode = mode;
                said.order_mode(&name, mode.word());
                switched.push((name, mode.word().to_owned()));
            }
        }
        if let (Some(name), true) = (namespace, switched.is_empty()) {
            let known = details.iter().map(|details| details.name.to_string());
            let guards = config.guards.iter().map(|guard| format!("{GUARD}{}", guard.name));
            let known: Vec<String> = known.chain(guards).collect();
            let text = format!("no such namespace: {name:?}; there are {}", known.join(", "));
            return Err(ControlError::NotFound(text));
        }
        // No step from here on can fail: an order is applied as a whole, or not at all.
        let rollouts = Rollouts::of(&details);
        let meaning = Arc::new(meaning(config, &before.generation));
        self.shared.metrics.set_config_hash(meaning.hash());
        let active = Active {
            rollouts,
            meaning,
            guards: Arc::new(before.guards.switched(&config.guards)),
            ..before.with_details(details)
        };
        self.shared.metrics.show_modes(&labels(config), &policy_infos(config, &active.generation));
        self.shared.active.store(Arc::new(active));
        self.note_enforced(config);
        let words: Vec<String> = switched.iter().map(|(name, mode)| format!("{name}={mode}")).collect();
        let active = self.shared.active.load();
        self.shared.audit.ordered("mode-switched", || active.in_force(), Some(&words.join(" ")), Some(by));
        self.views.mark(Mark::Switched);
        for (name, mode) in &switched {
            tracing::warn!(namespace = name, mode, "mode switched");
        }
        Ok(switched)
    }

    fn next(&self) -> Vec<api::Next> {
        stages::compared(&self.shared.active.load())
    }

    fn set_stage(
        &self,
        namespace: Option<&str>,
        stage: &str,
        by: audit::Client,
    ) -> Result<Vec<api::Next>, ControlError> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        stages::order((&self.shared, &mut config), namespace, stage, by)
    }

    fn drain(&self) -> String {
        // Before any client is sent away.
        let clients = self.shared.metrics.client_connections.get();
        self.shared.stop_asked.notify_one();
        format!("stopping; clients connected: {clients}")
    }

    fn reload(&self, weaker: Weaker, leap: Leap) -> Result<String, ReloadError> {
        let reloaded = self.reload_now(weaker, leap);
        self.tell_audit(&reloaded);
        let shared = &self.shared;
        shared.certificates.look(&shared.backend.address, &shared.metrics);
        match &reloaded {
            Ok(done) => {
                let now = clock::unix_now();
                self.shared.metrics.config_loaded(now.as_secs_f64());
                let config_hash = self.config_hash();
                tracing::info!(done, config_hash, "configuration loaded");
            }
            Err(why) => {
                self.shared.metrics.config_rejected();
                tracing::error!(
                    why = why.to_string(),
                    "the configuration was not loaded; the one before stays in force"
                );
            }
        }
        reloaded
    }

    fn settings(&self) -> api::Settings {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = config.settings().into_iter();
        api::Settings {
            file: config.source.as_ref().map(|path| path.display().to_string()),
            settings: settings.map(|setting| in_force(setting, &self.started)).collect(),
        }
    }

    fn what_if(&self, changes: &[&str]) -> Result<api::WhatIf, ControlError> {
        let invalid = ControlError::Invalid;
        let file = self.source.file.as_deref();
        let (text, typed) = what_if::changed_text(file, changes).map_err(invalid)?;
        let path = file.unwrap_or(Path::new(""));
        let overrides = &self.source.overrides;
        let loaded = config::load_text((path, &text), overrides, environment());
        let unusable = |error: Unusable| invalid(what_if::wrong(&error));
        let new = loaded.usable().map_err(unusable)?;
        // A policy decides whether a setting is one of its own.
        load_policies::load(&self.host, &new).map_err(|findings| unusable(Unusable(findings)))?;
        let rules: Vec<_> = typed.iter().map(|one| what_if::rule(one, &new)).collect();
        let said = changes.iter().map(|change| (*change).to_owned());
        self.shared.events.await_followers();
        Ok(self.views.what_if(said.collect(), &rules))
    }

    fn log_filter(&self) -> String {
        self.log.current()
    }

    fn set_log_filter(&self, order: &str) -> Result<LogChanged, ControlError> {
        let changed = self.log.change(order);
        let (was, filter) = changed.map_err(|error| ControlError::Invalid(error.to_string()))?;
        let active = self.shared.active.load();
        let detail = format!("{was} -> {filter}");
        let audit = &self.shared.audit;
        audit.notice("log-changed", || active.in_force(), Some(&detail));
        Ok(LogChanged { filter, was })
    }

    fn reset_report(&self) -> u64 {
        self.views.mark(Mark::Reset)
    }

    fn break_lock(&self, key: &[u8], order: &Break) -> Result<Broken, ControlError> {
        let active = self.shared.active.load();
        if active.namespaces.find(key).is_none() {
            let text = "no namespace has this key, so it is no lock of this proxy";
            return Err(ControlError::NotFound(text.to_owned()));
        }
        let key = DbKey::new(order.db, key);
        let fence = FencingToken(order.fence);
        let shard = self.shared.shards.of_key(key.bytes());
        let orders = shard.and_then(|shard| self.upkeep.breaks(shard.backend.shard));
        let broken = match orders {
            Some(orders) => break_lease::order(&orders, key, fence, &order.reason),
            None => Err(BreakError::Down),
        };
        broken.map(in_words).map_err(|error| match error {
            BreakError::Unknown(_) => ControlError::Unknown(error.to_string()),
            BreakError::Down | BreakError::NoLogin | BreakError::Refused(_) => {
                ControlError::Unavailable(error.to_string())
            }
        })
    }

    fn views(&self) -> &dyn view::Views {
        self.shared.events.await_followers();
        &self.views
    }
}

/// The result of an order, in the type of the API.
fn in_words(broken: break_lease::Broken) -> Broken {
    match broken {
        break_lease::Broken::Done { id } => Broken::Done { id },
        break_lease::Broken::Absent => Broken::Absent,
        break_lease::Broken::Newer(fence) => Broken::Newer { fence: fence.0 },
        break_lease::Broken::Ungoverned => Broken::Ungoverned,
    }
}

/// The setting in force: some settings that were read again take a restart.
fn in_force(read: config::Setting, started: &[config::Setting]) -> api::Setting {
    let takes_restart = read.table.is_none() && KEYS_OF_A_RESTART.contains(&&*read.key);
    let is_it = |one: &&config::Setting| one.table.is_none() && one.key == read.key;
    let was = started.iter().find(is_it).filter(|_| takes_restart);
    let (held, after_restart) = match was {
        Some(was) if was.value != read.value => (was, Some(read.value.clone())),
        Some(_) | None => (&read, None),
    };
    api::Setting {
        table: held.table.clone(),
        key: held.key.clone(),
        value: held.value.clone(),
        default: held.is_default,
        origin: held.origin.to_string(),
        after_restart,
    }
}
