//! The configuration while its layers are put on top of each other: built-in, file, environment, flags. Remembers the
//! source of each value, finds conflicts, and is turned into a [`Config`] once. It reads nothing itself; `file` and
//! `overrides` fill it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::advertise;
use super::backend::{Backend, Target};
use super::backend_login::BackendLogin;
use super::certificate_login::{self, CertificateLogin};
use super::finding::{Findings, Place};
use super::guard::{self, GuardConfig};
use super::listener::{ListenAddress, Listener, is_open_to_all};
use super::present::Present;
use super::secret::Secret;
use super::suggest::quoted;
use super::types::Config;
use super::{sentinel, tls};
use crate::net::tls::{BackendFiles, ListenerFiles};

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6380);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);

/// A value and the place of its last source; without a place it is built in.
pub(super) struct Layered<T> {
    value: T,
    place: Option<Place>,
}

impl<T> Layered<T> {
    fn built_in(value: T) -> Layered<T> {
        Layered { value, place: None }
    }

    /// The next layer's value. `None` stands for one that was unusable and was reported.
    pub(super) fn set(&mut self, value: Option<T>, place: Place) {
        if let Some(value) = value {
            self.value = value;
        }
        self.place = Some(place);
    }
}

/// See the module.
pub(super) struct Draft {
    /// Values for which neither the layer nor the place matters.
    pub(super) config: Config,
    pub(super) listen: Layered<Option<ListenAddress>>,
    pub(super) backend: Layered<Backend>,
    pub(super) backend_password: Layered<Option<Secret>>,
    pub(super) admin: Layered<Option<SocketAddr>>,
    pub(super) admin_token: Layered<Option<Secret>>,
    pub(super) metrics: Layered<Option<SocketAddr>>,
    pub(super) cluster_node: Layered<bool>,
    /// Each `[[listener]]` with its place; likewise the fields below.
    pub(super) listeners: Vec<(Listener, Place)>,
    pub(super) backend_login: Option<(BackendLogin, Place)>,
    pub(super) backend_tls: Option<(BackendFiles, Place)>,
    /// The login for sentinels.
    pub(super) sentinel: Option<(BackendLogin, Place)>,
    pub(super) tls: Option<(ListenerFiles, Place)>,
    pub(super) guards: Vec<(GuardConfig, Place)>,
    pub(super) certificate_logins: Vec<(CertificateLogin, Place)>,
    /// Whether every namespace's name could be read, so that an unknown name is certainly wrong.
    pub(super) all_named: bool,
}

impl Draft {
    /// The defaults.
    pub(super) fn built_in() -> Draft {
        Draft {
            config: Config::built_in(),
            listen: Layered::built_in(Some(ListenAddress::Tcp(DEFAULT_LISTEN))),
            backend: Layered::built_in(Backend::default()),
            backend_password: Layered::built_in(None),
            admin: Layered::built_in(Some(DEFAULT_ADMIN)),
            admin_token: Layered::built_in(None),
            metrics: Layered::built_in(None),
            cluster_node: Layered::built_in(false),
            listeners: Vec::new(),
            backend_login: None,
            backend_tls: None,
            sentinel: None,
            tls: None,
            guards: Vec::new(),
            certificate_logins: Vec::new(),
            all_named: true,
        }
    }

    /// Makes the last checks, across fields and layers, and returns the result. Use it only if no finding is an error.
    pub(super) fn finish(mut self, source: Option<&Path>, findings: &mut Findings) -> Config {
        self.check_addresses(findings);
        self.check_backend_is_another(findings);
        self.check_cluster_node(findings);
        self.check_presented_clusters(findings);
        self.check_admin_token(findings);
        self.give_backend_its_password(findings);
        sentinel::give_login(self.sentinel.take(), &mut self.backend.value, findings);
        tls::check(
            self.tls.as_ref(),
            self.backend_tls.as_ref(),
            &self.listeners,
            (&self.backend.value, self.backend.place.as_ref()),
            findings,
        );
        certificate_login::check(
            &self.certificate_logins,
            self.tls.as_ref().map(|(files, _)| files),
            &self.config.proxy_protocol_from,
            findings,
        );
        guard::check(&self.guards, &self.config.namespaces, &self.config.companion_prefix, findings);
        let listen = self.listen.value.map(Listener::at);
        advertise::check(listen.as_ref(), &self.listeners, findings);
        let logins = self.certificate_logins.into_iter();
        let further = self.listeners.into_iter().map(|(listener, _)| listener);
        Config {
            listeners: listen.into_iter().chain(further).collect(),
            backend: self.backend.value,
            backend_login: self.backend_login.map(|(login, _)| login),
            backend_tls: self.backend_tls.map(|(files, _)| files),
            tls: self.tls.map(|(files, _)| files),
            admin: self.admin.value,
            admin_token: self.admin_token.value,
            metrics: self.metrics.value,
            cluster_node: self.cluster_node.value,
            guards: self.guards.into_iter().map(|(guard, _)| guard).collect(),
            certificate_logins: logins.map(|(login, _)| login).collect(),
            source: source.map(Path::to_owned),
            ..self.config
        }
    }

    fn check_addresses(&self, findings: &mut Findings) {
        let tcp = |address: Option<SocketAddr>| address.map(ListenAddress::Tcp);
        let mut addresses = vec![
            ("listen", self.listen.value.clone(), self.listen.place.as_ref()),
            ("admin", tcp(self.admin.value), self.admin.place.as_ref()),
            ("metrics", tcp(self.metrics.value), self.metrics.place.as_ref()),
        ];
        for (listener, place) in &self.listeners {
            addresses.push(("listener", Some(listener.address.clone()), Some(place)));
        }
        for (index, (name, address, place)) in addresses.iter().enumerate() {
            for (other, other_address, other_place) in &addresses[..index] {
                // Port 0 asks the system for any free port, so two of them differ.
                let is_fixed = address.as_ref().is_some_and(|address| address.tcp().is_none_or(|tcp| tcp.port() != 0));
                // The error points at the later layer, whose author can fix it; built-in addresses differ.
                if let (true, Some(address), Some(place)) =
                    (is_fixed && address == other_address, address, place.or(*other_place))
                {
                    let its_own = match address {
                        ListenAddress::Tcp(_) => "port",
                        ListenAddress::Unix(_) => "path",
                    };
                    let message =
                        format!("{name}: {address} is the address of {other} too; give each its own {its_own}");
                    findings.error(place.clone(), message);
                }
            }
            if let (Some(ListenAddress::Unix(path)), Some(place)) = (address, place)
                && let Some(folder) = path.parent()
                && is_open_to_all(folder)
            {
                let message = format!(
                    "{name}: anybody may write to {}, and put a socket of his own there while the proxy is down; \
                     use a folder of its own, such as /run/lockwarden",
                    folder.display()
                );
                findings.warning((*place).clone(), message);
            }
        }
        if let (None, true, Some(place)) = (&self.listen.value, self.listeners.is_empty(), &self.listen.place) {
            let message = "listen: off, and there is no [[listener]], so nobody could connect";
            findings.error(place.clone(), message.to_owned());
        }
    }

    /// A proxy whose backend is its own listener would connect to itself without end.
    fn check_backend_is_another(&self, findings: &mut Findings) {
        let Backend::Redis(url) = &self.backend.value else {
            return;
        };
        let first = (self.listen.value.as_ref(), self.listen.place.as_ref());
        let further = self.listeners.iter();
        let further = further.map(|(listener, place)| (Some(&listener.address), Some(place)));
        for (address, place) in std::iter::once(first).chain(further) {
            let Some(address) = address.filter(|address| url.target.is(address)) else {
                continue;
            };
            if let Some(place) = self.backend.place.as_ref().or(place) {
                let message = format!(
                    "backend: {address} is where this proxy listens itself; name the address of Redis, and give applications that of the proxy"
                );
                findings.error(place.clone(), message);
            }
        }
    }

    /// A node is a single server with its own address.
    fn check_cluster_node(&self, findings: &mut Findings) {
        let (true, Some(place)) = (self.cluster_node.value, &self.cluster_node.place) else {
            return;
        };
        let wrong = match &self.backend.value {
            Backend::Private => "the backend is private, which is no cluster",
            Backend::Redis(url) => match url.target {
                Target::Sentinel(_) => "sentinels look after no cluster",
                Target::Cluster(_) => "the backend is a whole cluster (redis-cluster://), which goes without it",
                Target::Tcp { .. } | Target::Unix(_) => return,
            },
        };
        let message =
            format!("cluster_node: {wrong}; name the address of the node as the backend, as in redis://127.0.0.1:7000");
        findings.error(place.clone(), message);
    }

    /// A single server has no slots that could be moved.
    fn check_presented_clusters(&self, findings: &mut Findings) {
        if self.backend.value.is_cluster() {
            return;
        }
        for (index, (listener, place)) in self.listeners.iter().enumerate() {
            if let Present::Cluster(_) = listener.present {
                let what = "present = \"cluster\" is for a backend that is one (redis-cluster://); take it away";
                findings.error(place.clone(), format!("listener #{}: {what}", index + 1));
            }
        }
    }

    fn check_admin_token(&self, findings: &mut Findings) {
        // An unusable token was reported, and counts as given.
        let token_was_given = self.admin_token.place.is_some();
        if let (Some(admin), Some(place), false) = (self.admin.value, &self.admin.place, token_was_given)
            && !admin.ip().to_canonical().is_loopback()
        {
            let port = admin.port();
            let message = format!(
                "admin: {admin} can be reached from other machines and there is no admin token; \
                 set admin_token_file (or LOCKWARDEN_ADMIN_TOKEN), or use \"127.0.0.1:{port}\""
            );
            findings.error(place.clone(), message);
        }
    }

    /// A password may be in the URL or a key of its own. The later layer wins; two passwords in one layer are an error.
    fn give_backend_its_password(&mut self, findings: &mut Findings) {
        let url_place = self.backend.place.as_ref();
        let Layered { value: password, place: password_place } = &self.backend_password;
        match &mut self.backend.value {
            Backend::Private => {
                if let Some((_, place)) = &self.backend_login {
                    let message = "backend_login: a private backend has no login; this one is not used";
                    findings.warning(place.clone(), message.to_owned());
                }
                if let (Some(password_place), Some(url_place)) = (password_place, url_place)
                    && password_place.layer() == url_place.layer()
                {
                    let message = "a private backend has no password; this one is not used";
                    findings.warning(password_place.clone(), message.to_owned());
                }
            }
            Backend::Redis(url) => {
                let layer_of = |place: Option<&Place>| place.map(Place::layer);
                if let (Some(_), Some(password_place)) = (&url.password, password_place)
                    && layer_of(url_place) == Some(password_place.layer())
                {
                    let message = "the backend's URL has a password already; keep one of them";
                    findings.error(password_place.clone(), message.to_owned());
                }
                // `None`, for built in, sorts before any layer.
                let later = layer_of(password_place.as_ref()) > layer_of(url_place);
                if let Some(password) = password
                    && (url.password.is_none() || later)
                {
                    url.password = Some(password.clone());
                }
                if let Some((_, place)) = &self.backend_login {
                    if url.user.is_some() || url.password.is_some() {
                        let message = "backend_login: the backend has a login already, in its URL or in \
                                       backend_password_file; keep one of them";
                        findings.error(place.clone(), message.to_owned());
                    }
                    return;
                }
                if let (Some(user), None, None, Some(place)) = (&url.user, &url.password, password_place, url_place) {
                    let message = format!(
                        "backend: there is no password for user {}; write it behind the user, as in \
                         redis://user:password@host, or set backend_password_file",
                        quoted(user)
                    );
                    findings.error(place.clone(), message);
                }
            }
        }
    }
}
