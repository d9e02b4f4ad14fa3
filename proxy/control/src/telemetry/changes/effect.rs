//! The effect of a chain's answer: for a permit, the obligations that matter for this operation and this TTL. Two
//! answers with the same effect make no difference to a client.

use lockwarden_lock::decision::Operation;

use crate::config::NEXT;
use crate::telemetry::audit::Answer;
use crate::text::durations::toml_duration;

/// The effect of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Each obligation that has an effect, with its value.
    Permitted(Vec<(&'static str, String)>),
    Refused {
        reason: String,
        policy: String,
        rule: Option<String>,
    },
    /// A policy failed: which one, and how.
    NoAnswer(String),
}

impl Effect {
    pub fn of(answer: &Answer, ttl_ms: Option<u64>, operation: Operation) -> Effect {
        if let Some(fault) = &answer.fault {
            return Effect::NoAnswer(fault.clone());
        }
        if answer.verdict == "deny" {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (reason, policy) = (text(&answer.reason), text(&answer.policy));
            // A policy's next version counts as that policy.
            let policy = policy.strip_suffix(NEXT).unwrap_or(&policy).to_owned();
            return Effect::Refused { reason, policy, rule: answer.rule.clone() };
        }
        Effect::Permitted(wishes(answer, ttl_ms, operation))
    }

    /// The difference between two effects, in words that are the same for equal changes.
    pub fn change(&self, to: &Effect) -> String {
        let (Effect::Permitted(was), Effect::Permitted(is)) = (self, to) else {
            return format!("{} → {}", self.words(), to.words());
        };
        let value = |wishes: &[(&str, String)], of: &str| {
            let found = wishes.iter().find(|(what, _)| *what == of);
            found.map_or("none".to_owned(), |(_, value)| value.clone())
        };
        let mut names: Vec<&str> = was.iter().chain(is).map(|(what, _)| *what).collect();
        names.sort_unstable();
        names.dedup();
        let changes = names.into_iter().filter_map(|what| {
            let (was, is) = (value(was, what), value(is, what));
            (was != is).then(|| format!("{what}: {was} → {is}"))
        });
        changes.collect::<Vec<_>>().join(", ")
    }

    fn words(&self) -> String {
        match self {
            Effect::Permitted(_) => "permitted".to_owned(),
            Effect::Refused { reason, policy, rule: None } => format!("refused {reason} by {policy}"),
            Effect::Refused { reason, policy, rule: Some(rule) } => {
                format!("refused {reason} by {policy}, rule {rule}")
            }
            Effect::NoAnswer(fault) => format!("no answer of {fault}"),
        }
    }
}

/// The obligations of a permit that have an effect on the operation.
fn wishes(answer: &Answer, asked_ms: Option<u64>, operation: Operation) -> Vec<(&'static str, String)> {
    let is = |operations: &[Operation]| operations.contains(&operation);
    let leases = is(&[Operation::Acquire, Operation::TakeOver, Operation::Extend]);
    let clip = |ms: u64| answer.ttl_cap_ms.map_or(ms, |cap| ms.min(cap));
    let chosen = match asked_ms {
        None => answer.ttl_default_ms.or(answer.ttl_cap_ms).map(clip),
        Some(asked) => Some(clip(asked)).filter(|ms| *ms != asked),
    };
    let ttl = if asked_ms.is_none() { "TTL where none is named" } else { "a longer TTL is cut to" };
    let duration = |ms: Option<u64>| ms.map(toml_duration);
    let proofs = answer.require.as_ref().map(|proofs| match proofs.is_empty() {
        true => "never holds".to_owned(),
        false => proofs.join(" or "),
    });
    let current = answer.current_fence_only.then(|| "wanted".to_owned());
    let wishes = [
        (leases, ttl, duration(chosen)),
        (leases && chosen.is_some(), "kept alive", duration(answer.keep_alive_ms)),
        (is(&[Operation::Extend]), "longest hold", duration(answer.max_hold_ms)),
        (is(&[Operation::Extend, Operation::Release, Operation::TakeOver]), "proof", proofs),
        (is(&[Operation::Acquire, Operation::TakeOver]), "fencing tokens", answer.fence.clone()),
        (!is(&[Operation::Inspect]), "newest fencing token", current),
        (is(&[Operation::Release, Operation::TakeOver]), "take-over", answer.take_over.clone()),
    ];
    wishes
        .into_iter()
        .filter(|(has_effect, ..)| *has_effect)
        .filter_map(|(_, what, value)| Some((what, value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit() -> Answer {
        Answer { verdict: "permit".to_owned(), ..Answer::default() }
    }

    fn effect(answer: &Answer, ttl_ms: Option<u64>, operation: Operation) -> Effect {
        Effect::of(answer, ttl_ms, operation)
    }

    #[test]
    fn an_obligation_without_an_effect_is_no_change() {
        let wants = Answer {
            ttl_default_ms: Some(5_000),
            ttl_cap_ms: Some(10_000),
            keep_alive_ms: Some(60_000),
            max_hold_ms: Some(1),
            fence: Some("hybrid".to_owned()),
            take_over: Some("never".to_owned()),
            ..permit()
        };
        assert_eq!(effect(&wants, None, Operation::Inspect), effect(&permit(), None, Operation::Inspect));
        let fenced = Answer { fence: Some("hybrid".to_owned()), ..permit() };
        let short = |answer: &Answer| effect(answer, Some(10_000), Operation::Acquire);
        assert_eq!(short(&wants), short(&fenced));
        assert_ne!(effect(&wants, Some(10_001), Operation::Acquire), effect(&fenced, Some(10_001), Operation::Acquire));
        let change = effect(&permit(), None, Operation::Acquire).change(&effect(&wants, None, Operation::Acquire));
        assert_eq!(change, "TTL where none is named: none → 5s, fencing tokens: none → hybrid, kept alive: none → 1m");
    }

    #[test]
    fn a_change_of_the_verdict_is_told_with_its_policy() {
        let deny = Answer {
            verdict: "deny".to_owned(),
            reason: Some("limited".to_owned()),
            policy: Some("rules".to_owned()),
            rule: Some("hours".to_owned()),
            ..Answer::default()
        };
        let fault = Answer { fault: Some("mine: fuel".to_owned()), ..deny.clone() };
        let [permit, deny, fault] = [permit(), deny, fault].map(|answer| effect(&answer, None, Operation::Acquire));
        assert_eq!(permit.change(&deny), "permitted → refused limited by rules, rule hours");
        assert_eq!(deny.change(&fault), "refused limited by rules, rule hours → no answer of mine: fuel");
    }
}
