//! `lockwarden run`: checks and opens everything first, so that a mistake is one clear line and nothing is half started; then
//! serves clients until a signal.

mod accept;
pub(crate) mod child_processes;
pub(crate) mod control;
mod endpoints;
pub(crate) mod exit_code;
mod fold;
mod operator;
pub(crate) mod private_redis;
mod send_away;
mod signals;
mod systemd;
mod workers;

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lockwarden_console::admin::token_file::TokenFile;
use lockwarden_console::admin::{AdminOptions, AdminToken, Control as _, Leap, Weaker};
use lockwarden_console::view::discovery::unclaimed;
use lockwarden_console::view::{ViewService, gauges};
use lockwarden_control::config::{Config, Finding, Report};
use lockwarden_control::net::descriptors;
use lockwarden_control::net::listener::Arrival;
use lockwarden_control::ruleset::activate::{activate, labels};
use lockwarden_control::ruleset::load_policies;
use lockwarden_control::telemetry::audit::Audit;
use lockwarden_control::telemetry::events::{EventLog, Fingerprints, Follower, Following};
use lockwarden_control::telemetry::logging;
use lockwarden_control::telemetry::logging::LogFilter;
use lockwarden_control::telemetry::metrics::{BUILD, Metrics};
use lockwarden_control::telemetry::vocabulary::Side;
use lockwarden_control::{clock, config};
use lockwarden_dataplane::backend::server_info::open_network_refusal;
use lockwarden_dataplane::backend::{Address, server_info};
use lockwarden_dataplane::maintenance::upkeep::Upkeep;
use lockwarden_dataplane::maintenance::{certificates, cluster_map, connection_age, sentinels, standstill};
use lockwarden_dataplane::state::ProxyState;
use lockwarden_dataplane::state::certificates::Certificates;
use lockwarden_dataplane::state::operator::AnswerOperator;
use lockwarden_lock::decision::FaultKind;
use lockwarden_policy::{Observer, PolicyHost};
use tokio::sync::Notify;

use crate::terminal::complain;
use accept::Patience;
use control::{Controller, Source, aftermath};
use endpoints::{Endpoints, Opened};
use fold::Fold;
use private_redis::PrivateRedis;
use signals::{Ask, Signals};
use workers::Workers;

/// Runs the proxy.
pub(crate) fn run(source: Source, arrival: Arrival) -> ExitCode {
    let loaded = source.load();
    if !loaded.findings.is_empty() {
        complain!("{}", Report(&loaded.findings));
    }
    let Some(config) = loaded.config else {
        return exit_code::configuration();
    };
    let (guard, filter) = match logging::init(config.log_format) {
        Ok(log) => log,
        Err(error) => {
            complain!("lockwarden: {error}");
            return exit_code::configuration();
        }
    };
    // Most systems begin with a limit of 1024 descriptors, and a client takes up to two.
    if let Err(error) = descriptors::raise_limit() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let code = match Prepared::new(config, source, filter, arrival) {
        Ok(prepared) => prepared.serve(),
        Err(Failure::Findings(findings)) => {
            complain!("{}", Report(&findings));
            exit_code::configuration()
        }
        Err(Failure::Line(line)) => {
            complain!("lockwarden: {line}");
            exit_code::configuration()
        }
    };
    drop(guard);
    code
}

/// Why nothing was started.
enum Failure {
    Findings(Vec<Finding>),
    Line(String),
}

impl Failure {
    fn line(line: impl ToString) -> Failure {
        Failure::Line(line.to_string())
    }
}

/// Everything that was checked and reserved.
struct Prepared {
    serving: Serving,
    private: Option<PrivateRedis>,
    /// The thread that passes the events to the followers of the event log.
    following: Following,
}

/// The parts that serving needs.
struct Serving {
    shared: Arc<ProxyState>,
    controller: Arc<Controller>,
    endpoints: Endpoints,
    admin_options: AdminOptions,
    /// The generated admin token, which has to be stored where commands find it.
    generated: Option<AdminToken>,
    upkeep: Arc<Upkeep>,
    patience: Duration,
}

impl Prepared {
    fn new(config: Config, source: Source, filter: LogFilter, arrival: Arrival) -> Result<Prepared, Failure> {
        let metrics = Metrics::new(BUILD, &labels(&config), config.metrics_max_namespaces).map_err(Failure::line)?;
        let observer = Arc::new(PolicyObserver { metrics: metrics.clone() });
        let host = PolicyHost::with_observer(observer).map_err(Failure::line)?;
        let generation = load_policies::load(&host, &config).map_err(Failure::Findings)?;
        let active = activate(&config, generation, &metrics).map_err(Failure::line)?;
        metrics.set_config_hash(active.meaning.hash());

        let endpoints = Endpoints::reserve(&config, arrival).map_err(Failure::line)?;

        let (private, address) = match &config.backend {
            config::Backend::Private => {
                let private = PrivateRedis::start().map_err(Failure::line)?;
                tracing::info!(pid = private.process_id(), "private Redis started");
                let address = Address::private(private.address());
                (Some(private), address)
            }
            config::Backend::Redis(url) => {
                let (login, files) = (config.backend_login.clone(), config.backend_tls.as_ref());
                let observer = Arc::new(metrics.tls.of(Side::Backend));
                let address = Address::new(url.clone(), login, files, observer);
                let failed = |error| Failure::line(format!("backend_tls: {error}"));
                (None, address.map_err(failed)?)
            }
        };
        let fingerprints = match &config.audit.key {
            Some(key) => Fingerprints::with_key(key.expose().as_bytes()),
            None => Fingerprints::random(),
        };
        let events = Arc::new(EventLog::new(fingerprints));
        let (audit, scribe) = Audit::open(&config.audit, &events, &metrics).map_err(Failure::line)?;
        let certificates =
            Certificates::new(&config, &address, &metrics).map_err(|error| Failure::line(format!("tls: {error}")))?;
        let backend = (address, certificates);
        let shared = ProxyState::new(&config, active, metrics, backend, events, audit).map_err(Failure::line)?;
        let views = ViewService::new(shared.clone());
        // The view needs the metrics, so they must not keep it alive.
        let process = Arc::downgrade(&shared);
        let seen = views.view();
        shared.metrics.set_mirror(Box::new(move || match process.upgrade() {
            Some(shared) => {
                let unclaimed = i64::try_from(unclaimed(&shared)).unwrap_or(i64::MAX);
                shared.metrics.unclaimed_lock_patterns.set(unclaimed);
                gauges(&shared, &seen)
            }
            None => Vec::new(),
        }));

        let fold = Fold { views: views.clone(), shared: shared.clone() };
        let mut followers: Vec<Box<dyn Follower>> =
            vec![Box::new(fold), Box::new(shared.metrics.counts_applications())];
        followers.extend(scribe);
        shared.audit.notice("started", || shared.active.load().in_force(), None);
        let following = shared.events.start(followers).map_err(Failure::line)?;
        shared.discovery.start().map_err(Failure::line)?;

        let token = match &config.admin_token {
            Some(secret) => AdminToken::configured(secret.expose().to_owned()),
            None => AdminToken::generate().map_err(Failure::line)?,
        };
        let (wanted, listeners) = (Wanted::of(&config), config.data_listeners());
        let upkeep = Upkeep::new(Arc::new(move |report| refusal(report, &listeners, wanted)));
        let patience = config.drain;
        let generated = config.admin_token.is_none();
        let controller = Controller::new(shared.clone(), host, (source, config), filter, upkeep.clone(), views);
        let controller = Arc::new(controller);
        let answers: Arc<dyn AnswerOperator> = controller.clone();
        shared.operator.is_answered_by(&answers);
        let serving = Serving {
            shared,
            controller,
            generated: generated.then(|| token.clone()),
            admin_options: AdminOptions::Full { token, host: None, port: endpoints.port() },
            endpoints,
            upkeep,
            patience,
        };
        Ok(Prepared { serving, private, following })
    }

    fn serve(self) -> ExitCode {
        // Clients have their own threads; little else is left to do here.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let number = thread::available_parallelism().map_or(1, NonZero::get);
        let (runtime, workers) = match runtime.and_then(|runtime| {
            let workers = Workers::start(number, &self.serving.shared.standstill)?;
            Ok((runtime, workers))
        }) {
            Ok(both) => both,
            Err(error) => {
                complain!("lockwarden: cannot start: {error}");
                return exit_code::configuration();
            }
        };
        let metrics = &self.serving.shared.metrics;
        metrics.set_runtimes(workers.handles());
        metrics.config_loaded(clock::unix_now().as_secs_f64());
        let is_demonstration = self.private.is_some();
        let served = runtime.block_on(self.serving.until_asked(workers, is_demonstration));
        runtime.shutdown_background();
        // Passes on the last events before the end.
        drop(self.following);
        if let Some(mut private) = self.private {
            private.stop();
        }
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Line(line)) => {
                complain!("lockwarden: {line}");
                exit_code::configuration()
            }
            Err(Failure::Findings(findings)) => {
                complain!("{}", Report(&findings));
                exit_code::configuration()
            }
        }
    }
}

impl Serving {
    async fn until_asked(self, workers: Workers, is_demonstration: bool) -> Result<(), Failure> {
        let Serving { shared, controller, endpoints, admin_options, generated, upkeep, patience } = self;
        let mut asks = Asks {
            signals: Signals::new().map_err(Failure::line)?,
            shared: shared.clone(),
            controller: controller.clone(),
        };
        tokio::spawn(standstill::run(shared.clone()));
        tokio::spawn(sentinels::run(shared.clone()));
        tokio::spawn(cluster_map::run(shared.clone()));
        upkeep.begin(&shared);
        let (following, first) = (upkeep.clone(), shared.clone());
        tokio::spawn(async move { following.follow_map(first).await });
        tokio::spawn(certificates::run(shared.clone()));
        tokio::spawn(connection_age::run(shared.clone()));
        tokio::spawn(aftermath::watch(controller.clone()));
        tokio::spawn(systemd::watchdog());
        if endpoints.is_taken_over() {
            // No client reaches this process before it can serve; until then the other process serves.
            tokio::select! {
                () = backend_is_there(&shared) => {}
                () = asks.asked_to_stop() => return Ok(()),
            }
        }
        let opened = endpoints.open(admin_options, controller.clone()).map_err(Failure::line)?;
        let token = generated.and_then(|token| keep(&opened, &token));
        controller.announce();
        opened.announce(&shared, is_demonstration, token.as_ref());
        let over = Arc::new(Notify::new());
        let (seats, serving) = (workers.seats(), shared.clone());
        let accepting = workers.accept(move || accept::accept(serving, opened.listeners, seats));
        systemd::ready(SERVING);
        asks.asked_to_stop().await;
        tracing::info!("stopping: no new clients; those that hold no lock and wait for nothing are closed");
        systemd::stopping("waiting for clients that hold locks or wait for an answer");
        // Before any client is sent away, so that a holder has a whole TTL to come back.
        upkeep.renew_all().await;
        shared.begin_to_drain();
        tokio::spawn(send_away::one_by_one(shared.clone(), patience));
        let again = async {
            asks.asked_to_stop().await;
            over.notify_one();
            std::future::pending().await
        };
        let patience = Patience { most: patience, over: over.clone() };
        let gone = async {
            // It ends by itself soon after the proxy has begun to drain.
            let _ = accepting.await;
            accept::until_all_are_gone(&shared, &workers, patience).await;
        };
        tokio::select! {
            () = gone => {}
            () = again => {}
        }
        if workers.clients() > 0 {
            let clients = workers.clients();
            tracing::warn!(clients, "closing the connections that are still in use");
            upkeep.renew_all().await;
        }
        workers.end();
        let uptime = shared.started.elapsed().as_secs();
        tracing::info!(uptime_seconds = uptime, "stopped");
        for handle in [opened.admin, opened.metrics].into_iter().flatten() {
            // It waits for the last requests, which may take a second.
            let _ = tokio::task::spawn_blocking(move || handle.stop()).await;
        }
        Ok(())
    }
}

/// Stores a generated admin token where commands on this machine find it.
fn keep(opened: &Opened, token: &AdminToken) -> Option<TokenFile> {
    let admin = opened.admin.as_ref()?.address();
    match TokenFile::write(admin, token) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!(%error, "the admin token is nowhere to be read; set admin_token_file");
            None
        }
    }
}

/// The status that the service manager shows for the process.
const SERVING: &str = "serving clients";

/// The operator's requests, by signal or at the admin address.
struct Asks {
    signals: Signals,
    shared: Arc<ProxyState>,
    controller: Arc<Controller>,
}

impl Asks {
    /// Returns when the proxy is asked to stop; until then it reloads the configuration on request.
    async fn asked_to_stop(&mut self) {
        loop {
            let ask = tokio::select! {
                ask = self.signals.next() => ask,
                () = self.shared.stop_asked.notified() => Ask::Terminate,
            };
            match ask {
                Ask::Terminate | Ask::Interrupt => return,
                Ask::Reload => {
                    let controller = self.controller.clone();
                    systemd::reloading();
                    // The outcome is in the log.
                    let reload = move || controller.reload(Weaker::Refused, Leap::Looks);
                    let _ = tokio::task::spawn_blocking(reload).await;
                    systemd::ready(SERVING);
                }
            }
        }
    }
}

/// Returns when the backend is ready to serve.
async fn backend_is_there(shared: &ProxyState) {
    tracing::info!("taking over as soon as the backend answers");
    while shared.readiness().is_err() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Pause between two checks whether the backend has replied.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The requirements on a server.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// A node of a cluster.
    node: bool,
    allow_open: bool,
}

impl Wanted {
    pub(crate) fn of(config: &Config) -> Wanted {
        Wanted { node: config.cluster_node || config.backend.is_cluster(), allow_open: config.allow_open }
    }
}

/// Why these listeners cannot serve clients with this server, if so. Listeners of sentinels do not count: they have no data.
pub(crate) fn refusal(report: &server_info::Report, listeners: &[config::Listener], wanted: Wanted) -> Option<String> {
    let why = match (report.cluster, wanted.node) {
        (true, false) => {
            "the backend is a node of a cluster: write redis-cluster:// for all of it, say cluster_node = true where one \
             lockwarden stands before each node, or name a server that is not in cluster mode"
        }
        (false, true) => {
            "the backend is not in cluster mode, although cluster_node = true or redis-cluster:// says so: take that away, \
             or name a node of the cluster"
        }
        (true, true) | (false, false) => {
            return open_network_refusal(listeners, report.without_login, wanted.allow_open);
        }
    };
    Some(why.to_owned())
}

/// Writes the activity of policies to the metrics.
struct PolicyObserver {
    metrics: Arc<Metrics>,
}

impl Observer for PolicyObserver {
    fn evaluated(&self, policy: &str, nanos: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a duration in seconds")]
        self.metrics.policy(policy).evaluation.observe(nanos as f64 / 1e9);
    }

    fn failed(&self, policy: &str, kind: FaultKind) {
        // The host logs it.
        self.metrics.policy(policy).failures.at(kind).inc();
    }
}
