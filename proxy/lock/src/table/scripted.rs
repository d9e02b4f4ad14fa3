//! The positions of a command's keys when a script calls it. [`lockwarden_lua`] uses them to find names in a text, and
//! the guard around a script (`scripts/guard.rs`) uses them to check. A command without a shape of its own counts as
//! having a key in every argument.

use lockwarden_lua::{InScript, Places};

use super::rows::ROWS;
use super::{Access, CommandSpec, Effect, KeySpec, SessionVerb};

const fn one(at: u8) -> Places {
    Places::Range { first: at, last: at as i8, step: 1 }
}

/// The command of this row as seen by a script; for the bare name of a family, the combination of its subcommands.
pub fn in_script(spec: &CommandSpec) -> InScript {
    if spec.keys == KeySpec::Subcommands {
        return of_family(spec.name);
    }
    let takes_all =
        matches!(spec.name, "flushall" | "flushdb" | "swapdb" | "migrate" | "debug" | "keydb.cron" | "rreplay");
    if takes_all || matches!(spec.effect, Effect::Script(_) | Effect::Session(SessionVerb::Select)) {
        return InScript::Sweeping;
    }
    let (places, others) = places(spec.keys);
    let (written, read) = match (spec.effect.access(), spec.keys) {
        (Access::Read, _) => (Places::None, places),
        (Access::Write, _) => (places, others),
    };
    InScript::Keys { written, read, far: matches!(spec.name, "move" | "copy") }
}

/// The keys with the command's access, and those that it only reads.
fn places(keys: KeySpec) -> (Places, Places) {
    match keys {
        KeySpec::None | KeySpec::Subcommands => (Places::None, Places::None),
        KeySpec::Range { first, last, step } => (Places::Range { first, last, step }, Places::None),
        KeySpec::Pairs => (Places::Range { first: 1, last: -1, step: 2 }, Places::None),
        KeySpec::SourceDest => (one(2), one(1)),
        KeySpec::DestSource => (one(1), one(2)),
        KeySpec::DestSources { dest } => (one(dest), Places::Range { first: dest + 1, last: -1, step: 1 }),
        KeySpec::Numkeys { at, step, .. } => (Places::Counted { at, step }, Places::None),
        KeySpec::DestNumkeys { dest, at } => (one(dest), Places::Counted { at, step: 1 }),
        KeySpec::Bitfield => (one(1), Places::None),
        KeySpec::Sort => (Places::Stored { from: 2 }, one(1)),
        KeySpec::GeoRadius { options } => (Places::Stored { from: options }, one(1)),
        KeySpec::Streams { .. } | KeySpec::Migrate => (Places::Every, Places::None),
    }
}

fn of_family(name: &str) -> InScript {
    if matches!(name, "script" | "function") {
        return InScript::Sweeping;
    }
    let (mut written, mut read) = (Places::None, Places::None);
    let is_member = |row: &&CommandSpec| {
        let rest = row.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('|'))
    };
    for row in ROWS.iter().filter(is_member) {
        if row.keys == KeySpec::None {
            continue;
        }
        match row.effect.access() {
            Access::Write => written = one(2),
            Access::Read => read = one(2),
        }
    }
    InScript::Keys { written, read, far: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Lookup, for_each_key, lookup};

    fn shape(words: &[&[u8]]) -> InScript {
        match lookup(words) {
            Lookup::Known(spec) => in_script(spec),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_subcommand_with_keys_has_them_at_its_second_argument() {
        for row in ROWS.iter().filter(|row| row.name.contains('|')) {
            let second = KeySpec::Range { first: 2, last: 2, step: 1 };
            assert!(row.keys == KeySpec::None || row.keys == second, "{}", row.name);
        }
    }

    #[test]
    fn what_takes_keys_without_naming_them_is_told_from_the_rest() {
        let mut sweeping: Vec<&str> = ROWS
            .iter()
            .filter(|row| in_script(row) == InScript::Sweeping)
            .map(|row| row.name)
            .filter(|name| !name.contains('|'))
            .collect();
        sweeping.sort_unstable();
        assert_eq!(
            sweeping,
            [
                "debug",
                "eval",
                "eval_ro",
                "evalsha",
                "evalsha_ro",
                "fcall",
                "fcall_ro",
                "flushall",
                "flushdb",
                "function",
                "keydb.cron",
                "migrate",
                "rreplay",
                "script",
                "select",
                "swapdb"
            ]
        );
    }

    #[test]
    fn families_have_the_keys_of_their_members() {
        let keys = |written, read| InScript::Keys { written, read, far: false };
        assert_eq!(shape(&[b"XGROUP"]), keys(one(2), Places::None));
        assert_eq!(shape(&[b"object"]), keys(Places::None, one(2)));
        assert_eq!(shape(&[b"client"]), keys(Places::None, Places::None));
    }

    /// A key that the request path treats as written is at one of the positions given to scripts.
    #[test]
    fn no_written_key_is_at_another_place() {
        for row in ROWS.iter().filter(|row| row.keys != KeySpec::Subcommands) {
            let InScript::Keys { written, .. } = in_script(row) else {
                continue;
            };
            // Redis refuses the whole command for an option that it does not know.
            let before_options = match written {
                Places::Stored { from } => usize::from(from) - 1,
                _ => 5,
            };
            let words: Vec<&[u8]> = row
                .name
                .split('|')
                .map(str::as_bytes)
                .chain(std::iter::repeat_n(&b"1"[..], before_options))
                .chain(["STORE", "1"].map(str::as_bytes))
                .collect();
            let _ = for_each_key(row, &words[..], &mut |position, _, access| {
                let covered = match written {
                    Places::None => false,
                    Places::Range { first, last, step } => {
                        let end = super::super::keys::range_end(last, words.len());
                        (usize::from(first)..end).step_by(usize::from(step)).any(|at| at == position)
                    }
                    Places::Counted { at, .. } => position > usize::from(at),
                    Places::Stored { from } => position > usize::from(from) && words[position - 1] == b"STORE",
                    Places::Every => true,
                };
                assert!(access == Access::Read || covered, "{} {position}", row.name);
            });
        }
    }
}
