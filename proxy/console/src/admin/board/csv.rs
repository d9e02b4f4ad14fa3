//! Lists as comma-separated values (RFC 4180). Clients choose keys and names freely, and a spreadsheet treats a cell that
//! begins like a formula as one: such a cell gets an apostrophe in front, which spreadsheets do not show.

use lockwarden_control::text::numbers::utc;

use crate::view::api::{Client, Lock, Moment};

/// Held locks.
pub(super) fn locks(locks: &[Lock]) -> String {
    let mut table = Table::new(&[
        "key",
        "db",
        "namespace",
        "state",
        "application",
        "address",
        "name",
        "library",
        "token",
        "fence",
        "since",
        "age_ms",
        "ttl_left_ms",
        "ttl_ms",
        "kept_alive",
        "waiters",
        "seen",
        "certificate",
    ]);
    for lock in locks {
        let state = serde_json::to_value(lock.state).unwrap_or_default();
        let client = Who::of(lock.holder.as_ref());
        table.row(&[
            &lock.key,
            &lock.db.to_string(),
            &lock.namespace,
            state.as_str().unwrap_or_default(),
            client.application,
            client.address,
            client.name,
            client.library,
            lock.token.as_deref().unwrap_or_default(),
            &lock.fence.to_string(),
            &utc(lock.since),
            &lock.age_ms.to_string(),
            &optional(lock.ttl_left_ms),
            &optional(lock.ttl_ms),
            if lock.kept_alive { "true" } else { "false" },
            &lock.waiters.to_string(),
            &lock.seen,
            client.certificate,
        ]);
    }
    table.0
}

/// Refusals, also those that enforce mode would have made.
pub(super) fn decisions(moments: &[Moment]) -> String {
    let mut table = Table::new(&[
        "at",
        "id",
        "event",
        "decision",
        "reason",
        "policy",
        "detail",
        "namespace",
        "mode",
        "key",
        "db",
        "command",
        "operation",
        "application",
        "address",
        "name",
        "library",
        "token",
        "fence",
        "ttl_ms",
        "asked_ms",
        "held_ms",
        "overlap",
        "certificate",
    ]);
    for moment in moments {
        let client = Who::of(moment.client.as_ref());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        table.row(&[
            &utc(moment.at),
            &text(&moment.id),
            &moment.event,
            &text(&moment.decision),
            &text(&moment.reason),
            &text(&moment.policy),
            &text(&moment.detail),
            &moment.namespace,
            &moment.mode,
            &moment.key,
            &moment.db.to_string(),
            &text(&moment.command),
            &text(&moment.operation),
            client.application,
            client.address,
            client.name,
            client.library,
            &text(&moment.token),
            &optional(moment.fence),
            &optional(moment.ttl_ms),
            &optional(moment.asked_ms),
            &optional(moment.held_ms),
            if moment.overlap { "true" } else { "false" },
            client.certificate,
        ]);
    }
    table.0
}

#[derive(Default)]
struct Who<'a> {
    application: &'a str,
    address: &'a str,
    name: &'a str,
    library: &'a str,
    certificate: &'a str,
}

impl<'a> Who<'a> {
    fn of(client: Option<&'a Client>) -> Who<'a> {
        client.map_or_else(Who::default, |client| Who {
            application: &client.application,
            address: &client.address,
            name: client.name.as_deref().unwrap_or_default(),
            library: client.library.as_deref().unwrap_or_default(),
            certificate: client.certificate.as_deref().unwrap_or_default(),
        })
    }
}

fn optional(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

struct Table(String);

impl Table {
    fn new(heads: &[&str]) -> Table {
        let mut table = Table(String::new());
        table.row(heads);
        table
    }

    fn row(&mut self, cells: &[&str]) {
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            self.cell(cell);
        }
        self.0.push_str("\r\n");
    }

    fn cell(&mut self, text: &str) {
        let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if !formula && !text.contains([',', '"', '\r', '\n', ';']) {
            self.0.push_str(text);
            return;
        }
        self.0.push('"');
        if formula {
            self.0.push('\'');
        }
        self.0.push_str(&text.replace('"', "\"\""));
        self.0.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_neither_a_formula_nor_two_cells() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["=HYPERLINK(\"http://x\")", "@SUM(1)"]);
        table.row(&["-1", "plain"]);
        table.row(&["with, comma", "with \"quotes\""]);
        assert_eq!(
            table.0,
            "a,b\r\n\
             \"'=HYPERLINK(\"\"http://x\"\")\",\"'@SUM(1)\"\r\n\
             \"'-1\",plain\r\n\
             \"with, comma\",\"with \"\"quotes\"\"\"\r\n"
        );
    }
}
