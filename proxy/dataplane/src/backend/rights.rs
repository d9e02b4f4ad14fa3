//! What is known of the rights of ACL users: which steps a user may run in which namespace. It is learned from
//! replies and kept for all sessions of the proxy, but only for a while, because an operator may change the rights.
//! It decides nothing by itself: a step whose rights are not known to suffice checks them first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dashmap::DashMap;
use lockwarden_lock::outcome::Missing;
use lockwarden_lock::plan::Needs;

/// After this time rights that sufficed are checked again.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// After this time rights that were missing are checked again.
const LACKING_FOR: Duration = Duration::from_secs(10);
/// Users that are remembered; any of them may be forgotten, since a check costs little.
const MAX_USERS: usize = 4_096;
/// Kinds of steps that are remembered for one user.
const MAX_STEPS: usize = 256;

/// What is known of one user's rights for one kind of step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    Nothing,
    /// They suffice.
    Good,
    /// They sufficed at the last check, which was a while ago.
    Stale,
    /// Something is missing.
    Lacking(Arc<Missing>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Rights {
    users: DashMap<Bytes, User>,
}

/// Whether a user can wait for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayWait {
    Yes,
    /// It lacks the right to `WAIT`.
    NoRight,
    /// The server has no such command.
    Unknown,
}

impl MayWait {
    /// What a reply to `WAIT` says; `None` if it is about something else.
    pub(crate) fn of(answer: &[u8]) -> Option<MayWait> {
        match answer.first() {
            Some(b':') => Some(MayWait::Yes),
            Some(b'-') if answer.starts_with(b"-NOPERM") => Some(MayWait::NoRight),
            Some(b'-') if answer.starts_with(b"-ERR unknown command") => Some(MayWait::Unknown),
            _ => None,
        }
    }
}

#[derive(Default)]
struct User {
    /// Whether the user can wait for replicas, and since when that is known.
    waits: Option<(MayWait, Instant)>,
    /// Since when the user is known to have all rights that exist, for any lock.
    everything: Option<Instant>,
    steps: Vec<Entry>,
}

struct Entry {
    /// The namespace's name object in the configuration that was in force: under another configuration nothing is
    /// known of it yet, since its keys may be others.
    namespace: Arc<str>,
    needs: Needs,
    lacking: Option<Arc<Missing>>,
    since: Instant,
}

impl Entry {
    fn is_of(&self, namespace: &Arc<str>, needs: Needs) -> bool {
        Arc::ptr_eq(&self.namespace, namespace) && self.needs == needs
    }
}

/// Whether Redis's ACLs stopped a command: alone, or in a script; for the latter, 7.2 introduced new words.
pub(crate) fn lacks_rights(error: &str) -> bool {
    error.starts_with("NOPERM")
        || error.contains("The user executing the script")
        || error.contains("ACL failure in script")
}

impl Rights {
    /// What is known of a step; and how long that holds, if it is good.
    pub(crate) fn known(&self, user: &[u8], namespace: &Arc<str>, needs: Needs, now: Instant) -> (Known, Instant) {
        let Some(user) = self.users.get(user) else {
            return (Known::Nothing, now);
        };
        let is_it = |entry: &&Entry| entry.is_of(namespace, needs);
        let entry = user.steps.iter().find(is_it);
        if let Some(entry) = entry
            && let Some(missing) = &entry.lacking
        {
            return match now < entry.since + LACKING_FOR {
                true => (Known::Lacking(missing.clone()), now),
                false => (Known::Nothing, now),
            };
        }
        match entry.map(|entry| entry.since).max(user.everything) {
            Some(since) if now < since + GOOD_FOR => (Known::Good, since + GOOD_FOR),
            Some(_) => (Known::Stale, now),
            None => (Known::Nothing, now),
        }
    }

    /// A step that had checked its rights was run.
    pub(crate) fn suffice(&self, user: &Bytes, namespace: &Arc<str>, needs: Needs, now: Instant) {
        self.put(user, namespace, needs, None, now);
    }

    /// A step was not run for lack of rights. Returns whether that is news.
    pub(crate) fn lack(
        &self,
        user: &Bytes,
        namespace: &Arc<str>,
        needs: Needs,
        missing: Missing,
        now: Instant,
    ) -> bool {
        self.put(user, namespace, needs, Some(missing.into()), now)
    }

    /// This user has all rights that any step takes, for any lock.
    pub(crate) fn has_everything(&self, user: &Bytes, now: Instant) {
        let mut user = self.user(user);
        user.everything = Some(now);
        user.steps.retain(|entry| entry.lacking.is_none());
    }

    /// Whether this user has ever been seen to run a step.
    pub(crate) fn runs_scripts(&self, user: &[u8]) -> bool {
        let user = self.users.get(user);
        user.is_some_and(|user| user.everything.is_some() || user.steps.iter().any(|entry| entry.lacking.is_none()))
    }

    /// Whether this user can wait for replicas, if that is known.
    pub(crate) fn may_wait(&self, user: &[u8], now: Instant) -> Option<MayWait> {
        let (may, since) = self.users.get(user)?.waits?;
        let good_for = match may {
            MayWait::Yes => GOOD_FOR,
            MayWait::NoRight | MayWait::Unknown => LACKING_FOR,
        };
        (now < since + good_for).then_some(may)
    }

    /// It was found whether this user can. Returns whether that is news.
    pub(crate) fn learn_to_wait(&self, user: &Bytes, may: MayWait, now: Instant) -> bool {
        let before = self.user(user).waits.replace((may, now));
        before.is_none_or(|(before, _)| before != may)
    }

    /// What was known of this user is not true any more.
    pub(crate) fn forget(&self, user: &[u8]) {
        self.users.remove(user);
    }

    fn put(
        &self,
        user: &Bytes,
        namespace: &Arc<str>,
        needs: Needs,
        lacking: Option<Arc<Missing>>,
        since: Instant,
    ) -> bool {
        let mut user = self.user(user);
        if lacking.is_some() {
            user.everything = None;
        }
        let entry = Entry { namespace: namespace.clone(), needs, lacking, since };
        let place = user.steps.iter().position(|known| known.is_of(namespace, needs));
        match place {
            Some(at) => {
                let before = std::mem::replace(&mut user.steps[at], entry);
                before.lacking != user.steps[at].lacking
            }
            None => {
                if user.steps.len() >= MAX_STEPS {
                    // The next step finds out again what is forgotten, so no order is kept.
                    user.steps.clear();
                }
                user.steps.push(entry);
                true
            }
        }
    }

    fn user(&self, user: &Bytes) -> dashmap::mapref::one::RefMut<'_, Bytes, User> {
        if self.users.len() >= MAX_USERS && !self.users.contains_key(user) {
            self.users.clear();
        }
        // A copy: a slice of a request would keep the whole of it in memory.
        self.users.entry(Bytes::copy_from_slice(user)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    fn needs(name: &'static str) -> Needs {
        Needs::of_flush(name)
    }

    fn missing() -> Missing {
        Missing::commands(["time".to_owned()])
    }

    #[test]
    fn what_is_known_is_known_for_a_while() {
        let (rights, bob, now) = (Rights::default(), Bytes::from_static(b"bob"), Instant::now());
        let here = name("orders");
        let known = |needs, now| rights.known(b"bob", &here, needs, now).0;
        assert_eq!(known(needs("del"), now), Known::Nothing);
        rights.suffice(&bob, &here, needs("del"), now);
        assert_eq!(known(needs("del"), now), Known::Good);
        assert_eq!(known(needs("unlink"), now), Known::Nothing, "another command");
        assert_eq!(rights.known(b"bob", &name("orders"), needs("del"), now).0, Known::Nothing, "another configuration");
        assert_eq!(known(needs("del"), now + GOOD_FOR), Known::Stale);
        assert!(rights.lack(&bob, &here, needs("del"), missing(), now));
        assert!(!rights.lack(&bob, &here, needs("del"), missing(), now), "that was known");
        assert_eq!(known(needs("del"), now), Known::Lacking(missing().into()));
        assert_eq!(known(needs("del"), now + LACKING_FOR), Known::Nothing);
    }

    #[test]
    fn who_may_do_everything_may_until_something_is_missing() {
        let (rights, bob, now) = (Rights::default(), Bytes::from_static(b"bob"), Instant::now());
        let here = name("orders");
        let known = |needs| rights.known(b"bob", &here, needs, now).0;
        rights.has_everything(&bob, now);
        assert_eq!(known(needs("del")), Known::Good);
        rights.lack(&bob, &here, needs("del"), missing(), now);
        assert_eq!(known(needs("unlink")), Known::Nothing);
        rights.has_everything(&bob, now);
        assert_eq!(known(needs("del")), Known::Good);
        rights.forget(b"bob");
        assert_eq!(known(needs("del")), Known::Nothing);
    }

    #[test]
    fn the_memory_is_bounded() {
        let (rights, now, here) = (Rights::default(), Instant::now(), name("orders"));
        for number in 0..MAX_USERS + 10 {
            rights.suffice(&number.to_string().into(), &here, needs("del"), now);
        }
        assert!(rights.users.len() <= MAX_USERS);
        let bob = Bytes::from_static(b"bob");
        for number in 0..MAX_STEPS + 10 {
            rights.suffice(&bob, &name(&number.to_string()), needs("del"), now);
        }
        assert!(rights.users.get(&bob).is_some_and(|user| user.steps.len() <= MAX_STEPS));
    }
}
