//! The name of an application whose clients send none: from the operator's map (`[[application]]`), or from the process
//! at the other end of a connection on this machine. Reads no `/proc`: `registry::processes` finds the process and
//! stores it here, in a slot that all events of a connection share. So a name that is found late is shown from then on.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::token::Process;

use crate::config::{ApplicationRule, ListenAddress, Network};
use crate::net::certificate_name::CertificateName;
use crate::net::entrance::Entrance;
use crate::net::peer::PeerAddress;

/// How long the events of a connection are held back, once, until its process is known; on most machines it is found
/// within a few milliseconds.
const PATIENCE: Duration = Duration::from_millis(250);
/// The time between two checks whether the process is known.
const LOOK: Duration = Duration::from_millis(2);

/// A process's name for people: escaped and limited in length by the code that reads it from the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: Box<str>,
    place: Option<Box<str>>,
    label: Box<str>,
}

impl Program {
    /// `name` is the program or script; `place` the service unit or container in which it runs.
    pub fn new(name: &str, place: Option<&str>) -> Program {
        let label = match place {
            // `orders.service` is enough if it runs `orders`.
            Some(unit) if unit.strip_suffix(".service") == Some(name) => unit.to_owned(),
            Some(place) => format!("{place}/{name}"),
            None => name.to_owned(),
        };
        Program { name: name.into(), place: place.map(Into::into), label: label.into() }
    }

    /// Both parts as one text: `billing.service/worker.py`.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn is_meant_by(&self, glob: &Glob) -> bool {
        let words = [Some(&self.label), Some(&self.name), self.place.as_ref()];
        let mut words = words.into_iter().flatten();
        words.any(|word| glob.matches(word.as_bytes()))
    }
}

/// The properties that distinguish one client from another.
#[derive(Clone, Copy, Debug)]
pub struct Looks<'a> {
    /// `CLIENT SETNAME`; empty for none.
    pub(crate) name: &'a [u8],
    /// The user that it logged in as.
    pub(crate) user: &'a [u8],
    /// The client's address.
    pub(crate) address: PeerAddress,
    /// The name in its certificate.
    pub(crate) certificate: Option<&'a str>,
    /// The listener's address by which it came in.
    pub(crate) entrance: Option<&'a Entrance>,
}

/// One `[[application]]`.
struct Rule {
    name: Arc<str>,
    from: Vec<Network>,
    process: Option<Glob>,
    user: Option<Glob>,
    client: Option<Glob>,
    certificate: Option<Glob>,
    listener: Option<ListenAddress>,
}

impl Rule {
    fn new(configured: &ApplicationRule) -> Rule {
        let glob = |pattern: &Option<bytes::Bytes>| pattern.clone().map(Glob::new);
        Rule {
            name: configured.name.as_str().into(),
            from: configured.from.clone(),
            process: glob(&configured.process),
            user: glob(&configured.user),
            client: glob(&configured.client),
            certificate: glob(&configured.certificate),
            listener: configured.listener.clone(),
        }
    }

    fn matches(&self, looks: &Looks<'_>, program: Option<&Program>) -> bool {
        let fits = |glob: &Option<Glob>, word: &[u8]| {
            let glob = glob.as_ref();
            glob.is_none_or(|glob| glob.matches(word))
        };
        let runs = |glob: &Glob| program.is_some_and(|program| program.is_meant_by(glob));
        let certified = |glob: &Glob| {
            let name = looks.certificate;
            name.is_some_and(|name| glob.matches(name.as_bytes()))
        };
        let came_in = |listener: &ListenAddress| {
            let entrance = looks.entrance;
            entrance.is_some_and(|entrance| listener.is_reached_by(entrance))
        };
        (self.from.is_empty() || looks.address.ip().is_some_and(|ip| self.from.iter().any(|from| from.contains(ip))))
            && fits(&self.user, looks.user)
            && fits(&self.client, looks.name)
            && self.process.as_ref().is_none_or(runs)
            && self.certificate.as_ref().is_none_or(certified)
            && self.listener.as_ref().is_none_or(came_in)
    }
}

/// The applications of a configuration, in its order.
#[derive(Default)]
pub struct ApplicationMap {
    rules: Vec<Rule>,
    wants_programs: bool,
}

impl ApplicationMap {
    pub fn new(configured: &[ApplicationRule]) -> ApplicationMap {
        let rules: Vec<Rule> = configured.iter().map(Rule::new).collect();
        ApplicationMap { wants_programs: rules.iter().any(|rule| rule.process.is_some()), rules }
    }

    /// The name of the first `[[application]]` that matches this client. `program` is its process, if known.
    fn find(&self, looks: &Looks<'_>, program: Option<&Program>) -> Option<&Arc<str>> {
        let mut rules = self.rules.iter();
        let first = rules.find(|rule| rule.matches(looks, program))?;
        Some(&first.name)
    }

    /// The same, with only what is known before a client's first command is judged: tables with a condition on the
    /// process are skipped.
    pub(crate) fn find_at_once(&self, looks: &Looks<'_>) -> Option<&str> {
        self.find(looks, None).map(|name| &**name)
    }

    /// The names of all applications; a name may occur several times.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rules.iter().map(|rule| &rule.name)
    }
}

/// The applications in force. Shared by all connections.
#[derive(Default)]
pub struct Naming {
    map: ArcSwap<ApplicationMap>,
    changes: AtomicU64,
}

impl Naming {
    pub fn new(map: Arc<ApplicationMap>) -> Naming {
        Naming { map: ArcSwap::new(map), changes: AtomicU64::new(0) }
    }

    /// Replaces the map after a reload, also for existing connections.
    pub fn replace(&self, map: Arc<ApplicationMap>) {
        self.map.store(map);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// The process was not looked up, or was not found.
const UNKNOWN: u8 = 0;
/// It is being looked up.
const ASKED: u8 = 1;
/// It was found, or cannot be found.
const SETTLED: u8 = 2;

/// What is known of one connection's application apart from what the client sends itself.
pub struct KnownBy {
    naming: Arc<Naming>,
    certificate: Option<CertificateName>,
    entrance: OnceLock<Entrance>,
    program: OnceLock<Program>,
    /// Its process, once that was looked up.
    process: OnceLock<Process>,
    search: AtomicU8,
    /// It has a process that the proxy is not allowed to inspect.
    is_hidden: AtomicBool,
    /// When the process was first asked for.
    asked: OnceLock<Instant>,
}

impl fmt::Debug for KnownBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownBy({:?})", self.program)
    }
}

impl KnownBy {
    pub fn new(naming: Arc<Naming>, certificate: Option<CertificateName>) -> KnownBy {
        KnownBy {
            naming,
            certificate,
            entrance: OnceLock::new(),
            program: OnceLock::new(),
            process: OnceLock::new(),
            search: AtomicU8::new(UNKNOWN),
            is_hidden: AtomicBool::new(false),
            asked: OnceLock::new(),
        }
    }

    /// The name in its certificate.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_ref().map(CertificateName::as_str)
    }

    /// Sets the address by which it came in, if known.
    pub fn came_in(&self, entrance: Option<Entrance>) {
        if let Some(entrance) = entrance {
            self.entrance.get_or_init(|| entrance);
        }
    }

    /// The address by which it came in.
    pub fn entrance(&self) -> Option<&Entrance> {
        self.entrance.get()
    }

    /// Its process, as far as that was looked up.
    pub fn process(&self) -> Process {
        self.process.get().copied().unwrap_or(Process::Pending)
    }

    /// Sets its process. The first value is kept: a connection does not change its process.
    pub fn is_process(&self, process: Process) {
        self.process.get_or_init(|| process);
    }

    /// The process, if it was found.
    pub fn program(&self) -> Option<&Program> {
        self.program.get()
    }

    /// Records that the proxy is not allowed to inspect its process.
    pub fn hide(&self) {
        self.is_hidden.store(true, Ordering::Relaxed);
    }

    /// Whether the proxy is not allowed to inspect its process.
    pub fn is_hidden(&self) -> bool {
        self.is_hidden.load(Ordering::Relaxed)
    }

    /// Records the final result of looking up the process.
    pub fn settle(&self, program: Option<Program>) {
        if let Some(program) = program {
            self.program.get_or_init(|| program);
        }
        self.search.store(SETTLED, Ordering::Release);
    }

    /// The look-up failed this time; a later one may succeed.
    pub fn missed(&self) {
        // A final result is kept.
        let _ = self.search.compare_exchange(ASKED, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Requests the process. Returns whether the caller has to look it up now.
    pub fn ask(&self) -> bool {
        self.asked.get_or_init(Instant::now);
        self.search.compare_exchange(UNKNOWN, ASKED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the process would identify a client better, which has no name of its own according to `is_nameless`, and
    /// may be looked up.
    pub fn wants_program(&self, is_nameless: impl FnOnce() -> bool) -> bool {
        self.search.load(Ordering::Relaxed) == UNKNOWN && (is_nameless() || self.naming.map.load().wants_programs)
    }

    /// If the process is being looked up, waits a short time for the result; only once per connection.
    pub(crate) fn await_program(&self) {
        while self.search.load(Ordering::Acquire) == ASKED && self.asked.get().is_some_and(|at| at.elapsed() < PATIENCE)
        {
            thread::sleep(LOOK);
        }
    }

    /// The operator's name for it.
    pub fn named(&self, looks: &Looks<'_>) -> Option<Arc<str>> {
        let map = self.naming.map.load();
        map.find(looks, self.program()).cloned()
    }

    /// A number that changes whenever its application may have another name than before.
    pub fn stamp(&self) -> u64 {
        let changes = self.naming.changes.load(Ordering::Acquire);
        changes * 2 + u64::from(self.program.get().is_some())
    }
}

impl Default for KnownBy {
    fn default() -> KnownBy {
        KnownBy::new(Arc::default(), None)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use bytes::Bytes;

    use super::*;
    use crate::config;

    fn glob(text: &str) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn rule(name: &str) -> ApplicationRule {
        ApplicationRule { name: name.to_owned(), ..ApplicationRule::default() }
    }

    fn map() -> ApplicationMap {
        ApplicationMap::new(&[
            ApplicationRule { process: glob("php-fpm*"), user: glob("shop"), ..rule("shop") },
            ApplicationRule { process: glob("cron.service"), ..rule("nightly") },
            ApplicationRule { from: vec![config::parse_network("10.0.3.0/24").expect("a network")], ..rule("billing") },
            ApplicationRule { certificate: glob("spiffe://corp/ns/stock/*"), client: glob("stock-*"), ..rule("stock") },
            ApplicationRule { client: glob("worker-*"), ..rule("workers") },
        ])
    }

    fn looks<'a>(name: &'a str, user: &'a str, address: &str) -> Looks<'a> {
        Looks {
            name: name.as_bytes(),
            user: user.as_bytes(),
            address: SocketAddr::from((address.parse::<IpAddr>().expect("an address"), 1)).into(),
            certificate: None,
            entrance: None,
        }
    }

    #[test]
    fn a_listener_is_told_by_where_a_connection_came_in() {
        let socket = ListenAddress::Unix("/run/lockwarden/shop.sock".into());
        let anywhere = ListenAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], 6390)));
        let map = ApplicationMap::new(&[
            ApplicationRule { listener: Some(socket), ..rule("shop") },
            ApplicationRule { listener: Some(anywhere), ..rule("stock") },
        ]);
        let tcp = |address: &str| Entrance::Tcp(address.parse().expect("an address"));
        for (entrance, expected) in [
            (Some(Entrance::Unix("/run/lockwarden/shop.sock".into())), Some("shop")),
            (Some(Entrance::Unix("/run/lockwarden/other.sock".into())), None),
            (Some(tcp("10.0.0.7:6390")), Some("stock")),
            (Some(tcp("[::ffff:10.0.0.7]:6390")), Some("stock")),
            (Some(tcp("10.0.0.7:6380")), None),
            (None, None),
        ] {
            let looks = Looks { entrance: entrance.as_ref(), ..looks("", "default", "127.0.0.1") };
            assert_eq!(map.find_at_once(&looks), expected, "{entrance:?}");
        }
    }

    #[test]
    fn the_first_application_whose_every_condition_holds_names_a_client() {
        let map = map();
        let fpm = Program::new("php-fpm: pool www", Some("php8.2-fpm.service"));
        let cron = Program::new("import.py", Some("cron.service"));
        for (name, user, address, program, expected) in [
            ("", "shop", "127.0.0.1", Some(&fpm), Some("shop")),
            ("", "default", "127.0.0.1", Some(&fpm), None),
            ("", "shop", "127.0.0.1", None, None),
            ("worker-1", "default", "127.0.0.1", Some(&cron), Some("nightly")),
            ("worker-1", "default", "127.0.0.1", None, Some("workers")),
            ("worker-1", "default", "10.0.3.9", None, Some("billing")),
            ("", "default", "::ffff:10.0.3.9", None, Some("billing")),
            ("", "default", "10.0.4.9", None, None),
        ] {
            let looks = looks(name, user, address);
            let found = map.find(&looks, program).map(|name| &**name);
            assert_eq!(found, expected, "{looks:?} {program:?}");
        }
        for (certificate, name, expected) in [
            (Some("spiffe://corp/ns/stock/api"), "stock-1", Some("stock")),
            (Some("spiffe://corp/ns/stock/api"), "worker-1", Some("workers")),
            (Some("spiffe://corp/ns/shop/api"), "stock-1", None),
            (None, "stock-1", None),
        ] {
            let looks = Looks { certificate, ..looks(name, "default", "127.0.0.1") };
            assert_eq!(map.find_at_once(&looks), expected, "{looks:?}");
        }
        let at_once = looks("worker-1", "shop", "127.0.0.1");
        assert_eq!(map.find_at_once(&at_once), Some("workers"));
    }

    #[test]
    fn a_process_is_labelled_by_its_unit_and_its_program() {
        for (name, place, label) in [
            ("orders", Some("orders.service"), "orders.service"),
            ("worker.py", Some("orders.service"), "orders.service/worker.py"),
            ("worker.py", Some("3f2a1b4c5d6e"), "3f2a1b4c5d6e/worker.py"),
            ("worker.py", None, "worker.py"),
        ] {
            assert_eq!(Program::new(name, place).label(), label);
        }
    }

    #[test]
    fn a_stamp_changes_with_the_process_and_with_a_reload() {
        let naming = Arc::new(Naming::default());
        let known_by = KnownBy::new(naming.clone(), None);
        let first = known_by.stamp();
        assert!(known_by.ask() && !known_by.ask());
        known_by.missed();
        assert!(known_by.ask(), "another time it may be found");
        assert_eq!(known_by.stamp(), first);
        known_by.settle(Some(Program::new("a", None)));
        let second = known_by.stamp();
        assert_ne!(second, first);
        assert!(!known_by.ask());
        naming.replace(Arc::new(map()));
        assert_ne!(known_by.stamp(), second);
        let named = known_by.named(&looks("", "", "10.0.3.1"));
        assert_eq!(named.as_deref(), Some("billing"));
    }
}
