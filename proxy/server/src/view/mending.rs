//! The line that mends a misuse: of the application's code, of the configuration, or both. Where it names a TTL, that
//! follows from how long the locks with such keys were held.

use lockwarden_lock::reason::Reason;

use super::advice::Finding;
use super::api::TomlLine;
use crate::telemetry::events::LockEvent;
use crate::telemetry::vocabulary::Observation;
use crate::text::durations::toml_duration;
use crate::text::escape::spell;

/// Where the TTL of a lease is set.
const TTL_TABLE: &str = "namespace.settings.ttl-ceiling";
/// The table of a namespace itself.
const NAMESPACE: &str = "namespace";
/// What compares before it deletes.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// What is known of a misuse.
pub(super) struct About<'a> {
    pub(super) application: &'a str,
    pub(super) example: &'a LockEvent,
    /// The TTL that the work needs, where enough was seen; ms.
    pub(super) wanted_ms: Option<u64>,
    /// The longest TTL that was asked for, ms.
    pub(super) longest_ms: Option<u64>,
}

/// The lines.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mend {
    /// As Redis is sent it.
    pub(super) code: Option<String>,
    pub(super) toml: Option<TomlLine>,
}

impl Mend {
    fn code(line: String) -> Mend {
        Mend {
            code: Some(line),
            toml: None,
        }
    }

    fn toml(line: TomlLine) -> Mend {
        Mend {
            code: None,
            toml: Some(line),
        }
    }

    fn or(self, line: TomlLine) -> Mend {
        Mend {
            toml: Some(line),
            ..self
        }
    }
}

/// For something that is refused, or would be.
pub(super) fn of_reason(reason: Reason, about: &About<'_>) -> Mend {
    match reason {
        Reason::NotOwner => Mend::code(about.release()),
        Reason::Expired | Reason::Overwrite | Reason::TakeOver | Reason::SharedToken => {
            Mend::code(about.acquire())
        }
        Reason::OpaqueWrite if about.example.command.starts_with("incr") => {
            Mend::toml(about.here("counter_locks = true".to_owned()))
        }
        // Only what the key is used for says what to do.
        Reason::OpaqueWrite | Reason::StaleFence => Mend::default(),
        Reason::NoTtl => Mend::code(about.acquire()),
        Reason::TtlTooLong => Mend::code(about.acquire()).or(about.ceiling()),
        Reason::UnsafeScript => Mend::code(about.release()),
        Reason::BulkDelete => Mend::toml(TomlLine {
            namespace: None,
            table: String::new(),
            line: format!("admin_identities = [{}]", quoted(about.application)),
        }),
        Reason::Quarantine | Reason::Limited | Reason::Other => Mend::default(),
    }
}

/// For something that was found.
pub(super) fn of_finding(finding: Finding, about: &About<'_>) -> Mend {
    match finding {
        Finding::Observed(Observation::SharedToken | Observation::SharedSession) => {
            Mend::code(about.acquire())
        }
        Finding::Observed(Observation::RefusedThenReleased) => Mend::code(about.release()),
        Finding::Observed(Observation::Outlived) => Mend::toml(about.ceiling()),
        Finding::Observed(Observation::HandedOver) => {
            Mend::toml(about.here("hand_over = true".to_owned()))
        }
        // Most are markers that are meant to run out.
        Finding::Observed(Observation::RanOutConnected) => Mend::default(),
        // A connection for each thread is not one line.
        Finding::Observed(Observation::SharedGuard) => Mend::default(),
        Finding::Observed(Observation::Debt | Observation::RanOutAlive) | Finding::RanOut => {
            match about.example.asked_ms == Some(0) {
                true => Mend::code(about.acquire()).or(about.default_ttl()),
                false => Mend::code(about.acquire()),
            }
        }
        Finding::LeaseLost => Mend::toml(about.here("quarantine = \"auto\"".to_owned())),
        Finding::TokenlessRelease => Mend::code(about.release()),
        Finding::Pooled => Mend::code(format!("CLIENT SETNAME {}", about.application)),
        Finding::KeptAlive | Finding::NoTtl => Mend::code(about.acquire()).or(about.default_ttl()),
        // What is left to its TTL is meant to last so long.
        Finding::TtlCut if about.wanted_ms.is_none() => Mend::toml(about.ceiling()),
        Finding::TtlCut => Mend::code(about.acquire()).or(about.ceiling()),
        Finding::NeedsKeepAlive | Finding::WouldRunOut => {
            let code = Mend::code(about.acquire());
            match about.example.asked_ms {
                Some(0) => code.or(about.default_ttl()),
                Some(_) | None => code.or(about.ceiling()),
            }
        }
        Finding::TakesOver | Finding::LateWrite | Finding::WriteWithoutLock => {
            Mend::code(about.acquire())
        }
        Finding::Unjudged | Finding::Ungoverned => {
            Mend::code("lockwarden check --backend".to_owned())
        }
    }
}

impl About<'_> {
    fn key(&self) -> String {
        spell(&self.example.key.key)
    }

    /// Takes the lock.
    fn acquire(&self) -> String {
        acquire(&self.key(), self.wanted_ms)
    }

    /// Gives it back.
    fn release(&self) -> String {
        format!("EVAL \"{COMPARE_AND_DELETE}\" 1 {} VALUE", self.key())
    }

    fn here(&self, line: String) -> TomlLine {
        TomlLine {
            namespace: Some(self.example.namespace.to_string()),
            table: NAMESPACE.to_owned(),
            line,
        }
    }

    /// A default TTL that the work needs no keep-alive for; where that is not known, or shorter, the one in force.
    fn default_ttl(&self) -> TomlLine {
        let given = match self.example.would_give {
            Some(terms) => Some(terms.ttl_ms.0),
            None => self.example.ttl_ms,
        };
        let in_force = given.filter(|_| self.example.asked_ms == Some(0));
        default_ttl(
            &self.example.namespace,
            self.wanted_ms.max(in_force).unwrap_or(30_000),
        )
    }

    /// A ceiling that cuts nothing that was asked for.
    fn ceiling(&self) -> TomlLine {
        let asked = self.longest_ms.max(self.example.asked_ms);
        let ceiling_ms = asked.max(self.wanted_ms).unwrap_or(60_000);
        TomlLine {
            table: TTL_TABLE.to_owned(),
            ..self.here(format!("ceiling = \"{}\"", toml_duration(ceiling_ms)))
        }
    }
}

/// Takes a lock, with a TTL that its work needs. What is written in capitals is for the application to fill in.
pub(super) fn acquire(key: &str, wanted_ms: Option<u64>) -> String {
    match wanted_ms {
        Some(ms) => format!("SET {key} VALUE NX PX {ms}"),
        None => format!("SET {key} VALUE NX PX MILLISECONDS"),
    }
}

/// The TTL of an acquire that names none.
pub(super) fn default_ttl(namespace: &str, ms: u64) -> TomlLine {
    TomlLine {
        namespace: Some(namespace.to_owned()),
        table: TTL_TABLE.to_owned(),
        line: format!("default = \"{}\"", toml_duration(ms)),
    }
}

/// A string of TOML. Clients choose their names, so nothing of them may end the string.
fn quoted(text: &str) -> String {
    lockwarden_discovery::toml_text::quoted(text)
}
