//! `lockwarden policy rules`: the rules of namespaces (`[[namespace.rule]]`) that never, always or no longer refuse, and the
//! differences between two files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use lockwarden_control::config::{Config, RuleConfig};
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::{counted, number};
use lockwarden_lock::decision::Obligations;
use lockwarden_rules::analysis::{Found, Looked, MAX_SAMPLES, Sample, Samples, explain, refuser, samples};
use serde::Serialize;

use super::wording::wants_in_words;
use crate::app::exit_code;
use crate::cli::api_client::{ApiError, load_config};
use crate::cli::output::Output;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(super) struct RulesArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE", env = "LOCKWARDEN_CONFIG")]
    config: PathBuf,
    /// Ask each rule about requests around everything that the rules say, and tell which refuse
    #[arg(long, group = "what")]
    explain: bool,
    /// Show a request on which the rules of this older configuration say otherwise
    #[arg(long, value_name = "OLD", group = "what")]
    diff: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub(super) fn rules_of(args: &RulesArgs) -> Result<ExitCode, ApiError> {
    match &args.diff {
        Some(old) => diff(args, old),
        None => explained(args),
    }
}

/// The examined rules of one namespace.
#[derive(Serialize)]
struct Explained<'a> {
    namespace: &'a str,
    /// The number of requests that they were asked about.
    requests: u64,
    /// The number of possible requests.
    combinations: u64,
    rules: Vec<ExplainedRule<'a>>,
}

#[derive(Serialize)]
struct ExplainedRule<'a> {
    rule: &'a str,
    asked: u64,
    /// How often it refuses, or would; for a rule that refuses nothing, how often it has obligations.
    holds: u64,
    refused_before: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<String>,
    #[serde(skip)]
    refuses: bool,
    #[serde(skip)]
    reports: bool,
    #[serde(skip)]
    limits: bool,
}

impl ExplainedRule<'_> {
    fn of<'a>(rule: &Looked<'a>, found: Found) -> ExplainedRule<'a> {
        let Found { asked, held, refused_before, behind } = found;
        ExplainedRule {
            rule: rule.name,
            asked,
            holds: held,
            refused_before,
            behind,
            refuses: rule.deny.is_some(),
            reports: rule.reports,
            limits: rule.limits,
        }
    }

    /// A result that a person should look at.
    fn finding(&self) -> Option<String> {
        let all = self.holds == self.asked;
        match (self.refuses, &self.behind) {
            (_, _) if self.holds == 0 => Some("never holds".to_owned()),
            (true, Some(behind)) => Some(format!("refuses only what {behind} before it refuses")),
            (true, None) if all => Some("refuses everything that it is asked about".to_owned()),
            (_, _) => None,
        }
    }

    fn words(&self) -> String {
        let of = format!("{} of {}", number(self.holds), number(self.asked));
        let mut words = match (self.refuses, self.reports) {
            (true, false) => format!("refuses {of}"),
            (true, true) => format!("reports {of}"),
            (false, _) if self.limits => format!("may refuse {of}, by its rate or order"),
            (false, _) => format!("wants something of {of}"),
        };
        if self.refused_before > 0 && self.behind.is_none() {
            let _ = write!(words, ", {} of which a rule before it refuses", number(self.refused_before));
        }
        match self.finding() {
            Some(finding) => format!("! {finding}"),
            None => words,
        }
    }
}

fn explained(args: &RulesArgs) -> Result<ExitCode, ApiError> {
    let config = load(&args.config)?;
    let mut all = Vec::new();
    for namespace in config.namespaces.iter().filter(|namespace| !namespace.rules.is_empty()) {
        let rules = looked(&namespace.rules);
        let samples = samples(&[&rules]);
        let found = explain(&rules, &samples);
        all.push(Explained {
            namespace: &namespace.name,
            requests: asked(&samples),
            combinations: samples.combinations(),
            rules: rules.iter().zip(found).map(|(rule, found)| ExplainedRule::of(rule, found)).collect(),
        });
    }
    args.output.print(&all, |_| match all.is_empty() {
        true => format!("{}: no namespace has rules\n", args.config.display()),
        false => all.iter().map(in_words).collect(),
    })?;
    let any = all.iter().flat_map(|one| &one.rules).any(|rule| rule.finding().is_some());
    Ok(if any { exit_code::findings() } else { ExitCode::SUCCESS })
}

fn in_words(one: &Explained<'_>) -> String {
    let some = match one.combinations > one.requests {
        true => format!(", which stand for {}", number(one.combinations)),
        false => String::new(),
    };
    let rules = counted(one.rules.len() as u64, "rule", "rules");
    let mut text =
        format!("namespace {}: {rules}, asked about {} requests{some}\n", one.namespace, number(one.requests));
    let width = one.rules.iter().map(|rule| rule.rule.len()).max().unwrap_or(0);
    for rule in &one.rules {
        let _ = writeln!(text, "  {:width$}  {}", rule.rule, rule.words());
    }
    text
}

/// A request on which two files differ.
#[derive(Serialize)]
struct Difference {
    namespace: String,
    /// The number of requests that they were asked about.
    requests: u64,
    differs: u64,
    request: String,
    old: String,
    new: String,
}

fn diff(args: &RulesArgs, old: &Path) -> Result<ExitCode, ApiError> {
    let (before, after) = (load(old)?, load(&args.config)?);
    let mut names: Vec<&str> = after.namespaces.iter().chain(&before.namespaces).map(|one| &*one.name).collect();
    names.sort_unstable();
    names.dedup();
    let differences = names.into_iter().filter_map(|name| difference(name, rules(&before, name), rules(&after, name)));
    let differences: Vec<Difference> = differences.collect();
    let (was, is) = (old.display().to_string(), args.config.display().to_string());
    let width = was.len().max(is.len());
    let in_words = |one: &Difference| {
        let Difference { namespace, requests, differs, request, old, new } = one;
        let (differs, requests) = (number(*differs), number(*requests));
        format!(
            "namespace {namespace}: {differs} of {requests} requests are answered otherwise, such as {request}\n  \
             {was:width$}  {old}\n  {is:width$}  {new}\n"
        )
    };
    args.output.print(&differences, |_| match differences.is_empty() {
        true => "the rules say the same\n".to_owned(),
        false => differences.iter().map(in_words).collect(),
    })?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { exit_code::findings() })
}

/// The rules of a namespace; empty if it does not exist.
fn rules<'a>(config: &'a Config, name: &str) -> &'a [RuleConfig] {
    let namespace = config.namespaces.iter().find(|namespace| namespace.name == name);
    namespace.map_or(&[], |namespace| &namespace.rules)
}

/// The first request on which two sets of rules differ, and the number of such requests.
fn difference(namespace: &str, before: &[RuleConfig], after: &[RuleConfig]) -> Option<Difference> {
    let (old, new) = (looked(before), looked(after));
    let samples = samples(&[&old, &new]);
    let mut first = None;
    let mut differs = 0;
    for sample in samples.iter() {
        let (was, is) = (Answer::of(before, &old, &sample), Answer::of(after, &new, &sample));
        if was.code() != is.code() || was.wants != is.wants {
            differs += 1;
            first.get_or_insert_with(|| (sample, was.words(), is.words()));
        }
    }
    let (sample, old, new) = first?;
    let request = request(&sample);
    Some(Difference { namespace: namespace.to_owned(), requests: asked(&samples), differs, request, old, new })
}

fn asked(samples: &Samples) -> u64 {
    samples.combinations().min(MAX_SAMPLES)
}

/// The answer of the rules of a namespace.
struct Answer<'a> {
    refused: Option<&'a RuleConfig>,
    wants: Obligations,
}

impl<'a> Answer<'a> {
    fn of(rules: &'a [RuleConfig], looked: &[Looked<'_>], sample: &Sample) -> Answer<'a> {
        let refused = refuser(looked, sample).and_then(|by| rules.iter().find(|rule| rule.name == by.name));
        let saying = rules.iter().zip(looked).filter(|(_, looked)| !looked.reports && looked.says_something(sample));
        let wants = match refused {
            Some(_) => Obligations::default(),
            None => saying.fold(Obligations::default(), |all, (rule, _)| all.merge(rule.wants())),
        };
        Answer { refused, wants }
    }

    fn code(&self) -> Option<&str> {
        self.refused.map(RuleConfig::code)
    }

    fn words(&self) -> String {
        if let Some(rule) = self.refused {
            return format!("refused by {}: {}", rule.name, rule.code());
        }
        wants_in_words(&self.wants)
    }
}

/// A request in words, without usual values.
fn request(sample: &Sample) -> String {
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let Sample { operation, key, db, ttl_ms, attempts, tries, remaining_ms, token, token_is_shared, .. } = sample;
    let Sample { weekday, hour, minute, name, user, address, certificate, application, .. } = sample;
    let day = usize::try_from(weekday - 1).ok().and_then(|place| DAYS.get(place)).copied().unwrap_or("?");
    let mut words = format!("{operation} of {} on {day} at {hour:02}:{minute:02}", quoted(key));
    match ttl_ms {
        Some(ms) => write!(words, " for {ms} ms"),
        None => write!(words, " without a TTL"),
    }
    .and_then(|()| match token {
        Some(token) => write!(words, " with {}", quoted(token)),
        None => write!(words, " without an owner token"),
    })
    .unwrap_or_default();
    for (fact, is_usual, value) in [
        ("db", *db == 0, db.to_string()),
        ("attempts", *attempts == 1, attempts.to_string()),
        ("tries.application", tries.application == 1, tries.application.to_string()),
        ("tries.everyone", tries.everyone == 1, tries.everyone.to_string()),
        ("remaining", *remaining_ms == 0, format!("{remaining_ms} ms")),
        ("token.shared", !token_is_shared, token_is_shared.to_string()),
        ("client.name", name.is_empty(), quoted(name)),
        ("client.user", user == b"default", quoted(user)),
        ("client.address", address == b"10.0.0.7", quoted(address)),
        ("client.certificate", certificate.is_empty(), quoted(certificate)),
        ("client.application", application.is_empty(), quoted(application)),
    ] {
        if !is_usual {
            let _ = write!(words, ", {fact} {value}");
        }
    }
    words
}

/// A text, cut if it is long.
fn quoted(text: &[u8]) -> String {
    const SHOWN: usize = 60;
    match text.get(..SHOWN) {
        Some(beginning) if text.len() > SHOWN => format!("\"{}…\" ({} bytes)", spell(beginning), text.len()),
        _ => format!("\"{}\"", spell(text)),
    }
}

fn looked(rules: &[RuleConfig]) -> Vec<Looked<'_>> {
    rules.iter().map(RuleConfig::looked).collect()
}

fn load(file: &Path) -> Result<Config, ApiError> {
    load_config(Some(file)).map_err(|wrong| ApiError::Usage(wrong.to_string()))
}
