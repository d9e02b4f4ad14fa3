//! Whether the server is the primary. This is asked at each heartbeat, so that the proxy leaves a server that was
//! made a replica, and finds the one that took its place behind the same name.

use lockwarden_resp::Value;
use memchr::memmem;

use crate::backend::conversation::{BackendError, Conversation};
use crate::backend::info::info_field;

/// The role of a server in replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It replicates another server.
    Replica,
    /// It replicates another server and takes writes nevertheless, as that one does: `replica-read-only no`, or
    /// KeyDB's `active-replica yes`.
    WritableReplica,
    /// It does not say.
    Unknown,
}

/// The question that a server answers with its role. A question that a server refuses is not asked again on the same
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleQuestion {
    /// `HELLO`: every user may send it, and a server answers it even while it is loading, busy with a script, or cut
    /// off from its primary.
    Hello,
    /// `ROLE`, for servers that do not know `HELLO`.
    Role,
    /// `INFO replication`.
    Info,
    /// There is none.
    Nothing,
}

impl RoleQuestion {
    /// Asks for the role; remembers which question the server answers.
    pub async fn ask(&mut self, own: &mut Conversation) -> Result<Role, BackendError> {
        while let Some(words) = self.words() {
            let answer = own.ask(words).await?;
            match self.read(&answer) {
                Some(Role::Replica) if takes_writes(own).await? => return Ok(Role::WritableReplica),
                Some(role) => return Ok(role),
                None => *self = self.next(),
            }
        }
        Ok(Role::Unknown)
    }

    /// The request; `None` if there is no question left.
    pub fn words(self) -> Option<&'static [&'static str]> {
        match self {
            RoleQuestion::Hello => Some(&["HELLO"]),
            RoleQuestion::Role => Some(&["ROLE"]),
            RoleQuestion::Info => Some(&["INFO", "replication"]),
            RoleQuestion::Nothing => None,
        }
    }

    fn next(self) -> RoleQuestion {
        match self {
            RoleQuestion::Hello => RoleQuestion::Role,
            RoleQuestion::Role => RoleQuestion::Info,
            RoleQuestion::Info | RoleQuestion::Nothing => RoleQuestion::Nothing,
        }
    }

    /// The role that a reply gives; `None` if this question is of no use with this server.
    pub fn read(self, answer: &Value) -> Option<Role> {
        if let Some(error) = answer.as_error() {
            return match is_of_replica(error) {
                true => Some(Role::Replica),
                false => is_for_now(error).then_some(Role::Unknown),
            };
        }
        let word = match self {
            RoleQuestion::Hello => field(answer, b"role")?,
            RoleQuestion::Role => answer.as_items()?.first()?.as_bytes()?,
            RoleQuestion::Info => {
                let info = answer.as_bytes()?;
                let mut lines = info.split(|byte| *byte == b'\n');
                lines.find_map(|line| line.strip_prefix(b"role:"))?
            }
            RoleQuestion::Nothing => return None,
        };
        match word.trim_ascii() {
            b"master" | b"primary" => Some(Role::Primary),
            b"slave" | b"replica" => Some(Role::Replica),
            b"active-replica" => Some(Role::WritableReplica),
            _ => None,
        }
    }
}

/// Whether a replica takes writes, as far as it says so.
async fn takes_writes(own: &mut Conversation) -> Result<bool, BackendError> {
    let answer = own.ask(&["INFO", "replication"]).await?;
    let info = answer.as_bytes().map(|info| String::from_utf8_lossy(info));
    Ok(info.is_some_and(|info| info_field(&info, "slave_read_only:") == Some("0")))
}

/// Whether a reply to `HELLO` is that of a node of a cluster.
pub(super) fn is_cluster_node(hello: &Value) -> bool {
    field(hello, b"mode") == Some(b"cluster")
}

/// The value of a field of a map, which under RESP2 is an array.
fn field<'a>(map: &'a Value, name: &[u8]) -> Option<&'a [u8]> {
    let is_named = |key: &Value| key.as_bytes().is_some_and(|key| key == name);
    let value = match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_named(key)).map(|(_, of)| of),
        _ => {
            let mut pairs = map.as_items()?.chunks_exact(2);
            pairs.find(|pair| is_named(&pair[0])).map(|pair| &pair[1])
        }
    };
    value?.as_bytes().map(|bytes| &bytes[..])
}

/// Whether an error is one that only a replica gives, alone or inside the error of a script.
pub fn is_of_replica(error: &[u8]) -> bool {
    error.starts_with(b"READONLY ")
        || error.starts_with(b"MASTERDOWN ")
        || memmem::find(error, b" -READONLY ").is_some()
        || memmem::find(error, b" -MASTERDOWN ").is_some()
}

/// Whether an error is about what the server is doing now, and not about the user or the command.
pub fn is_for_now(error: &[u8]) -> bool {
    error.starts_with(b"LOADING ") || error.starts_with(b"BUSY ")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn text(text: &'static str) -> Value {
        Value::Bulk(Bytes::from_static(text.as_bytes()))
    }

    fn error(text: &'static str) -> Value {
        Value::Error(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn every_question_tells_a_replica_from_a_primary() {
        let hello = |role| Value::Array(vec![text("mode"), text("standalone"), text("role"), text(role)]);
        let map = Value::Map(vec![(text("role"), text("replica"))]);
        for (question, answer, expected) in [
            (RoleQuestion::Hello, hello("master"), Some(Role::Primary)),
            (RoleQuestion::Hello, hello("replica"), Some(Role::Replica)),
            (RoleQuestion::Hello, map, Some(Role::Replica)),
            (RoleQuestion::Hello, hello("active-replica"), Some(Role::WritableReplica)),
            (RoleQuestion::Role, Value::Array(vec![text("active-replica")]), Some(Role::WritableReplica)),
            (RoleQuestion::Info, text("# Replication\r\nrole:active-replica\r\n"), Some(Role::WritableReplica)),
            (RoleQuestion::Hello, error("ERR unknown command 'HELLO'"), None),
            (RoleQuestion::Hello, Value::Array(vec![text("proto")]), None),
            (RoleQuestion::Role, Value::Array(vec![text("master")]), Some(Role::Primary)),
            (RoleQuestion::Role, Value::Array(vec![text("slave")]), Some(Role::Replica)),
            (RoleQuestion::Role, error("NOPERM no"), None),
            (RoleQuestion::Role, error("BUSY Redis is busy"), Some(Role::Unknown)),
            (RoleQuestion::Role, error("MASTERDOWN Link with MASTER is down"), Some(Role::Replica)),
            (RoleQuestion::Info, text("# Replication\r\nrole:slave\r\nx:1\r\n"), Some(Role::Replica)),
            (RoleQuestion::Info, text("# Replication\r\nrole:master\r\n"), Some(Role::Primary)),
            (RoleQuestion::Info, text(""), None),
        ] {
            assert_eq!(question.read(&answer), expected, "{question:?} {answer:?}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_says_so_to_whoever_greets_it() {
        let hello = |mode| Value::Array(vec![text("mode"), text(mode), text("role"), text("master")]);
        assert!(is_cluster_node(&hello("cluster")));
        assert!(!is_cluster_node(&hello("standalone")));
        assert!(!is_cluster_node(&error("ERR unknown command 'HELLO'")));
    }

    #[test]
    fn errors_of_a_replica_are_known_also_inside_a_scripts() {
        for (error, expected) in [
            ("READONLY You can't write against a read only replica.", true),
            ("MASTERDOWN Link with MASTER is down", true),
            ("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write", true),
            ("ERR READONLY", false),
            ("NOREPLICAS Not enough good replicas to write.", false),
        ] {
            assert_eq!(is_of_replica(error.as_bytes()), expected, "{error}");
        }
    }
}
