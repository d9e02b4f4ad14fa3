//! From what a script does in each state of the lock to the one recipe that does the same, if there
//! is one. A script is a recipe only if every state agrees; whatever is left over is not.

use super::interpreter::follow;
use super::syntax::Block;
use super::trace::{Call, Claim, Effect, End, State, Trace};
use super::{
    AcquireReplies, Extension, Meaning, Owner, Recipe, Replies, Reply, TakeReplies, TtlUnit,
};

/// What a call does.
pub(super) fn meaning(script: &Block, call: Call<'_>) -> Meaning {
    match states(script, call) {
        None => Meaning::Unknown,
        Some(states) if states.writes() => {
            states.recipe().map_or(Meaning::Unknown, Meaning::Recipe)
        }
        Some(_) => Meaning::Reads,
    }
}

/// What the script answers where the lock is somebody else's, if it leaves everything as it is.
pub(super) fn refusal(script: &Block, call: Call<'_>) -> Option<Reply> {
    let traces = follow(script, call, State::Foreign)?;
    let [trace] = &traces[..] else { return None };
    match (&trace.effect, &trace.end) {
        // What is stored belongs to somebody else, and is not known here.
        (None, End::Replied(Reply::Stored | Reply::CommandResult)) => None,
        (None, End::Replied(reply)) => Some(reply.clone()),
        _ => None,
    }
}

struct States {
    absent: Vec<Trace>,
    other_type: Vec<Trace>,
    own: Vec<Trace>,
    /// Where it matters whether there is a TTL: without one.
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
        own_eternal: if asked(&own) {
            Some(held(true, false)?)
        } else {
            None
        },
        different_eternal: if asked(&different) {
            Some(held(false, false)?)
        } else {
            None
        },
        own,
        different,
    })
}

impl States {
    fn all(&self) -> impl Iterator<Item = &Trace> {
        let eternal = self.own_eternal.iter().chain(&self.different_eternal);
        [&self.absent, &self.other_type, &self.own, &self.different]
            .into_iter()
            .chain(eternal)
            .flatten()
    }

    fn writes(&self) -> bool {
        self.all().any(|trace| trace.effect.is_some())
    }

    fn recipe(&self) -> Option<Recipe> {
        if self.all().any(|trace| trace.uncertain) {
            return None;
        }
        let absent = only(&self.absent)?;
        let other_type = only(&self.other_type)?;
        let own = only(&self.own)?;
        let different = only(&self.different)?;
        // One comparison, everywhere the same.
        let claim = own.claim.as_ref();
        if self
            .all()
            .any(|trace| trace.claim.is_some() && trace.claim.as_ref() != claim)
        {
            return None;
        }
        if different.effect.is_some() || other_type.effect.is_some() {
            return None;
        }
        let different_reply = replied(different)?;
        if let Some(eternal) = &self.different_eternal {
            let eternal = only(eternal)?;
            if eternal.effect.is_some() || replied(eternal)? != different_reply {
                return None;
            }
        }
        let own_eternal = self.own_eternal.as_deref().map(only);
        let own_eternal = match own_eternal {
            None => None,
            Some(trace) => Some(trace?),
        };
        let absent_reply = plain(absent)?;
        let other_reply = match &other_type.end {
            End::WrongType => None,
            End::Replied(reply) => Some(reply.clone()),
            End::Unknown => return None,
        };
        let plain_other = other_reply.as_ref().is_none_or(is_plain);

        match (&absent.effect, &own.effect, claim) {
            (None, Some(effect), Some(Claim::Whole(token))) if plain_other => {
                let mut replies = Replies {
                    done: plain(own)?,
                    different: different_reply,
                    absent: absent_reply,
                    no_ttl: None,
                    other_type: other_reply,
                };
                if let Some(eternal) = own_eternal {
                    if eternal.effect.is_none() {
                        replies.no_ttl = Some(plain(eternal)?);
                    } else if eternal.effect != own.effect || eternal.end != own.end {
                        return None;
                    }
                }
                let token = token.clone();
                if let Effect::Delete(command) = effect {
                    let command = *command;
                    return replies
                        .no_ttl
                        .is_none()
                        .then_some(Recipe::CompareAndDelete {
                            token,
                            command,
                            replies,
                        });
                }
                let extension = match effect {
                    Effect::Delete(_) => return None,
                    Effect::Expire(unit, ttl) => Extension::Expire(*unit, *ttl),
                    // What is added to has to be there.
                    Effect::Prolong(more) if *more > 0 && replies.no_ttl.is_some() => {
                        Extension::Prolong(*more)
                    }
                    Effect::Persist if replies.no_ttl.is_some() => Extension::Persist,
                    Effect::Put(value, Some(ttl)) if *value == token => Extension::Store(*ttl),
                    Effect::Prolong(_) | Effect::Persist | Effect::Put(..) => return None,
                };
                Some(Recipe::CompareAndExtend {
                    token,
                    extension,
                    replies,
                })
            }
            (Some(Effect::Put(value, ttl)), None, _) => {
                let held = different_reply;
                let same = own_eternal.is_none_or(|eternal| {
                    eternal.effect.is_none() && replied(eternal).as_ref() == Some(&held)
                });
                if !same || replied(own)? != held {
                    return None;
                }
                // A script that never looked at the type says "held" of any.
                if other_reply.as_ref().is_some_and(|reply| *reply != held) {
                    return None;
                }
                Some(Recipe::Acquire {
                    value: value.clone(),
                    ttl_ms: *ttl,
                    replies: AcquireReplies {
                        granted: absent_reply,
                        held,
                        reads_value: other_reply.is_none(),
                    },
                })
            }
            (Some(Effect::Put(value, Some(ttl))), Some(effect), Some(claim)) if plain_other => {
                if own_eternal
                    .is_some_and(|eternal| eternal.effect != own.effect || eternal.end != own.end)
                {
                    return None;
                }
                let by_expire = match effect {
                    Effect::Expire(unit, own_ttl) => {
                        let own_ttl = match unit {
                            TtlUnit::Seconds => own_ttl.checked_mul(1000)?,
                            TtlUnit::Milliseconds => *own_ttl,
                        };
                        (own_ttl == *ttl).then_some(true)?
                    }
                    Effect::Put(own_value, own_ttl) => {
                        (own_value == value && *own_ttl == Some(*ttl)).then_some(false)?
                    }
                    Effect::Delete(_) | Effect::Prolong(_) | Effect::Persist => return None,
                };
                let owner = match claim {
                    Claim::Whole(token) if token == value => Owner::Whole,
                    Claim::Prefix(token) if value.starts_with(token) && !by_expire => {
                        Owner::Prefix(token.len())
                    }
                    Claim::Whole(_) | Claim::Prefix(_) => return None,
                };
                Some(Recipe::AcquireOrExtend {
                    value: value.clone(),
                    owner,
                    ttl_ms: *ttl,
                    by_expire,
                    replies: TakeReplies {
                        granted: absent_reply,
                        extended: plain(own)?,
                        different: different_reply,
                        other_type: other_reply,
                    },
                })
            }
            _ => None,
        }
    }
}

/// The one path of a state; none where something unknown decides between several.
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

/// A reply that says the same whatever else the key holds.
fn plain(trace: &Trace) -> Option<Reply> {
    replied(trace).filter(is_plain)
}

fn is_plain(reply: &Reply) -> bool {
    !matches!(reply, Reply::Stored | Reply::Left(_))
}
