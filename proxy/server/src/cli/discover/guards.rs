//! Data that is written under locks, as a table.

use std::fmt::Write as _;

use lockwarden_console::view::api::ProposedGuard;
use lockwarden_control::text::numbers::number;
use lockwarden_discovery::guards::UNFIT;

use super::super::output::{Paint, Screen, Table, plain};

/// Whether a guard is proposed for it.
fn may_be(one: &ProposedGuard) -> bool {
    one.starters.is_empty() && !one.unfit
}

/// Empty if there are none.
pub(super) fn words(guards: &[ProposedGuard], screen: Screen) -> String {
    if guards.is_empty() {
        return String::new();
    }
    let without = |count: u64| match count {
        0 => (number(count), Paint::Plain),
        _ => (number(count), Paint::Bad),
    };
    let by =
        |one: &ProposedGuard| one.outsiders.iter().map(|by| by.application.as_str()).collect::<Vec<_>>().join(", ");
    let table = Table::of(guards)
        .cut("DATA", |one| one.keys.as_str())
        .cut("LOCK", |one| one.lock.as_str())
        .right("UNDER IT", |one| one.under)
        .right("WITHOUT", |one| without(one.without))
        .cut("WRITTEN WITHOUT BY", by);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let head = screen.paint("Data that is written under a lock:", Paint::Head);
    let _ = writeln!(text, "\n{head}\n");
    text.push_str(&table.show(screen));
    if (guards.iter()).any(|one| one.outside.is_some() || !may_be(one)) {
        text.push('\n');
    }
    for one in guards {
        if let Some(last) = &one.outside {
            let _ = writeln!(
                text,
                "The last write of {} without the lock: {} by {}",
                plain(&one.keys),
                plain(&last.key),
                plain(&last.application)
            );
        }
    }
    for one in guards {
        if one.unfit {
            let _ = writeln!(text, "No guard for {}: {UNFIT}", plain(&one.keys));
            continue;
        }
        let by = one.starters.iter();
        let by: Vec<String> = by.map(|by| format!("{} ({})", plain(&by.application), number(by.connections))).collect();
        if !by.is_empty() {
            let _ = writeln!(
                text,
                "No guard for {}: written before {} is taken, over the same connection, which a guard would refuse; connections that began so: {}",
                plain(&one.keys),
                plain(&one.lock),
                by.join(", ")
            );
        }
    }
    if guards.iter().any(may_be) {
        text.push_str("\n`lockwarden discover -o toml` proposes guards for it.\n");
    }
    text
}
