use proptest::prelude::*;

use super::rows::{FAMILIES, ROWS};
use super::{
    Access, CommandSpec, Effect, KeyError, KeySpec, Lookup, NotAnInteger, Verb, arity_ok, for_each_key, lookup,
};

mod against_redis;
mod page;

fn words(text: &str) -> Vec<&[u8]> {
    text.split(' ').map(|word| if word == "''" { b"".as_slice() } else { word.as_bytes() }).collect()
}

fn spec_of(args: &[&[u8]]) -> &'static CommandSpec {
    match lookup(args) {
        Lookup::Known(spec) => spec,
        other => panic!("{other:?} for {:?}", args[0].escape_ascii().to_string()),
    }
}

/// The keys of a request as `position` with `r` or `w`, or the error's text.
fn keys_of(args: &[&[u8]]) -> Result<Vec<(usize, Access)>, KeyError> {
    let mut found = Vec::new();
    for_each_key(spec_of(args), args, &mut |position, key, access| {
        assert_eq!(key, args[position]);
        found.push((position, access));
    })?;
    Ok(found)
}

fn shown(request: &str) -> String {
    match keys_of(&words(request)) {
        Ok(keys) => keys
            .iter()
            .map(|(position, access)| match access {
                Access::Read => format!("{position}r"),
                Access::Write => format!("{position}w"),
            })
            .collect::<Vec<_>>()
            .join(" "),
        Err(error) => error.to_string(),
    }
}

fn assert_keys(table: &[(&str, &str)]) {
    for (request, expected) in table {
        assert_eq!(shown(request), *expected, "{request}");
    }
}

#[test]
fn rows_are_sorted_unique_and_sound() {
    for family in FAMILIES {
        assert!(family.is_sorted_by(|a, b| a.name < b.name));
    }
    let mut names: Vec<_> = ROWS.iter().map(|spec| spec.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name has two rows");
    for spec in &ROWS {
        assert_ne!(spec.arity, 0, "{}", spec.name);
        assert!(!spec.name.bytes().any(|byte| byte.is_ascii_uppercase()), "{}", spec.name);
        let has_keys = !matches!(spec.keys, KeySpec::None | KeySpec::Subcommands);
        if matches!(spec.effect, Effect::Read | Effect::Write | Effect::Verb(_)) {
            assert!(has_keys, "{} reads or writes nothing", spec.name);
        }
        if spec.effect == Effect::Neutral {
            assert!(!has_keys, "{} has keys", spec.name);
        }
        if let Some((family, _)) = spec.name.split_once('|') {
            assert_eq!(spec_of(&[family.as_bytes()]).keys, KeySpec::Subcommands, "{family}");
        }
    }
}

#[test]
fn every_row_is_found_by_its_name_in_any_case() {
    for spec in &ROWS {
        for name in [spec.name.to_owned(), spec.name.to_uppercase()] {
            let parts: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
            assert_eq!(lookup(parts.as_slice()), Lookup::Known(spec), "{name}");
        }
    }
    assert_eq!(spec_of(&words("gEtSeT k v")).effect, Effect::Verb(Verb::GetSet));
    assert_eq!(spec_of(&words("get config k")).name, "get");
}

#[test]
fn a_name_with_any_one_byte_changed_is_the_name_that_it_says() {
    let known = |name: &[u8]| {
        let mut rows = ROWS.iter().filter(|spec| !spec.name.contains('|'));
        rows.find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    };
    let upper = ROWS.iter().map(|spec| spec.name.to_uppercase().into_bytes());
    for name in upper.filter(|name| !name.contains(&b'|')) {
        for at in 0..name.len() {
            for flipped in (0..8).map(|bit| 1 << bit).chain([0xff, 0xa0, name[at]]) {
                let mut name = name.clone();
                name[at] ^= flipped;
                let found = match lookup([name.as_slice()].as_slice()) {
                    Lookup::Known(spec) => Some(spec),
                    Lookup::UnknownSubcommand | Lookup::Unknown => None,
                };
                assert_eq!(found, known(&name), "{}", name.escape_ascii());
            }
        }
    }
}

#[test]
fn a_name_that_is_not_exactly_known_is_unknown() {
    let no_args: &[&[u8]] = &[];
    assert_eq!(lookup(no_args), Lookup::Unknown);
    let long = [b'g'; 4096];
    for name in [
        b"".as_slice(),
        b"|",
        b"PING ",
        b" PING",
        b"PING\0",
        b"GET\0\0\0\0\0",
        b"\0GET",
        b"config|get",
        b"CONFIG|GET",
        b"client|",
        b"nonsense",
        b"s\xc5\xbfet",
        &long,
    ] {
        assert_eq!(lookup([name].as_slice()), Lookup::Unknown, "{}", name.escape_ascii());
        assert_eq!(lookup([name, b"get"].as_slice()), Lookup::Unknown, "{}", name.escape_ascii());
    }
    for subcommand in [b"".as_slice(), b"get ", b"get\0", b"|get", b"nonsense", &long] {
        let args = [b"config".as_slice(), subcommand];
        assert_eq!(lookup(args.as_slice()), Lookup::UnknownSubcommand);
    }
}

#[test]
fn an_arity_is_exact_or_a_minimum() {
    for (request, ok) in [
        ("get", false),
        ("get k", true),
        ("get k k", false),
        ("set k", false),
        ("set k v", true),
        ("set k v nx px 1", true),
        ("client reply on", true),
        ("client reply", false),
    ] {
        let args = words(request);
        assert_eq!(arity_ok(spec_of(&args), args.len()), ok, "{request}");
    }
}

#[test]
fn each_key_has_the_access_of_its_own_place() {
    assert_keys(&[
        ("GET k", "1r"),
        ("SET k v NX", "1w"),
        ("SETNX k v", "1w"),
        ("MGET a b c", "1r 2r 3r"),
        ("DEL a b a", "1w 2w 3w"),
        ("MSET a 1 b 2", "1w 3w"),
        ("MSETNX a 1 b 2", "1w 3w"),
        ("MSETEX 2 a 1 b 2 EX 5", "2w 4w"),
        ("COPY a b REPLACE", "1r 2w"),
        ("RENAME a b", "1w 2w"),
        ("BITOP AND d a b", "2w 3r 4r"),
        ("BITFIELD k GET u8 0 get u8 8", "1r"),
        ("BITFIELD k OVERFLOW SAT GET u8 0", "1r"),
        ("BITFIELD k", "1r"),
        ("BITFIELD k GET u8 0 SET u8 0 1", "1w"),
        ("BITFIELD k OVERFLOW SAT INCRBY u8 0 1", "1w"),
        ("BITFIELD k GET u8", "1w"),
        ("BITFIELD k GET SET SET", "1r"),
        ("LCS a b LEN", "1r 2r"),
        ("LMOVE a b LEFT RIGHT", "1w 2w"),
        ("SMOVE a b m", "1w 2w"),
        ("BLPOP a b 0", "1w 2w"),
        ("BLMPOP 0 2 a b LEFT", "3w 4w"),
        ("LMPOP 1 a LEFT COUNT 2", "2w"),
        ("SINTERSTORE d a b", "1w 2r 3r"),
        ("SINTERCARD 2 a b LIMIT 1", "2r 3r"),
        ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "1w 3r 4r"),
        ("ZUNION 1 a WITHSCORES", "2r"),
        ("ZRANGESTORE d s 0 1", "1w 2r"),
        ("GEOSEARCHSTORE d s FROMMEMBER m BYRADIUS 1 m", "1w 2r"),
        ("PFCOUNT a b", "1w 2w"),
        ("PFMERGE d a b", "1w 2w 3w"),
        ("XREAD COUNT 2 STREAMS a b 0 0", "4r 5r"),
        ("XGROUP CREATE k g $", "2w"),
        ("XINFO STREAM k", "2r"),
        ("OBJECT ENCODING k", "2r"),
        ("MEMORY USAGE k", "2r"),
        ("EVAL text 2 a b c", "3w 4w"),
        ("EVAL text 0 a", ""),
        ("EVALSHA_RO sha 1 a", "3r"),
        ("FCALL_RO f 1 a", "3r"),
        ("WATCH a b", "1r 2r"),
        ("SPUBLISH channel m", ""),
        ("SSUBSCRIBE channel", ""),
        ("CAS k a b", "1w"),
        ("KEYS *", ""),
    ]);
}

#[test]
fn a_key_that_looks_like_an_option_misleads_nobody() {
    assert_keys(&[
        ("SORT k", "1r"),
        ("SORT k STORE d", "1r 3w"),
        ("SORT k store a STORE b", "1r 3w 5w"),
        ("SORT STORE BY STORE", "1r"),
        ("SORT STORE STORE STORE", "1r 3w"),
        ("SORT k GET STORE STORE d", "1r 5w"),
        ("SORT k BY x LIMIT STORE y GET # GET z ASC ALPHA STORE d", "1r 14w"),
        ("SORT k STORE\0x d", "1r 3w"),
        ("SORT k STORE", "1r 2w"),
        ("SORT k WHAT STORE d", "1r 2w 3w 4w"),
        ("SORT_RO k BY STORE", "1r"),
        ("GEORADIUS k 1 2 3 m", "1r"),
        ("GEORADIUS STORE 1 2 3 m STORE d", "1r 7w"),
        ("GEORADIUS k 1 2 3 m COUNT STORE STOREDIST d", "1r 9w"),
        ("GEORADIUS k 1 2 3 m STORE a WITHDIST storedist b ANY", "1r 7w 10w"),
        ("GEORADIUS k 1 2 3 m WHAT STORE d", "1r 6w 7w 8w"),
        ("GEORADIUS k 1 2 3 m STORE", "1r 6w"),
        ("GEORADIUSBYMEMBER k STORE 3 m STORE d", "1r 6w"),
        ("GEORADIUSBYMEMBER k m 3 m DESC", "1r"),
        ("GEORADIUS_RO k 1 2 3 m STORE d", "1r"),
        ("XREAD BLOCK 0 STREAMS STREAMS $", "4r"),
        ("XREAD COUNT STREAMS STREAMS a 0", "4r"),
        ("XREADGROUP GROUP STREAMS STREAMS STREAMS a >", "5w"),
        ("XREADGROUP GROUP g c NOACK BLOCK 5 COUNT 1 STREAMS a b > >", "10w 11w"),
        ("XREAD WHAT STREAMS a 0", "1r 2r 3r 4r"),
        ("XREADGROUP GROUP g c CLAIM STREAMS STREAMS a >", "7w"),
        ("XREADGROUP GROUP g c WHAT a >", "4w 5w 6w"),
        ("XREAD COUNT 1 BLOCK 1", ""),
        ("XREAD NOACK STREAMS a b 0", "1r 2r 3r 4r 5r"),
        ("XREAD GROUP g c STREAMS a >", "1r 2r 3r 4r 5r 6r"),
        ("MIGRATE h 1 k 0 9", "3w"),
        ("MIGRATE h 1 KEYS 0 9 COPY REPLACE AUTH KEYS", "3w"),
        ("MIGRATE h 1 '' 0 9 AUTH2 KEYS KEYS KEYS a KEYS", "10w 11w"),
        ("MIGRATE h 1 '' 0 9 COPY keys a", "8w"),
        ("MIGRATE h 1 '' 0 9 COPY", "3w"),
        ("MIGRATE h 1 k 0 9 KEYS a", "3w 4w 5w 6w 7w"),
        ("MIGRATE h 1 '' 0 9 WHAT KEYS a", "3w 4w 5w 6w 7w 8w"),
    ]);
}

#[test]
fn numbers_that_do_not_fit_are_answered_in_the_words_of_redis() {
    const INTEGER: &str = "ERR value is not an integer or out of range";
    const BEYOND: &str = "ERR Number of keys can't be greater than number of args";
    const POSITIVE: &str = "ERR numkeys should be greater than 0";
    const SYNTAX: &str = "ERR syntax error";
    assert_keys(&[
        ("EVAL text x", INTEGER),
        ("EVAL text +1 a", INTEGER),
        ("EVAL text 01 a", INTEGER),
        ("EVAL text 2 a", BEYOND),
        ("EVALSHA sha 9223372036854775807 a", BEYOND),
        ("EVAL text -1 a", "ERR Number of keys can't be negative"),
        ("EVAL text -9223372036854775808 a", "ERR Number of keys can't be negative"),
        ("EVAL_RO text 9223372036854775808", INTEGER),
        ("FCALL f x", "ERR Bad number of keys provided"),
        ("FCALL f 1", BEYOND),
        ("LMPOP x k LEFT", POSITIVE),
        ("LMPOP 0 k LEFT", POSITIVE),
        ("LMPOP 2 k LEFT", SYNTAX),
        ("BZMPOP 0 -1 k MIN", POSITIVE),
        ("BLMPOP 1 3 k LEFT", SYNTAX),
        ("SINTERCARD 0 k", POSITIVE),
        ("SINTERCARD 2 k", BEYOND),
        ("ZUNIONSTORE d x k", INTEGER),
        ("ZUNIONSTORE d 0 k", "ERR at least 1 input key is needed for 'zunionstore' command"),
        ("ZUNIONSTORE d 2 k", SYNTAX),
        ("ZINTERCARD -1 k", "ERR at least 1 input key is needed for 'zintercard' command"),
        ("ZDIFF 2 k", SYNTAX),
        ("MSETEX x a 1", "ERR invalid numkeys value"),
        ("MSETEX 0 a 1", "ERR invalid numkeys value"),
        ("MSETEX 2 a 1 b", "ERR wrong number of key-value pairs"),
        ("MSET a 1 b", "ERR wrong number of arguments for 'mset' command"),
        ("MSETNX a 1 b", "ERR wrong number of arguments for 'msetnx' command"),
        (
            "XREAD STREAMS a b 0",
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
             specified.",
        ),
        (
            "XREADGROUP GROUP g c STREAMS a b >",
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
             specified.",
        ),
    ]);
    assert_eq!(keys_of(&words("EVAL t x")), Err(KeyError::NotAnInteger(NotAnInteger)));
}

#[test]
fn too_few_arguments_are_left_to_redis() {
    assert_keys(&[
        ("GET", ""),
        ("EVAL text", ""),
        ("EVAL", ""),
        ("LMPOP x k", ""),
        ("LMPOP 1 k", ""),
        ("ZUNIONSTORE d", "1w"),
        ("ZUNIONSTORE d x", "1w"),
        ("ZUNIONSTORE", ""),
        ("MSET a", "1w"),
        ("BLPOP k", ""),
        ("BLPOP", ""),
        ("XREAD STREAMS a", ""),
        ("XREAD", ""),
        ("SORT", ""),
        ("GEORADIUS k 1", "1r"),
        ("MIGRATE h 1", ""),
        ("MIGRATE h 1 k", "3w"),
        ("COPY a", "1r"),
        ("BITOP AND", ""),
        ("XGROUP CREATE", ""),
        ("BITFIELD", ""),
    ]);
}

proptest! {
    #[test]
    fn no_arguments_make_it_panic_or_name_a_place_that_is_not_there(
        row in 0..ROWS.len(),
        tail in proptest::collection::vec(
            prop_oneof![
                Just("store"), Just("storedist"), Just("keys"), Just("streams"), Just("get"),
                Just("count"), Just("-1"), Just("0"), Just("1"), Just("2"), Just(""),
                Just("9223372036854775807"), Just("x"),
            ],
            0..10,
        ),
    ) {
        let mut args: Vec<&[u8]> = ROWS[row].name.split('|').map(str::as_bytes).collect();
        args.extend(tail.iter().map(|word| word.as_bytes()));
        let spec = &ROWS[row];
        let mut last = None;
        let result = for_each_key(spec, args.as_slice(), &mut |position, _, _| {
            assert!(position < args.as_slice().len() && position > 0);
            assert!(last < Some(position), "positions go up");
            last = Some(position);
        });
        prop_assert!(arity_ok(spec, args.len()) || result.is_ok());
    }
}
