//! Builds a configuration as an operator would write it: the keys of the file, flags, environment. It starts
//! a [`Proxy`] and knows nothing about running proxies.

use std::fmt::Write as _;
use std::fs;

use crate::certificates::Authority;
use crate::deadline::wait_for;
use crate::machines::Machine;
use crate::process::{Finished, lockwarden, run_to_end};
use crate::proxy::Proxy;
use crate::redis::is_whole_run_with_tls;

/// The token that the harness's configuration asks of admin requests.
pub const ADMIN_TOKEN: &str = "the-tests-own-admin-token";

/// What a namespace does with a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It refuses.
    Enforce,
    /// It counts.
    Monitor,
}

impl Mode {
    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Monitor => "monitor",
        }
    }
}

/// A configuration under construction: one namespace `locks` on `lock:*` with a default TTL of
/// 600 ms and a ceiling of 10 s, unless a test says otherwise.
pub struct ProxyBuilder {
    backend: String,
    top: Vec<String>,
    namespace: Vec<String>,
    settings: Vec<(String, String, String)>,
    more: String,
    has_namespace: bool,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    wait_until_ready: bool,
    pub(crate) on_one_cpu: bool,
    pub(crate) descriptors: Option<u64>,
    pub(crate) user: Option<u32>,
    pub(crate) machine: Option<Machine>,
}

impl ProxyBuilder {
    /// In front of whatever listens at this address.
    pub fn for_backend(backend: &str) -> ProxyBuilder {
        ProxyBuilder {
            backend: backend.to_owned(),
            top: Vec::new(),
            namespace: Vec::new(),
            settings: Vec::new(),
            more: String::new(),
            has_namespace: true,
            arguments: Vec::new(),
            environment: Vec::new(),
            wait_until_ready: true,
            on_one_cpu: false,
            descriptors: None,
            user: None,
            machine: None,
        }
        .mode(Mode::Enforce)
        .setting("ttl-ceiling", "default", "\"600ms\"")
        .setting("ttl-ceiling", "ceiling", "\"10s\"")
    }

    /// Names no namespace: then the proxy has one of its own.
    #[must_use]
    pub fn without_namespaces(mut self) -> Self {
        self.has_namespace = false;
        self
    }

    /// The mode of the namespace.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        self.namespace("mode", &format!("\"{}\"", mode.word()))
    }

    /// A key at the top of the file; the value as TOML writes it.
    #[must_use]
    pub fn top(mut self, key: &str, value: &str) -> Self {
        set(&mut self.top, key, value);
        self
    }

    /// A key of the namespace; the value as TOML writes it.
    #[must_use]
    pub fn namespace(mut self, key: &str, value: &str) -> Self {
        set(&mut self.namespace, key, value);
        self
    }

    /// A setting of one policy of the namespace; the value as TOML writes it.
    #[must_use]
    pub fn setting(mut self, policy: &str, key: &str, value: &str) -> Self {
        self.settings.retain(|(known, name, _)| (known.as_str(), name.as_str()) != (policy, key));
        self.settings.push((policy.to_owned(), key.to_owned(), value.to_owned()));
        self
    }

    /// The default TTL of an acquire that names none.
    #[must_use]
    pub fn default_ttl(self, ttl: &str) -> Self {
        self.setting("ttl-ceiling", "default", &format!("\"{ttl}\""))
    }

    /// The longest TTL.
    #[must_use]
    pub fn ceiling(self, ttl: &str) -> Self {
        self.setting("ttl-ceiling", "ceiling", &format!("\"{ttl}\""))
    }

    /// More text at the end of the file: further namespaces, policies.
    #[must_use]
    pub fn more(mut self, text: &str) -> Self {
        self.more.push_str(text);
        self.more.push('\n');
        self
    }

    /// One more word on the command line.
    #[must_use]
    pub fn argument(mut self, word: &str) -> Self {
        self.arguments.push(word.to_owned());
        self
    }

    /// One more variable of the environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets the process have so many file descriptors.
    #[must_use]
    pub fn descriptors(mut self, most: u64) -> Self {
        self.descriptors = Some(most);
        self
    }

    /// Runs it as this user, in its group and without capabilities, which only root can: see [`may_be_another_user`].
    ///
    /// [`may_be_another_user`]: crate::may_be_another_user
    #[must_use]
    pub fn as_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Runs it on this machine, where its addresses are then.
    #[must_use]
    pub fn on_machine(mut self, machine: &Machine) -> Self {
        self.machine = Some(machine.clone());
        self
    }

    /// Does not wait for the backend, only for the listener.
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.wait_until_ready = false;
        self
    }

    /// Lets all clients share connections to the backend, and the proxy have one thread for them; so
    /// those of one kind share one.
    #[must_use]
    pub fn multiplexed(mut self) -> Self {
        self.on_one_cpu = true;
        self.top("sessions", "\"multiplexed\"")
    }

    /// Each client has a connection of its own, and all are served by one thread.
    #[must_use]
    pub fn dedicated(mut self) -> Self {
        self.on_one_cpu = true;
        self.top("sessions", "\"dedicated\"")
    }

    /// The configuration as text.
    pub fn text(&self) -> String {
        let mut text = format!("backend = \"{}\"\n", self.backend);
        let mut top = vec![
            "listen = \"127.0.0.1:0\"".to_owned(),
            "admin = \"127.0.0.1:0\"".to_owned(),
            format!("admin_token = \"{ADMIN_TOKEN}\""),
        ];
        // The whole suite can be run with either: LOCKWARDEN_TEST_SESSIONS=multiplexed.
        if let Ok(sessions) = std::env::var("LOCKWARDEN_TEST_SESSIONS") {
            top.push(format!("sessions = \"{sessions}\""));
        }
        for line in &self.top {
            let key = line.split(' ').next().unwrap_or_default();
            top.retain(|known| known.split(' ').next() != Some(key));
            top.push(line.clone());
        }
        let mut namespace = vec!["name = \"locks\"".to_owned(), "keys = [\"lock:*\"]".to_owned()];
        for line in &self.namespace {
            let key = line.split(' ').next().unwrap_or_default();
            namespace.retain(|known| known.split(' ').next() != Some(key));
            namespace.push(line.clone());
        }
        let mut lines = top;
        if self.has_namespace {
            lines.push("\n[[namespace]]".to_owned());
            lines.extend(namespace);
        }
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        let mut settings = self.settings.clone();
        settings.retain(|_| self.has_namespace);
        settings.sort();
        let mut last = None;
        for (policy, key, value) in &settings {
            if last != Some(policy) {
                writeln!(text, "\n[namespace.settings.{policy}]").expect("a String takes all");
                last = Some(policy);
            }
            writeln!(text, "{key} = {value}").expect("a String takes all");
        }
        text.push('\n');
        text.push_str(&self.more);
        if self.backend.starts_with("rediss://") && !text.contains("[backend_tls]") {
            let folder = Authority::folder_of_harness().display();
            writeln!(text, "\n[backend_tls]\nca = \"{folder}/harness.pem\"").expect("a String takes all");
        }
        // Where a balancer names each client first, the harness's clients do so without TLS.
        let has_balancers = text.contains("proxy_protocol_from");
        if is_whole_run_with_tls() && !has_balancers && !text.contains("\n[tls]") {
            let folder = Authority::folder_of_harness().display();
            writeln!(
                text,
                "\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
                 \n[tls]\ncert = \"{folder}/harness.crt\"\nkey = \"{folder}/harness.key\"\nclient_name = \"cn\""
            )
            .expect("a String takes all");
        }
        text
    }

    /// The output of `lockwarden check --backend` for it.
    #[track_caller]
    pub fn check_backend(&self) -> Finished {
        let directory = tempfile::tempdir().expect("a directory for the configuration");
        let config = directory.path().join("good.toml");
        fs::write(&config, self.text()).expect("the directory is ours");
        run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config))
    }

    /// Starts the proxy and waits until it serves.
    #[track_caller]
    pub fn start(self) -> Proxy {
        let proxy = Proxy::run(&self);
        if self.wait_until_ready {
            wait_for("the proxy to be ready", || proxy.ready() == Some(200));
        }
        proxy
    }
}

fn set(lines: &mut Vec<String>, key: &str, value: &str) {
    lines.retain(|line| line.split(' ').next() != Some(key));
    lines.push(format!("{key} = {value}"));
}
