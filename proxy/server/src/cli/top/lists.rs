//! The replies of the proxies, as the lists of the screen. In a fleet each row names its proxy.

use std::collections::HashMap;

use lockwarden_console::view::api::{Application, Lock, Locks, Moment, Overview, Usage};
use lockwarden_control::text::numbers::number;

use super::table::{Cell, Column, Row, Side, Table};
use crate::cli::fleet::Answers;
use crate::cli::locks::list;
use crate::cli::output::{Paint, ago, duration};

/// The replies of one proxy to one query.
pub(super) struct Look {
    pub(super) overview: Overview,
    pub(super) locks: Locks,
    pub(super) applications: Vec<Application>,
    pub(super) refusals: Vec<Moment>,
}

/// The lists, in the order of their tabs.
pub(super) const LISTS: [&str; 3] = ["Locks", "Applications", "Refusals"];

/// The content of the screen after one query.
#[derive(Default)]
pub(super) struct Shown {
    /// The figures at the top, the most important first.
    pub(super) figures: Vec<(String, Paint)>,
    /// The number of entries in each list, which may be more than were requested.
    pub(super) counts: [u64; 3],
    pub(super) tables: [Table; 3],
}

/// The operations of an application, and their time on its proxy's clock.
pub(super) type Done = HashMap<(String, String), (u64, u64)>;

const LEFT: Side = Side::Left;
const CUT: Side = Side::Cut;
const RIGHT: Side = Side::Right;

const LOCKS: &[(&str, Side, u8)] = &[
    ("KEY", CUT, 0),
    ("NAMESPACE", CUT, 5),
    ("STATE", LEFT, 1),
    ("HOLDER", CUT, 2),
    ("AGE", RIGHT, 0),
    ("TTL LEFT", RIGHT, 3),
    ("WAITING", RIGHT, 4),
    ("FENCE", RIGHT, 6),
];

const APPLICATIONS: &[(&str, Side, u8)] = &[
    ("APPLICATION", CUT, 0),
    ("CONNECTED", RIGHT, 6),
    ("OPS/S", RIGHT, 1),
    ("OPERATIONS", RIGHT, 3),
    ("TAKEN", RIGHT, 7),
    ("CONTENDED", RIGHT, 5),
    ("REFUSED", RIGHT, 0),
    ("WOULD REFUSE", RIGHT, 2),
    ("READY", LEFT, 4),
];

const REFUSALS: &[(&str, Side, u8)] = &[
    ("WHEN", RIGHT, 0),
    ("ID", LEFT, 0),
    ("REASON", LEFT, 1),
    ("KEY", CUT, 0),
    ("COMMAND", CUT, 4),
    ("APPLICATION", CUT, 2),
    ("MODE", LEFT, 3),
    ("POLICY", CUT, 5),
];

/// The initial sort column of each list, and whether the largest come first: problems, the busiest, the latest.
pub(super) const FIRST_SORT: [(&str, bool); 3] = [("STATE", false), ("OPS/S", true), ("WHEN", false)];

impl Shown {
    /// The lists of these proxies; `before` has the operations of applications at the previous query, and is updated.
    pub(super) fn of(answers: &Answers<Look>, before: &mut Done) -> Shown {
        let of_fleet = answers.are_of_fleet();
        let mut shown = Shown {
            figures: figures(answers),
            counts: [0; 3],
            tables: [LOCKS, APPLICATIONS, REFUSALS].map(|columns| empty(columns, of_fleet)),
        };
        let mut done = Done::new();
        let mut locks: Vec<(&str, &Lock)> = Vec::new();
        for one in &answers.answers {
            let proxy = one.proxy.as_deref().unwrap_or_default();
            let look = &one.answer;
            let now = look.overview.now;
            let mut add = |list: usize, name: String, mut cells: Vec<Cell>| {
                if of_fleet {
                    cells.insert(0, Cell::text(proxy));
                }
                let name = format!("{proxy} {name}");
                shown.tables[list].rows.push(Row { name, cells });
            };
            for application in &look.applications {
                let operations = operations(application);
                let name = (proxy.to_owned(), application.application.clone());
                let rate = before.get(&name).and_then(|then| rate(*then, (operations, now)));
                done.insert(name, (operations, now));
                add(1, application.application.clone(), row_of_application(application, rate));
            }
            for moment in &look.refusals {
                let id = moment.id.clone().unwrap_or_default();
                add(2, id, row_of_refusal(moment, now));
            }
            shown.counts[0] += look.locks.matching;
            shown.counts[1] += look.applications.len() as u64;
            shown.counts[2] += look.refusals.len() as u64;
            locks.extend(look.locks.locks.iter().map(|lock| (proxy, lock)));
        }
        // For a fleet as for one proxy: problems first, then the oldest.
        locks.sort_by_key(|(_, lock)| (lock.state, lock.since));
        for (proxy, lock) in locks {
            let mut cells = row_of_lock(lock);
            if of_fleet {
                cells.insert(0, Cell::text(proxy));
            }
            let name = format!("{proxy} {} {}", lock.db, lock.key);
            shown.tables[0].rows.push(Row { name, cells });
        }
        *before = done;
        shown
    }
}

fn empty(columns: &[(&'static str, Side, u8)], of_fleet: bool) -> Table {
    // On a narrow screen the proxy matters less than the rest of the row.
    let proxy = of_fleet.then_some(("PROXY", CUT, 8));
    let columns = proxy.iter().chain(columns);
    let columns = columns.map(|&(head, side, spare)| Column { head, side, spare });
    Table { columns: columns.collect(), rows: Vec::new() }
}

fn figures(answers: &Answers<Look>) -> Vec<(String, Paint)> {
    let looks = || answers.answers.iter().map(|one| &one.answer.overview);
    let sum = |figure: fn(&Overview) -> u64| looks().map(figure).sum::<u64>();
    let counted = |count: u64, what: &str, paint: Paint| {
        let paint = if count > 0 { paint } else { Paint::Plain };
        (format!("{what} {}", number(count)), paint)
    };
    let mut figures = Vec::new();
    for one in &answers.answers {
        let backend = &one.answer.overview.backend;
        if let Some(problem) = &backend.problem {
            let words = match backend.up {
                true => format!("{} down in part: {problem}", backend.address),
                false => format!("{} down: {problem}", backend.address),
            };
            figures.push((words, Paint::Bad));
        }
    }
    figures.extend(looks().flat_map(of_failovers));
    figures.extend([
        counted(sum(|one| one.totals.held), "held", Paint::Good),
        counted(sum(|one| one.totals.waiting), "waiting", Paint::Doubtful),
    ]);
    figures.extend(looks().filter_map(primary));
    figures.extend([
        counted(sum(|one| one.totals.refused_last_hour), "refused 1 h", Paint::Bad),
        counted(sum(|one| one.totals.would_refuse_last_hour), "would refuse 1 h", Paint::Doubtful),
        counted(sum(|one| one.totals.overlaps_last_day), "overlaps 24 h", Paint::Bad),
        counted(sum(|one| one.totals.without_ttl), "no TTL", Paint::Doubtful),
    ]);
    figures
}

/// The effects of a failover, if any.
fn of_failovers(overview: &Overview) -> Vec<(String, Paint)> {
    let mut figures = Vec::new();
    let mut add = |count: u64, words: &str, paint| {
        if count > 0 {
            figures.push((format!("{words} {}", number(count)), paint));
        }
    };
    let totals = &overview.totals;
    add(totals.lost_last_day, "lost in failovers 24 h", Paint::Bad);
    add(totals.unknown, "unknown since the failover", Paint::Doubtful);
    let in_quarantine = overview.namespaces.iter().filter_map(|namespace| {
        let quarantine = namespace.quarantine.as_ref()?;
        let words = format!("{}: {}", namespace.name, quarantine.words());
        Some((words, Paint::Doubtful))
    });
    figures.extend(in_quarantine);
    figures
}

/// The primary that sentinels name, if there are sentinels.
fn primary(overview: &Overview) -> Option<(String, Paint)> {
    let sentinels = overview.backend.sentinels.as_ref()?;
    let primary = sentinels.primary.as_deref().unwrap_or("unknown");
    let paint = match sentinels.heard * 2 <= sentinels.known {
        true => Paint::Bad,
        false => Paint::Plain,
    };
    let (heard, known) = (number(sentinels.heard), number(sentinels.known));
    let words = format!("primary {primary}, heard {heard} of {known} sentinels");
    Some((words, paint))
}

fn row_of_lock(lock: &Lock) -> Vec<Cell> {
    let (state, paint) = list::state(lock.state);
    let (left, left_paint) = list::left(lock);
    let key = match lock.db {
        0 => lock.key.clone(),
        db => format!("{} (db {db})", lock.key),
    };
    // Leases that run out first come first, those that never do come last.
    let ends = lock.ttl_left_ms.unwrap_or(u64::MAX);
    vec![
        Cell::text(key),
        Cell::text(&lock.namespace),
        Cell::number(lock.state as u64, state).painted(paint),
        Cell::text(lock.holder.as_ref().map_or("?".to_owned(), list::client)),
        Cell::number(lock.age_ms, duration(lock.age_ms)),
        Cell::number(ends, left).painted(left_paint),
        waiting(lock.waiters),
        Cell::number(lock.fence, list::fence(lock.fence)),
    ]
}

fn waiting(count: u64) -> Cell {
    noted(count, Paint::Doubtful)
}

/// A number that is coloured if it is not 0.
fn noted(count: u64, paint: Paint) -> Cell {
    let cell = Cell::number(count, number(count));
    match count {
        0 => cell,
        _ => cell.painted(paint),
    }
}

fn operations(application: &Application) -> u64 {
    let usages = application.namespaces.iter();
    usages.map(|usage| usage.operations).sum()
}

/// Operations a second, in tenths, since the previous query; `None` if the count was reset.
fn rate(before: (u64, u64), now: (u64, u64)) -> Option<u64> {
    let done = now.0.checked_sub(before.0)?;
    let ms = now.1.checked_sub(before.1).filter(|ms| *ms > 0)?;
    Some(done.saturating_mul(10_000) / ms)
}

fn row_of_application(application: &Application, rate: Option<u64>) -> Vec<Cell> {
    let sum = |figure: fn(&Usage) -> u64| application.namespaces.iter().map(figure).sum::<u64>();
    let refusals = |mode: &str| {
        let usages = application.namespaces.iter();
        let usages = usages.filter(|usage| usage.mode == mode);
        let refusals = usages.flat_map(|usage| &usage.refusals);
        refusals.map(|misuse| misuse.count).sum::<u64>()
    };
    let (ready, paint) = match application.ready {
        true => ("yes", Paint::Good),
        false => ("no", Paint::Bad),
    };
    vec![
        Cell::text(&application.application),
        Cell::number(application.connections, number(application.connections)),
        match rate {
            Some(tenths) => Cell::number(tenths, format!("{}.{}", number(tenths / 10), tenths % 10)),
            None => Cell::number(0, "-"),
        },
        Cell::number(operations(application), number(operations(application))),
        Cell::number(sum(|usage| usage.acquired), number(sum(|usage| usage.acquired))),
        Cell::number(sum(|usage| usage.contended), number(sum(|usage| usage.contended))),
        noted(refusals("enforce"), Paint::Bad),
        noted(refusals("monitor"), Paint::Doubtful),
        Cell::text(ready).painted(paint),
    ]
}

fn row_of_refusal(moment: &Moment, now: u64) -> Vec<Cell> {
    let maybe = |text: &Option<String>| Cell::text(text.as_deref().unwrap_or("-"));
    let paint = match moment.decision.as_deref() {
        Some("deny") => Paint::Bad,
        Some(_) | None => Paint::Doubtful,
    };
    let application = moment.client.as_ref();
    let application = application.map_or("-", |client| &client.application);
    vec![
        Cell::number(now.saturating_sub(moment.at), ago(moment.at, now)),
        maybe(&moment.id),
        maybe(&moment.reason).painted(paint),
        Cell::text(&moment.key),
        maybe(&moment.command),
        Cell::text(application),
        Cell::text(&moment.mode),
        maybe(&moment.policy),
    ]
}
