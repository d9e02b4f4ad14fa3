//! The table beside what servers say of themselves in `COMMAND`. Their lists have one line a command:
//! name, arity, flags, first, last and step, then the key specifications as
//! `access/begin/find`, with `begin` `@index` or `KEYWORD@from`, and `find` `range:last:step:limit`
//! or `keynum:number:first:step`; `?` is what Redis cannot say.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Access, Effect, KeySpec, keys_of, spec_of};
use crate::table::{ScriptVerb, SessionVerb, Verb, arity_ok};

/// Each with the number of its commands, subcommands included. Of KeyDB those that Redis 7.0 does not have, or takes otherwise, by
/// what they do: it says of `KEYDB.NHSET` that it reads, and of `KEYDB.HRENAME` that it has no keys.
const SERVERS: [(&str, usize); 4] = [
    (include_str!("../redis-7.0-commands.txt"), 366),
    (include_str!("../redis-8.2-commands.txt"), 397),
    (include_str!("../valkey-9.1-commands.txt"), 399),
    (include_str!("../keydb-6.3.4-commands.txt"), 19),
];

struct Row {
    name: &'static str,
    arity: i16,
    flags: Vec<&'static str>,
    keys: Vec<&'static str>,
}

impl Row {
    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn words(&self) -> Vec<&'static [u8]> {
        self.name.split('|').map(str::as_bytes).collect()
    }
}

/// The rows of all servers.
fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let fields: Vec<_> = line.split(' ').collect();
        Row {
            name: fields[0],
            arity: fields[1].parse().unwrap(),
            flags: fields[2].split(',').collect(),
            keys: fields[6..].to_vec(),
        }
    };
    let lines = SERVERS.iter().flat_map(|(list, _)| list.lines());
    lines.map(row).collect()
}

#[test]
fn every_command_of_a_server_has_a_row_that_takes_its_arguments() {
    for (list, count) in SERVERS {
        assert_eq!(list.lines().count(), count);
    }
    for row in rows() {
        let spec = spec_of(&row.words());
        assert_eq!(spec.name, row.name);
        // What the table takes for too few or too many arguments passes: no server may run it.
        let least = usize::from(row.arity.unsigned_abs());
        assert!(arity_ok(spec, least), "{} has {}", row.name, row.arity);
        assert!(row.arity > 0 || spec.arity < 0, "{} may have more", row.name);
        assert!(!row.has("blocking") || spec.blocking, "{} blocks", row.name);
    }
}

#[test]
fn what_a_server_calls_a_write_is_never_a_read_here() {
    for row in rows() {
        let effect = spec_of(&row.words()).effect;
        let may_write = match effect {
            Effect::Write | Effect::Admin | Effect::Script(_) => true,
            Effect::Verb(verb) => !matches!(verb, Verb::Get | Verb::MGet),
            Effect::Neutral | Effect::Read | Effect::Session(_) | Effect::Listing(_) => false,
        };
        if row.has("write") {
            assert!(may_write, "{} is {effect:?}", row.name);
        }
        let ro_script =
            matches!(effect, Effect::Script(ScriptVerb::EvalRo | ScriptVerb::EvalShaRo | ScriptVerb::FcallRo));
        if row.has("readonly") {
            assert!(!may_write || ro_script || row.name == "pfcount", "{} is {effect:?}", row.name);
        }
        let names_keys = row.has("write") || row.has("readonly") || row.has("movablekeys");
        if names_keys && !row.keys.is_empty() {
            assert_ne!(spec_of(&row.words()).keys, KeySpec::None, "{}", row.name);
        }
        if !row.keys.is_empty() && !names_keys {
            // Keys without a flag: WATCH, and shard channels, which are no keys; and what says that it reads, and writes.
            assert!(
                matches!(effect, Effect::Session(SessionVerb::Watch))
                    || row.name.starts_with('s')
                    || row.name == "keydb.nhset",
                "{}",
                row.name
            );
        }
    }
}

/// Where Redis's key specifications find keys, with access, or `None` where they do not apply.
fn as_redis_finds(row: &Row, args: &[&[u8]]) -> BTreeMap<usize, Access> {
    let mut found = BTreeMap::new();
    for key in &row.keys {
        let parts: Vec<_> = key.split('/').collect();
        let access = if parts[0] == "R" { Access::Read } else { Access::Write };
        let Some(begin) = begin(parts[1], args) else {
            continue;
        };
        let numbers: Vec<i64> = parts[2].split(':').skip(1).map(|number| number.parse().unwrap()).collect();
        let (first, last, step) = if parts[2].starts_with("range") {
            let (last, limit) = (numbers[0], numbers[2]);
            let last = match last {
                0.. => begin + last,
                _ if limit > 1 => begin + (args.len() as i64 - begin) / limit + last,
                _ => args.len() as i64 + last,
            };
            (begin, last, numbers[1])
        } else {
            let number = args[(begin + numbers[0]) as usize];
            let number: i64 = std::str::from_utf8(number).unwrap().parse().unwrap();
            let first = begin + numbers[1];
            (first, first + number * numbers[2] - 1, numbers[2])
        };
        for position in (first..=last).step_by(step as usize) {
            found.insert(position as usize, access);
        }
    }
    found
}

fn begin(spec: &str, args: &[&[u8]]) -> Option<i64> {
    let (word, number) = spec.split_once('@')?;
    let number: i64 = number.parse().unwrap();
    if word.is_empty() {
        return Some(number);
    }
    let mut order: Vec<usize> = (0..args.len()).collect();
    if number < 0 {
        order.truncate((args.len() as i64 + number + 1) as usize);
        order.reverse();
    } else {
        order.drain(..(number as usize).min(args.len()));
    }
    let at = order.into_iter().find(|&at| args[at].eq_ignore_ascii_case(word.as_bytes()))?;
    Some(at as i64 + 1)
}

/// A request that the command's own grammar reads to its end, made of `plain` words.
fn well_formed(row: &Row, plain: &[String], count: usize) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = row.words().iter().map(|word| word.to_vec()).collect();
    let mut plain = plain.iter().map(|word| word.as_bytes().to_vec());
    // Module commands name no minimum, but they have the key that they say.
    let has_key = usize::from(row.keys.iter().any(|key| key.contains("/@1/")));
    let wanted = usize::from(row.arity.unsigned_abs()).max(1 + has_key);
    let mut take = |args: &mut Vec<Vec<u8>>, number| args.extend(plain.by_ref().take(number));
    let word = |text: &str| text.as_bytes().to_vec();
    match row.name {
        "georadius" | "georadiusbymember" => {
            take(&mut args, wanted - 1);
            args.extend([word("ASC"), word("STORE")]);
            take(&mut args, 1);
            args.extend([word("storedist")]);
            take(&mut args, 1);
        }
        "xread" | "xreadgroup" => {
            if row.name == "xreadgroup" {
                args.push(word("GROUP"));
                take(&mut args, 2);
            }
            args.extend([word("COUNT"), word("1"), word("STREAMS")]);
            take(&mut args, 2 * count);
        }
        "migrate" => {
            take(&mut args, 2);
            args.push(word(""));
            take(&mut args, 2);
            args.push(word("KEYS"));
            take(&mut args, count);
        }
        "sort" | "sort_ro" => take(&mut args, 1),
        "bitfield" => {
            take(&mut args, 1);
            args.extend([word("SET"), word("u8"), word("0"), word("1")]);
        }
        "mset" | "msetnx" => take(&mut args, 2 * count),
        "msetex" => {
            args.push(word(&count.to_string()));
            take(&mut args, 2 * count);
        }
        _ => match row.keys.iter().find_map(|key| numkeys_place(key)) {
            Some(place) => {
                take(&mut args, place - 1);
                args.push(word(&count.to_string()));
                take(&mut args, count + 2);
            }
            None if row.arity > 0 => take(&mut args, wanted - row.words().len()),
            None => take(&mut args, wanted - row.words().len() + count - 1),
        },
    }
    args
}

fn numkeys_place(key: &str) -> Option<usize> {
    key.contains("keynum").then(|| key.split(['@', '/']).nth(2).unwrap().parse().unwrap())
}

proptest! {
    #[test]
    fn keys_stand_where_redis_finds_them(
        plain in proptest::collection::vec("[a-e]{1,3}", 24),
        count in 1..6_usize,
    ) {
        let has_arguments = |row: &Row| spec_of(&row.words()).keys != KeySpec::Subcommands;
        for row in rows().into_iter().filter(has_arguments) {
            let owned = well_formed(&row, &plain, count);
            let args: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
            let spec = spec_of(&args);
            prop_assert!(arity_ok(spec, args.as_slice().len()), "{}", row.name);
            // Shard channels stand in the places of keys and are none.
            let mut expected: Vec<(usize, Access)> = if spec.keys == KeySpec::None {
                Vec::new()
            } else {
                as_redis_finds(&row, &args).into_iter().collect()
            };
            let found = keys_of(&args).unwrap();
            let places = |keys: &[(usize, Access)]| keys.iter().map(|key| key.0).collect::<Vec<_>>();
            if row.name == "migrate" {
                // Redis's specification names the empty argument; the command does not touch it.
                expected.retain(|key| key.0 != 3);
            }
            prop_assert_eq!(places(&found), places(&expected), "{}", row.name);
            for ((place, ours), (_, theirs)) in found.iter().zip(&expected) {
                // The first two write what Redis calls read. PFMERGE creates its destination out of
                // its sources, and no lock key is a set to be merged: all of it is refused.
                let stricter = matches!(row.name, "pfcount" | "xreadgroup" | "pfmerge");
                // Modules name no access of a key's own; what they flag as a read, reads.
                let reads = row.has("readonly") && *ours == Access::Read;
                prop_assert!(
                    ours == theirs || reads || (stricter && *ours == Access::Write),
                    "{} at {}: {:?}", row.name, place, ours
                );
            }
        }
    }
}
