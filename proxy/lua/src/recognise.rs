//! From the traces of a script in each state of the lock to the one recipe that does the same. A script is a recipe
//! only if all states agree on it.

use bytes::Bytes;

use super::interpreter::follow;
use super::recipe::{AcquireReplies, Extension, Meaning, Owner, Recipe, Replies, Reply, TakeReplies, TtlUnit};
use super::syntax::Block;
use super::trace::{Call, Claim, Effect, End, State, Trace};

/// Returns what a call means for the lock.
pub(super) fn meaning(script: &Block, call: Call<'_>) -> Meaning {
    match states(script, call) {
        None => Meaning::Unknown,
        Some(states) if states.writes() => states.recipe().map_or(Meaning::Unknown, Meaning::Recipe),
        Some(_) => Meaning::Reads,
    }
}

/// Returns the script's reply if another client holds the lock, or `None` if it would change something or that reply is
/// not known.
pub(super) fn refusal(script: &Block, call: Call<'_>) -> Option<Reply> {
    let traces = follow(script, call, State::Foreign)?;
    let [trace] = &traces[..] else { return None };
    match (&trace.effect, &trace.end) {
        // The stored value is the other client's, and is not known here.
        (None, End::Replied(Reply::Stored | Reply::CommandResult)) => None,
        (None, End::Replied(reply)) => Some(reply.clone()),
        _ => None,
    }
}

struct States {
    absent: Vec<Trace>,
    other_type: Vec<Trace>,
    own: Vec<Trace>,
    /// The same without a TTL, if that matters.
    own_eternal: Option<Vec<Trace>>,
    different: Vec<Trace>,
    different_eternal: Option<Vec<Trace>>,
}

fn states(script: &Block, call: Call<'_>) -> Option<States> {
    let held = |own, has_ttl| follow(script, call, State::Held { own, has_ttl });
    let own = held(true, true)?;
    let different = held(false, true)?;
    let asked = |traces: &[Trace]| traces.iter().any(|trace| trace.asked_ttl);
    Some(States {
        absent: follow(script, call, State::Absent)?,
        other_type: follow(script, call, State::OtherType)?,
        own_eternal: if asked(&own) { Some(held(true, false)?) } else { None },
        different_eternal: if asked(&different) { Some(held(false, false)?) } else { None },
        own,
        different,
    })
}

impl States {
    fn all(&self) -> impl Iterator<Item = &Trace> {
        let eternal = self.own_eternal.iter().chain(&self.different_eternal);
        [&self.absent, &self.other_type, &self.own, &self.different].into_iter().chain(eternal).flatten()
    }

    fn writes(&self) -> bool {
        self.all().any(|trace| trace.effect.is_some())
    }

    fn recipe(&self) -> Option<Recipe> {
        let absent = only(&self.absent)?;
        let agreed = self.agreed(absent)?;
        match (&absent.effect, &agreed.own.effect, &agreed.own.claim) {
            (None, Some(effect), Some(Claim::Whole(token))) => agreed.compares(token, effect),
            (Some(Effect::Put(value, ttl)), None, _) => agreed.acquires(value, *ttl),
            (Some(Effect::Put(value, Some(ttl))), Some(effect), Some(claim)) => {
                agreed.acquires_or_extends(value, *ttl, effect, claim)
            }
            _ => None,
        }
    }

    /// What all recipes have in common: one path in each state, one comparison, and no change to a key of others.
    fn agreed<'t>(&'t self, absent: &Trace) -> Option<Agreed<'t>> {
        let other_type = only(&self.other_type)?;
        let own = only(&self.own)?;
        let different = only(&self.different)?;
        let compares_otherwise = |trace: &Trace| trace.claim.is_some() && trace.claim != own.claim;
        if self.all().any(|trace| trace.uncertain || compares_otherwise(trace)) {
            return None;
        }
        if different.effect.is_some() || other_type.effect.is_some() {
            return None;
        }
        let different = replied(different)?;
        if let Some(eternal) = &self.different_eternal {
            let eternal = only(eternal)?;
            if eternal.effect.is_some() || replied(eternal)? != different {
                return None;
            }
        }
        Some(Agreed {
            own,
            own_eternal: match &self.own_eternal {
                Some(traces) => Some(only(traces)?),
                None => None,
            },
            absent: plain(absent)?,
            different,
            other_type: match &other_type.end {
                End::WrongType => None,
                End::Replied(reply) => Some(reply.clone()),
                End::Unknown => return None,
            },
        })
    }
}

/// A script of which every state has one path.
struct Agreed<'t> {
    /// The path where the key holds what the script compares with.
    own: &'t Trace,
    /// The same where the key has no TTL, if that matters.
    own_eternal: Option<&'t Trace>,
    /// The reply where there is no key.
    absent: Reply,
    /// The reply where the key holds another value.
    different: Reply,
    /// The reply where the key holds no string; `None` for Redis's own complaint.
    other_type: Option<Reply>,
}

impl Agreed<'_> {
    /// A script that changes only the key that holds this token.
    fn compares(self, token: &Bytes, effect: &Effect) -> Option<Recipe> {
        let replies = Replies {
            done: plain(self.own)?,
            no_ttl: match self.own_eternal {
                Some(eternal) if eternal.effect.is_none() => Some(plain(eternal)?),
                Some(eternal) if !does_the_same(eternal, self.own) => return None,
                Some(_) | None => None,
            },
            other_type: self.plain_other_type()?,
            different: self.different,
            absent: self.absent,
        };
        let token = token.clone();
        let asks_for_ttl = replies.no_ttl.is_some();
        let extension = match effect {
            Effect::Delete(_) if asks_for_ttl => return None,
            Effect::Delete(command) => {
                return Some(Recipe::CompareAndDelete { token, command: *command, replies });
            }
            Effect::Expire(unit, ttl) => Extension::Expire(*unit, *ttl),
            // There must be a TTL to add to.
            Effect::Prolong(more) if *more > 0 && asks_for_ttl => Extension::Prolong(*more),
            Effect::Persist if asks_for_ttl => Extension::Persist,
            Effect::Put(value, Some(ttl)) if *value == token => Extension::Store(*ttl),
            Effect::Prolong(_) | Effect::Persist | Effect::Put(..) => return None,
        };
        Some(Recipe::CompareAndExtend { token, extension, replies })
    }

    /// A script that stores a value where there is no key, and changes nothing else.
    fn acquires(self, value: &Bytes, ttl_ms: Option<i64>) -> Option<Recipe> {
        let is_refusal = |trace: &Trace| trace.effect.is_none() && replied(trace).as_ref() == Some(&self.different);
        if !is_refusal(self.own) || !self.own_eternal.is_none_or(is_refusal) {
            return None;
        }
        // A script that does not look at the type takes a key of any type for a held lock.
        if self.other_type.as_ref().is_some_and(|reply| *reply != self.different) {
            return None;
        }
        Some(Recipe::Acquire {
            value: value.clone(),
            ttl_ms,
            replies: AcquireReplies {
                granted: self.absent,
                held: self.different,
                reads_value: self.other_type.is_none(),
            },
        })
    }

    /// A script that stores a value where there is no key, and extends the key that holds its own.
    fn acquires_or_extends(self, value: &Bytes, ttl_ms: i64, effect: &Effect, claim: &Claim) -> Option<Recipe> {
        if self.own_eternal.is_some_and(|eternal| !does_the_same(eternal, self.own)) {
            return None;
        }
        let (by_expire, ttl_of_own) = match effect {
            Effect::Expire(TtlUnit::Seconds, ttl) => (true, ttl.checked_mul(1000)?),
            Effect::Expire(TtlUnit::Milliseconds, ttl) => (true, *ttl),
            Effect::Put(own, Some(ttl)) if own == value => (false, *ttl),
            Effect::Put(..) | Effect::Delete(_) | Effect::Prolong(_) | Effect::Persist => {
                return None;
            }
        };
        let owner = match claim {
            Claim::Whole(token) if token == value => Owner::Whole,
            Claim::Prefix(token) if value.starts_with(token) && !by_expire => Owner::Prefix(token.len()),
            Claim::Whole(_) | Claim::Prefix(_) => return None,
        };
        let replies = TakeReplies {
            granted: self.absent.clone(),
            extended: plain(self.own)?,
            other_type: self.plain_other_type()?,
            different: self.different,
        };
        (ttl_of_own == ttl_ms).then_some(Recipe::AcquireOrExtend {
            value: value.clone(),
            owner,
            ttl_ms,
            by_expire,
            replies,
        })
    }

    /// [`Agreed::other_type`], where it is a plain reply.
    fn plain_other_type(&self) -> Option<Option<Reply>> {
        let is_plain = self.other_type.as_ref().is_none_or(is_plain);
        is_plain.then(|| self.other_type.clone())
    }
}

/// Whether two paths make the same change and end alike.
fn does_the_same(one: &Trace, other: &Trace) -> bool {
    one.effect == other.effect && one.end == other.end
}

/// The one path of a state; `None` if an unknown value decides between several.
fn only(traces: &[Trace]) -> Option<&Trace> {
    match traces {
        [trace] => Some(trace),
        _ => None,
    }
}

fn replied(trace: &Trace) -> Option<Reply> {
    match &trace.end {
        End::Replied(reply) => Some(reply.clone()),
        End::Unknown | End::WrongType => None,
    }
}

/// A reply that does not depend on what the key holds.
fn plain(trace: &Trace) -> Option<Reply> {
    replied(trace).filter(is_plain)
}

fn is_plain(reply: &Reply) -> bool {
    !matches!(reply, Reply::Stored | Reply::Left(_))
}
