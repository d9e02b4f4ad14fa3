//! `lockwarden audit`: shows what enforce mode would break, by application and with examples, and a verdict for each namespace.
//! Asks a running proxy for its report and adds nothing to it.

mod brief;
mod what_if;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use lockwarden_console::view::api::{
    Application, Counting, LockPattern, LockTime, Locks, LocksQuery, Misuse, Moment, NamespaceReport, Report,
    ReportQuery,
};
use lockwarden_control::text::durations::share;
use lockwarden_control::text::numbers::{counted, number, utc};
use serde::Serialize;

use super::api_client::{ApiClient, ApiError, finish, path};
use super::fleet::{Answers, FleetArgs};
use super::locks::list::table_of;
use super::output;
use super::output::{Column, Output, Paint, Screen, Table, ago, duration, plain};
use brief::{equal_values, without_ttl};

/// Held locks with problems that are shown as examples.
const EXAMPLES: usize = 20;
/// Key patterns shown per finding.
const MAX_PATTERNS: usize = 20;
/// Lines to write shown per advice.
const MAX_LINES: usize = 5;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    order: Option<AuditOrder>,
    #[command(flatten)]
    query: ReportQuery,
    /// Only this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// What would be refused if the configuration said this, by the refusals that the proxy has kept; may be repeated
    #[arg(long = "if", value_name = "KEY=VALUE", conflicts_with_all = ["since", "namespace", "enough", "all"])]
    what_if: Vec<String>,
    /// Everything that was seen, with examples, in place of one screen
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Subcommand, Debug)]
enum AuditOrder {
    /// Have the proxy count from now on
    Reset {
        #[command(flatten)]
        fleet: FleetArgs,
    },
}

/// Shows what would break; exits with 1 if a namespace is not ready.
pub(super) fn audit(args: &AuditArgs) -> ExitCode {
    finish(match &args.order {
        Some(AuditOrder::Reset { fleet }) => reset(fleet),
        None if !args.what_if.is_empty() => what_if::told(&args.what_if, &args.fleet, args.output),
        None => told(args),
    })
}

fn reset(fleet: &FleetArgs) -> Result<ExitCode, ApiError> {
    let order = serde_json::Map::new();
    let answers = fleet.ask(|client| client.post(&path(&["report", "reset"], &()), &order))?;
    let told = |Counting { since }: &Counting| format!("the report counts from {} on\n", utc(*since));
    output::print(&answers.parts(told, ""))?;
    Ok(answers.end())
}

/// The report of a proxy, with the held locks that have problems.
#[derive(Debug, Serialize)]
struct Audit {
    #[serde(flatten)]
    report: Report,
    /// The examples; `matching` is their full number.
    held_with_problems: Locks,
}

fn told(args: &AuditArgs) -> Result<ExitCode, ApiError> {
    let answers = args.fleet.ask(|client| fetch(client, args))?;
    let not_ready = not_ready(&answers);
    args.output.print(&answers, |screen| {
        answers.parts(|audit| report(audit, args.all, screen), "") + &answers.verdict(|| verdict(&not_ready))
    })?;
    Ok(answers.end_with_findings(!not_ready.is_empty()))
}

fn report(audit: &Audit, all: bool, screen: Screen) -> String {
    let watched = audit.report.now.saturating_sub(audit.report.since);
    let head = format!("What was seen in the last {}:", duration(watched));
    let hidden = output::warning(audit.report.hidden_processes.as_deref(), screen);
    hidden
        + &match all {
            true => words(&head, audit, screen),
            false => brief::words(&head, &audit.report, screen),
        }
}

/// The namespaces that are not ready: one of the proxies with observations of it says so, or no proxy has any.
fn not_ready(answers: &Answers<Audit>) -> BTreeSet<&str> {
    let all = || answers.answers.iter().flat_map(|one| &one.answer.report.namespaces);
    let is_ready = |name: &str| {
        let mut saw = all().filter(|one| one.namespace == name && one.operations > 0).peekable();
        saw.peek().is_some() && saw.all(|one| one.ready)
    };
    all().map(|one| one.namespace.as_str()).filter(|name| !is_ready(name)).collect()
}

fn verdict(not_ready: &BTreeSet<&str>) -> String {
    match not_ready.is_empty() {
        true => "every namespace is ready at each proxy that has seen something of it".to_owned(),
        false => format!("not ready: {}", not_ready.iter().copied().collect::<Vec<_>>().join(", ")),
    }
}

fn fetch(client: &ApiClient, args: &AuditArgs) -> Result<Audit, ApiError> {
    let mut report: Report = client.get(&path(&["report"], &args.query))?;
    if let Some(name) = &args.namespace {
        narrow(&mut report, name)?;
    }
    let namespace = args.namespace.clone();
    let examples = LocksQuery { namespace, problems: true, limit: Some(EXAMPLES), ..LocksQuery::default() };
    Ok(Audit { report, held_with_problems: client.get(&path(&["locks"], &examples))? })
}

/// Removes the other namespaces.
fn narrow(report: &mut Report, name: &str) -> Result<(), ApiError> {
    report.namespaces.retain(|one| one.namespace == name);
    if report.namespaces.is_empty() {
        return Err(ApiError::NotFound(format!("there is no namespace {name:?}")));
    }
    report.patterns.retain(|one| one.namespace == name);
    for application in &mut report.applications {
        application.namespaces.retain(|usage| usage.namespace == name);
    }
    report.applications.retain(|application| !application.namespaces.is_empty());
    Ok(())
}

fn words(head: &str, audit: &Audit, screen: Screen) -> String {
    let Audit { report, held_with_problems: held } = audit;
    // Writing to a String cannot fail, here and below.
    let mut text = format!("{head}\n\n");
    text.push_str(&namespaces(&report.namespaces, screen));
    if report.unclaimed_patterns > 0 {
        let patterns = counted(report.unclaimed_patterns, "pattern", "patterns");
        let _ = writeln!(
            text,
            "\n{patterns} of keys that are used as locks {} in no namespace: `lockwarden discover` names them",
            if report.unclaimed_patterns == 1 { "is" } else { "are" }
        );
    }
    let lock_time = lock_time(report, screen);
    if !lock_time.is_empty() {
        let head =
            screen.paint("Lock time: what enforce mode would cost (foretold), and what it costs (seen):", Paint::Head);
        let _ = write!(text, "\n{head}\n{lock_time}");
    }
    let held_for = held_for(&report.patterns, screen);
    if !held_for.is_empty() {
        let head = screen.paint("How long locks are held, by keys:", Paint::Head);
        let _ = write!(text, "\n{head}\n{held_for}");
    }
    let mut advice = Vec::new();
    let misuses = misuses(&report.applications, report.now, &mut advice, screen);
    if !misuses.is_empty() {
        let _ = write!(
            text,
            "\n{}\n{misuses}",
            screen.paint("What enforce mode would refuse (or refuses), and what was noticed:", Paint::Head)
        );
    }
    if !held.locks.is_empty() {
        let rows: Vec<_> = held.locks.iter().map(|lock| (None, lock)).collect();
        let head = screen.paint("Held now with something wrong:", Paint::Head);
        let _ = write!(text, "\n{head}\n{}", table_of(&rows, screen));
        let more = held.matching.saturating_sub(held.locks.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "and {} more; lockwarden locks --problems shows them", number(more));
        }
    }
    for pattern in &report.patterns {
        if let Some(about_ttl) = &pattern.advice {
            let keys = format!("{} in {}", pattern.pattern, pattern.namespace);
            advice.push(Advice { what: "TTL", advice: format!("{keys}: {about_ttl}"), lines: Vec::new() });
        }
    }
    if !advice.is_empty() {
        let _ = writeln!(text, "\n{}", screen.paint("What to do:", Paint::Head));
        for one in advice {
            let _ = writeln!(text, "  {}: {}", plain(one.what), plain(&one.advice));
            for line in &one.lines {
                let _ = writeln!(text, "    {}", plain(line));
            }
        }
    }
    for family in report.namespaces.iter().flat_map(|one| &one.mixed) {
        let keys = plain(&family.patterns.join(" ")).into_owned();
        let head = format!("For {keys}, above the namespace that has them now:");
        let _ = writeln!(text, "\n{}", screen.paint(&head, Paint::Head));
        for line in family.toml.lines() {
            let _ = writeln!(text, "  {}", plain(line));
        }
    }
    for one in &report.namespaces {
        for said in [without_ttl(one), equal_values(one)].into_iter().flatten() {
            let _ = writeln!(text, "\n{said}");
        }
    }
    let applications =
        report.applications.iter().map(|one| (one.application.as_str(), one.ready, one.verdict.as_str()));
    text.push_str(&verdicts("APPLICATION", applications, screen));
    let namespaces = report.namespaces.iter().map(|one| (one.namespace.as_str(), one.ready, one.verdict.as_str()));
    text.push_str(&verdicts("NAMESPACE", namespaces, screen));
    text
}

/// Readiness for enforcing.
fn verdicts<'a>(head: &'static str, all: impl Iterator<Item = (&'a str, bool, &'a str)>, screen: Screen) -> String {
    let all: Vec<_> = all.collect();
    let ready = |ready: bool| match ready {
        true => ("yes".to_owned(), Paint::Good),
        false => ("no".to_owned(), Paint::Bad),
    };
    let table = Table::of(&all)
        .left(head, |(name, _, _)| *name)
        .left("READY", |(_, is_ready, _)| ready(*is_ready))
        .left("VERDICT", |(_, _, verdict)| *verdict);
    match all.is_empty() {
        true => String::new(),
        false => format!("\n{}", table.show(screen)),
    }
}

fn namespaces(namespaces: &[NamespaceReport], screen: Screen) -> String {
    let noted = |count: u64, paint| {
        let paint = if count > 0 { paint } else { Paint::Plain };
        (number(count), paint)
    };
    Table::of(namespaces)
        .left("NAMESPACE", |one| one.namespace.as_str())
        .left("MODE", |one| one.mode.as_str())
        .right("OPERATIONS", |one| one.operations)
        .right("WOULD REFUSE", |one| noted(one.would_refuse, Paint::Doubtful))
        .right("REFUSED", |one| one.refused)
        .right("WOULD CHANGE", |one| noted(one.would_modify, Paint::Doubtful))
        .right("OVERLAPS", |one| noted(one.overlaps, Paint::Bad))
        .right("RAN OUT", |one| noted(one.ran_out, Paint::Doubtful))
        .right("NO TTL", |one| noted(one.without_ttl, Paint::Doubtful))
        .right("KEPT ALIVE", |one| one.kept_alive)
        .right("NO PROOF", |one| one.tokenless_releases)
        .right("UNGOVERNED", |one| one.ungoverned)
        .show(screen)
}

/// Lock time of a namespace, or of one application in it.
struct TimeRow<'a> {
    namespace: &'a str,
    application: &'a str,
    /// `foretold` or `seen`.
    word: &'static str,
    time: LockTime,
}

/// The cost of enforcing in lock time, foretold and below it seen; for each namespace, and for the applications that lose some.
fn lock_time(report: &Report, screen: Screen) -> String {
    let mut rows = Vec::new();
    for one in &report.namespaces {
        let whole = std::iter::once(("all", one.foretold, one.seen));
        let losers = report.applications.iter().flat_map(|application| {
            let usages = application.namespaces.iter();
            let here = usages.filter(|usage| usage.namespace == one.namespace);
            let losing = here.filter(|usage| loses(usage.foretold) || loses(usage.seen));
            losing.map(|usage| (application.application.as_str(), usage.foretold, usage.seen))
        });
        for (application, foretold, seen) in whole.chain(losers) {
            let both = [("foretold", foretold), ("seen", seen)];
            let some = both.into_iter().filter(|(_, time)| *time != LockTime::default());
            rows.extend(some.map(|(word, time)| TimeRow { namespace: &one.namespace, application, word, time }));
        }
    }
    let lost = |count: u64, words: String| (count > 0).then_some((words, Paint::Bad));
    Table::of(&rows)
        .cut("NAMESPACE", |row| row.namespace)
        .cut("APPLICATION", |row| row.application)
        .left("", |row| row.word)
        .right("GRANTS", |row| row.time.grants)
        .right("HELD", |row| duration(row.time.held_ms))
        .right("UNHELD", |row| lost(row.time.unheld_ms, unheld(row.time)))
        .right("GRANTS LOST", |row| lost(row.time.lost_grants, number(row.time.lost_grants)))
        .right("WAITS ADDED", |row| lost(row.time.waits_ms, duration(row.time.waits_ms)))
        .right("CUT SHORT", |row| lost(row.time.cut_ms, duration(row.time.cut_ms)))
        .show_if_any(screen)
}

fn loses(time: LockTime) -> bool {
    time.unheld_ms > 0 || time.cut_ms > 0
}

/// The unheld time, and its share of the time in which locks were locked.
fn unheld(time: LockTime) -> String {
    let share = share(time.unheld_ms, time.locked_ms());
    format!("{} ({share})", duration(time.unheld_ms))
}

/// The advice on a finding, and the lines to write.
struct Advice<'a> {
    what: &'a str,
    advice: String,
    lines: Vec<String>,
}

/// How long the locks of each pattern are held, the busiest first.
fn held_for(patterns: &[LockPattern], screen: Screen) -> String {
    let with_some = patterns.iter().filter(|one| one.holds.count > 0);
    let shown: Vec<&LockPattern> = with_some.take(MAX_PATTERNS).collect();
    let ran_out = |count: u64| match count {
        0 => (number(count), Paint::Plain),
        _ => (number(count), Paint::Doubtful),
    };
    Table::of(&shown)
        .cut("KEYS", |one| one.pattern.as_str())
        .cut("NAMESPACE", |one| one.namespace.as_str())
        .right("LEASES", |one| one.holds.count)
        .right("p50", |one| duration(one.holds.p50_ms))
        .right("p99", |one| duration(one.holds.p99_ms))
        .right("p99.9", |one| duration(one.holds.p999_ms))
        .right("LONGEST", |one| duration(one.holds.max_ms))
        .right("TTL", |one| one.ttl_ms.map(duration))
        .right("RAN OUT", |one| ran_out(one.holds.ran_out))
        .show_if_any(screen)
}

/// One line for each kind of misuse of each application on each key pattern. The advice is collected once for each kind.
fn misuses<'a>(applications: &'a [Application], now: u64, advice: &mut Vec<Advice<'a>>, screen: Screen) -> String {
    // Few old clients announce their library.
    let with_library = applications.iter().any(|one| !one.libraries.is_empty());
    let mut rows = Vec::new();
    for application in applications {
        for usage in &application.namespaces {
            let refusals = usage.refusals.iter().map(|misuse| (misuse, Paint::Bad));
            let findings = usage.findings.iter().map(|misuse| (misuse, Paint::Doubtful));
            for (misuse, paint) in refusals.chain(findings) {
                let what = (misuse.what.as_str(), paint);
                rows.extend(on_patterns(misuse).into_iter().map(|found| (application, usage, what, found)));
                note(advice, misuse);
            }
        }
    }
    Table::of(&rows)
        .cut("APPLICATION", |(application, ..)| application.application.as_str())
        .column_if(with_library, "LIBRARY", Column::Cut, |(application, ..)| application.libraries.join(", "))
        .cut("NAMESPACE", |(_, usage, ..)| of_namespace(&usage.namespace))
        .left("WHAT", |(_, _, (what, paint), _)| ((*what).to_owned(), *paint))
        .cut("KEYS", |(.., found)| found.keys.as_str())
        .right("TIMES", |(.., found)| found.count)
        .right("LAST", |(.., found)| ago(found.last, now))
        .cut("EXAMPLE", |(.., found)| found.example.as_str())
        .show_if_any(screen)
}

/// A finding that is about no lock belongs to no namespace.
fn of_namespace(name: &str) -> &str {
    match name {
        "" => "-",
        name => name,
    }
}

/// A misuse of the locks of one key pattern.
struct OnPattern {
    keys: String,
    count: u64,
    last: u64,
    example: String,
}

/// A misuse by key pattern. A proxy of an older version does not report them.
fn on_patterns(misuse: &Misuse) -> Vec<OnPattern> {
    let whole = || OnPattern {
        keys: "-".to_owned(),
        count: misuse.count,
        last: misuse.last,
        example: example(&misuse.example),
    };
    if misuse.patterns.is_empty() {
        return vec![whole()];
    }
    let patterns = misuse.patterns.iter().take(MAX_PATTERNS);
    let each = patterns.map(|one| OnPattern {
        keys: one.pattern.clone(),
        count: one.count,
        last: one.last,
        // The last of all is known in full.
        example: match one.key == misuse.example.key && one.last == misuse.last {
            true => example(&misuse.example),
            false => one.key.clone(),
        },
    });
    each.collect()
}

fn note<'a>(advice: &mut Vec<Advice<'a>>, misuse: &'a Misuse) {
    if misuse.advice.is_empty() {
        return;
    }
    let known = advice.iter().position(|one| one.what == misuse.what);
    let place = known.unwrap_or_else(|| {
        advice.push(Advice { what: &misuse.what, advice: misuse.advice.clone(), lines: Vec::new() });
        advice.len() - 1
    });
    let lines = &mut advice[place].lines;
    for one in &misuse.patterns {
        let Some(mends) = one.mends() else {
            continue;
        };
        let line = format!("{}: {mends}", one.pattern);
        let is_about = |said: &String| said.starts_with(&format!("{}: ", one.pattern));
        if lines.len() < MAX_LINES && !lines.iter().any(is_about) {
            lines.push(line);
        }
    }
}

/// The command and its lock, the client, and the id of the record.
fn example(moment: &Moment) -> String {
    let mut words = Vec::from_iter(moment.command.clone());
    words.push(moment.wrote.as_ref().unwrap_or(&moment.key).clone());
    if let Some(client) = &moment.client {
        words.push(format!("from {}", client.address));
    }
    if let Some(id) = &moment.id {
        words.push(format!("id {id}"));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use lockwarden_console::view::api::{Client, MisusedPattern, PatternLockTime, TomlLine, Usage};

    use super::super::fleet::Answer;
    use super::*;

    fn moment() -> Moment {
        Moment {
            at: 90_000,
            id: Some("7F3K2A".into()),
            event: "released".into(),
            namespace: "orders".into(),
            mode: "monitor".into(),
            key: "lock:order:42".into(),
            command: Some("DEL".into()),
            operation: Some("release".into()),
            client: Some(Client {
                application: "billing".into(),
                address: "10.0.0.7:5000".into(),
                name: Some("billing".into()),
                ..Client::default()
            }),
            decision: Some("would-deny".into()),
            reason: Some("not-owner".into()),
            policy: Some("owner-token".into()),
            fence: Some(7),
            ..Moment::default()
        }
    }

    fn report() -> Report {
        let namespace = |name: &str, would_refuse| NamespaceReport {
            namespace: name.into(),
            mode: "monitor".into(),
            operations: 53_000,
            refused: 0,
            would_refuse,
            would_modify: 0,
            overlaps: 0,
            ran_out: 0,
            kept_alive: 0,
            ungoverned: 0,
            tokenless_releases: 0,
            foretold: LockTime::default(),
            seen: LockTime::default(),
            without_ttl: 1,
            without_ttl_examples: vec!["lock:old".into()],
            equal_values: 0,
            equal_values_examples: Vec::new(),
            ran_out_while_held: 0,
            wanted_calls: 0,
            wanted_until: None,
            mixed: Vec::new(),
            ready: would_refuse == 0,
            harm: None,
            against: Vec::new(),
            verdict: "as it is".into(),
        };
        Report {
            since: 0,
            now: 100_000,
            namespaces: vec![namespace("orders", 212), namespace("stock", 0)],
            unclaimed_patterns: 2,
            hidden_processes: None,
            patterns: Vec::new(),
            applications: vec![Application {
                application: "billing".into(),
                libraries: vec!["jedis 2.9".into()],
                connections: 6,
                ready: false,
                verdict: "would be refused".into(),
                namespaces: vec![Usage {
                    namespace: "orders".into(),
                    mode: "monitor".into(),
                    operations: 53_000,
                    acquired: 9,
                    contended: 3,
                    would_modify: 0,
                    foretold: LockTime::default(),
                    seen: LockTime::default(),
                    lost_on: Vec::new(),
                    overlaps: 0,
                    refusals: vec![Misuse {
                        what: "not-owner".into(),
                        count: 212,
                        last: 90_000,
                        example: moment(),
                        breaks: true,
                        advice: "release by compare-and-delete".into(),
                        patterns: vec![MisusedPattern {
                            pattern: "lock:order:*".into(),
                            key: "lock:order:42".into(),
                            db: 0,
                            count: 212,
                            last: 90_000,
                            code: Some("EVAL … 1 lock:order:42 VALUE".into()),
                            toml: Some(TomlLine {
                                namespace: Some("orders".into()),
                                table: "namespace".into(),
                                line: "hand_over = true".into(),
                            }),
                        }],
                    }],
                    findings: Vec::new(),
                }],
            }],
        }
    }

    #[test]
    fn every_misuse_has_its_application_its_example_and_its_advice() {
        let audit = Audit {
            report: report(),
            held_with_problems: Locks { now: 100_000, matching: 0, locks: Vec::new(), notices: Vec::new() },
        };
        let text = words("as it was", &audit, Screen::there_is());
        for said in [
            "as it was\n\nNAMESPACE",
            "billing      jedis 2.9  orders     not-owner  lock:order:*    212  10 s ago  DEL lock:order:42 from 10.0.0.7:5000 id 7F3K2A",
            "not-owner: release by compare-and-delete",
            "    lock:order:*: EVAL … 1 lock:order:42 VALUE   or   hand_over = true in namespace orders",
            "2 patterns of keys that are used as locks are in no namespace: `lockwarden discover`",
            "Without a TTL in namespace orders: 1, such as lock:old",
            "billing      no     would be refused",
            "orders     no     as it is",
            "stock      yes    as it is",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
    }

    #[test]
    fn a_family_of_locks_has_one_paragraph_with_its_cost_and_what_mends_it() {
        let mut report = report();
        let lost =
            LockTime { grants: 200, held_ms: 48_000, unheld_ms: 12_000, lost_grants: 50, waits_ms: 31_000, cut_ms: 0 };
        let usage = &mut report.applications[0].namespaces[0];
        usage.lost_on.push(PatternLockTime {
            pattern: "lock:order:*".into(),
            foretold: lost,
            seen: LockTime::default(),
        });
        // A finding that does not prevent enforcing has no paragraph.
        let mut harmless = usage.refusals[0].clone();
        (harmless.what, harmless.breaks) = ("tokenless-release".into(), false);
        usage.findings.push(harmless);
        let text = brief::words("as it was", &report, Screen::there_is());
        assert_eq!(
            text,
            "as it was\n\n\
             lock:order:* in orders (monitor): 212 calls refused, or would be (212 not-owner)\n\
             \x20 who   billing\n\
             \x20 cost  would leave locks unheld for 12 s beside 48 s held (20.0 %), lose 50 grants of 250, add waits of 31 s\n\
             \x20 mend  EVAL … 1 lock:order:42 VALUE   or   hand_over = true in namespace orders\n\
             \n\
             Ready to be enforced, or enforced: stock\n\
             Not ready: orders: would refuse 212 of 53,000 calls; see the family above\n\
             Without a TTL in namespace orders: 1, such as lock:old\n\
             Without a TTL in namespace stock: 1, such as lock:old\n\
             Used as locks, and in no namespace: 2 patterns of keys, which `lockwarden discover` names\n\
             Everything that was seen, with examples: lockwarden audit --all\n"
        );
    }

    #[test]
    fn the_report_of_a_big_estate_fits_on_one_screen() {
        let mut report = report();
        let (namespace, usage) = (report.namespaces[0].clone(), report.applications[0].namespaces[0].clone());
        for number in 0..200_u64 {
            let name = format!("ns-{number}");
            let mut one = namespace.clone();
            one.namespace.clone_from(&name);
            report.namespaces.push(one);
            let mut here = usage.clone();
            here.namespace = name;
            for misuse in &mut here.refusals {
                let count = 1_000 + number;
                (misuse.count, misuse.patterns[0].count) = (count, count);
            }
            report.applications[0].namespaces.push(here);
        }
        let text = brief::words("as it was", &report, Screen::there_is());
        let lines = text.lines().count();
        assert!(lines <= 50, "{lines}: {text}");
        for said in [
            // The most frequent comes first.
            "as it was\n\nlock:order:* in ns-199 (monitor): 1,199 calls refused",
            "and 195 families of locks more: lockwarden audit --all",
            "and 195 namespaces more",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
    }

    #[test]
    fn a_narrowed_report_speaks_of_one_namespace_only() {
        let mut narrowed = report();
        narrow(&mut narrowed, "stock").unwrap();
        assert_eq!(narrowed.namespaces.len(), 1);
        assert_eq!(narrowed.applications, []);
        assert!(narrow(&mut report(), "nosuch").is_err());
    }

    fn of_fleet(reports: Vec<Report>) -> Answers<Audit> {
        let numbered = (1..).zip(reports);
        let answers = numbered.map(|(number, report)| Answer {
            proxy: Some(format!("proxy-{number}")),
            answer: Audit {
                held_with_problems: Locks { now: report.now, matching: 0, locks: Vec::new(), notices: Vec::new() },
                report,
            },
        });
        Answers::of_fleet(answers.collect())
    }

    #[test]
    fn a_namespace_of_a_fleet_is_ready_where_every_proxy_that_saw_it_says_so() {
        let with = |operations, ready| {
            let mut report = report();
            report.namespaces.remove(0);
            let namespace = &mut report.namespaces[0];
            (namespace.operations, namespace.ready) = (operations, ready);
            report
        };
        let (idle, good, bad) = (|| with(0, false), || with(9, true), || with(7, false));
        let ready = "every namespace is ready at each proxy that has seen something of it\n";
        for (reports, expected) in [
            (vec![good(), idle()], format!("2 proxies: {ready}")),
            (vec![good()], format!("1 proxy: {ready}")),
            (vec![idle(), idle()], "2 proxies: not ready: stock\n".to_owned()),
            (vec![good(), bad(), idle()], "3 proxies: not ready: stock\n".to_owned()),
        ] {
            let answers = of_fleet(reports);
            assert_eq!(answers.verdict(|| verdict(&not_ready(&answers))), expected);
        }
    }
}
