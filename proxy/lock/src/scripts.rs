//! The atomic steps, as text for Redis. Each `.lua` file has its contract at the top; the build puts the shared
//! functions that it uses before it and packs it (`build/assemble.rs`), and this module knows its SHA-1. The rights
//! that they need are in `rights`. Nothing else in the product writes Lua.

mod rights;

// Only its tests: it runs while this crate is built.
#[cfg(test)]
#[path = "../build/assemble.rs"]
mod assemble;

pub mod guard;

use std::sync::LazyLock;

use sha1::{Digest, Sha1};

use crate::token::hex;

/// One atomic step.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    plain: Text,
    checked: Text,
    question: Text,
    commands: Vec<&'static str>,
    purpose: Purpose,
}

/// A text as `EVAL` takes it, and its digest as `EVALSHA` takes it: 40 lower-case hex digits.
#[derive(Debug)]
pub struct Text {
    text: String,
    sha: String,
}

impl Text {
    fn new(text: String) -> Text {
        let sha = hex(&Sha1::digest(text.as_bytes()));
        Text { text, sha }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its digest.
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

impl Script {
    /// The file's name, for logs and figures.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its purpose.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The whole text, as `EVAL` and `SCRIPT LOAD` take it.
    pub fn text(&self) -> &str {
        self.plain.text()
    }

    /// The digest that `EVALSHA` takes: 40 lower-case hex digits.
    pub fn sha(&self) -> &str {
        self.plain.sha()
    }

    /// The text without a check.
    pub fn plain(&self) -> &Text {
        &self.plain
    }

    /// The same after a check of the rights that it needs. One more argument, the last, is the application's own
    /// command.
    pub fn checked(&self) -> &Text {
        &self.checked
    }

    /// The check alone.
    pub fn question(&self) -> &Text {
        &self.question
    }

    /// Whether it executes commands of clients, on their connections.
    pub fn is_for_clients(&self) -> bool {
        matches!(self.purpose, Purpose::Locks | Purpose::Scripts)
    }

    /// The commands that it uses, as ACLs name them.
    pub fn commands(&self) -> &[&'static str] {
        &self.commands
    }

    /// The commands that it requires.
    pub fn needs(&self) -> impl Iterator<Item = &'static str> {
        self.commands.iter().copied().filter(|command| rights::is_needed(command))
    }
}

/// The text of a Lua file as packed by the build.
macro_rules! packed {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/", $name, ".lua"))
    };
}
pub(crate) use packed;

macro_rules! scripts {
    ($($(#[$doc:meta])* $constant:ident = $name:literal for $purpose:ident;)*) => {
        $($(#[$doc])* pub static $constant: LazyLock<Script> =
            LazyLock::new(|| script($name, packed!($name), Purpose::$purpose));)*

        /// Every script.
        pub fn all() -> Vec<&'static Script> {
            vec![$(&$constant),*]
        }
    };
}

scripts! {
    /// SETNX, SET … NX.
    ACQUIRE = "acquire" for Locks;
    /// Scripts that take a free lock and extend their own.
    TAKE = "take" for Locks;
    /// MSETNX, MSETEX … NX.
    ACQUIRE_ALL = "acquire_all" for Locks;
    /// SET, SETEX, PSETEX, SET … XX, GETSET, SET … GET.
    STORE = "store" for Locks;
    /// The EXPIRE family, GETEX, PERSIST, compare-and-expire.
    EXTEND = "extend" for Locks;
    /// DEL, UNLINK, GETDEL of one key, compare-and-delete.
    RELEASE = "release" for Locks;
    /// DEL, UNLINK of several keys.
    RELEASE_MANY = "release_many" for Locks;
    /// Several of the three kinds before, of several clients.
    GROUP = "group" for Locks;
    /// Keep-alive.
    RENEW = "renew" for Own;
    /// Which leases are kept alive, and by whom no more.
    INDEX = "index" for Own;
    /// Leases that may not be kept alive any more.
    ORPHANS = "orphans" for Own;
    /// A lease that ran out.
    NOTICE = "notice" for Own;
    /// Locks that a sweep has found.
    SWEEP = "sweep" for Own;
    /// What a client asks about the lease of a lock.
    LEASE = "lease" for Locks;
    /// What follows the text of an application's script.
    WRAP = "wrap" for Scripts;
    /// The same where the script declares no lock, behind a guard.
    GUARDED = "guarded" for Scripts;
    /// A grant whose reply was never read.
    UNDELIVERED = "undelivered" for Own;
    /// Leases named by a call that cannot be judged.
    UNWITNESSED = "unwitnessed" for Own;
    /// FLUSHDB, FLUSHALL.
    FLUSH = "flush" for Flush;
    /// The process of a lease's holder.
    IDENTIFY = "identify" for Own;
    /// A lease whose release was refused without a look at Redis.
    LET_GO = "let_go" for Own;
    /// A lease that was granted just now, and that no client was told of.
    GIVE_BACK = "give_back" for Scripts;
    /// A lease whose holder is gone.
    SHORTEN = "shorten" for Own;
    /// A lease that an operator ends.
    BREAK = "break" for Own;
    /// Since when a server is the primary.
    ERA = "era" for Own;
    /// Leases that another server had granted.
    SURVEY = "survey" for Own;
    /// Which prefix is in use, and which proxies serve under it.
    MARK = "mark" for Own;
}

/// The check of every right that a client's steps may need.
pub static ALL_RIGHTS: LazyLock<Text> =
    LazyLock::new(|| Text::new(question(&[Purpose::Locks, Purpose::Scripts].map(Purpose::commands).concat())));

/// The check of every right that the proxy's own connection needs.
pub static OWN_RIGHTS: LazyLock<Text> = LazyLock::new(|| Text::new(question(&Purpose::Own.commands())));

/// The arguments by which a command, named as in ACLs, can be tested on a key without changing anything; `None` for
/// `EVAL` and `EVALSHA`.
pub fn trial<'a>(command: &str, key: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    rights::words(command, key)
}

/// The purposes for which a user needs further commands besides its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's lock commands, and its scripts with known effect.
    Locks,
    /// A client's other scripts that name a lock: commands needed in addition to [`Purpose::Locks`].
    Scripts,
    /// FLUSHALL and FLUSHDB of a client.
    Flush,
    /// The proxy's own connection.
    Own,
}

impl Purpose {
    /// The commands as ACLs name them, sorted.
    pub fn commands(self) -> Vec<&'static str> {
        let more: &[&str] = match self {
            Purpose::Locks => &["eval", "evalsha", "getrange"],
            Purpose::Scripts => &[],
            Purpose::Flush => &["eval", "evalsha", "select"],
            Purpose::Own => &["command", "eval", "evalsha", "info", "ping", "scan", "select"],
        };
        let scripts = all().into_iter().filter(|script| script.purpose == self);
        let mut commands: Vec<_> = scripts.flat_map(Script::needs).chain(more.iter().copied()).collect();
        commands.sort_unstable();
        commands.dedup();
        if self == Purpose::Scripts {
            let known = Purpose::Locks.commands();
            commands.retain(|command| !known.contains(command));
        }
        commands
    }
}

/// Before a text, this says that the script only reads, for servers that support script flags (from 7.0 on): so it is
/// not blocked while writes are paused.
pub const ONLY_READS: &str = "#!lua flags=no-writes\n";

/// A check with no step after it.
fn question(needed: &[&'static str]) -> String {
    rights::check(&rights::Check { commands: needed, lock: "KEYS[1]", companion: "KEYS[2]", takes_own: true })
        + "return{'Q',''}"
}

/// A script with the checks that may stand in front of it.
fn script(name: &'static str, body: &str, purpose: Purpose) -> Script {
    let commands = rights::commands(body);
    let needed: Vec<_> = commands.iter().copied().filter(|command| rights::is_needed(command)).collect();
    let is_wrap = name == "wrap";
    let check = rights::check(&rights::Check {
        commands: &needed,
        lock: "KEYS[1]",
        companion: if is_wrap { "KEYS[#KEYS]" } else { "KEYS[2]" },
        takes_own: !is_wrap,
    });
    // The effects of an application's script cannot be undone for a missing right, so the rights are always checked.
    let plain = if is_wrap { check.clone() + body } else { body.to_owned() };
    Script {
        name,
        checked: Text::new(check + &plain),
        question: Text::new(question(&needed)),
        plain: Text::new(plain),
        commands,
        purpose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_the_life_of_a_command_names_the_scripts_as_they_are() {
        let page = include_str!("../../../docs/life-of-a-command.md");
        let named = page
            .split_whitespace()
            .filter(|word| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [ACQUIRE.sha(), RELEASE.sha()],
            "docs/life-of-a-command.md: take the bytes off the wire again"
        );
    }

    #[test]
    fn the_page_on_rights_names_the_commands_that_the_scripts_use() {
        let page = include_str!("../../../docs/rights.md");
        let lists: Vec<&str> = page.lines().filter(|line| line.starts_with('+')).collect();
        let purposes = [Purpose::Locks, Purpose::Scripts, Purpose::Flush, Purpose::Own];
        let wanted = purposes.map(|purpose| {
            let rules: Vec<_> = purpose.commands().iter().map(|name| format!("+{name}")).collect();
            rules.join(" ")
        });
        assert_eq!(lists, wanted, "docs/rights.md");
    }

    #[test]
    fn a_script_carries_the_functions_that_it_uses_and_no_others() {
        let text = ACQUIRE.text();
        assert!(text.contains("local function grant("));
        assert!(text.contains("local function form("), "through governed()");
        assert!(!text.contains("local function proof("));
        assert!(!RELEASE.text().contains("local function grant("));
        assert!(!RENEW.text().contains("local function grant("));
        for script in all() {
            assert!(!script.text().contains("--"), "{}", script.name());
            assert_eq!(script.sha().len(), 40);
        }
    }

    #[test]
    fn what_only_a_rare_way_uses_is_made_there() {
        for (script, brief) in [(&ACQUIRE, "return'G'"), (&EXTEND, "return'X'")] {
            let (usual, rest) = script.text().split_once(brief).expect("a brief answer");
            for function in ["governed", "has"] {
                let made = format!("local function {function}(");
                assert!(!usual.contains(&made), "{} {function}", script.name());
                assert!(rest.contains(&made), "{} {function}", script.name());
            }
        }
        let (before, _) = RELEASE.text().split_once("if short and ARGV[6]then").expect("where the record goes, too");
        assert!(!before.contains("function"), "{before}");
    }
}
