//! Every word of the grammar to every reader of it. The words: each command and subcommand of the command table, each word of the
//! requests that the tests know, and each option that the table or the server itself lists. Their forms: as they are, in odd
//! case, twice, and with a NUL behind which Redis may stop reading. Their places: plain, in a block, in a script whose text names
//! everything, in one that computes its words, in a function, and from another database. None of these changes a held lock. A new
//! row of the table is included by itself.

use std::collections::{BTreeMap, BTreeSet};

use lockwarden_lock::table::{self, CommandSpec, Effect, KeySpec, SessionVerb, for_each_key, option_words};
use lockwarden_tests::cases::{Case, Form, Kind, Meaning};
use lockwarden_tests::{Client, Reply, encode, is_whole_run_with_cluster};

use super::{Arena, Others, difference, furnishing, lock, may_end_all_scripts, pipeline, placed};

/// Requests between two looks at the leases.
const BATCH: usize = 96;

/// Ends the server or the connection, waits, or has the tests' own functions go.
const LEFT_OUT: &[&str] = &[
    "shutdown",
    "failover",
    "debug",
    "replicaof",
    "slaveof",
    "migrate",
    "client|pause",
    "client|kill",
    "client|reply",
    "function|flush",
    "function|delete",
    "function|restore",
    "script|debug",
    "wait",
    "waitaof",
    "save",
    "bgsave",
    "bgrewriteaof",
];

/// Calls the command that it is given.
const LIBRARY: &str = "#!lua name=grammar\n\
    redis.register_function('any', function(keys, args) return redis.call(unpack(args)) end)";

/// How a request reaches a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Written(Form),
    /// A script that gets every word as an argument.
    Told,
    /// The same in a script that goes to database 0 first.
    ToldFromAfar,
    Function,
}

const WAYS: [Way; 7] = [
    Way::Written(Form::Plain),
    Way::Written(Form::Block),
    Way::Written(Form::ScriptKeys),
    Way::Written(Form::ScriptText),
    Way::Told,
    Way::ToldFromAfar,
    Way::Function,
];

fn requests(case: &Case, way: Way) -> Option<Vec<Vec<u8>>> {
    let told = |first: &[&str]| {
        let first = first.iter().map(|word| word.as_bytes().to_vec());
        Some(vec![encode(&first.chain(case.args.clone()).collect::<Vec<_>>())])
    };
    match way {
        Way::Written(form) => case.requests(form),
        Way::Told => told(&["EVAL", "return redis.call(unpack(ARGV))", "0"]),
        Way::ToldFromAfar => told(&["EVAL", "redis.call('select', 0) return redis.call(unpack(ARGV))", "0"]),
        Way::Function => told(&["FCALL", "any", "0"]),
    }
}

/// A request for each place in which a command of the table may have a key; in the last place where it has none.
fn cases_of_row(row: &CommandSpec) -> Vec<Case> {
    if row.keys == KeySpec::Subcommands {
        return Vec::new();
    }
    let lock = lock(Kind::String);
    let mut cases = Vec::new();
    let least = usize::from(row.arity.unsigned_abs());
    let longest = if row.arity < 0 { least + 1 } else { least };
    for length in least.max(2)..=longest.max(2) {
        let mut args: Vec<Vec<u8>> = row.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        let begin = args.len();
        args.resize(length.max(begin + 1), b"1".to_vec());
        let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let mut places = BTreeSet::from([args.len() - 1]);
        let _ = for_each_key(row, &words[..], &mut |at, _, _| {
            places.insert(at);
        });
        cases.extend(places.into_iter().filter(|at| *at >= begin).map(|at| {
            let case =
                Case { line: "a row of the table", kind: Kind::String, meaning: Meaning::Verb, at, args: args.clone() };
            case.aimed_at(&lock)
        }));
    }
    cases
}

/// The options that the server's own documentation lists, by command.
fn documented_options(client: &Client) -> BTreeMap<String, BTreeSet<String>> {
    fn tokens(reply: &Reply, found: &mut BTreeSet<String>) {
        let fields = reply.elements();
        for (at, field) in fields.iter().enumerate() {
            match field {
                Reply::Bulk(name) if name == b"token" => {
                    if let Some(Reply::Bulk(word)) = fields.get(at + 1) {
                        found.insert(String::from_utf8_lossy(word).into_owned());
                    }
                }
                Reply::Array(_) | Reply::Map(_) | Reply::Set(_) => tokens(field, found),
                _ => {}
            }
        }
    }
    let mut all = BTreeMap::new();
    // Before 7.0 a server lists none.
    if let Reply::Array(commands) = client.sends("COMMAND DOCS").reply() {
        for pair in commands.chunks_exact(2) {
            let mut found = BTreeSet::new();
            tokens(&pair[1], &mut found);
            // Some are listed with a blank behind.
            let found = found.iter().filter_map(|word| word.split_whitespace().next());
            all.insert(pair[0].text(), found.map(str::to_owned).collect());
        }
    }
    all
}

/// A word as Redis may read it all the same.
fn spellings(word: &[u8]) -> [Vec<u8>; 3] {
    let mut odd = word.to_ascii_lowercase();
    odd.iter_mut().step_by(2).for_each(u8::make_ascii_uppercase);
    [word.to_vec(), odd, [word, b"\0x"].concat()]
}

/// A request, and whether every reader gets it; else one after the other gets such a one.
type Sent = (Case, bool);

/// The same request with each of its words spelled otherwise, or twice there.
fn spelled(case: &Case) -> Vec<Sent> {
    let mut cases = vec![(case.clone(), true)];
    for at in (0..case.args.len()).filter(|at| *at != case.at) {
        let own = &case.args[at];
        let [_, odd, with_nul] = spellings(own);
        let with = |word: Vec<u8>| {
            let mut case = case.clone();
            case.args[at] = word;
            case
        };
        cases.push((with(with_nul), true));
        if odd != *own {
            cases.push((with(odd), false));
            let mut twice = case.clone();
            twice.args.insert(at + 1, own.clone());
            twice.at += usize::from(at < case.at);
            cases.push((twice, false));
        }
    }
    cases
}

/// The same request with this option behind it, alone and with what may belong to it.
fn with_option(case: &Case, option: &str) -> Vec<Sent> {
    let (lock, list) = (lock(Kind::String), placed("list"));
    let mut cases = Vec::new();
    for (spelling, word) in spellings(option.as_bytes()).into_iter().enumerate() {
        let operands: [&[&[u8]]; 4] = [&[], &[b"1"], &[lock.as_bytes()], &[lock.as_bytes(), &word, list.as_bytes()]];
        for (count, operands) in operands.into_iter().enumerate() {
            let mut case = case.clone();
            case.args.push(word.clone());
            let operands = operands.iter().map(|operand| operand.to_vec());
            case.args.extend(operands);
            cases.push((case, spelling != 1 && count == 2));
        }
    }
    cases
}

/// Every request of the test.
fn all_cases(arena: &Arena) -> Vec<Sent> {
    let is_left_out = |row: &&CommandSpec| {
        let changes_connection = matches!(row.effect, Effect::Session(verb) if verb != SessionVerb::Select);
        changes_connection || LEFT_OUT.contains(&row.name)
    };
    let of_table: Vec<Case> = table::rows().filter(|row| !is_left_out(row)).flat_map(cases_of_row).collect();
    let documented = documented_options(&arena.redis.client());
    let mut cases: Vec<Sent> = of_table.iter().flat_map(spelled).collect();
    let written = arena.cases(&arena.alone).into_iter().filter(|case| case.args[0] != b"MIGRATE");
    let mut options_of = BTreeSet::new();
    for case in written {
        cases.extend(spelled(&case));
        // The shortest request of each command is the one that takes any option.
        if options_of.insert((case.command(), case.kind)) {
            let name = case.command();
            let of_table = option_words(&name).map(str::to_owned);
            let of_server = documented.get(&name).into_iter().flatten().cloned();
            for option in of_table.chain(of_server).collect::<BTreeSet<_>>() {
                cases.extend(with_option(&case, &option));
            }
        }
    }
    cases
}

/// Whether it may wait where it is not in a block or a script.
fn may_wait(case: &Case) -> bool {
    let name = case.args[0].to_ascii_lowercase();
    let is_option = |arg: &Vec<u8>| arg.to_ascii_lowercase().starts_with(b"block");
    name.starts_with(b"b") || case.args.iter().any(is_option)
}

#[test]
fn no_word_of_the_grammar_changes_a_lease_for_a_stranger() {
    if may_end_all_scripts() {
        return;
    }
    let arena = Arena::open(|proxy| proxy.setting("owner-token", "proofs", "[\"token\", \"session\"]"));
    let direct = arena.redis.client();
    let afar = arena.redis.client();
    let mut others = Others::arrive(&arena);
    others.stranger.sends_arguments(&["FUNCTION", "LOAD", LIBRARY]).reply();
    let stranger_afar = arena.proxy.client();
    // A cluster has one database.
    let there: &[(Way, bool)] = match is_whole_run_with_cluster() {
        true => &[],
        false => {
            for client in [&afar, &stranger_afar] {
                client.sends("SELECT 1").gets("+OK");
            }
            &[(Way::Written(Form::Plain), true), (Way::Written(Form::ScriptText), true), (Way::ToldFromAfar, true)]
        }
    };
    let cases = all_cases(&arena);
    let (mut sent, mut found) = (0, Vec::new());
    let here = WAYS.map(|way| (way, false));
    let ways: Vec<(Way, bool)> = here.into_iter().chain(there.iter().copied()).collect();
    for (turn, &(way, is_afar)) in ways.iter().enumerate() {
        let is_its_turn = |at: usize, everywhere: bool| everywhere || at % ways.len() == turn;
        let waits = |case: &Case| way == Way::Written(Form::Plain) && may_wait(case);
        let all: Vec<(&Case, Vec<Vec<u8>>)> = cases
            .iter()
            .enumerate()
            .filter(|(at, (case, everywhere))| is_its_turn(*at, *everywhere) && !waits(case))
            .filter_map(|(_, (case, _))| Some((case, requests(case, way)?)))
            .collect();
        for batch in all.chunks(BATCH) {
            let client = match is_afar {
                true => &stranger_afar,
                false => &others.stranger,
            };
            let requests: Vec<Vec<u8>> = batch.iter().flat_map(|(_, one)| one.clone()).collect();
            sent += pipeline(client, &requests).len();
            // What a SELECT among them did.
            let home = if is_afar { "SELECT 1" } else { "SELECT 0" };
            client.sends(home).gets("+OK");
            let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
            if is_afar {
                afar.sends_bytes(furnishing(false)).gets("nil");
            }
            if held(&after) != held(&others.before) {
                let shown: Vec<String> = batch.iter().map(|(case, _)| super::shown(case)).collect();
                found.push(format!(
                    "{way:?}, from database {}:{}\nby one of\n  {}",
                    i32::from(is_afar),
                    difference(&others.before, &after),
                    shown.join("\n  ")
                ));
                others = Others::arrive(&arena);
            }
        }
        // Long before the leases run out.
        others = Others::arrive(&arena);
    }
    println!("{} requests in {sent} forms changed no lease", cases.len());
    assert!(found.is_empty(), "{} ways:\n{}", found.len(), found.join("\n"));
    assert!(sent > 10_000, "only {sent} requests");
}

/// Without the free lock, which every client may take.
fn held(look: &Reply) -> Vec<&Reply> {
    let mut held: Vec<_> = look.elements().iter().collect();
    held.remove(Kind::ALL.len());
    held
}
