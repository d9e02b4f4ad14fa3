//! The line that repairs a misuse: of the application's code, of the configuration, or both. A TTL in it follows from how long
//! the locks with such keys were held.

use lockwarden_control::telemetry::events::{DEFAULT_USER, LockEvent};
use lockwarden_control::telemetry::vocabulary::Observation;
use lockwarden_control::text::durations::toml_duration;
use lockwarden_control::text::escape::spell;
use lockwarden_dataplane::registry::processes::SHOW_PROCESSES;
use lockwarden_lock::job_scripts;
use lockwarden_lock::reason::Reason;

use super::advice::Finding;
use super::api::TomlLine;

/// The table with the TTL of a lease.
const TTL_TABLE: &str = "namespace.settings.ttl-ceiling";
/// The table that sets which proof makes a client the owner.
const OWNER_TABLE: &str = "namespace.settings.owner-token";
/// The table of a namespace itself.
const NAMESPACE: &str = "namespace";
/// The script that compares before it deletes.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// The facts about a misuse.
pub(super) struct About<'a> {
    pub(super) application: &'a str,
    pub(super) example: &'a LockEvent,
    /// The TTL that the work needs, where enough was seen; ms.
    pub(super) wanted_ms: Option<u64>,
    /// The longest requested TTL, ms.
    pub(super) longest_ms: Option<u64>,
    /// Whether and how refusing it costs this application lock time.
    pub(super) loss: Loss,
}

/// Why releases that may be an application's own are refused, if they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// They are not refused.
    None,
    /// The application releases more often than it is granted locks.
    TooMany,
    /// On connections that were refused the lock before, as connections of a contended pool are.
    AfterRefusal,
    /// On other connections than those that took the lock.
    OverOthers,
}

/// The lines to write.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mend {
    /// The command as it is sent to Redis.
    pub(super) code: Option<String>,
    pub(super) toml: Option<TomlLine>,
}

impl Mend {
    fn code(line: String) -> Mend {
        Mend { code: Some(line), toml: None }
    }

    fn toml(line: TomlLine) -> Mend {
        Mend { code: None, toml: Some(line) }
    }

    fn or(self, line: TomlLine) -> Mend {
        Mend { toml: Some(line), ..self }
    }
}

/// The repair for something that is refused, or would be.
pub(super) fn of_reason(reason: Reason, about: &About<'_>) -> Mend {
    about.unless_hidden(|| match reason {
        Reason::NotOwner | Reason::Expired if about.loss == Loss::TooMany => Mend::code(about.release()),
        Reason::NotOwner | Reason::Expired if about.loss == Loss::AfterRefusal => {
            Mend::toml(about.void_after_refusal())
        }
        // Its identity could prove them but does not count, or it has none yet.
        Reason::NotOwner | Reason::Expired if about.loss == Loss::OverOthers => match about.is_told_apart() {
            true => Mend::toml(about.identity_counts()),
            false => Mend::code(about.named()),
        },
        Reason::NotOwner => Mend::code(about.release()),
        Reason::Expired | Reason::Overwrite | Reason::TakeOver | Reason::SharedToken => Mend::code(about.acquire()),
        Reason::OpaqueWrite if about.example.command.starts_with("incr") => {
            Mend::toml(about.here("counter_locks = true".to_owned()))
        }
        // The repair depends on the use of the key.
        Reason::OpaqueWrite | Reason::StaleFence => Mend::default(),
        Reason::NoTtl => Mend::code(about.acquire()),
        Reason::TtlTooLong => Mend::code(about.acquire()).or(about.ceiling()),
        // The script of a library is not rewritten, but it may be trusted.
        Reason::UnsafeScript => match about.trust() {
            Some(line) => Mend::toml(line),
            None => Mend::code(about.release()),
        },
        Reason::BulkDelete => match about.administrator() {
            Some(line) => Mend::toml(TomlLine { namespace: None, table: String::new(), line }),
            None => Mend::default(),
        },
        Reason::Quarantine | Reason::Limited | Reason::Other => Mend::default(),
    })
}

/// The repair for a finding.
pub(super) fn of_finding(finding: Finding, about: &About<'_>) -> Mend {
    about.unless_hidden(|| match finding {
        Finding::Observed(Observation::SharedToken | Observation::SharedSession) => Mend::code(about.acquire()),
        Finding::Observed(Observation::RefusedThenReleased) => Mend::code(about.release()),
        Finding::Observed(Observation::Outlived) => Mend::toml(about.ceiling()),
        Finding::Observed(Observation::HandedOver) => Mend::toml(about.here("hand_over = true".to_owned())),
        // Most are markers that are meant to run out.
        Finding::Observed(Observation::RanOutConnected) => Mend::default(),
        // How clients send their scripts is explained in words, not proposed: it affects all of them.
        Finding::Observed(Observation::EndUnseen) => Mend::default(),
        // One line cannot give each thread a connection.
        Finding::Observed(Observation::SharedGuard) => Mend::default(),
        Finding::Observed(Observation::Debt | Observation::RanOutAlive) | Finding::RanOut => {
            match about.example.asked_ms == Some(0) {
                true => Mend::code(about.acquire()).or(about.default_ttl()),
                false => Mend::code(about.acquire()),
            }
        }
        Finding::LeaseLost => Mend::toml(about.here("quarantine = \"auto\"".to_owned())),
        Finding::TokenlessRelease => Mend::code(about.release()),
        Finding::Pooled => Mend::code(about.named()),
        Finding::KeptAlive | Finding::NoTtl => Mend::code(about.acquire()).or(about.default_ttl()),
        // A lock that is left to its TTL is meant to last this long.
        Finding::TtlCut if about.wanted_ms.is_none() => Mend::toml(about.ceiling()),
        Finding::TtlCut => Mend::code(about.acquire()).or(about.ceiling()),
        Finding::NeedsKeepAlive | Finding::WouldRunOut => {
            let code = Mend::code(about.acquire());
            match about.example.asked_ms {
                Some(0) => code.or(about.default_ttl()),
                Some(_) | None => code.or(about.ceiling()),
            }
        }
        Finding::TakesOver | Finding::LateWrite | Finding::WriteWithoutLock => Mend::code(about.acquire()),
        Finding::LetThrough | Finding::ComputedNames => Mend::default(),
        Finding::Unjudged | Finding::Ungoverned => Mend::code("lockwarden check --backend".to_owned()),
    })
}

impl About<'_> {
    /// A finding about a client whose process cannot be seen may belong to another client: then only that is to be repaired.
    fn unless_hidden(&self, mend: impl FnOnce() -> Mend) -> Mend {
        let caller = self.example.caller.as_ref();
        match caller.is_some_and(|caller| caller.is_hidden()) {
            true => Mend::code(SHOW_PROCESSES.to_owned()),
            false => mend(),
        }
    }

    fn key(&self) -> String {
        spell(self.example.key.bytes())
    }

    /// The line that makes this client an administrator; `None` if nothing that it can prove identifies it.
    fn administrator(&self) -> Option<String> {
        let caller = self.example.caller.as_ref()?;
        let who = match caller.known_by.certificate() {
            _ if !caller.user.is_empty() && caller.user != DEFAULT_USER => {
                format!("user:{}", spell(&caller.user))
            }
            Some(name) => format!("certificate:{name}"),
            None => return None,
        };
        Some(format!("admin_identities = [{}]", quoted(&who)))
    }

    /// The command that takes the lock.
    fn acquire(&self) -> String {
        acquire(&self.key(), self.wanted_ms)
    }

    /// The command that releases it.
    fn release(&self) -> String {
        format!("EVAL \"{COMPARE_AND_DELETE}\" 1 {} VALUE", self.key())
    }

    /// The line that allows the script to touch locks that it does not declare.
    fn trust(&self) -> Option<TomlLine> {
        let verdict = self.example.verdict.as_ref()?;
        let name = job_scripts::asked_for(verdict.detail.as_deref()?)?;
        Some(self.here(format!("trusted_scripts = [{}]", quoted(name))))
    }

    fn here(&self, line: String) -> TomlLine {
        TomlLine { namespace: Some(self.example.namespace.to_string()), table: NAMESPACE.to_owned(), line }
    }

    /// The command that names its connections, to distinguish them from others.
    fn named(&self) -> String {
        format!("CLIENT SETNAME {}", self.application)
    }

    /// Whether its connections are distinguished from others.
    fn is_told_apart(&self) -> bool {
        let caller = self.example.caller.as_ref();
        caller.is_some_and(|caller| caller.is_distinctive())
    }

    fn identity_counts(&self) -> TomlLine {
        let proofs = "proofs = [\"token\", \"session\", \"observed\", \"identity\"]";
        TomlLine { table: OWNER_TABLE.to_owned(), ..self.here(proofs.to_owned()) }
    }

    /// Its identity counts although a connection was refused the lock.
    fn void_after_refusal(&self) -> TomlLine {
        TomlLine { table: OWNER_TABLE.to_owned(), ..self.here("void_after_refusal = []".to_owned()) }
    }

    /// A default TTL with which the work needs no keep-alive; if unknown or shorter, the one in force.
    fn default_ttl(&self) -> TomlLine {
        let given = match self.example.would_give {
            Some(terms) => Some(terms.ttl_ms.0),
            None => self.example.ttl_ms,
        };
        let in_force = given.filter(|_| self.example.asked_ms == Some(0));
        default_ttl(&self.example.namespace, self.wanted_ms.max(in_force).unwrap_or(30_000))
    }

    /// A ceiling that cuts no requested TTL.
    fn ceiling(&self) -> TomlLine {
        let asked = self.longest_ms.max(self.example.asked_ms);
        let ceiling_ms = asked.max(self.wanted_ms).unwrap_or(60_000);
        TomlLine { table: TTL_TABLE.to_owned(), ..self.here(format!("ceiling = \"{}\"", toml_duration(ceiling_ms))) }
    }
}

/// The command that takes a lock, with the TTL that its work needs. The reader fills in the words in capitals.
pub(super) fn acquire(key: &str, wanted_ms: Option<u64>) -> String {
    match wanted_ms {
        Some(ms) => format!("SET {key} VALUE NX PX {ms}"),
        None => format!("SET {key} VALUE NX PX MILLISECONDS"),
    }
}

/// The TTL of an acquire without one.
pub(super) fn default_ttl(namespace: &str, ms: u64) -> TomlLine {
    TomlLine {
        namespace: Some(namespace.to_owned()),
        table: TTL_TABLE.to_owned(),
        line: format!("default = \"{}\"", toml_duration(ms)),
    }
}

/// A TOML string. Clients choose their names, so no character of them may end the string.
fn quoted(text: &str) -> String {
    lockwarden_discovery::toml_text::quoted(text)
}
