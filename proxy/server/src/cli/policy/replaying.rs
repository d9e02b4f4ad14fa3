//! `lockwarden policy replay`: what the policies of a configuration would have answered to the questions in an audit trail, and what of
//! that is otherwise than it was. Neither Redis nor a proxy is asked.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lockwarden_lock::decision::{self, ClientDescription, Decide as _, Operation, Proofs, Traits};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::{AskedMs, ProxyTime};
use lockwarden_lock::token::FencingToken;
use lockwarden_policy::Chains;
use lockwarden_rules::stand_ins;
use serde::Serialize;

use super::cases::FromText as _;
use super::effect::Effect;
use crate::app::exit_code;
use crate::cli::api_client::{ApiError, load_policies_of};
use crate::cli::output;
use crate::cli::output::{Format, Output, Screen, Table, plain};
use crate::telemetry::audit::{Answer, Client, Question, Record, VERSION, each_line};
use crate::text::escape::unspell;
use crate::text::numbers::{counted, number, utc};

/// Different changes that are told apart; what comes beyond them is one.
const MAX_CHANGES: usize = 1_000;
/// Applications that are counted by name of one change, and namespaces that are elsewhere.
const MAX_NAMES: usize = 100;
/// The longest text of a record that is kept, in characters.
const MAX_CHARS: usize = 300;
/// Applications of a change that a line shows.
const SHOWN_APPLICATIONS: usize = 3;
/// The user of a client that did not log in.
const DEFAULT_USER: &str = "default";
/// The longest owner token that one is made up for: a record may say any length.
const MAX_TOKEN: usize = 1 << 20;

#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    /// Audit files, written with audit = "all"; the full ones beside them are read, too. - is standard input
    #[arg(required = true, value_name = "AUDIT FILE")]
    logs: Vec<PathBuf>,
    /// The configuration whose policies and rules are asked
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Only what this namespace was asked
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// What came of a replay.
#[derive(Debug, Default, Serialize)]
struct Replayed {
    lines: u64,
    /// No records: torn, or another program's.
    passed_over: u64,
    questions: u64,
    /// The times of the first and the last line with a question, Unix ms.
    first: u64,
    last: u64,
    same: u64,
    /// The answer depends on what an owner token says, which no record holds.
    depends_on_token: u64,
    /// Of namespaces that the configuration does not have, by name.
    elsewhere: BTreeMap<String, u64>,
    /// Questions that are no record of this form, and so were not asked.
    unreadable: u64,
    changes: Vec<Change>,
}

/// Answers that are otherwise in the same way.
#[derive(Debug, Serialize)]
struct Change {
    change: String,
    questions: u64,
    applications: BTreeMap<String, u64>,
    /// The first of them.
    example: Example,
}

#[derive(Debug, Serialize)]
struct Example {
    at: u64,
    seq: u64,
    namespace: String,
    command: String,
    key: String,
}

/// The chains that are asked, and the namespaces in their order.
struct Replay<'a> {
    chains: Chains,
    namespaces: Vec<String>,
    only: Option<&'a str>,
    found: Replayed,
    /// Which of the changes is told by these words.
    places: BTreeMap<String, usize>,
}

pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, ApiError> {
    let (_host, config, generation) = load_policies_of(&args.config)?;
    let mut chains = Chains::without_breakers();
    chains.follow(&generation);
    let namespaces = config.namespaces.iter().map(|namespace| namespace.name.to_string()).collect();
    let mut replay = Replay {
        chains,
        namespaces,
        only: args.namespace.as_deref(),
        found: Replayed::default(),
        places: BTreeMap::new(),
    };
    if let Some(name) = replay.only.filter(|name| !replay.namespaces.iter().any(|known| known == name)) {
        let known = replay.namespaces.join(", ");
        return Err(ApiError::Usage(format!("no namespace is called {name}; there are {known}")));
    }
    let mut foreign = None;
    let read = each_line(&args.logs, &mut |line| match replay.line(line) {
        Ok(()) => ControlFlow::Continue(()),
        Err(version) => {
            foreign = Some(version);
            ControlFlow::Break(())
        }
    });
    read.map_err(|error| ApiError::Usage(error.to_string()))?;
    let mut found = replay.found;
    if let Some(version) = foreign {
        let (line, ours) = (number(found.lines), VERSION);
        return Err(ApiError::Usage(format!("line {line} is of form {version}; this lockwarden reads form {ours}")));
    }
    if found.questions == 0 {
        let lines = counted(found.lines, "line", "lines");
        let why = format!("no questions in {lines}: they are recorded with audit = \"all\"");
        return Err(ApiError::Usage(why));
    }
    found.changes.sort_by_key(|change| std::cmp::Reverse(change.questions));
    output::print(&match args.output.output {
        Format::Json => output::json(&found),
        Format::Text => in_words(&found),
    })?;
    // What was not asked may be otherwise.
    let is_same = found.same == found.questions;
    Ok(if is_same { ExitCode::SUCCESS } else { exit_code::findings() })
}

impl Replay<'_> {
    /// Takes one line; an error is the form of one that another lockwarden has written.
    fn line(&mut self, line: &[u8]) -> Result<(), u32> {
        self.found.lines += 1;
        let record = match serde_json::from_slice::<Record>(line) {
            Ok(record) if record.v == VERSION => record,
            Ok(Record { v: 0, .. }) | Err(_) => {
                self.found.passed_over += 1;
                return Ok(());
            }
            Ok(record) => return Err(record.v),
        };
        if self.only.is_some_and(|only| only != record.namespace) {
            return Ok(());
        }
        let place = self.namespaces.iter().position(|name| *name == record.namespace);
        let namespace = place.and_then(|place| u16::try_from(place).ok()).map(NamespaceId);
        for question in &record.questions {
            self.found.questions += 1;
            self.found.last = record.at;
            if self.found.first == 0 {
                self.found.first = record.at;
            }
            match namespace {
                Some(namespace) => self.ask(namespace, &record, question),
                None => count(&mut self.found.elsewhere, &record.namespace),
            }
        }
        Ok(())
    }

    fn ask(&mut self, namespace: NamespaceId, record: &Record, question: &Question) {
        let Some(recorded) = Recorded::of(record, question) else {
            self.found.unreadable += 1;
            return;
        };
        let asked = recorded.tokens.iter().map(|token| {
            let decision =
                self.chains.decide(namespace, &recorded.question(token.as_deref()), &|_| Some(recorded.client.clone()));
            Effect::of(&Answer::of(&decision), question, recorded.operation)
        });
        let asked: Vec<Effect> = asked.collect();
        let Some((is, others)) = asked.split_first() else {
            return;
        };
        let was = Effect::of(&question.answer, question, recorded.operation);
        if others.iter().any(|other| other != is) {
            self.found.depends_on_token += 1;
        } else if *is == was {
            self.found.same += 1;
        } else {
            self.changed(short(&was.change(is)), record);
        }
    }

    fn changed(&mut self, change: String, record: &Record) {
        let is_new = !self.places.contains_key(&change);
        let words = match is_new && self.places.len() >= MAX_CHANGES {
            true => "something else".to_owned(),
            false => change,
        };
        let changes = &mut self.found.changes;
        let place = *self.places.entry(words.clone()).or_insert_with(|| {
            changes.push(Change {
                change: words,
                questions: 0,
                applications: BTreeMap::new(),
                example: Example {
                    at: record.at,
                    seq: record.seq,
                    namespace: short(&record.namespace),
                    command: short(record.command.as_deref().unwrap_or_default()),
                    key: short(&record.key),
                },
            });
            changes.len() - 1
        });
        let Some(change) = changes.get_mut(place) else {
            return;
        };
        change.questions += 1;
        let application = record.client.as_ref().map(application).unwrap_or_default();
        count(&mut change.applications, &application);
    }
}

/// Counts one by its name; beyond a bound all others are one.
fn count(by_name: &mut BTreeMap<String, u64>, name: &str) {
    let name = short(name);
    let is_counted = by_name.contains_key(&name) || by_name.len() < MAX_NAMES;
    let name = if is_counted { name } else { "others".to_owned() };
    *by_name.entry(name).or_default() += 1;
}

/// A text of a record, of which there may be anything, so that what is kept has a bound.
fn short(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

/// What a client is known as: a line leaves out what its name, user or address says already.
fn application(client: &Client) -> String {
    let user = client.user.as_ref().filter(|user| *user != DEFAULT_USER);
    let named = [Some(&client.application), client.name.as_ref(), user, client.certificate.as_ref()];
    let named = named.into_iter().flatten().find(|name| !name.is_empty());
    named.cloned().unwrap_or_else(|| client.host())
}

/// A name as it was before it was spelled for people.
fn raw(text: &str) -> String {
    unspell(text).map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A question as it was, but for the owner token.
struct Recorded<'a> {
    operation: Operation,
    key: Vec<u8>,
    db: u32,
    /// What stands for the owner token: two, so that a decision that depends on it is found.
    tokens: Vec<Option<Vec<u8>>>,
    proofs: Proofs,
    traits: Traits,
    client: ClientDescription,
    asked: &'a Question,
}

impl<'a> Recorded<'a> {
    /// `None` where a record says something that is none of the words.
    fn of(record: &Record, asked: &'a Question) -> Option<Recorded<'a>> {
        let operation = Operation::from_text(&asked.operation).ok()?;
        let tokens = match asked.token_length {
            None => vec![None],
            Some(length) if length > MAX_TOKEN => return None,
            // One that is too old to tell the class is taken for one of no special form.
            Some(length) => {
                stand_ins(asked.token_class.as_deref().unwrap_or("other"), length)?.map(Some).into_iter().collect()
            }
        };
        let proofs = Proofs::from_text(&asked.proofs.join(",")).ok()?;
        let traits = Traits::from_text(&asked.traits.join(",")).ok()?;
        let client = record.client.as_ref();
        let text = |text: &Option<String>| text.as_deref().map(raw);
        Some(Recorded {
            operation,
            key: unspell(&record.key)?,
            db: record.db,
            tokens,
            proofs,
            traits,
            client: client.map_or_else(ClientDescription::default, |client| ClientDescription {
                name: text(&client.name).unwrap_or_default(),
                user: text(&client.user).unwrap_or_else(|| DEFAULT_USER.to_owned()),
                address: client.host(),
                certificate: text(&client.certificate),
                application: match client.process {
                    true => client.host(),
                    false => application(client),
                },
            }),
            asked,
        })
    }

    fn question<'q>(&'q self, owner_token: Option<&'q [u8]>) -> decision::Question<'q> {
        decision::Question {
            operation: self.operation,
            db: self.db,
            key: &self.key,
            owner_token,
            ttl_ms: self.asked.ttl_ms.map(AskedMs),
            proofs: self.proofs,
            traits: self.traits,
            fencing_token: FencingToken(self.asked.fencing_token),
            remaining_ms: self.asked.remaining_ms,
            attempts: self.asked.attempts,
            client: 1,
            now: ProxyTime(self.asked.now_ms),
        }
    }
}

fn in_words(found: &Replayed) -> String {
    let questions = |count| counted(count, "question", "questions");
    let mut text = format!(
        "{}, {} from {} to {}; {} are answered the same.\n",
        counted(found.lines, "line", "lines"),
        questions(found.questions),
        utc(found.first),
        utc(found.last),
        number(found.same),
    );
    let mut more = |count: u64, words: &str| {
        if count > 0 {
            text.push_str(&format!("{} {words}.\n", number(count)));
        }
    };
    more(found.depends_on_token, "depend on what an owner token says, which no record holds");
    for (namespace, count) in &found.elsewhere {
        more(*count, &format!("are of the namespace {}, which the configuration does not have", plain(namespace)));
    }
    more(found.unreadable, "are in words that this lockwarden does not know, and were not asked");
    more(found.passed_over, "lines are torn or of another program, and were passed over");
    if found.changes.is_empty() {
        return text;
    }
    let changes = Table::of(&found.changes)
        .right("QUESTIONS", |change| number(change.questions))
        .left("CHANGE", |change| plain(&change.change).into_owned())
        .cut("APPLICATIONS", |change| applications(&change.applications))
        .cut("FOR EXAMPLE", |change| {
            let Example { command, key, seq, .. } = &change.example;
            format!("{} {}, seq {seq}", plain(command), plain(key))
        });
    text.push_str(&format!("\n{}\n{AS_IT_WAS}\n", changes.show(Screen::there_is())));
    text
}

const AS_IT_WAS: &str = "Each question is as it was: a client that is answered otherwise goes on otherwise.";

/// The busiest of them.
fn applications(by_name: &BTreeMap<String, u64>) -> String {
    let mut all: Vec<(&String, &u64)> = by_name.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = all.iter().take(SHOWN_APPLICATIONS).map(|(name, count)| format!("{} {}", plain(name), number(**count)));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN_APPLICATIONS {
        text.push_str(&format!(", {} more", all.len() - SHOWN_APPLICATIONS));
    }
    text
}
