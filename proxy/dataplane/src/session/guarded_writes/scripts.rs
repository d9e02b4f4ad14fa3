//! Scripts that write guarded data. A script that names a lock is judged in the step that runs it, key by key; any
//! other script is judged as every command. What a script writes is known from the keys that it declares, and from
//! its text with the arguments of the call. If that shows only how a name begins and ends, the call is counted, and
//! goes on.

use std::time::Instant;

use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::GuardUnchecked;
use lockwarden_lock::classify::Class;
use lockwarden_lock::data_guard::{DataGuards, ScriptData};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::op::{Command, LockCommand, LockOp};
use lockwarden_lock::outcome::Answers;
use lockwarden_lock::script_facts::{ScriptSha, may_write};
use lockwarden_lock::table::{Lookup, lookup};
use lockwarden_lua::Names;
use lockwarden_resp::Request;

use super::{GuardedWrite, MAX_LOCKS, is_script};
use crate::session::Session;
use crate::session::client::Client;
use crate::session::transport::Muted;

/// What a script may write beside the keys that it declares.
#[derive(Default)]
pub(super) struct Written {
    /// Whole names.
    pub(super) named: Vec<Vec<u8>>,
    /// For names that only the run shows: how each begins and ends.
    computed: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Written {
    /// For a script of which nothing is known.
    fn anything() -> Written {
        Written { named: Vec::new(), computed: vec![(Vec::new(), Vec::new())] }
    }

    /// Computed from the names in a text, for a call with these words.
    fn of(names: &Names, keys: &[&[u8]], arguments: &[&[u8]]) -> Written {
        let is_any = *names == Names::Computed || names.commands_in_call(arguments).any(may_write);
        let mut written = match is_any {
            true => Written::anything(),
            false => Written::default(),
        };
        names.in_call(keys, arguments, &mut |pattern| match pattern.exact() {
            Some(name) if written.named.len() < MAX_LOCKS => written.named.push(name.to_vec()),
            Some(_) | None => {
                let ends = (pattern.beginning().to_vec(), pattern.ending().to_vec());
                written.computed.push(ends);
            }
        });
        written
    }

    /// The guards that may cover a name that only the run shows.
    fn perhaps<'a>(&'a self, guards: &'a DataGuards) -> impl Iterator<Item = usize> + 'a {
        let mut found: Vec<usize> =
            self.computed.iter().flat_map(|(beginning, ending)| guards.may_be_about(beginning, ending)).collect();
        found.sort_unstable();
        found.dedup();
        found.into_iter()
    }
}

impl Client {
    /// What a script may write beside the keys that it declares; empty for any other command.
    pub(super) fn written_by_script(&self, request: &Request<'_>) -> Written {
        let name = match lookup(request) {
            Lookup::Known(spec) if is_script(spec.name) => spec.name,
            Lookup::Known(_) | Lookup::UnknownSubcommand | Lookup::Unknown => {
                return Written::default();
            }
        };
        let count = request.get(2).and_then(|word| std::str::from_utf8(word).ok());
        let words: Vec<&[u8]> = request.args().skip(3).collect();
        let split = count.and_then(|count| count.parse().ok()).and_then(|count| words.split_at_checked(count));
        // Redis refuses such a call.
        let Some((keys, arguments)) = split else {
            return Written::default();
        };
        let text = request.get(1).unwrap_or_default();
        let facts = match name {
            "eval" => Some(self.shared.script_cache.saw(text)),
            "evalsha" => ScriptSha::from_hex(text).and_then(|sha| self.shared.script_cache.get(&sha)),
            _ => {
                let library = self.shared.functions.get(text);
                return match library {
                    Some(names) => Written::of(&names, keys, arguments),
                    None => Written::anything(),
                };
            }
        };
        match facts {
            Some(facts) if facts.analysis.no_writes => Written::default(),
            Some(facts) => Written::of(&facts.analysis.names, keys, arguments),
            None => Written::anything(),
        }
    }

    /// Counts a script that may write guarded data whose names only its run shows: it is not checked.
    pub(crate) fn count_computed_data(&mut self, class: &Class<'_>, request: &Request<'_>) {
        let is_refused = matches!(class, Class::Opaque(_) | Class::Error(_) | Class::TooLong(..));
        let is_known = || matches!(lookup(request), Lookup::Known(spec) if is_script(spec.name));
        if is_refused || !is_known() {
            return;
        }
        let written = self.written_by_script(request);
        let guards = self.active.load().guards.clone();
        for guard in written.perhaps(&guards.index) {
            let unchecked = &guards.details[guard].metrics.unchecked;
            unchecked.at(GuardUnchecked::ComputedNames).inc();
        }
    }

    /// Has the step of a script judge what the script may write of guarded data.
    pub(crate) fn judge_in_step(&mut self, command: &mut LockCommand, write: GuardedWrite) {
        let active = self.active();
        let LockOp::Wrapped { data, .. } = &mut command.op else {
            return;
        };
        let (db, now) = (self.connection.db(), Instant::now());
        let writer = |lock: &Vec<u8>| {
            let key = DbKey::new(db, lock);
            let own = self.evidence.own(&key, now).map(|own| own.grant);
            let namespace = active.namespaces.find(lock);
            (own, namespace.map(|namespace| active.rules(namespace)))
        };
        let keys = write.keys.into_iter().map(|guarded| {
            let guard = &active.guards.details[guarded.guard];
            ScriptData {
                enforced: guard.enforces(),
                by_identity: guard.rules.by_identity,
                unlocked: guard.rules.unlocked,
                writers: guarded.locks.iter().map(writer).collect(),
                guarded,
            }
        });
        *data = keys.collect();
    }

    /// Counts and reports the verdicts of a script's step on the guarded data that the script may write; returns the
    /// error line if the script was refused for that.
    pub(crate) fn told_of_data(
        &mut self,
        op: &LockOp,
        command: &'static str,
        answers: &Answers,
        active: &Active,
    ) -> Option<String> {
        let said = answers.data()?;
        let mut line = None;
        for (place, (data, verdict)) in op.data().iter().zip(&said.verdicts).enumerate() {
            let Some(verdict) = *verdict else {
                continue;
            };
            let is_why = said.refused == Some(place);
            // If the script was put back for another reason, nothing of it was written.
            if data.enforced && !is_why && !verdict.passes() {
                continue;
            }
            let lock = data.guarded.locks.first().map_or(&[][..], |lock| &lock[..]);
            let told = self.said_to(command, &data.guarded, (verdict, lock, None), active);
            line = line.or(told.filter(|_| is_why));
        }
        line
    }
}

impl Session {
    /// A script whose guarded data was to be judged in its step is sent to Redis without that. Returns whether it was
    /// refused instead; then its client was told so.
    pub(crate) fn data_goes_unjudged(&mut self, command: &Command, active: &Active, muted: Muted) -> bool {
        let Command::Lock(command) = command else {
            return false;
        };
        let keys: Vec<_> = command.op.data().iter().map(|data| data.guarded.clone()).collect();
        let why = GuardUnchecked::WithLocks;
        let write = GuardedWrite { command: command.name, keys, unchecked: Some(why), into: None };
        !write.keys.is_empty() && self.cannot_check(&write, why, active, muted)
    }
}
