//! A policy of one team: its locks are called `lock:<team>:<thing>`, and no client polls for one without end.

use lockwarden_policy_sdk::{Code, Decision, Operations, Policy, Request, Settings, export_policy};

struct TeamNaming {
    teams: Vec<String>,
    max_attempts: u32,
}

impl Policy for TeamNaming {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        let teams = settings.list("teams").unwrap_or_default();
        if teams.is_empty() {
            settings.problem("teams must name at least one team");
        }
        let max_attempts = settings.number("max_attempts", 100);
        settings.finish()?;
        Ok(TeamNaming { teams, max_attempts: u32::try_from(max_attempts).unwrap_or(u32::MAX) })
    }

    fn judges(&self) -> Operations {
        Operations::ACQUIRE
    }

    fn decide(&self, request: &Request) -> Decision {
        if !self.is_named_for_a_team(&request.key) {
            let teams = self.teams.join(", ");
            return Decision::deny(Code::Limited, format!("name the lock lock:<team>:<thing>; teams are {teams}"));
        }
        if request.attempts > self.max_attempts {
            return Decision::deny(Code::Limited, "too many attempts; wait longer between them");
        }
        Decision::permit()
    }
}

impl TeamNaming {
    fn is_named_for_a_team(&self, key: &[u8]) -> bool {
        let mut parts = key.splitn(3, |byte| *byte == b':');
        let (prefix, team, thing) = (parts.next(), parts.next(), parts.next());
        prefix == Some(b"lock")
            && self.teams.iter().any(|known| team == Some(known.as_bytes()))
            && thing.is_some_and(|thing| !thing.is_empty())
    }
}

export_policy!(TeamNaming);

#[cfg(test)]
mod tests {
    use lockwarden_policy_sdk::Operation;
    use lockwarden_policy_sdk::testing::{configure, denial, request};

    use super::*;

    fn acquire(key: &[u8], attempts: u32) -> Request {
        Request { key: key.to_vec(), attempts, ..request(Operation::Acquire) }
    }

    #[test]
    fn a_lock_carries_the_name_of_its_team() {
        let policy: TeamNaming = configure(&[("teams", "billing,stock")]).unwrap();
        assert_eq!(policy.decide(&acquire(b"lock:billing:7", 1)), Decision::permit());
        for key in [&b"lock:sales:7"[..], b"lock:billing", b"lock:billing:", b"7", b""] {
            assert_eq!(denial(&policy.decide(&acquire(key, 1))).code, Code::Limited);
        }
        // A release is never the place to complain about a name.
        assert_eq!(policy.judges(), Operations::ACQUIRE);
    }

    #[test]
    fn polling_has_an_end() {
        let policy: TeamNaming = configure(&[("teams", "billing"), ("max_attempts", "3")]).unwrap();
        assert_eq!(policy.decide(&acquire(b"lock:billing:7", 3)), Decision::permit());
        let fourth = policy.decide(&acquire(b"lock:billing:7", 4));
        assert_eq!(denial(&fourth).code, Code::Limited);
    }

    #[test]
    fn settings_are_checked() {
        assert!(configure::<TeamNaming>(&[]).is_err());
        assert!(configure::<TeamNaming>(&[("team", "billing")]).is_err());
    }
}
