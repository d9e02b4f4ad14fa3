//! `lockwarden run`: everything is checked and opened before anything is served, so that a mistake
//! is one clear line and nothing is half started; then clients are served until a signal.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use lockwarden_lock::decision::FaultKind;
use lockwarden_policy::{Observer, PolicyHost};
use tokio::sync::{mpsc, oneshot};

use crate::admin::{self, AdminHandle, AdminOptions, AdminToken, Control};
use crate::backend::Address;
use crate::config::{Backend, Config, Finding, Report};
use crate::control::{Controller, Source, activate, labels};
use crate::exit;
use crate::facts::{self, Server};
use crate::kept::Kept;
use crate::logging::{self, ObservationFolder, RepeatFolder};
use crate::metrics::{BuildInfo, Metrics};
use crate::mirror::Mirror;
use crate::owner_tokens::OwnerTokens;
use crate::peers::Peers;
use crate::policies;
use crate::private_redis::PrivateRedis;
use crate::processes::Processes;
use crate::serve;
use crate::shared::Shared;
use crate::sockets;
use crate::stop::{Ask, Signals};
use crate::texts::Texts;
use crate::trail::{Follower, Following};
use crate::unheard::Reports;
use crate::upkeep::{self, Order};
use crate::view::{Fold, View};
use crate::watches::Watches;

/// Runs the proxy.
pub(crate) fn run(source: Source) -> ExitCode {
    let loaded = source.load();
    if !loaded.findings.is_empty() {
        eprintln!("{}", Report(&loaded.findings));
    }
    let Some(config) = loaded.config else {
        return exit::configuration();
    };
    let guard = match logging::init() {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("lockwarden: {error}");
            return exit::configuration();
        }
    };
    let code = match Prepared::new(config, source) {
        Ok(prepared) => prepared.serve(),
        Err(Failure::Findings(findings)) => {
            eprintln!("{}", Report(&findings));
            exit::configuration()
        }
        Err(Failure::Line(line)) => {
            eprintln!("lockwarden: {line}");
            exit::configuration()
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

/// Everything that was opened.
struct Prepared {
    shared: Arc<Shared>,
    controller: Arc<Controller>,
    listener: std::net::TcpListener,
    admin: Option<AdminHandle>,
    metrics: Option<AdminHandle>,
    private: Option<PrivateRedis>,
    /// The thread that tells the followers of the trail what happened.
    following: Following,
    judgement: upkeep::Judgement,
    patience: std::time::Duration,
}

impl Prepared {
    fn new(config: Config, source: Source) -> Result<Prepared, Failure> {
        let metrics = Metrics::new(
            BuildInfo {
                version: env!("CARGO_PKG_VERSION"),
                revision: option_env!("LOCKWARDEN_REVISION").unwrap_or("unknown"),
                wasmtime: "48",
                policy_abi: "1.0",
            },
            &labels(&config),
            config.metrics_max_namespaces,
        )
        .map_err(Failure::line)?;
        let observer = Arc::new(PolicyObserver {
            metrics: metrics.clone(),
        });
        let host = PolicyHost::with_observer(observer).map_err(Failure::line)?;
        let generation = policies::load(&host, &config).map_err(Failure::Findings)?;
        let active = activate(&config, Arc::new(generation), &metrics).map_err(Failure::line)?;

        let taken = |what: &str, address: std::net::SocketAddr, error: std::io::Error| {
            Failure::Line(format!("cannot listen on {address} ({what}): {error}"))
        };
        let listener = sockets::listen(config.listen)
            .map_err(|error| taken("listen", config.listen, error))?;
        let bind = |what: &'static str, address: Option<std::net::SocketAddr>| match address {
            Some(address) => admin::bind(address)
                .map(Some)
                .map_err(|error| taken(what, address, error)),
            None => Ok(None),
        };
        let admin_listener = bind("admin", config.admin)?;
        let metrics_listener = bind("metrics", config.metrics)?;

        let (private, backend) = match &config.backend {
            Backend::Private => {
                let private = PrivateRedis::start().map_err(Failure::line)?;
                tracing::info!(pid = private.process_id(), "private Redis started");
                let address = Address::private(private.address());
                (Some(private), address)
            }
            Backend::Redis(url) => (None, Address { url: url.clone() }),
        };
        let shared = Arc::new(Shared {
            active: Arc::new(ArcSwap::from_pointee(active)),
            metrics,
            backend,
            server: Server::default(),
            texts: Texts::default(),
            watches: Watches::default(),
            mirror: Mirror::default(),
            kept: Kept::default(),
            undelivered: Reports::default(),
            peers: Peers::default(),
            processes: Processes::start().map_err(Failure::line)?,
            owner_tokens: OwnerTokens::new(),
            refusals: RepeatFolder::new(),
            observations: ObservationFolder::default(),
            trail: Arc::default(),
            view: View::default(),
            sweep: config.sweep,
            drain: serve::drain_switch(),
            started: Instant::now(),
        });
        let mirror = Arc::downgrade(&shared);
        shared.metrics.set_mirror(Box::new(move || {
            let Some(shared) = mirror.upgrade() else {
                return Vec::new();
            };
            shared.mirror.held(shared.active.load().details.len())
        }));

        let followers: Vec<Box<dyn Follower>> = vec![Box::new(Fold::new(shared.clone()))];
        let following = shared.trail.start(followers).map_err(Failure::line)?;

        let token = match &config.admin_token {
            Some(secret) => AdminToken::configured(secret.expose().to_owned()),
            None => AdminToken::generate().map_err(Failure::line)?,
        };
        let (allow_open, listen) = (config.allow_open, config.listen);
        let judgement: upkeep::Judgement =
            Box::new(move |report| refusal(report, listen, allow_open));
        let patience = config.drain;
        let generated = config.admin_token.is_none();
        let controller = Arc::new(Controller::new(shared.clone(), host, source, config));
        let control: Arc<dyn Control> = controller.clone();
        let full = AdminOptions::Full {
            token: token.clone(),
            host: None,
        };
        let admin = start_admin(admin_listener, full, &control)?;
        let metrics = start_admin(metrics_listener, AdminOptions::MetricsOnly, &control)?;
        let prepared = Prepared {
            shared,
            controller,
            listener,
            admin,
            metrics,
            private,
            following,
            judgement,
            patience,
        };
        prepared.announce(generated.then_some(&token));
        Ok(prepared)
    }

    /// The line that says where everything is, and for people at a terminal what to try.
    fn announce(&self, token: Option<&AdminToken>) {
        let local = self.listener.local_addr();
        let listen = local
            .as_ref()
            .map_or_else(|_| String::from("?"), ToString::to_string);
        let admin = self.admin.as_ref().map(|admin| admin.address().to_string());
        let metrics = self
            .metrics
            .as_ref()
            .map(|metrics| metrics.address().to_string());
        tracing::info!(
            listen,
            admin = admin.as_deref().unwrap_or("off"),
            metrics = metrics.as_deref().unwrap_or("off"),
            backend = %self.shared.backend,
            "serving"
        );
        let (Ok(local), Some(_)) = (local, &self.private) else {
            return;
        };
        let port = local.port();
        println!("lockwarden is in front of a private Redis. In another terminal, try:");
        println!(
            "  redis-cli -p {port} SETNX lock:a 1      # 1: taken; it has a TTL though nobody asked for one"
        );
        println!(
            "  redis-cli -p {port} PTTL lock:a         # below 30000: the holder is gone, so the lock will be"
        );
        println!(
            "  redis-cli -p {port} DEL lock:a          # 0: another connection deletes nothing"
        );
        if let Some(admin) = &admin {
            println!("Metrics: http://{admin}/metrics");
            if let Some(token) = token {
                println!(
                    "Orders:  curl -X POST -H 'Authorization: Bearer {}' 'http://{admin}/mode?mode=monitor'",
                    token.reveal()
                );
            }
        }
    }

    fn serve(mut self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("lockwarden: cannot start: {error}");
                return exit::configuration();
            }
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.shared.metrics.config_loaded(now.as_secs_f64());
        let served = runtime.block_on(serve_until_asked(
            self.shared.clone(),
            self.controller.clone(),
            self.listener,
            self.judgement,
            self.patience,
        ));
        for handle in [self.admin.take(), self.metrics.take()]
            .into_iter()
            .flatten()
        {
            handle.stop();
        }
        runtime.shutdown_background();
        // What happened last is handed over before the end.
        drop(self.following);
        if let Some(private) = &mut self.private {
            private.stop();
        }
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("lockwarden: {error}");
                exit::configuration()
            }
        }
    }
}

async fn serve_until_asked(
    shared: Arc<Shared>,
    controller: Arc<Controller>,
    listener: std::net::TcpListener,
    judgement: upkeep::Judgement,
    patience: std::time::Duration,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut signals = Signals::new()?;
    let (orders, inbox) = mpsc::channel(4);
    tokio::spawn(upkeep::run(shared.clone(), judgement, inbox));
    let clients = tokio::spawn(serve::clients(shared.clone(), listener, patience));
    while let Ask::Reload = signals.next().await {
        let controller = controller.clone();
        // The outcome is in the log.
        let _ = tokio::task::spawn_blocking(move || controller.reload()).await;
    }
    tracing::info!("stopping: no new clients; those that wait for nothing are closed");
    renew_all(&orders).await;
    shared.drain.send_replace(true);
    if let Err(error) = clients.await {
        tracing::error!(%error, "the listener failed");
    }
    let uptime = shared.started.elapsed().as_secs();
    tracing::info!(uptime_seconds = uptime, "stopped");
    Ok(())
}

/// Holders can come back through another proxy within one full TTL.
async fn renew_all(orders: &mpsc::Sender<Order>) {
    let (done, renewed) = oneshot::channel();
    if orders.send(Order::RenewAll(done)).await.is_ok() {
        let patience = std::time::Duration::from_secs(2);
        if tokio::time::timeout(patience, renewed).await.is_err() {
            tracing::warn!("the leases that are kept alive could not be renewed before stopping");
        }
    }
}

/// Why a server is not served, if so.
pub(crate) fn refusal(
    report: &facts::Report,
    listen: std::net::SocketAddr,
    allow_open: bool,
) -> Option<String> {
    if report.cluster {
        return Some(
            "the backend is a Redis Cluster node, which lockwarden does not serve yet; \
             name a server that is not in cluster mode"
                .into(),
        );
    }
    sockets::open_network_refusal(listen, report.open, allow_open)
}

fn start_admin(
    listener: Option<std::net::TcpListener>,
    options: AdminOptions,
    control: &Arc<dyn Control>,
) -> Result<Option<AdminHandle>, Failure> {
    listener
        .map(|listener| admin::serve(listener, options, control.clone()))
        .transpose()
        .map_err(|error| Failure::Line(format!("cannot serve the admin address: {error}")))
}

/// Puts what policies do on the metrics page.
struct PolicyObserver {
    metrics: Arc<Metrics>,
}

impl Observer for PolicyObserver {
    fn evaluated(&self, policy: &str, nanos: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a duration in seconds")]
        self.metrics
            .policy(policy)
            .evaluation
            .observe(nanos as f64 / 1e9);
    }

    fn failed(&self, policy: &str, kind: FaultKind) {
        self.metrics.policy(policy).failures.at(kind).inc();
        tracing::warn!(policy, kind = kind.word(), "a policy did not answer");
    }
}
