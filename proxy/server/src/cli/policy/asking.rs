//! `lockwarden policy test`, `bench` and `run`: loads a module with the limits of every policy, or the chain of a namespace,
//! and asks it as the proxy does.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use lockwarden_control::config::Config;
use lockwarden_control::ruleset::load_policies::chain_names;
use lockwarden_control::text::numbers::number;
use lockwarden_lock::decision::Decide as _;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_policy::{
    ChainSpec, Chains, Generation, LoadError, ModuleSource, PolicyCounters, PolicyHost, PolicySource, Said,
};
use serde::Serialize;

use super::cases::{Answer, Case, CaseFile, Request, Settings};
use super::source::{built_here, source};
use super::toml_file::{self, place};
use crate::app::exit_code;
use crate::cli::api_client::{ApiError, load_policies_of};
use crate::cli::output::{Output, Paint, Table, plain};

/// The file of cases in a policy's folder.
const CASES: &str = "cases.toml";

/// What is asked.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("asked").args(["module", "config"])))]
struct Subject {
    /// A policy: a WebAssembly module, or the name of one that ships with lockwarden; if neither is said, what was built in
    /// this folder
    #[arg(short, long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// The policies and rules of a namespace in this configuration
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which namespace, where there are several; NAME.next is what is asked beside it
    #[arg(short, long, value_name = "NAME", requires = "config")]
    namespace: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct TestArgs {
    /// The cases, in TOML
    #[arg(default_value = CASES)]
    cases: PathBuf,
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(super) struct BenchArgs {
    /// The cases, in TOML
    #[arg(default_value = CASES)]
    cases: PathBuf,
    #[command(flatten)]
    subject: Subject,
    /// How often each request is asked
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    subject: Subject,
    /// A file of cases, of which `settings` and `request` are used; for what was built in this folder, its cases.toml
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    request: Request,
    #[command(flatten)]
    output: Output,
}

/// A host, and the loaded subject in it.
struct Asker {
    host: PolicyHost,
    loaded: Asks,
    /// The output of a policy that was built for debugging.
    said: Arc<Said>,
}

enum Asks {
    Module(PolicySource),
    Chain(Arc<Generation>, NamespaceId),
}

/// The result of a request.
struct Tried {
    answer: Answer,
    /// The fuel that the decision burnt.
    fuel: u64,
    /// Why the answer is invalid, whatever it says.
    objection: Option<&'static str>,
    /// The policy's output meanwhile.
    said: String,
}

impl Asker {
    fn of(subject: &Subject) -> Result<Asker, ApiError> {
        let said = Arc::<Said>::default();
        if let Some(file) = &subject.config {
            let (host, config, generation) = load_policies_of(file)?;
            let place = place_of(&config, subject.namespace.as_deref())?;
            return Ok(Asker { host, loaded: Asks::Chain(generation, place), said });
        }
        let module = match &subject.module {
            Some(module) => source(module),
            None => source(&built_here()?),
        };
        let host = PolicyHost::for_author(said.clone()).map_err(|error| ApiError::Usage(error.to_string()))?;
        Ok(Asker { host, loaded: Asks::Module(module), said })
    }

    /// The fuel limit of a decision, if there is one.
    fn fuel_limit(&self) -> Option<u64> {
        match &self.loaded {
            Asks::Module(source) => Some(source.limits.fuel),
            Asks::Chain(..) => None,
        }
    }

    /// The fuel of all decisions so far.
    fn fuel(&self) -> u64 {
        self.counted(|counted| counted.fuel)
    }

    /// How often policies have asked for the client.
    fn client_questions(&self) -> u64 {
        self.counted(|counted| counted.client_questions)
    }

    /// The sum over all policies.
    fn counted(&self, of: fn(&PolicyCounters) -> u64) -> u64 {
        self.host.counters().iter().map(|(_, counted)| of(counted)).sum()
    }

    /// The chains with these settings, or the words in which the settings were rejected.
    fn chains(&self, settings: Option<&Settings>) -> Result<Result<(Chains, NamespaceId), String>, ApiError> {
        let (generation, namespace) = match (&self.loaded, settings) {
            (Asks::Chain(generation, namespace), None) => (generation.clone(), *namespace),
            (Asks::Chain(..), Some(_)) => {
                let why = "with --config the settings are those of the configuration; leave out [settings]";
                return Err(ApiError::Usage(why.to_owned()));
            }
            (Asks::Module(source), settings) => {
                let given = settings.map(|settings| settings.0.clone()).unwrap_or_default();
                let chain = ChainSpec { namespace: "cases".to_owned(), policies: vec![(source.name.clone(), given)] };
                let sources = match source.module {
                    // A built-in policy is identified by its name.
                    ModuleSource::BuiltIn(_) => &[][..],
                    ModuleSource::File(_) | ModuleSource::Bytes(_) | ModuleSource::Fetched { .. } => {
                        std::slice::from_ref(source)
                    }
                };
                match self.host.load(sources, &[chain]) {
                    Ok(generation) => (Arc::new(generation), NamespaceId(0)),
                    Err(errors) => return rejected(errors, &self.said.take()).map(Err),
                }
            }
        };
        let mut chains = Chains::that_ask_always();
        chains.follow(&generation);
        Ok(Ok((chains, namespace)))
    }

    /// Asks twice: an answer that depends on more than the request and the settings differs the second time.
    fn ask(&self, settings: Option<&Settings>, request: &Request) -> Result<Tried, ApiError> {
        let (mut chains, namespace) = match self.chains(settings)? {
            Ok(chains) => chains,
            Err(words) => {
                return Ok(Tried { answer: Answer::Rejected(words), fuel: 0, objection: None, said: String::new() });
            }
        };
        let (question, client) = (request.question(), request.describe());
        self.host.pretend(request.history());
        let describe = |_: u64| client.clone();
        self.said.take();
        let asked_before = self.client_questions();
        let first = chains.decide(namespace, &question, &describe);
        let said = self.said.take();
        let before = self.fuel();
        let second = chains.decide(namespace, &question, &describe);
        let fuel = self.fuel().saturating_sub(before);
        let objection = match &client {
            None if second.fault.is_none() && self.client_questions() > asked_before => {
                Some("it asks who the client is, and nothing says so: give client = { name = \"…\" }")
            }
            _ if first != second => {
                Some("asked again it answers otherwise: a policy keeps nothing between two questions")
            }
            _ => None,
        };
        Ok(Tried { answer: Answer::Decided(second), fuel, objection, said })
    }
}

/// The selected namespace.
fn place_of(config: &Config, name: Option<&str>) -> Result<NamespaceId, ApiError> {
    let chains: Vec<(NamespaceId, String)> = chain_names(config).collect();
    let place = match name {
        Some(name) => chains.iter().find(|(_, known)| known == name).map(|(id, _)| *id),
        None => (config.namespaces.len() == 1).then_some(NamespaceId(0)),
    };
    place.ok_or_else(|| {
        let names: Vec<&str> = chains.iter().map(|(_, name)| &**name).collect();
        let names = names.join(", ");
        ApiError::Usage(match name {
            Some(name) => format!("no namespace is called {name}; there are {names}"),
            None => format!("say which with --namespace: there are {names}"),
        })
    })
}

/// The words in which settings were rejected, if a module was not loaded for that reason. The last output of the module says
/// why it failed.
fn rejected(errors: Vec<LoadError>, said: &str) -> Result<String, ApiError> {
    let words = errors.into_iter().map(|error| match error {
        LoadError::Rejected { message, .. } => Ok(message),
        other if said.is_empty() => Err(ApiError::Usage(other.to_string())),
        other => Err(ApiError::Usage(format!("{other}\n{}", in_lines(said)))),
    });
    Ok(words.collect::<Result<Vec<_>, _>>()?.join("; "))
}

/// The output of a policy, one line each: the first lines, which say why.
fn in_lines(said: &str) -> String {
    const SHOWN: usize = 12;
    let lines = said.lines().filter(|line| !line.trim().is_empty()).take(SHOWN);
    lines.map(|line| format!("      | {}\n", plain(line))).collect()
}

/// A case with its result.
#[derive(Serialize)]
struct Outcome {
    name: String,
    line: usize,
    passed: bool,
    answer: String,
    expected: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    objection: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    said: String,
    fuel: u64,
}

pub(super) fn test(args: &TestArgs) -> Result<ExitCode, ApiError> {
    let asker = Asker::of(&args.subject)?;
    let (file, text) = read_cases(&args.cases)?;
    let each = asked(&file).map(|case| outcome(&asker, case, &text));
    let outcomes: Vec<Outcome> = each.collect::<Result<_, _>>()?;
    args.output.print(&outcomes, |_| in_words(&outcomes, &args.cases, asker.fuel_limit()))?;
    let all = outcomes.iter().all(|outcome| outcome.passed);
    Ok(if all { ExitCode::SUCCESS } else { exit_code::findings() })
}

fn read_cases(path: &Path) -> Result<(CaseFile, String), ApiError> {
    let (file, text) = toml_file::read::<CaseFile>(path)?;
    match file.cases.is_empty() {
        true => Err(ApiError::Usage(format!("{}: there is no [[case]] in it", path.display()))),
        false => Ok((file, text)),
    }
}

/// A case with the defaults of its file: its name, request and settings.
type WholeCase<'f> = (String, Request, Option<&'f Settings>, &'f Case);

fn asked(file: &CaseFile) -> impl Iterator<Item = WholeCase<'_>> {
    file.cases.iter().enumerate().map(|(at, case)| {
        let name = case.name.clone().unwrap_or_else(|| format!("case {}", at + 1));
        let settings = case.settings.as_ref().or(file.settings.as_ref());
        (name, case.request.clone().or(&file.request), settings, case)
    })
}

fn outcome(asker: &Asker, (name, request, settings, case): WholeCase<'_>, text: &str) -> Result<Outcome, ApiError> {
    let asked = asker.ask(settings, &request)?;
    let expected = case.expect.get_ref();
    Ok(Outcome {
        name,
        line: place(text, case.expect.span().start).0,
        passed: expected.is(&asked.answer) && asked.objection.is_none(),
        answer: asked.answer.words(),
        expected: expected.words(),
        objection: asked.objection,
        said: asked.said,
        fuel: asked.fuel,
    })
}

fn in_words(outcomes: &[Outcome], file: &Path, fuel_limit: Option<u64>) -> String {
    let width = outcomes.iter().map(|outcome| plain(&outcome.name).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for outcome in outcomes {
        let word = if outcome.passed { "ok  " } else { "FAIL" };
        let _ = writeln!(text, "{word}  {:width$}  {:>9} fuel", plain(&outcome.name), number(outcome.fuel));
        text.push_str(&in_lines(&outcome.said));
        if outcome.passed {
            continue;
        }
        let place = format!("{}:{}", file.display(), outcome.line);
        let _ = match outcome.objection {
            Some(objection) => writeln!(text, "      {place}: {objection}"),
            None => writeln!(text, "      {place}: {}; expected {}", plain(&outcome.answer), plain(&outcome.expected)),
        };
    }
    let passed = outcomes.iter().filter(|outcome| outcome.passed).count();
    let most = outcomes.iter().map(|outcome| outcome.fuel).max().unwrap_or(0);
    let of = fuel_limit.map(|limit| format!(" of {}", number(limit))).unwrap_or_default();
    let failed = outcomes.len() - passed;
    let _ = writeln!(text, "{passed} passed, {failed} failed; most fuel {}{of}", number(most));
    text
}

/// The cost of the request of a case.
#[derive(Serialize)]
struct Cost {
    name: String,
    /// For the decision, in nanoseconds.
    p50_ns: u64,
    p99_ns: u64,
    /// Fuel burnt by the median decision, and by the costliest.
    fuel: u64,
    max_fuel: u64,
    /// The time to create the instances and pass them their settings, in nanoseconds.
    start_ns: u64,
    /// Linear memory of those instances, in bytes.
    memory_bytes: u64,
}

pub(super) fn bench(args: &BenchArgs) -> Result<ExitCode, ApiError> {
    let asker = Asker::of(&args.subject)?;
    let (file, _) = read_cases(&args.cases)?;
    let mut costs = Vec::new();
    for (name, request, settings, _) in asked(&file) {
        // A case about rejected settings has no request.
        if let Ok((chains, namespace)) = asker.chains(settings)? {
            costs.push(asker.cost(name, &request, chains, namespace, args.count));
        }
    }
    let limit = asker.fuel_limit();
    args.output.print(&costs, |screen| {
        Table::of(&costs)
            .left("CASE", |cost| cost.name.clone())
            .right("P50", |cost| micros(cost.p50_ns))
            .right("P99", |cost| micros(cost.p99_ns))
            .right("FUEL", |cost| cost.fuel)
            .right("MAX FUEL", |cost| near_the_limit(cost.max_fuel, limit))
            .right("START", |cost| micros(cost.start_ns))
            .right("MEMORY", |cost| format!("{} KiB", number(cost.memory_bytes.div_ceil(1024))))
            .show(screen)
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Asker {
    /// Asks `count` times. The first question, which creates the instances, is measured separately.
    fn cost(&self, name: String, request: &Request, mut chains: Chains, namespace: NamespaceId, count: u32) -> Cost {
        let (question, client) = (request.question(), request.describe());
        self.host.pretend(request.history());
        let describe = |_: u64| client.clone();
        let begun = Instant::now();
        chains.decide(namespace, &question, &describe);
        let start = begun.elapsed();
        let (mut times, mut fuels) = (Vec::new(), Vec::new());
        let mut before = self.fuel();
        for _ in 0..count {
            let begun = Instant::now();
            chains.decide(namespace, &question, &describe);
            times.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            let burnt = self.fuel();
            fuels.push(burnt.saturating_sub(before));
            before = burnt;
        }
        times.sort_unstable();
        fuels.sort_unstable();
        let at = |sorted: &[u64], percent: usize| sorted.get((sorted.len() - 1) * percent / 100).copied().unwrap_or(0);
        let memory = self.host.counters().iter().map(|(_, counted)| counted.memory_bytes).sum::<usize>();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Cost {
            name,
            start_ns: nanos(start),
            p50_ns: at(&times, 50),
            p99_ns: at(&times, 99),
            fuel: at(&fuels, 50),
            max_fuel: at(&fuels, 100),
            memory_bytes: memory as u64,
        }
    }
}

fn micros(nanos: u64) -> String {
    format!("{}.{:02} µs", nanos / 1_000, nanos % 1_000 / 10)
}

/// A policy that burns more than half of its fuel may reach the limit with a longer key.
pub(super) fn near_the_limit(fuel: u64, limit: Option<u64>) -> (String, Paint) {
    match limit {
        Some(limit) if fuel > limit / 2 => (format!("{} of {} !", number(fuel), number(limit)), Paint::Doubtful),
        Some(_) | None => (number(fuel), Paint::Plain),
    }
}

/// The answer to one request.
#[derive(Serialize)]
struct Told {
    answer: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    said: String,
    fuel: u64,
}

pub(super) fn run(args: &RunArgs) -> Result<ExitCode, ApiError> {
    let is_built_here = args.subject.module.is_none() && args.subject.config.is_none();
    let its_own = Path::new(CASES);
    let file: CaseFile = match &args.settings {
        Some(path) => toml_file::read(path)?.0,
        None if is_built_here && its_own.exists() => toml_file::read(its_own)?.0,
        None => CaseFile::default(),
    };
    let request = args.request.clone().or(&file.request);
    let asked = Asker::of(&args.subject)?.ask(file.settings.as_ref(), &request)?;
    if let Some(objection) = asked.objection {
        return Err(ApiError::Usage(objection.to_owned()));
    }
    let told = Told { answer: asked.answer.words(), said: asked.said, fuel: asked.fuel };
    args.output.print(&told, |_| format!("{}\n{}", plain(&told.answer), in_lines(&told.said)))?;
    let is_answer = matches!(&asked.answer, Answer::Decided(decision) if decision.fault.is_none());
    Ok(if is_answer { ExitCode::SUCCESS } else { exit_code::findings() })
}
