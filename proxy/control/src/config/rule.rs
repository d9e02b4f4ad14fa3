//! `[[namespace.rule]]`: conditions on a namespace's locks, which the policy `rules` evaluates. They are parsed here
//! with the policy's own code, so that errors are found together with all others, and at their character.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use lockwarden_lock::decision::Obligations;
use lockwarden_lock::outcome::MAX_HINT_BYTES;
use lockwarden_policy::RULES;
use lockwarden_rules::analysis::Looked;
use lockwarden_rules::{
    Expression, LockOrder, MAX_HOLDINGS, MAX_LITERAL_BYTES, MAX_RULES, MAX_SOURCE_BYTES, MAX_STEPS, OPERATIONS,
    Problem, Zone,
};

use super::keys::belongs_on_top;
use super::reader::{ChoiceError, Found, Reader, Section, key_table, one_of};
use super::suggest::{did_you_mean, listed, quoted};
use super::{value, zone};

key_table! { pub(super) KEYS =
    name: "\"hours\"",
    on: "[\"acquire\", \"take-over\"]" = "(acquire; where it refuses nothing, also take-over and extend)",
    when: "'key.startsWith(\"lock:billing:\")'" = "(always)",
    deny: "'ttl > 5s'" = "(never)",
    rate: "\"10/1m\"" = "(none)",
    order: "[\"lock:account:*\", \"lock:order:*\"]" = "(none)",
    hint: "\"ask for at most 5 s\"" = "(none)",
    code: "\"limited\"" = "\"limited\"",
    only: "\"report\"" = "(nothing: it refuses)",
    zone: "\"Europe/Berlin\"" = "\"UTC\"",
    ttl_default: "\"5s\"" = "(none)",
    ttl_cap: "\"5s\"" = "(none)",
    keep_alive: "\"10m\"" = "(none)",
    max_hold: "\"1h\"" = "(none)",
}

const CODES: [(&str, &str); 5] = [
    ("limited", "limited"),
    ("no-ttl", "no-ttl"),
    ("ttl-too-long", "ttl-too-long"),
    ("shared-token", "shared-token"),
    ("other", "other"),
];

/// The keys by which a rule sets something instead of refusing.
const WISHES: [&str; 4] = ["ttl_default", "ttl_cap", "keep_alive", "max_hold"];

/// The range of a duration in such a key.
const WISH: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(36_525 * 24 * 60 * 60);

/// The most patterns in an `order`.
const MAX_ORDER: usize = 32;

// A rule's cost is calculated with this number of locks, so it must be the number that a rule really gets.
const _: () = assert!(MAX_HOLDINGS == lockwarden_lock::decision::MAX_HOLDINGS);

/// The upper limits of a rate: its count, and its period.
const MAX_RATE: u32 = 1_000_000;
const RATE_TIME: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// One checked `[[namespace.rule]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleConfig {
    /// Its name in error replies, metrics and records; unique in its namespace.
    pub name: String,
    /// Its other keys, in the form that the policy gets.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// With the name that the key `zone` has.
    zone: Option<(String, Zone)>,
    /// The most steps that one question takes for it.
    pub steps: u64,
    literal_bytes: usize,
    source_bytes: usize,
}

impl RuleConfig {
    fn said(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| *known == key).map(|(_, value)| &**value)
    }

    /// Whether it can refuse an operation.
    fn refuses(&self) -> bool {
        ["deny", "rate", "order"].into_iter().any(|key| self.said(key).is_some())
    }

    /// The reason code of its refusals in an error reply.
    pub fn code(&self) -> &str {
        self.said("code").unwrap_or("limited")
    }

    /// The obligations that it sets.
    pub fn wants(&self) -> Obligations {
        let wish = |key: &str| self.said(key).and_then(value::milliseconds);
        Obligations {
            ttl_default_ms: wish("ttl_default"),
            ttl_cap_ms: wish("ttl_cap"),
            keep_alive_ms: wish("keep_alive"),
            max_hold_ms: wish("max_hold"),
            ..Obligations::default()
        }
    }

    /// The operations that it applies to. A rule that only sets obligations also applies to extensions, so that these
    /// do not bypass it.
    fn on(&self) -> &str {
        let usual = if self.refuses() { "acquire" } else { "acquire,take-over,extend" };
        self.said("on").unwrap_or(usual)
    }

    /// The obligations that it sets for every lease: however the lease gets its TTL, and for every lock.
    pub(crate) fn always_wants(&self) -> Obligations {
        let is_asked = |operation: &str| self.on().split(',').any(|named| named == operation);
        let sets_ttls = ["acquire", "take-over", "extend"].into_iter().all(is_asked);
        match sets_ttls && self.said("when").is_none() && self.said("only").is_none() {
            true => self.wants(),
            false => Obligations::default(),
        }
    }

    /// The form in which it is analysed.
    pub fn looked(&self) -> Looked<'_> {
        let parsed = |key: &str| self.said(key).and_then(|source| Expression::parse(source).ok());
        let on = OPERATIONS.into_iter().filter(|word| self.on().split(',').any(|named| named == *word));
        Looked {
            name: &self.name,
            on: on.collect(),
            when: parsed("when"),
            deny: parsed("deny"),
            reports: self.said("only").is_some(),
            limits: self.said("rate").is_some() || self.said("order").is_some(),
        }
    }
}

/// Every `[[namespace.rule]]` of a namespace; those with errors are left out.
pub(super) fn read(reader: &mut Reader<'_>, namespace: &Section<'_, '_>) -> Vec<RuleConfig> {
    let tables = reader.tables(namespace, "rule", MAX_RULES).unwrap_or_default();
    let (mut names, mut rules) = (HashSet::new(), Vec::new());
    let (mut steps, mut literal_bytes, mut source_bytes) = (0, 0, 0);
    for (index, table) in tables.into_iter().enumerate() {
        let scope = format!("{}rule #{}: ", namespace.scope, index + 1);
        let mut section = Section { table: table.value, span: table.span, known: KEYS, scope };
        let name = reader.parsed(&section, "name", value::name);
        let name = reader.required(&section, "name", name);
        if let Some(name) = &name {
            section.scope = format!("{}rule {}: ", namespace.scope, quoted(&name.value));
            if !names.insert(name.value.clone()) {
                let scope = &section.scope;
                reader.error(name.span.clone(), || format!("{scope}another rule of this namespace has this name"));
            }
        }
        let Some(rule) = one(reader, &section, name.map(|name| name.value)) else {
            continue;
        };
        steps += rule.steps;
        literal_bytes += rule.literal_bytes;
        source_bytes += rule.source_bytes;
        let scope = &section.scope;
        // Reported once, at the rule that exceeds the limit, and not again for each later rule.
        if steps > MAX_STEPS && steps - rule.steps <= MAX_STEPS {
            reader.error(section.span.clone(), || {
                format!(
                    "{scope}up to here the rules of this namespace take up to {steps} steps a question, and {MAX_STEPS} are the \
                     most; a pattern that ends with its only * costs least, .contains and a * in the middle cost most"
                )
            });
        }
        for (what, bytes, own, most) in [
            ("texts in the rules", literal_bytes, rule.literal_bytes, MAX_LITERAL_BYTES),
            ("conditions", source_bytes, rule.source_bytes, MAX_SOURCE_BYTES),
        ] {
            if bytes > most && bytes - own <= most {
                reader.error(section.span.clone(), || {
                    format!(
                        "{scope}up to here the {what} of this namespace have {bytes} bytes, and {most} are the most"
                    )
                });
            }
        }
        rules.push(rule);
    }
    rules
}

fn one(reader: &mut Reader<'_>, section: &Section<'_, '_>, name: Option<String>) -> Option<RuleConfig> {
    let mut settings: Vec<(&'static str, String)> = Vec::new();
    let (mut steps, mut literal_bytes, mut source_bytes, mut asks_calendar) = (0, 0, 0, false);
    for key in ["when", "deny"] {
        let Some((source, expression)) = condition(reader, section, key) else {
            continue;
        };
        steps += expression.steps();
        literal_bytes += expression.literal_bytes();
        source_bytes += expression.source_bytes();
        asks_calendar |= expression.asks().calendar;
        settings.push((key, source));
    }
    if let Some(on) = operations(reader, section) {
        settings.push(("on", on));
    }
    let rated = reader.parsed(section, "rate", rate);
    settings.extend(rated.map(|found| ("rate", found.value)));
    if let Some((patterns, order)) = order(reader, section) {
        steps += order.steps(MAX_HOLDINGS);
        literal_bytes += order.literal_bytes();
        settings.push(("order", patterns));
    }
    let code = reader.choice(section, "code", &CODES);
    let hint = reader.parsed(section, "hint", hint).map(|found| found.value);
    let only = reader.choice(section, "only", &[("report", "report")]);
    settings.extend(only.map(|only| ("only", only.to_owned())));
    settings.extend(code.map(|code| ("code", code.to_owned())));
    settings.extend(hint.map(|hint| ("hint", hint)));
    for wish in WISHES {
        let wanted = reader.parsed(section, wish, |text| value::duration(text, WISH));
        settings.extend(wanted.map(|wanted| (wish, format!("{}ms", wanted.value.as_millis()))));
    }
    let zone = reader.parsed(section, "zone", |text| zone::named(text).map(|zone| (text.to_owned(), zone)));
    if let Some(found) = &zone {
        settings.push(("zone", found.value.0.clone()));
        if !asks_calendar {
            let message = format!("{}zone: no condition of this rule asks for hour, minute or weekday", section.scope);
            reader.warning(found.span.clone(), message);
        }
    }
    reader.unknown_keys(section, belongs_on_top);
    let scope = &section.scope;
    let says = |key: &str| section.table.contains_key(key);
    let refuses = says("deny") || says("rate") || says("order");
    if !refuses && !WISHES.iter().any(|wish| says(wish)) {
        let wishes = listed(WISHES, "or");
        reader.error(section.span.clone(), || {
            format!("{scope}it refuses nothing and wants nothing; write deny = 'ttl > 5s', rate = \"10/1m\", an order, or one of {wishes}")
        });
    }
    if let (Some(_), Some(wish)) = (only, WISHES.iter().find(|wish| says(wish))) {
        reader.error(section.span.clone(), || {
            format!("{scope}{wish}: with only = \"report\" a rule wants nothing; write it as a rule of its own")
        });
    }
    for key in ["hint", "code", "only"] {
        if let (Some(value), false) = (section.table.get(key), refuses) {
            reader.error(value.span(), || {
                format!("{scope}{key}: it belongs to a refusal, and this rule has no deny, no rate and no order")
            });
        }
    }
    let zone = zone.map(|found| found.value);
    Some(RuleConfig { name: name?, settings, zone, steps, literal_bytes, source_bytes })
}

/// Parses a condition and returns it with its source; errors are reported at their character.
fn condition(reader: &mut Reader<'_>, section: &Section<'_, '_>, key: &'static str) -> Option<(String, Expression)> {
    let found = reader.parsed(section, key, |text| Ok::<_, std::convert::Infallible>(text.to_owned()))?;
    match Expression::parse(&found.value) {
        Ok(expression) => Some((found.value, expression)),
        Err(problem) => {
            let place = place_of(reader, &found, problem.at);
            let scope = &section.scope;
            reader.error(place, || format!("{scope}{key}: {}", in_words(&problem)));
            None
        }
    }
}

fn place_of(reader: &Reader<'_>, found: &Found<String>, at: usize) -> Range<usize> {
    let offset = reader.document.offset_in_string(&found.span, at);
    offset..offset
}

/// The problem of an expression in words, with a suggestion.
fn in_words(problem: &Problem) -> String {
    let advice = problem.candidates().map(|(word, known)| {
        did_you_mean(word, known.iter().copied())
            .unwrap_or_else(|| format!("there are {}", known.join(", ")))
            .replace('"', "")
    });
    match advice {
        // The message lists the methods already.
        Some(advice) if !advice.starts_with("there are") || !problem.to_string().contains("there are") => {
            format!("{problem}; {advice}")
        }
        Some(_) | None => problem.to_string(),
    }
}

/// A text that is no rate.
#[derive(Debug, thiserror::Error)]
#[error("{} is no rate; write how many in which time, such as \"10/1m\", up to 1000000 in up to a day", quoted(.0))]
struct RateError(String);

/// A rate in the form that the policy gets: the count, and the period in milliseconds.
fn rate(text: &str) -> Result<String, RateError> {
    let wrong = || RateError(text.to_owned());
    let (most, per) = text.split_once('/').ok_or_else(wrong)?;
    let most = most.parse().ok().filter(|most| (1..=MAX_RATE).contains(most)).ok_or_else(wrong)?;
    let per = value::duration(per, RATE_TIME).map_err(|_| wrong())?;
    Ok(format!("{most}/{}", per.as_millis()))
}

/// Why a word cannot stand in `on`.
#[derive(Debug, thiserror::Error)]
enum OnError {
    #[error(transparent)]
    Unknown(#[from] ChoiceError),
    #[error("{} stands there twice", quoted(.0))]
    Twice(String),
}

/// Why a pattern cannot stand in `order`.
#[derive(Debug, thiserror::Error)]
enum PatternError {
    #[error("is empty, and no lock is called that")]
    Empty,
    #[error("{} has a comma, and a list of settings cannot have one", quoted(.0))]
    Comma(String),
}

/// The order, in the form that the policy gets, and parsed.
fn order(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<(String, LockOrder)> {
    let order = reader.strings(section, "order", MAX_ORDER, |text| match text {
        "" => Err(PatternError::Empty),
        _ if text.contains(',') => Err(PatternError::Comma(text.to_owned())),
        _ => Ok(text.to_owned()),
    })?;
    if order.value.len() < 2 {
        let scope = &section.scope;
        reader.error(order.span.clone(), || {
            format!("{scope}order: write two patterns or more, those first whose locks are taken first")
        });
    }
    let patterns: Vec<&str> = order.value.iter().map(|pattern| &*pattern.value).collect();
    Some((patterns.join(","), LockOrder::new(patterns)))
}

fn operations(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    let mut seen = HashSet::new();
    let on = reader.strings(section, "on", OPERATIONS.len(), |text| {
        let word = one_of(text, &OPERATIONS.map(|word| (word, word)))?;
        match seen.insert(word) {
            true => Ok(word),
            false => Err(OnError::Twice(word.to_owned())),
        }
    })?;
    if section.table.get("on").is_some_and(|on| on.get_ref().as_array().is_some_and(|on| on.is_empty())) {
        let scope = &section.scope;
        reader.error(on.span.clone(), || format!("{scope}on: the list is empty, so the rule is never asked"));
    }
    let words: Vec<&str> = on.value.iter().map(|word| word.value).collect();
    Some(words.join(","))
}

/// Why a text is no hint.
#[derive(Debug, thiserror::Error)]
enum HintError {
    #[error("has {0} bytes, and an error reply shows {MAX_HINT_BYTES}")]
    TooLong(usize),
    #[error("an error reply is one line, and this has a control character")]
    Control,
}

fn hint(text: &str) -> Result<String, HintError> {
    if text.len() > MAX_HINT_BYTES {
        return Err(HintError::TooLong(text.len()));
    }
    match text.contains(char::is_control) {
        true => Err(HintError::Control),
        false => Ok(text.to_owned()),
    }
}

/// The rules of a namespace as settings of the policy, in their order; each zone once.
pub(super) fn settings(rules: &[RuleConfig]) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for rule in rules {
        let of_rule = rule.settings.iter();
        settings.extend(of_rule.map(|(key, value)| (format!("rule.{}.{key}", rule.name), value.clone())));
    }
    let mut zones = HashSet::new();
    for (name, zone) in rules.iter().filter_map(|rule| rule.zone.as_ref()) {
        if zones.insert(name) {
            settings.push((format!("zone.{name}.changes"), zone.text()));
        }
    }
    settings
}

/// Checks the rules of a namespace against its chain. If the file sets no chain, the policy is added to it.
pub(super) fn in_chain(
    reader: &mut Reader<'_>,
    namespace: &Section<'_, '_>,
    rules: &[RuleConfig],
    chain: Option<&mut Vec<String>>,
) {
    let Some(chain) = chain else {
        return;
    };
    let scope = &namespace.scope;
    let is_named = chain.iter().any(|policy| policy == RULES);
    let said = (namespace.table.get("rule"), namespace.table.get("policies"));
    match said {
        (Some(_), None) if !rules.is_empty() && !is_named => chain.push(RULES.to_owned()),
        (Some(rule), Some(_)) if !is_named => reader.error(rule.span(), || {
            format!("{scope}rule: {} is not in this namespace's chain; add it to policies", quoted(RULES))
        }),
        (None, Some(policies)) if is_named => {
            let message = format!(
                "{scope}policies: {} has no [[namespace.rule]], so it refuses nothing and wants nothing",
                quoted(RULES)
            );
            reader.warning(policies.span(), message);
        }
        _ => {}
    }
}
