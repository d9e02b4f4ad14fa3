//! Calls of scripts and functions that declare no lock and may reach one all the same: their text computes
//! names of keys, or is not known. Each says itself where it may be forwarded.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwarden_resp::Request;

use crate::op::{Arguments, OpaqueCommand, OpaqueKind, Target};
use crate::pass_through::{Kept, PassThrough};
use crate::rules::Mode;
use crate::script_facts::ScriptFacts;
use crate::scripts::guard::Guard;

/// What is done with scripts that compute names of keys, where those may be locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComputedNames {
    /// They run as they are: their operator wants it so, or nothing is a lock.
    Forward,
    /// They run behind a guard, which refuses where a namespace enforces, and else notes what it would refuse.
    Watch(Arc<Guard>),
    /// They are refused where a namespace enforces.
    Deny {
        /// Whether any does.
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

    /// Whether such a call runs as it is, in a namespace of this mode.
    fn lets_run(&self, mode: Mode) -> bool {
        mode == Mode::Monitor || *self == ComputedNames::Forward
    }
}

/// A call of a script that declares no lock, and may compute the name of one.
#[derive(Clone, Debug)]
pub struct ComputedScript {
    /// The command's name as the table has it.
    pub name: &'static str,
    /// The script.
    pub script: Arc<ScriptFacts>,
    /// Which locks: a namespace, and how the names may look.
    pub target: Target,
    /// Whether every name that may look so is that of a lock of this namespace's mode.
    pub is_certain: bool,
    /// The client's own words.
    pub argv: Arguments,
    /// The client's own bytes.
    pub(super) frame: Bytes,
}

impl ComputedScript {
    /// Leave to forward it where nothing is refused, or its operator lets such scripts run; `mode` is that of its
    /// target's namespace.
    pub fn forward(&self, mode: Mode, computed: &ComputedNames) -> Option<PassThrough<'_>> {
        (computed.lets_run(mode)).then(|| PassThrough::of(&self.frame, false))
    }

    /// Leave to forward a script whose text the server's Lua does not take, and that has no `end`. Older servers
    /// make a function of a text by putting it before an `end`, so this one cannot close that function, and Redis
    /// says best what is wrong with it.
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

/// `FCALL` without a lock key, of a function that computes names of keys or is not known.
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

    /// Leave to forward it where nothing is refused, or its operator lets such functions run; `mode` is that of its
    /// target's namespace.
    pub fn forward(&self, mode: Mode, computed: &ComputedNames) -> Option<PassThrough<'_>> {
        (computed.lets_run(mode)).then(|| PassThrough::of(&self.command.frame, false))
    }

    /// Leave to forward it where the server was asked and does not know the function either, or does not run
    /// it for this client: Redis says so.
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

/// As long as a script's name, and that of none.
const NO_SCRIPT: &[u8] = &[b'0'; 40];

impl UnseenScript {
    pub(super) fn of(request: &Request<'_>) -> UnseenScript {
        let (frame, sha) = (request.frame(), request.arg(1));
        let at = sha.as_ptr() as usize - frame.as_ptr() as usize;
        UnseenScript { frame: Bytes::copy_from_slice(frame), sha: at..at + sha.len() }
    }

    /// The script's name as the client gave it.
    pub fn sha(&self) -> &[u8] {
        &self.frame[self.sha.clone()]
    }

    /// Leave to forward it: as it came where scripts that compute names run as they are. Else with the name of a
    /// script that does not exist, about which Redis says in its own words that there is none. Should the text be loaded
    /// meanwhile, it is not this one that runs.
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
