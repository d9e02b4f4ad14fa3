//! The built-in policy `rules`: a team's conditions on its locks, written in the configuration (`[[namespace.rule]]`)
//! and not as a module. Rules are asked in their order; the first that refuses decides, and the obligations of the
//! others are merged. `lockwarden-rules` defines what a condition may contain; the proxy has already parsed the same
//! expressions with it, so an error here is one that the proxy has missed.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use lockwarden_policy_sdk::{
    Code, Decision, Obligations, Operation, Operations, Policy, Request, Settings, Traits, Whose, application,
    certificate, describe, export_policy, held, holds, take, tries,
};
use lockwarden_rules::{
    Client, Expression, Facts, Held, LockOrder, MAX_HOLDINGS, MAX_LITERAL_BYTES, MAX_RULES, MAX_SOURCE_BYTES,
    MAX_STEPS, Tries, Zone,
};

/// The settings, checked. Invariant: all of them together are within the limits of `lockwarden-rules`.
#[derive(Debug)]
struct Rules {
    rules: Vec<Rule>,
}

/// One rule. Invariant: it refuses something or sets an obligation.
#[derive(Debug)]
struct Rule {
    name: String,
    on: Operations,
    /// If it does not hold, the rule does not apply.
    when: Option<Expression>,
    /// If it holds, the operation is refused.
    deny: Option<Expression>,
    /// The budget of an application, and the time within which it refills, ms: if it is used up the operation is
    /// refused.
    rate: Option<(u32, u64)>,
    /// A lock is refused if it must be taken before one that its connection already holds.
    order: Option<LockOrder>,
    code: Code,
    hint: String,
    /// Its obligations if it does not refuse.
    wants: Obligations,
    zone: Zone,
}

const CODES: [(&str, Code); 5] = [
    ("limited", Code::Limited),
    ("no-ttl", Code::NoTtl),
    ("ttl-too-long", Code::TtlTooLong),
    ("shared-token", Code::SharedToken),
    ("other", Code::Other),
];

/// The operations that a rule may be on. Policies are not asked about reads, and an operation without a lock meaning is
/// refused whatever they answer.
const OPERATIONS: [(&str, Operations); 4] = [
    ("acquire", Operations::ACQUIRE),
    ("extend", Operations::EXTEND),
    ("release", Operations::RELEASE),
    ("take-over", Operations::TAKE_OVER),
];

impl Policy for Rules {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        let mut zones = Vec::new();
        for (name, mut table) in settings.tables("zone") {
            let changes = table.text("changes").unwrap_or_default();
            match Zone::read(&changes) {
                Ok(zone) => zones.push((name, zone)),
                Err(_) => table.problem("changes are no times and offsets"),
            }
            settings.end_table("zone", table);
        }
        let mut rules = Vec::new();
        for (name, mut table) in settings.tables("rule") {
            let rule = Rule::read(&name, &mut table, &zones);
            settings.end_table(&["rule ", &name].concat(), table);
            rules.extend(rule);
        }
        let expressions = || rules.iter().flat_map(|rule: &Rule| [&rule.when, &rule.deny]).flatten();
        let orders = || rules.iter().filter_map(|rule: &Rule| rule.order.as_ref());
        let literal_bytes: usize =
            expressions().map(Expression::literal_bytes).chain(orders().map(LockOrder::literal_bytes)).sum();
        let source_bytes: usize = expressions().map(Expression::source_bytes).sum();
        let steps: u64 =
            expressions().map(Expression::steps).chain(orders().map(|order| order.steps(MAX_HOLDINGS))).sum();
        let is_long = literal_bytes > MAX_LITERAL_BYTES || source_bytes > MAX_SOURCE_BYTES;
        if rules.len() > MAX_RULES || is_long || steps > MAX_STEPS {
            settings.problem("there are too many rules, or too long ones");
        }
        settings.finish()?;
        Ok(Rules { rules })
    }

    fn judges(&self) -> Operations {
        self.rules.iter().fold(Operations::empty(), |all, rule| all | rule.on)
    }

    fn decide(&self, request: &Request) -> Decision {
        let Some((word, operation)) = known_as(request.operation) else {
            return Decision::permit();
        };
        let (described, certified, called, tried, locks, counted) =
            (OnceCell::new(), OnceCell::new(), OnceCell::new(), OnceCell::new(), OnceCell::new(), OnceCell::new());
        let mut wants = Obligations::default();
        for rule in self.rules.iter().filter(|rule| rule.on.contains(operation)) {
            let mut client = Client::default();
            if rule.asks(|asks| asks.client)
                && let Some(known) = described.get_or_init(|| describe(request))
            {
                client.name = known.name.as_bytes();
                client.user = known.user.as_bytes();
                client.address = known.address.as_bytes();
            }
            if rule.asks(|asks| asks.certificate)
                && let Some(name) = certified.get_or_init(|| certificate(request))
            {
                client.certificate = name.as_bytes();
            }
            if rule.asks(|asks| asks.application)
                && let Some(name) = called.get_or_init(|| application(request))
            {
                client.application = name.as_bytes();
            }
            let mut asked = Tries::default();
            if rule.asks(|asks| asks.tries) {
                asked = *tried.get_or_init(|| Tries {
                    application: tries(request, Whose::Application),
                    everyone: tries(request, Whose::Everyone),
                });
            }
            let mut holdings = Held::default();
            if rule.asks(|asks| asks.held) {
                let connection = locks.get_or_init(|| holds(request)).len();
                let application = *counted.get_or_init(|| held(request));
                holdings = Held { connection: u32::try_from(connection).unwrap_or(u32::MAX), application };
            }
            let facts = Facts {
                key: &request.key,
                operation: word,
                db: request.db,
                ttl_ms: request.ttl_ms,
                attempts: request.attempts,
                tries: asked,
                held: holdings,
                remaining_ms: request.remaining_ms,
                token: request.owner_token.as_deref(),
                token_is_shared: request.traits.contains(Traits::SHARED_TOKEN),
                client,
            };
            let minute = rule.zone.minute(request.now_ms);
            let is_so = |test: &Expression| test.holds(&facts, minute);
            if !rule.when.as_ref().is_none_or(is_so) {
                continue;
            }
            if rule.deny.as_ref().is_some_and(is_so) {
                return rule.refusal();
            }
            if let Some(order) = &rule.order {
                let held = locks.get_or_init(|| holds(request)).iter().map(Vec::as_slice);
                if let Some(held) = order.held_too_early(&request.key, held) {
                    return rule.out_of_order(held);
                }
            }
            if rule.rate.is_some_and(|(most, per_ms)| !take(request, &rule.name, most, per_ms)) {
                return rule.refusal();
            }
            wants.ttl_default_ms = smaller(wants.ttl_default_ms, rule.wants.ttl_default_ms);
            wants.ttl_cap_ms = smaller(wants.ttl_cap_ms, rule.wants.ttl_cap_ms);
            wants.keep_alive_ms = smaller(wants.keep_alive_ms, rule.wants.keep_alive_ms);
            wants.max_hold_ms = smaller(wants.max_hold_ms, rule.wants.max_hold_ms);
        }
        wants.into()
    }
}

impl Rule {
    /// Reads one table; its errors are kept in it.
    fn read(name: &str, table: &mut Settings, zones: &[(String, Zone)]) -> Option<Rule> {
        let when = condition(table, "when");
        let deny = condition(table, "deny");
        let wants = Obligations {
            ttl_default_ms: table.optional_duration_ms("ttl_default"),
            ttl_cap_ms: table.optional_duration_ms("ttl_cap"),
            keep_alive_ms: table.optional_duration_ms("keep_alive"),
            max_hold_ms: table.optional_duration_ms("max_hold"),
            ..Obligations::default()
        };
        let on = table.choices("on", &OPERATIONS).map(|some| some.into_iter().collect());
        let code = table.choice("code", &CODES, Code::Limited);
        let hint = table.text("hint").unwrap_or_default();
        let zone = match table.text("zone") {
            None => Zone::default(),
            Some(zone) => match zones.iter().find(|(known, _)| *known == zone) {
                Some((_, known)) => known.clone(),
                None => {
                    table.problem("the zone has no changes");
                    return None;
                }
            },
        };
        let rate = rate(table);
        let order = table.list("order").map(|patterns| LockOrder::new(patterns.iter().map(String::as_str)));
        let refuses = deny.is_some() || rate.is_some() || order.is_some();
        if !refuses && wants == Obligations::default() {
            table.problem("it neither refuses nor wants anything");
        }
        // A rule that only sets obligations also applies to extensions, so that these do not bypass it.
        let usual = if refuses {
            Operations::ACQUIRE
        } else {
            Operations::ACQUIRE | Operations::TAKE_OVER | Operations::EXTEND
        };
        Some(Rule { name: name.into(), on: on.unwrap_or(usual), when, deny, rate, order, code, hint, wants, zone })
    }

    fn asks(&self, what: impl Fn(lockwarden_rules::Asks) -> bool) -> bool {
        [&self.when, &self.deny].into_iter().flatten().any(|test| what(test.asks()))
    }

    /// The refusal of a lock that must be taken before this one, which its connection holds.
    #[cold]
    fn out_of_order(&self, held: &[u8]) -> Decision {
        if !self.hint.is_empty() {
            return self.refusal();
        }
        let held = String::from_utf8_lossy(held);
        Decision::deny(
            self.code,
            [&self.name, "\ntake this lock before ", &held, ", which this connection holds"].concat(),
        )
    }

    /// The proxy takes the first line as the rule's name, because the contract has no field for it.
    #[cold]
    fn refusal(&self) -> Decision {
        Decision::deny(self.code, [&self.name, "\n", &self.hint].concat())
    }
}

fn condition(table: &mut Settings, name: &'static str) -> Option<Expression> {
    let source = table.text(name)?;
    match Expression::parse(&source) {
        Ok(expression) => Some(expression),
        Err(_) => {
            table.problem([name, " is no condition"].concat());
            None
        }
    }
}

/// `10/60000`: ten, which refill within a minute.
fn rate(table: &mut Settings) -> Option<(u32, u64)> {
    let text = table.text("rate")?;
    let parts = text.split_once('/').and_then(|(most, per_ms)| Some((most.parse().ok()?, per_ms.parse().ok()?)));
    if parts.is_none() {
        table.problem("the rate is none");
    }
    parts
}

/// An operation by its name in expressions and as a set, if rules are asked about it.
fn known_as(operation: Operation) -> Option<(&'static str, Operations)> {
    // In the order of the list.
    OPERATIONS
        .get(match operation {
            Operation::Acquire => 0,
            Operation::Extend => 1,
            Operation::Release => 2,
            Operation::TakeOver => 3,
            Operation::Inspect | Operation::Write | Operation::GuardedWrite => return None,
        })
        .copied()
}

fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

export_policy!(Rules);

#[cfg(test)]
mod tests;
