//! The refusals with another configuration, as the proxies derive it from their remembered refusals.

use std::fmt::Write as _;
use std::process::ExitCode;

use lockwarden_console::view::api::{WhatIf, WhatIfRow};
use lockwarden_control::text::numbers::{counted, number};
use serde_json::json;

use crate::cli::api_client::{ApiError, path};
use crate::cli::fleet::FleetArgs;
use crate::cli::output::{Output, Paint, Screen, Table};

/// Exits with 1 if a refusal would stay, or is undecided.
pub(super) fn told(changes: &[String], fleet: &FleetArgs, output: Output) -> Result<ExitCode, ApiError> {
    let changes = changes.join("\n");
    let asked = path(&["what-if"], &json!({ "changes": changes }));
    let answers = fleet.ask(|client| client.get::<WhatIf>(&asked))?;
    output.print(&answers, |screen| answers.parts(|answer| words(answer, screen), ""))?;
    let is_left = |one: &WhatIf| one.rows.iter().any(|row| row.stays + row.open > 0);
    let left = answers.answers.iter().any(|one| is_left(&one.answer));
    Ok(answers.end_with_findings(left))
}

fn words(answer: &WhatIf, screen: Screen) -> String {
    let refusals = |count| counted(count, "refusal", "refusals");
    let sum = |of: fn(&WhatIfRow) -> u64| answer.rows.iter().map(of).sum::<u64>();
    let (spared, stays, open) = (sum(|row| row.spared), sum(|row| row.stays), sum(|row| row.open));
    // Writing to a String cannot fail, here and below.
    let mut text = format!(
        "With {}: of the last {}, made or only counted, {} would not be, {} would be all the same, {} cannot be told.\n",
        answer.changes.join(" and "),
        refusals(answer.kept),
        number(spared),
        number(stays),
        number(open),
    );
    if answer.kept < answer.refused {
        let _ = writeln!(text, "There were {}; the others are not kept.", refusals(answer.refused));
    }
    if !answer.rows.is_empty() {
        let _ = write!(text, "\n{}", table(answer, screen));
    }
    let _ = match (open > 0, answer.may_refuse_more) {
        (false, false) => Ok(()),
        (true, false) => writeln!(text, "\n{OPEN}"),
        (false, true) => writeln!(text, "\n{MORE}"),
        (true, true) => writeln!(text, "\n{OPEN}\n{MORE}"),
    };
    text
}

const OPEN: &str = "What cannot be told depends on more than a refusal keeps: set it in monitor mode, and `lockwarden audit --since \
                    last-change` counts it.";
const MORE: &str = "It may refuse what was let through so far, of which nothing is kept: set it in monitor mode first.";

fn table(answer: &WhatIf, screen: Screen) -> String {
    let noted = |count: u64, paint| match count {
        0 => (number(count), Paint::Plain),
        _ => (number(count), paint),
    };
    Table::of(&answer.rows)
        .cut("NAMESPACE", |row| row.namespace.as_str())
        .cut("KEYS", |row| row.pattern.as_str())
        .left("REASON", |row| row.reason.as_str())
        .cut("APPLICATION", |row| row.application.as_str())
        .right("NOT ANY MORE", |row| noted(row.spared, Paint::Good))
        .right("ALL THE SAME", |row| noted(row.stays, Paint::Bad))
        .right("CANNOT BE TOLD", |row| noted(row.open, Paint::Doubtful))
        .show(screen)
}
