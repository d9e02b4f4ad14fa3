//! The text of a refusal: one line, with a code and a reason that are part of the interface, then `key=value`. It never
//! contains an owner token or another client's address, and never a word that makes a client library retry.

use std::fmt::Write;

use crate::reason::Reason;
use crate::settle::Code;
use crate::time::AskedMs;
use crate::token::FencingToken;

/// The longest error line, in bytes, without `-` and line end.
const MAX_LINE_BYTES: usize = 512;
/// The longest part of a key that is shown, in bytes.
const MAX_SHOWN_KEY_BYTES: usize = 120;
/// The longest hint that an error line shows, in bytes.
pub const MAX_HINT_BYTES: usize = 200;

/// The contents of an error line.
#[derive(Clone, Debug)]
pub struct RefusalLine<'a> {
    /// The first word.
    pub code: Code,
    /// The reason.
    pub reason: Reason,
    /// The lock key.
    pub key: &'a [u8],
    /// The command's name in the table.
    pub command: &'a str,
    /// The policy that refused.
    pub policy: &'a str,
    /// The rule of that policy, if it has several in a configuration.
    pub rule: Option<&'a str>,
    /// The ID of the audit record.
    pub id: &'a str,
    /// The newest fencing token, if it helps.
    pub fence: Option<FencingToken>,
    /// The requested TTL.
    pub ttl_ms: Option<AskedMs>,
    /// The longest TTL, ms.
    pub max_ms: Option<u64>,
    /// How long the lock has been held, ms.
    pub held_ms: Option<u64>,
    /// For a refused script: only its changes to locks were undone; those to other keys remain.
    pub others_stand: bool,
    /// The policy's own words.
    pub detail: Option<&'a str>,
}

/// The text in the error line and the audit entry of a refused script whose effects on keys that are no locks could not
/// be undone.
pub const OTHERS_STAND: &str = "only the locks were put back: what the script did to other keys stands";

/// Writes the line, without `-` and line end.
pub fn refusal_line(line: &RefusalLine<'_>) -> String {
    let code = match line.code {
        Code::Denied => "LOCKDENIED",
        Code::Policy => "LOCKPOLICY",
        Code::Limit => "LOCKLIMIT",
    };
    let mut text = format!("{code} {}", line.reason);
    if !line.key.is_empty() {
        let _ = write!(text, " key={}", shown(line.key));
    }
    let command = line.command.replace('|', " ").to_ascii_uppercase();
    let fields = [
        ("fence", line.fence.map(|fence| fence.0)),
        ("ttl_ms", line.ttl_ms.map(|asked| asked.0)),
        ("max_ms", line.max_ms),
        ("held_ms", line.held_ms),
    ];
    text.push_str(" cmd=");
    text.push_str(&command.replace(' ', "-"));
    let _ = write!(text, " policy={}", line.policy);
    if let Some(rule) = line.rule {
        let _ = write!(text, " rule={rule}");
    }
    let _ = write!(text, " id={}", line.id);
    for (name, value) in fields {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
    let hint = match line.others_stand {
        true => {
            text.push_str(" undone=locks");
            OTHERS_STAND
        }
        false => line.detail.unwrap_or_else(|| match line.reason {
            // Only a held lock can have been held too long, and only this policy refuses for that.
            Reason::Limited if line.policy != "ttl-ceiling" => Reason::Limited.meaning(),
            reason => hint(reason),
        }),
    };
    let _ = write!(text, " hint=\"{}\"", words(hint));
    text.truncate(MAX_LINE_BYTES);
    text
}

/// Why a command about many keys at once is refused.
#[derive(Clone, Copy, Debug)]
pub enum BulkRefusal<'a> {
    /// Live leases would be erased.
    Held {
        /// Their number, at least.
        locks: u64,
        /// One of the locks.
        key: &'a [u8],
        /// Its database, if that is not the selected one.
        db: Option<u32>,
    },
    /// There are too many keys to look for leases among them.
    Unseen {
        /// How many.
        keys: u64,
    },
    /// `SWAPDB`.
    Swap,
    /// A command that is not in the table.
    Foreign,
}

/// The line for a command about many keys at once, which itself names no lock.
pub fn bulk_line(why: &BulkRefusal<'_>, command: &str, id: &str) -> String {
    let mut text = format!("LOCKDENIED {}", Reason::BulkDelete);
    if let BulkRefusal::Held { key, .. } = why {
        let _ = write!(text, " key={}", shown(key));
    }
    let command = command.to_ascii_uppercase();
    let _ = write!(text, " cmd={command} policy=lockwarden id={id}");
    let hint = match why {
        BulkRefusal::Held { locks, db, .. } => {
            if let Some(db) = db {
                let _ = write!(text, " db={db}");
            }
            let _ = write!(text, " locks={locks}");
            hint(Reason::BulkDelete)
        }
        BulkRefusal::Unseen { keys } => {
            let _ = write!(text, " keys={keys}");
            "too many keys to look for held locks among them; delete by name, or be one of \
             admin_identities"
        }
        BulkRefusal::Foreign => {
            "lockwarden does not know this command of the server's, which may change keys that it does not name; \
             unknown_commands may let it pass"
        }
        BulkRefusal::Swap => "this would take locks away from their holders; only one of admin_identities may",
    };
    let _ = write!(text, " hint=\"{hint}\"");
    text.truncate(MAX_LINE_BYTES);
    text
}

/// The contents of the error line for a refused write of guarded data.
#[derive(Clone, Copy, Debug)]
pub struct GuardLine<'a> {
    /// `stale-fence` or `not-owner`.
    pub reason: Reason,
    /// The key that would have been written.
    pub key: &'a [u8],
    /// The command's name in the table.
    pub command: &'a str,
    /// The lock.
    pub lock: &'a [u8],
    /// The guard that refused.
    pub guard: &'a str,
    /// The ID of the audit record.
    pub id: &'a str,
    /// The writer's own fencing token.
    pub fence: Option<FencingToken>,
}

/// Writes the line, without `-` and line end.
pub fn guard_line(line: &GuardLine<'_>) -> String {
    let mut text = format!(
        "LOCKDENIED {} key={} cmd={} lock={} guard={} id={}",
        line.reason,
        shown(line.key),
        in_capitals(line.command),
        shown(line.lock),
        line.guard,
        line.id
    );
    if let Some(fence) = line.fence {
        let _ = write!(text, " fence={fence}");
    }
    let hint = match line.reason {
        Reason::StaleFence => {
            "this write belongs to a lease of the lock that is over: stop, and read again under a new one"
        }
        _ => "writes to this key need the lock; take it on this connection first",
    };
    let _ = write!(text, " hint=\"{hint}\"");
    text.truncate(MAX_LINE_BYTES);
    text
}

/// The line for a write of guarded data that cannot be checked.
pub fn guard_limit_line(key: &[u8], command: &str, guard: &str, id: &str, hint: &str) -> String {
    let (key, command) = (shown(key), in_capitals(command));
    let mut text = format!("LOCKLIMIT guarded-write key={key} cmd={command} guard={guard} id={id} hint=\"{hint}\"");
    text.truncate(MAX_LINE_BYTES);
    text
}

fn in_capitals(command: &str) -> String {
    command.replace(['|', ' '], "-").to_ascii_uppercase()
}

/// The line for `SCRIPT DEBUG` and similar commands.
pub fn debug_line(command: &str, id: &str) -> String {
    let command = command.replace('|', "-").to_ascii_uppercase();
    let hint = match &command[..] {
        "SCRIPT-DEBUG" => "a debugger gives Redis any command, past the proxy",
        _ => "this gives the server any command, past the proxy",
    };
    format!(
        "LOCKDENIED {} cmd={command} policy=scripts id={id} hint=\"{hint}; only one of admin_identities may use it\"",
        Reason::UnsafeScript
    )
}

/// The line for a command that only administrators may send: Redis's own text, and a note that the proxy refused.
pub fn not_permitted_line(command: &str) -> String {
    format!(
        "NOPERM this user has no permissions to run the '{command}' command through lockwarden \
         (server_commands = \"refuse\")"
    )
}

/// The line for a limit of the proxy itself.
pub fn limit_line(what: &str, key: &[u8], command: &str, id: &str) -> String {
    let command = command.replace('|', "-").to_ascii_uppercase();
    let mut text =
        format!("LOCKLIMIT other key={} cmd={command} policy=lockwarden id={id} hint=\"{what}\"", shown(key));
    text.truncate(MAX_LINE_BYTES);
    text
}

/// A key without bytes that could break a line or a terminal; ASCII, so it can be cut anywhere.
fn shown(key: &[u8]) -> String {
    let mut text = String::new();
    for &byte in key {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'!'..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        if text.len() >= MAX_SHOWN_KEY_BYTES {
            text.truncate(MAX_SHOWN_KEY_BYTES);
            text.push_str("...");
            break;
        }
    }
    text
}

/// A hint on one line of ASCII; double quotes would end it.
fn words(hint: &str) -> String {
    hint.chars()
        .map(|letter| match letter {
            '"' => '\'',
            ' '..='~' => letter,
            _ => ' ',
        })
        .take(MAX_HINT_BYTES)
        .collect()
}

/// The hint of a refusal without a text of its own: what to do, or else what it means.
fn hint(reason: Reason) -> &'static str {
    reason.advice().unwrap_or(reason.meaning())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &[u8], detail: Option<&str>) -> String {
        refusal_line(&RefusalLine {
            code: Code::Denied,
            reason: Reason::NotOwner,
            key,
            command: "del",
            policy: "owner-token",
            rule: None,
            id: "7F3K2A",
            fence: None,
            ttl_ms: None,
            max_ms: None,
            held_ms: Some(812),
            others_stand: false,
            detail,
        })
    }

    #[test]
    fn a_refusal_is_one_line_of_words() {
        assert_eq!(
            line(b"lock:order:42", None),
            "LOCKDENIED not-owner key=lock:order:42 cmd=DEL policy=owner-token id=7F3K2A \
             held_ms=812 hint=\"release and extend only after a successful acquire, by compare-and-delete with the \
             value that was stored; over a pool, name its connections (CLIENT SETNAME)\""
        );
    }

    #[test]
    fn a_refusal_by_a_rule_names_it() {
        let line = refusal_line(&RefusalLine {
            code: Code::Denied,
            reason: Reason::Limited,
            key: b"lock:a",
            command: "set",
            policy: "rules",
            rule: Some("hours"),
            id: "7F3K2A",
            fence: None,
            ttl_ms: None,
            max_ms: None,
            held_ms: None,
            others_stand: false,
            detail: None,
        });
        assert_eq!(
            line,
            "LOCKDENIED limited key=lock:a cmd=SET policy=rules rule=hours id=7F3K2A hint=\"a rule of a policy about rate, \
             number, name or time\""
        );
    }

    #[test]
    fn a_refused_flush_names_a_lock_and_a_refused_swap_cannot() {
        let held = BulkRefusal::Held { locks: 2, key: b"lock:a b", db: Some(3) };
        assert_eq!(
            bulk_line(&held, "flushall", "7F3K2A"),
            "LOCKDENIED bulk-delete key=lock:a\\x20b cmd=FLUSHALL policy=lockwarden id=7F3K2A db=3 \
             locks=2 hint=\"wait until the locks are released, delete by name, or flush as one of admin_identities\""
        );
        assert!(
            bulk_line(&BulkRefusal::Swap, "swapdb", "7F3K2A")
                .starts_with("LOCKDENIED bulk-delete cmd=SWAPDB policy=lockwarden id=7F3K2A hint=\"")
        );
    }

    #[test]
    fn nothing_in_a_key_or_a_detail_breaks_the_line() {
        let text = line(b"lock:\r\n-OK \"\x00\xff", Some("a\r\n\"b\" é"));
        assert!(text.is_ascii() && !text.contains(['\r', '\n']), "{text}");
        assert!(text.contains(r#"key=lock:\x0d\x0a-OK\x20\"\x00\xff cmd"#), "{text}");
        assert!(line(&[0; 1000], Some(&"x".repeat(1000))).len() <= MAX_LINE_BYTES);
    }
}
