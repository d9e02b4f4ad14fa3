//! Calls of scripts and functions that declare no lock but may reach one all the same: their text computes key names,
//! or is unknown. Each type decides itself when it may be forwarded.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwarden_resp::Request;

use crate::op::{Arguments, OpaqueCommand, OpaqueKind, Target};
use crate::pass_through::{Kept, PassThrough};
use crate::rules::Mode;
use crate::script_facts::ScriptFacts;
use crate::scripts::guard::Guard;

/// How scripts are treated that compute key names which may be locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComputedNames {
    /// They run unchanged: the operator wants it so, or nothing is a lock.
    Forward,
    /// They run behind a guard. It refuses where a namespace enforces, and otherwise records what it would refuse.
    Watch(Arc<Guard>),
    /// They are refused where a namespace enforces.
    Deny {
        /// Whether any namespace enforces.
        enforces: bool,
    },
}

impl ComputedNames {
    /// Whether any such call may be refused.
    pub fn refuses(&self) -> bool {
        match self {
            ComputedNames::Forward => false,
            ComputedNames::Watch(guard) => guard.enforces(),
            ComputedNames::Deny { enforces } => *enforces,
        }
    }

    /// Whether such a call runs unchanged in a namespace with this mode.
    fn lets_run(&self, mode: Mode) -> bool {
        mode == Mode::Monitor || *self == ComputedNames::Forward
    }
}

/// A call of a script that declares no lock, but may compute the name of one.
#[derive(Clone, Debug)]
pub struct ComputedScript {
    /// The command's name in the table.
    pub name: &'static str,
    /// The script.
    pub script: Arc<ScriptFacts>,
    /// The possible locks: a namespace, and the form of the names.
    pub target: Target,
    /// Whether every name of that form is a lock in a namespace with this mode.
    pub is_certain: bool,
    /// The client's own arguments.
    pub argv: Arguments,
    /// The client's own bytes.
    pub(super) frame: Bytes,
}

impl ComputedScript {
    /// Permission to forward it if nothing is refused, or if the operator lets such scripts run; `mode` is that of its
    /// target's namespace.
    pub fn forward(&self, mode: Mode, computed: &ComputedNames) -> Option<PassThrough<'_>> {
        (computed.lets_run(mode)).then(|| PassThrough::of(&self.frame, false))
    }

    /// Permission to forward a script whose text the server's Lua does not accept, and that contains no `end`. Older
    /// servers make a function by appending an `end` to the text, so this text cannot close that function early, and
    /// Redis best reports the error itself.
    pub fn forward_unsound(&self) -> Option<PassThrough<'_>> {
        let speaks_of_an_end = self.script.text.windows(3).any(|three| three == b"end");
        (!speaks_of_an_end && !self.script.compiles()).then(|| PassThrough::of(&self.frame, false))
    }

    /// The same call as a command without a lock meaning, for its refusal.
    pub fn opaque(&self) -> Box<OpaqueCommand> {
        Box::new(OpaqueCommand {
            name: self.name,
            target: self.target.clone(),
            kind: OpaqueKind::Script,
            frame: self.frame.clone(),
        })
    }
}

/// `FCALL` without a lock key, of a function that computes key names or is unknown.
#[derive(Debug)]
pub struct FunctionCall {
    pub(super) command: Box<OpaqueCommand>,
}

impl FunctionCall {
    /// The call, for its refusal.
    pub fn command(&self) -> &OpaqueCommand {
        &self.command
    }

    /// The same.
    pub fn into_command(self) -> Box<OpaqueCommand> {
        self.command
    }

    /// Permission to forward it if nothing is refused, or if the operator lets such functions run; `mode` is that of
    /// its target's namespace.
    pub fn forward(&self, mode: Mode, computed: &ComputedNames) -> Option<PassThrough<'_>> {
        (computed.lets_run(mode)).then(|| PassThrough::of(&self.command.frame, false))
    }

    /// Permission to forward it if the server was asked and does not know the function either, or does not run it for
    /// this client: then Redis reports that.
    pub fn forward_unlisted(&self) -> PassThrough<'_> {
        PassThrough::of(&self.command.frame, false)
    }
}

/// `EVALSHA` without a lock key, of a text that this proxy has not seen.
#[derive(Debug)]
pub struct UnseenScript {
    frame: Bytes,
    sha: Range<usize>,
}

/// As long as a script's digest, but the digest of no script.
const NO_SCRIPT: &[u8] = &[b'0'; 40];

impl UnseenScript {
    pub(super) fn of(request: &Request<'_>) -> UnseenScript {
        let (frame, sha) = (request.frame(), request.arg(1));
        let at = sha.as_ptr() as usize - frame.as_ptr() as usize;
        UnseenScript { frame: Bytes::copy_from_slice(frame), sha: at..at + sha.len() }
    }

    /// The script's digest as the client gave it.
    pub fn sha(&self) -> &[u8] {
        &self.frame[self.sha.clone()]
    }

    /// Permission to forward it: unchanged if scripts that compute names run unchanged. Otherwise with the digest of a
    /// script that does not exist, so that Redis reports in its own words that there is none. If the text is loaded
    /// meanwhile, it does not run.
    pub fn forward(&self, computed: &ComputedNames) -> Kept {
        if !computed.refuses() || self.sha.len() != NO_SCRIPT.len() {
            return Kept::of(self.frame.clone());
        }
        let mut frame = BytesMut::from(&self.frame[..]);
        frame[self.sha.clone()].copy_from_slice(NO_SCRIPT);
        Kept::of(frame.freeze())
    }
}

#[cfg(test)]
mod tests {
    use lockwarden_resp::OwnedRequest;

    use super::*;

    #[test]
    fn a_script_that_nobody_has_seen_is_asked_for_by_the_name_of_none() {
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        for (sha, sent) in [(sha, &"0".repeat(40)), ("e0e1", &"e0e1".to_owned())] {
            let words = |sha: &str| OwnedRequest::new(["evalSHA", sha, "1", "k"].map(str::to_owned));
            let request = words(sha);
            let unseen = UnseenScript::of(&request.request());
            assert_eq!(unseen.sha(), sha.as_bytes());
            let expected = words(sent);
            let kept = unseen.forward(&ComputedNames::Deny { enforces: true });
            assert_eq!(kept.pass().frame(), expected.request().frame());
            let kept = unseen.forward(&ComputedNames::Forward);
            assert_eq!(kept.pass().frame(), request.request().frame());
        }
    }
}
