//! What an application is called where its clients give no name: by the operator's map (`[[application]]`), or by the
//! process behind a connection of this machine. Reads no `/proc`: `registry::processes` finds the process and leaves it
//! here, in a slot that all events of a connection share, so that what is learnt late is shown from then on.

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

/// How long events of a connection are kept back, once, until its process is known: found in a few milliseconds on most
/// machines.
const PATIENCE: Duration = Duration::from_millis(250);
/// Between two looks whether it is known.
const LOOK: Duration = Duration::from_millis(2);

/// What people know a process by. Text for people: escaped and bounded by who reads it from the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: Box<str>,
    place: Option<Box<str>>,
    label: Box<str>,
}

impl Program {
    /// `name` is the program or script; `place` the service unit or container that it runs in.
    pub fn new(name: &str, place: Option<&str>) -> Program {
        let label = match place {
            // `orders.service` says it all where it runs `orders`.
            Some(unit) if unit.strip_suffix(".service") == Some(name) => unit.to_owned(),
            Some(place) => format!("{place}/{name}"),
            None => name.to_owned(),
        };
        Program { name: name.into(), place: place.map(Into::into), label: label.into() }
    }

    /// The one text for it: `billing.service/worker.py`.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn is_meant_by(&self, glob: &Glob) -> bool {
        let words = [Some(&self.label), Some(&self.name), self.place.as_ref()];
        let mut words = words.into_iter().flatten();
        words.any(|word| glob.matches(word.as_bytes()))
    }
}

/// What tells one client from another.
#[derive(Clone, Copy, Debug)]
pub struct Looks<'a> {
    /// `CLIENT SETNAME`; empty for none.
    pub(crate) name: &'a [u8],
    /// The user that it logged in as.
    pub(crate) user: &'a [u8],
    /// Where it comes from.
    pub(crate) address: PeerAddress,
    /// The name in its certificate.
    pub(crate) certificate: Option<&'a str>,
    /// Where it came in.
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

    /// The first that this client is, whose process may be known.
    fn find(&self, looks: &Looks<'_>, program: Option<&Program>) -> Option<&Arc<str>> {
        let mut rules = self.rules.iter();
        let first = rules.find(|rule| rule.matches(looks, program))?;
        Some(&first.name)
    }

    /// The same by what is known before a client's first command is judged: what asks for its process is passed over.
    pub(crate) fn find_at_once(&self, looks: &Looks<'_>) -> Option<&str> {
        self.find(looks, None).map(|name| &**name)
    }

    /// Their names; one may come several times.
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

    /// Follows a reload; for connections that are there, too.
    pub fn replace(&self, map: Arc<ApplicationMap>) {
        self.map.store(map);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// The process was not looked up, or was not found.
const UNKNOWN: u8 = 0;
/// It is being looked for.
const ASKED: u8 = 1;
/// It was found, or there is none to be found.
const SETTLED: u8 = 2;

/// What one connection's application is known by apart from what it says of itself.
pub struct KnownBy {
    naming: Arc<Naming>,
    certificate: Option<CertificateName>,
    entrance: OnceLock<Entrance>,
    program: OnceLock<Program>,
    /// Which process it is, once that was looked up.
    process: OnceLock<Process>,
    search: AtomicU8,
    /// It has a process, into which the proxy may not look.
    is_hidden: AtomicBool,
    /// When it was asked for first.
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

    /// It came in here, if that is known.
    pub fn came_in(&self, entrance: Option<Entrance>) {
        if let Some(entrance) = entrance {
            self.entrance.get_or_init(|| entrance);
        }
    }

    /// Where it came in.
    pub fn entrance(&self) -> Option<&Entrance> {
        self.entrance.get()
    }

    /// Which process it is, as far as that was looked up.
    pub fn process(&self) -> Process {
        self.process.get().copied().unwrap_or(Process::Pending)
    }

    /// It is this process. The first answer stays: a connection does not change its process.
    pub fn is_process(&self, process: Process) {
        self.process.get_or_init(|| process);
    }

    /// The process, if it was found.
    pub fn program(&self) -> Option<&Program> {
        self.program.get()
    }

    /// It has a process, into which the proxy may not look.
    pub fn hide(&self) {
        self.is_hidden.store(true, Ordering::Relaxed);
    }

    /// Whether it has such a process.
    pub fn is_hidden(&self) -> bool {
        self.is_hidden.load(Ordering::Relaxed)
    }

    /// The process was looked for, for the last time.
    pub fn settle(&self, program: Option<Program>) {
        if let Some(program) = program {
            self.program.get_or_init(|| program);
        }
        self.search.store(SETTLED, Ordering::Release);
    }

    /// The process was looked for in vain; it may be found another time.
    pub fn missed(&self) {
        // One that is settled stays so.
        let _ = self.search.compare_exchange(ASKED, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The process is wanted. Returns whether it is to be looked for now.
    pub fn ask(&self) -> bool {
        self.asked.get_or_init(Instant::now);
        self.search.compare_exchange(UNKNOWN, ASKED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the process would tell more of a client, which says `is_nameless` of itself, and may be asked for.
    pub fn wants_program(&self, is_nameless: impl FnOnce() -> bool) -> bool {
        self.search.load(Ordering::Relaxed) == UNKNOWN && (is_nameless() || self.naming.map.load().wants_programs)
    }

    /// Waits until the process is found that is being looked for, for a short time and once.
    pub(crate) fn await_program(&self) {
        while self.search.load(Ordering::Acquire) == ASKED && self.asked.get().is_some_and(|at| at.elapsed() < PATIENCE)
        {
            thread::sleep(LOOK);
        }
    }

    /// What the operator calls it.
    pub fn named(&self, looks: &Looks<'_>) -> Option<Arc<str>> {
        let map = self.naming.map.load();
        map.find(looks, self.program()).cloned()
    }

    /// Another number than before where its application may be called otherwise than before.
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
