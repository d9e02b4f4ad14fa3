//! `lockwarden policy replay`: the answers of a configuration's policies to the questions in an audit trail, compared with the
//! recorded ones. Needs neither Redis nor a proxy.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use lockwarden_control::config::NamespaceConfig;
use lockwarden_control::ruleset::load_policies::{chain_names, next_of};
use lockwarden_control::telemetry::audit::{Answer, Client, Question, Record, VERSION, each_line};
use lockwarden_control::telemetry::changes::{Change, Changes, Effect, Example, count};
use lockwarden_control::text::escape::unspell;
use lockwarden_control::text::numbers::{counted, number, utc};
use lockwarden_lock::decision::{
    self, ClientDescription, Decide as _, Holdings, MAX_HOLDINGS, Operation, Proofs, Traits, WhoAsks,
};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::{AskedMs, ProxyTime};
use lockwarden_lock::token::FencingToken;
use lockwarden_policy::Chains;
use lockwarden_rules::stand_ins;
use serde::Serialize;

use super::cases::FromText as _;
use super::changed::changes_in_words;
use crate::app::exit_code;
use crate::cli::api_client::{ApiError, load_policies_of};
use crate::cli::output::{Output, plain};

/// Changes that are distinguished.
const MAX_CHANGES: usize = 1_000;
/// The user of a client that did not log in.
const DEFAULT_USER: &str = "default";
/// The longest owner token that is made up, bytes: a record may claim any length.
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
    /// What stands under next in the configuration, in place of what is in force
    #[arg(long)]
    next: bool,
    #[command(flatten)]
    output: Output,
}

/// The result of a replay.
#[derive(Debug, Default, Serialize)]
struct Replayed {
    lines: u64,
    /// Lines that are no records: torn, or from another program.
    passed_over: u64,
    questions: u64,
    /// The times of the first and the last line with a question, Unix ms.
    first: u64,
    last: u64,
    same: u64,
    /// The answer depends on the content of an owner token, which no record holds.
    depends_on_token: u64,
    /// Questions of namespaces that the configuration does not have, by name.
    elsewhere: BTreeMap<String, u64>,
    /// Questions that do not have the form of this version, and so were not asked.
    unreadable: u64,
    changes: Vec<Change>,
}

/// A namespace, and the places of its chains.
struct Asked {
    namespace: String,
    chain: NamespaceId,
    next: Option<NamespaceId>,
}

/// The chains to ask, and the namespaces in their order.
struct Replay<'a> {
    /// Two equal chains, each with its own history: a question is asked with two owner tokens, and counts once.
    chains: [Chains; 2],
    namespaces: Vec<Asked>,
    only: Option<&'a str>,
    /// Asks the chains under `next`, whichever chain answered then.
    asks_next: bool,
    found: Replayed,
    changes: Changes,
}

pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, ApiError> {
    let (_host, config, generation) = load_policies_of(&args.config)?;
    // Loaded a second time only to have its own history.
    let other = match chain_names(&config).any(|(id, _)| generation.asks_history(id)) {
        true => Some(load_policies_of(&args.config)?),
        false => None,
    };
    let second = other.as_ref().map_or(&generation, |(_, _, second)| second).clone();
    let chains = [generation, second].map(|generation| {
        let mut chains = Chains::that_ask_always();
        chains.follow(&generation);
        chains
    });
    let namespaces = (0..).map(NamespaceId).zip(&config.namespaces);
    let asked = |(id, namespace): (NamespaceId, &NamespaceConfig)| Asked {
        namespace: namespace.name.clone(),
        chain: id,
        next: next_of(&config, id).map(|(id, _)| id),
    };
    let namespaces = namespaces.map(asked).collect();
    let mut replay = Replay {
        chains,
        namespaces,
        only: args.namespace.as_deref(),
        asks_next: args.next,
        found: Replayed::default(),
        changes: Changes::at_most(MAX_CHANGES),
    };
    if let Some(name) = replay.only.filter(|name| !replay.namespaces.iter().any(|known| known.namespace == *name)) {
        let known: Vec<&str> = replay.namespaces.iter().map(|known| &*known.namespace).collect();
        let known = known.join(", ");
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
    let found = Replayed { changes: replay.changes.listed(), ..replay.found };
    if let Some(version) = foreign {
        let (line, ours) = (number(found.lines), VERSION);
        return Err(ApiError::Usage(format!("line {line} is of form {version}; this lockwarden reads form {ours}")));
    }
    if found.questions == 0 {
        let lines = counted(found.lines, "line", "lines");
        let why = format!("no questions in {lines}: they are recorded with audit = \"all\"");
        return Err(ApiError::Usage(why));
    }
    args.output.print(&found, |_| in_words(&found))?;
    // A question that was not asked may have another answer.
    let is_same = found.same == found.questions;
    Ok(if is_same { ExitCode::SUCCESS } else { exit_code::findings() })
}

impl Replay<'_> {
    /// Handles one line; the error is the format number of a line that another version of lockwarden has written.
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
        let asked = self.namespaces.iter().find(|asked| asked.namespace == record.namespace);
        let chains = asked.map(|asked| (asked.chain, asked.next.unwrap_or(asked.chain)));
        for question in &record.questions {
            self.found.questions += 1;
            self.found.last = record.at;
            if self.found.first == 0 {
                self.found.first = record.at;
            }
            match chains {
                // An answer of the chain under `next` is compared with that chain, if there still is one.
                Some((_, next)) if self.asks_next || question.answer.next => self.ask(next, &record, question),
                Some((chain, _)) => self.ask(chain, &record, question),
                None => count(&mut self.found.elsewhere, &record.namespace),
            }
        }
        Ok(())
    }

    fn ask(&mut self, chain: NamespaceId, record: &Record, question: &Question) {
        let Some(recorded) = Recorded::of(record, question) else {
            self.found.unreadable += 1;
            return;
        };
        // If the owner token makes no difference, the second chain is asked only if the question counts for later ones.
        let counts = self.chains[0].generation().is_some_and(|generation| generation.asks_history(chain));
        let both = recorded.tokens.len() > 1 || counts;
        let mut asked = self.chains.iter_mut().zip(recorded.tokens.iter().cycle()).map(|(chains, token)| {
            let decision = chains.decide(chain, &recorded.question(token.as_deref()), &recorded);
            Effect::of(&Answer::of(&decision), question.ttl_ms, recorded.operation)
        });
        let Some(is) = asked.next() else {
            return;
        };
        let other = both.then(|| asked.next()).flatten().unwrap_or_else(|| is.clone());
        let was = Effect::of(&question.answer, question.ttl_ms, recorded.operation);
        if other != is {
            self.found.depends_on_token += 1;
        } else if is == was {
            self.found.same += 1;
        } else {
            let application = record.client.as_ref().map(application).unwrap_or_default();
            self.changes.add(&was.change(&is), &application, || Example {
                at: record.at,
                seq: record.seq,
                namespace: record.namespace.clone(),
                command: record.command.clone().unwrap_or_default(),
                key: record.key.clone(),
            });
        }
    }
}

/// The application of a client: a line omits it if the name, user or address says it already.
fn application(client: &Client) -> String {
    let user = client.user.as_ref().filter(|user| *user != DEFAULT_USER);
    let named = [Some(&client.application), client.name.as_ref(), user, client.certificate.as_ref()];
    let named = named.into_iter().flatten().find(|name| !name.is_empty());
    named.cloned().unwrap_or_else(|| client.host())
}

/// A name before it was spelled for people.
fn raw(text: &str) -> String {
    unspell(text).map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A recorded question, without its owner token.
struct Recorded<'a> {
    operation: Operation,
    key: Vec<u8>,
    db: u32,
    /// Stand-ins for the owner token: two, so that a decision that depends on it is found.
    tokens: Vec<Option<Vec<u8>>>,
    proofs: Proofs,
    traits: Traits,
    client: ClientDescription,
    holdings: Holdings,
    asked: &'a Question,
}

impl WhoAsks for Recorded<'_> {
    fn describe(&self, _: u64) -> Option<ClientDescription> {
        Some(self.client.clone())
    }

    fn holdings(&self, _: &decision::Question<'_>) -> Holdings {
        self.holdings.clone()
    }
}

impl<'a> Recorded<'a> {
    /// `None` where a record contains an unknown word.
    fn of(record: &Record, asked: &'a Question) -> Option<Recorded<'a>> {
        let operation = Operation::from_text(&asked.operation).ok()?;
        let tokens = match asked.token_length {
            None => vec![None],
            Some(length) if length > MAX_TOKEN => return None,
            // A record that is too old to have the class counts as one without a special form.
            Some(length) => {
                stand_ins(asked.token_class.as_deref().unwrap_or("other"), length)?.map(Some).into_iter().collect()
            }
        };
        let proofs = Proofs::from_text(&asked.proofs.join(",")).ok()?;
        let traits = Traits::from_text(&asked.traits.join(",")).ok()?;
        let client = record.client.as_ref();
        let text = |text: &Option<String>| text.as_deref().map(raw);
        let connection = asked.holds.iter().take(MAX_HOLDINGS).map(|key| unspell(key).map(Bytes::from));
        let holdings = Holdings { connection: connection.collect::<Option<_>>()?, application: asked.held };
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
            holdings,
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
    text.push_str(&format!("\n{}\n{AS_IT_WAS}\n", changes_in_words(&found.changes)));
    text
}

const AS_IT_WAS: &str = "Each question is as it was: a client that is answered otherwise goes on otherwise.";
