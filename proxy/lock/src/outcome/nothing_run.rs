//! The proof that a step has run nothing. Without one a client's own command is never forwarded after a step, or it
//! might be executed twice. Only answers that cannot come from a step that has written give this proof: the check
//! before a step, an error by which Redis rejects the script itself, and the code `?` of our scripts.

use std::fmt::Write;

use lockwarden_resp::Value;

use super::{Answers, NotAnAnswer, Outcome};

/// The rights that a user lacks for a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Commands as ACLs name them.
    commands: Vec<String>,
    /// The names of the proxy's records.
    keys: bool,
}

impl Missing {
    /// Parses `{ 'Q', words }`: commands, and `~` for the names of records.
    pub(super) fn read(items: &[Value]) -> Result<Missing, NotAnAnswer> {
        let words = items.get(1).and_then(Value::as_bytes).ok_or(NotAnAnswer)?;
        let words = std::str::from_utf8(words).map_err(|_| NotAnAnswer)?;
        let mut missing = Missing::default();
        for word in words.split_ascii_whitespace() {
            match word {
                "~" => missing.keys = true,
                command => missing.commands.push(command.to_owned()),
            }
        }
        Ok(missing)
    }

    /// These commands, and the names of records if `keys` is true.
    pub fn new(commands: Vec<String>, keys: bool) -> Missing {
        Missing { commands, keys }
    }

    /// These commands.
    pub fn commands(commands: impl IntoIterator<Item = String>) -> Missing {
        Missing { commands: commands.into_iter().collect(), keys: false }
    }

    /// Whether nothing is known to be missing.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && !self.keys
    }

    /// Whether this command is among them.
    pub fn names(&self, command: &str) -> bool {
        self.commands.iter().any(|known| known == command)
    }

    /// The same, with this command added.
    #[must_use]
    pub fn and(mut self, command: &str) -> Missing {
        if !self.names(command) {
            self.commands.push(command.to_owned());
        }
        self
    }

    /// The same, without these commands.
    pub fn but(mut self, others: &[&str]) -> Missing {
        self.commands.retain(|command| !others.contains(&command.as_str()));
        self
    }

    /// The commands among it.
    pub fn names_of_commands(&self) -> &[String] {
        &self.commands
    }

    /// The commands, if only commands are missing.
    pub fn only_commands(&self) -> Option<&[String]> {
        (!self.keys).then_some(&self.commands[..])
    }

    /// The ACL rules that would grant these rights: `+time +setrange ~lw:*`.
    pub fn rules(&self, companion_prefix: &[u8]) -> String {
        let mut rules = String::new();
        for command in &self.commands {
            let _ = write!(rules, "+{command} ");
        }
        if self.keys {
            let _ = write!(rules, "~{}*", String::from_utf8_lossy(companion_prefix));
        }
        rules.trim_end().to_owned()
    }
}

/// Why a step has run nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The user lacks rights; which ones, as far as Redis reports them.
    NoRights(Missing),
    /// The server does not know EVAL or EVALSHA.
    NoScripts,
}

/// See the module. Made nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingRun(Why);

impl NothingRun {
    /// Why.
    pub fn why(&self) -> &Why {
        &self.0
    }
}

impl Why {
    /// Why a step that only reads has read nothing, from the error in place of its answer. `None` for any other error.
    pub fn of_reading(error: &[u8]) -> Option<Why> {
        turned_away(error).or_else(|| lacking(error).map(Why::NoRights))
    }
}

impl Answers {
    /// The proof that the step has run nothing, because of a missing right or missing scripts. `None` if it has run,
    /// may have run, or was refused by Redis for another reason, which is then the reply.
    pub fn nothing_run(&self) -> Option<NothingRun> {
        let why = match self {
            Answers::Lacking(missing) if !missing.is_empty() => Why::NoRights(missing.clone()),
            Answers::Error(text) => turned_away(text)?,
            Answers::One(one) if one.outcome == Outcome::Failed => {
                Why::NoRights(lacking(one.native.as_ref()?.as_error()?)?)
            }
            Answers::Lacking(_) | Answers::One(_) | Answers::Many(..) | Answers::Script(..) => {
                return None;
            }
        };
        Some(NothingRun(why))
    }
}

/// The meaning of an error by which Redis may have rejected a script. Errors raised inside a script begin differently:
/// a missing right is an `ERR` there.
fn turned_away(error: &[u8]) -> Option<Why> {
    if error.starts_with(b"ERR unknown command") {
        return Some(Why::NoScripts);
    }
    if !error.starts_with(b"NOPERM") {
        return None;
    }
    let missing = match named_command(error).as_deref() {
        Some("eval" | "evalsha") => Missing::commands(["eval".to_owned(), "evalsha".to_owned()]),
        Some(other) => Missing::commands([other.to_owned()]),
        None => Missing { commands: Vec::new(), keys: true },
    };
    Some(Why::NoRights(missing))
}

/// The command that may not be run, according to an error.
fn named_command(error: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(error);
    let (_, rest) = text.split_once("to run the '")?;
    rest.split_once('\'').map(|(name, _)| name.to_owned())
}

/// What a user lacks if Redis's ACLs stopped it inside a script; from 7.2 on the error names the command. `None` for
/// any other error.
fn lacking(error: &[u8]) -> Option<Missing> {
    if !contains(error, b"The user executing the script") && !contains(error, b"ACL failure in script") {
        return None;
    }
    Some(Missing { commands: named_command(error).into_iter().collect(), keys: contains(error, b"access") })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::outcome::read;

    fn why(value: &Value) -> Option<Why> {
        let proof = read(value).expect("an answer").nothing_run();
        proof.map(|proof| proof.why().clone())
    }

    fn error(text: &'static str) -> Value {
        Value::Error(Bytes::from_static(text.as_bytes()))
    }

    fn missing(rules: &str) -> Option<String> {
        Some(rules.to_owned())
    }

    fn rules(value: &Value) -> Option<String> {
        match why(value)? {
            Why::NoRights(missing) => Some(missing.rules(b"lw:")),
            Why::NoScripts => None,
        }
    }

    #[test]
    fn an_error_that_turns_the_script_away_proves_that_nothing_was_run() {
        for text in [
            "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
            "NOPERM User bob has no permissions to run the 'eval' command",
        ] {
            assert_eq!(rules(&error(text)), missing("+eval +evalsha"), "{text}");
        }
        for text in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            assert_eq!(rules(&error(text)), missing("~lw:*"), "{text}");
        }
        let renamed = error("ERR unknown command 'EVALSHA', with args beginning with: 'b04b' '2' ");
        assert_eq!(why(&renamed), Some(Why::NoScripts));
    }

    #[test]
    fn an_error_that_a_script_may_have_raised_halfway_proves_nothing() {
        for text in [
            "ERR ACL failure in script: User bob has no permissions to run the 'time' command script: 104a, on @user_script:1.",
            "ERR The user executing the script can't run this command or subcommand script: 104a, on @user_script:1.",
            "ERR Error running script (call to f_104a): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "BUSY Redis is busy running a script.",
        ] {
            assert_eq!(why(&error(text)), None, "{text}");
        }
    }

    #[test]
    fn a_step_whose_first_command_was_refused_has_run_nothing() {
        let text = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        let answer = |code: &'static str, words: &'static str| Value::Array(vec![text(code), error(words), text("")]);
        let old = "ERR The user executing the script can't run this command or subcommand";
        assert_eq!(rules(&answer("?", old)), missing(""));
        let new = "ERR ACL failure in script: User bob has no permissions to run the 'del' command";
        assert_eq!(rules(&answer("?", new)), missing("+del"));
        assert_eq!(why(&answer("U", new)), None, "it has run something");
        assert_eq!(why(&answer("?", "WRONGTYPE of another kind")), None);
    }

    #[test]
    fn the_check_names_what_is_missing() {
        let answer = |words: &'static str| {
            let text = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
            Value::Array(vec![text("Q"), text(words)])
        };
        assert_eq!(rules(&answer("time memory|usage ~")), missing("+time +memory|usage ~lw:*"));
        // Nothing is missing, so the step must be sent without the check.
        assert_eq!(why(&answer("")), None);
    }
}
