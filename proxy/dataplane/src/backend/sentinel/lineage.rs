//! How a server proves that it goes on with the data of the previous primary: by the replication id that it had from
//! that one, or by the entry about the era that it has copied. A server that only single sentinels name is followed
//! only with this proof.

use lockwarden_lock::era::Era;

use crate::backend::info::info_field;

/// What a successor of this primary can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Names its history of writes; empty if the proxy's user may not ask.
    replication_id: String,
    /// Names the run of the server; empty likewise.
    run: String,
}

impl Lineage {
    /// Read from the server's reply to `INFO replication`, and the id of its run.
    pub fn read(info: &str, run: &str) -> Lineage {
        let id = info_field(info, "master_replid:").unwrap_or_default();
        Lineage { replication_id: id.to_owned(), run: run.to_owned() }
    }

    /// Whether a server with these replies goes on where this primary was. A replica that was promoted keeps the id
    /// of the previous primary beside its own.
    pub(crate) fn is_continued(&self, info: &str, era: &str) -> bool {
        let ids = ["master_replid:", "master_replid2:"].map(|name| info_field(info, name));
        let by_id = !self.replication_id.is_empty() && ids.contains(&Some(&self.replication_id));
        let by_era = !self.run.is_empty() && Era::read(era).is_some_and(|era| *era.run == *self.run);
        by_id || by_era
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_proves_its_descent_by_either_id_or_by_the_entry_that_it_has_copied() {
        let before =
            Lineage::read("# Replication\r\nrole:master\r\nmaster_replid:aaaa\r\nmaster_replid2:0000\r\n", "run1");
        let answers =
            |id: &str, second: &str| format!("role:master\r\nmaster_replid:{id}\r\nmaster_replid2:{second}\r\n");
        for (info, era, expected) in [
            (answers("bbbb", "aaaa"), "", true),
            (answers("aaaa", "0000"), "", true),
            (answers("bbbb", "cccc"), "", false),
            (answers("bbbb", "cccc"), "run1 5", true),
            (answers("bbbb", "cccc"), "run2 5", false),
            (String::new(), "run1 5 7 50 0 r", true),
            (String::new(), "run1", false),
            (String::new(), "", false),
        ] {
            assert_eq!(before.is_continued(&info, era), expected, "{info} {era}");
        }
        let unknown = Lineage::read("", "");
        assert!(!unknown.is_continued("", " 5"));
        assert!(!unknown.is_continued("master_replid:\r\n", ""));
    }
}
