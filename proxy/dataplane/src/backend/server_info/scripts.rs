//! Whether the server runs scripts, without which no lock can be governed. It may lack the commands for them, refuse
//! them, or have ceased to run any: in cluster mode Valkey 9.1 runs no script any more after one script with a
//! command over two slots, until it is started again.

use lockwarden_lock::companion::Home;
use lockwarden_lock::scripts::ONLY_READS;
use lockwarden_resp::Value;

use crate::backend::conversation::{BackendError, Conversation};
use crate::backend::rights::lacks_rights;

/// Reads a key and returns only that it could.
const READS: &str = "redis.call('EXISTS', KEYS[1]) return 1";

/// Whether the server runs scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scripts {
    /// It does, as far as has been seen.
    Run,
    /// It knows no `EVAL`, or no `EVALSHA`.
    Unknown,
    /// It knows them, and refused a script to every user.
    Refused,
}

/// A row of `COMMAND INFO` for a command that is not there.
pub(super) fn is_missing(row: &Value) -> bool {
    row.as_items().is_none_or(<[Value]>::is_empty)
}

/// Whether the server knows the commands for scripts by their names. A server that does not say is assumed to.
pub(crate) async fn ask_for_scripts(own: &mut Conversation) -> Result<Scripts, BackendError> {
    let found = own.ask(&["COMMAND", "INFO", "EVAL", "EVALSHA"]).await?;
    Ok(match found.as_items() {
        Some(rows) if rows.iter().any(is_missing) => Scripts::Unknown,
        Some(_) | None => Scripts::Run,
    })
}

/// Runs a script with a key, which is flagged as read-only: so it does not wait while writes are paused, and a full
/// server runs it. Returns the error of a server that runs no script.
pub(crate) async fn refusal_of_scripts(own: &mut Conversation, home: Home) -> Result<Option<String>, BackendError> {
    let text = [ONLY_READS, READS].concat();
    let answer = own.ask(&[b"EVAL", text.as_bytes(), b"1", &home.prefix_mark()[..]]).await?;
    Ok(refusal(&answer))
}

/// Whether a reply is that of a server that runs no script. Every other error is about this user, or about this
/// moment.
fn refusal(answer: &Value) -> Option<String> {
    let error = String::from_utf8_lossy(answer.as_error()?).into_owned();
    let is_about_scripts = error.starts_with("ERR ") && !error.starts_with("ERR unknown command");
    (is_about_scripts && !lacks_rights(&error)).then_some(error)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_an_error_about_scripts_says_that_none_is_run() {
        for (error, expected) in [
            ("ERR Script attempted to access keys that do not hash to the same slot script: on @user_script:1.", true),
            ("ERR scripts are not part of this plan", true),
            ("ERR unknown command 'EVAL', with args beginning with: ", false),
            (
                "ERR The user executing the script can't run this command or subcommand script: on @user_script:2.",
                false,
            ),
            ("NOPERM this user has no permissions to run the 'eval' command", false),
            ("NOAUTH Authentication required.", false),
            ("BUSY Redis is busy running a script.", false),
            ("LOADING Redis is loading the dataset in memory", false),
            ("MOVED 15612 127.0.0.1:7001", false),
        ] {
            let answer = Value::Error(Bytes::from_static(error.as_bytes()));
            assert_eq!(refusal(&answer).is_some(), expected, "{error}");
        }
        assert_eq!(refusal(&Value::Integer(1)), None);
    }
}
