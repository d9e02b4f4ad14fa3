//! Would an error in the table be noticed? Each row that governs a lock, and each option that a key may follow, is
//! weakened in every way that a slip could, and the cases that are sent to a running proxy must reveal it: a command
//! that was judged is no longer judged.

use lockwarden_lua::Names;
use lockwarden_tests::cases::{Case, EVAL_SHA, EVAL_TEXT, Facts, cases};

use super::*;
use crate::table::replaced::{GRAMMARS, Role, Word, rows, with_row, with_words};
use crate::table::{CommandSpec, CountRule, KeySpec};

/// A row or grammar made wrong, and what was done to it.
struct Mutant {
    command: &'static str,
    what: String,
    change: Change,
}

enum Change {
    Row(CommandSpec),
    Words(&'static str, Vec<Word>),
}

const REFUSED_ANYHOW: &str = "the server runs any command by it, so it is refused whatever its keys";

/// Mutants that let nothing through that should be judged, and why.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("bitfield", "at least 3 arguments", "the shortest that writes has 6"),
    ("eval", "at least 4 arguments", "the shortest with a key has 4"),
    ("evalsha", "at least 4 arguments", "the shortest with a key has 4"),
    ("fcall", "at least 4 arguments", "the shortest with a key has 4"),
    ("keydb.cron", "None", REFUSED_ANYHOW),
    ("keydb.cron", "Range { first: 2, last: 2, step: 1 }", REFUSED_ANYHOW),
    ("persist", "exactly 2 arguments", "KeyDB takes a member of a set behind the key, and a lock is none"),
    ("pfdebug", "exactly 3 arguments", "KeyDB takes more for a HyperLogLog, which a lock is not"),
    ("georadius", "GeoRadius { options: 7 }", ONE_FURTHER),
    ("georadius", "at least 7 arguments", "the shortest that stores has 8"),
    ("georadiusbymember", "GeoRadius { options: 6 }", ONE_FURTHER),
    ("georadiusbymember", "at least 6 arguments", "the shortest that stores has 7"),
    ("getex", "at least 3 arguments", "the shortest only reads"),
    ("sort", "at least 3 arguments", "the shortest that stores has 4"),
    ("vadd", "at least 2 arguments", NO_SERVER),
    ("vrem", "at least 2 arguments", NO_SERVER),
    ("vsetattr", "at least 2 arguments", NO_SERVER),
    ("xcfgset", "at least 3 arguments", NO_SERVER),
    ("xnack", "at least 3 arguments", NO_SERVER),
];
const ONE_FURTHER: &str = "the first word is then the key itself, and what is no option counts as one";
const NO_SERVER: &str = "the row takes fewer than any server does";

#[test]
fn every_case_is_judged() {
    let facts = ScriptFacts::of(EVAL_TEXT.as_bytes());
    assert_eq!(ScriptSha::from_hex(EVAL_SHA.as_bytes()), Some(ScriptSha::of(&facts.text)));
    for case in cases(&Facts::default()) {
        for args in spellings(&case) {
            assert!(is_judged(&args), "{}", shown(&args));
        }
    }
}

#[test]
fn every_row_that_governs_has_cases() {
    let cases = cases(&Facts::default());
    for row in rows().iter().filter(|row| governs(row)) {
        let count = cases.iter().filter(|case| case.command() == row.name).count();
        assert!(count > 0, "no line for {}", row.name);
    }
}

#[test]
fn a_weaker_table_does_not_go_unnoticed() {
    let cases = cases(&Facts::default());
    let mutants: Vec<Mutant> =
        rows().iter().filter(|row| governs(row)).flat_map(weaker_rows).chain(weaker_grammars()).collect();
    let (mut killed, mut equivalent, mut survivors) = (0, Vec::new(), Vec::new());
    for mutant in &mutants {
        let concerned = cases.iter().filter(|case| {
            let command = case.command();
            command == mutant.command || (mutant.command, &*command) == ("georadius", "georadiusbymember")
        });
        let mut noticed = false;
        for case in concerned {
            let unjudged = || spellings(case).iter().any(|args| !is_judged(args));
            noticed |= match &mutant.change {
                Change::Row(row) => with_row(mutant.command, Some(*row), unjudged),
                Change::Words(command, words) => with_words(command, words.clone(), unjudged),
            };
        }
        let excuse =
            EQUIVALENT.iter().position(|(command, what, _)| (*command, *what) == (mutant.command, &*mutant.what));
        match (noticed, excuse) {
            (true, None) => killed += 1,
            (false, Some(excuse)) => equivalent.push(excuse),
            (true, Some(_)) => {
                survivors.push(format!("{}: {} is excused and was noticed", mutant.command, mutant.what))
            }
            (false, None) => survivors.push(format!("{}: {}", mutant.command, mutant.what)),
        }
    }
    println!("{} mutants of the command table: {killed} killed, {} equivalent", mutants.len(), equivalent.len());
    assert!(survivors.is_empty(), "{} survive:\n{}", survivors.len(), survivors.join("\n"));
    equivalent.sort_unstable();
    assert!(equivalent.into_iter().eq(0..EQUIVALENT.len()), "an excuse for no mutant");
}

/// Whether the row is about keys that its command may change.
fn governs(row: &CommandSpec) -> bool {
    row.keys != KeySpec::None && row.keys != KeySpec::Subcommands && row.effect.access() == Access::Write
}

/// The row with one thing wrong at a time.
fn weaker_rows(row: &'static CommandSpec) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    let mut mutant = |what: String, changed: CommandSpec| {
        mutants.push(Mutant { command: row.name, what, change: Change::Row(changed) });
    };
    mutant("neutral".into(), CommandSpec { effect: Effect::Neutral, ..*row });
    if !names_access(row.keys) {
        mutant("a read".into(), CommandSpec { effect: Effect::Read, ..*row });
    }
    // A wrong number of arguments passes, because Redis refuses it: a row must not claim that too soon.
    let least = row.arity.abs();
    mutant(format!("at least {} arguments", least + 1), CommandSpec { arity: -(least + 1), ..*row });
    if row.arity < 0 {
        mutant(format!("exactly {least} arguments"), CommandSpec { arity: least, ..*row });
    }
    for keys in weaker_keys(row.keys) {
        mutant(format!("{keys:?}"), CommandSpec { keys, ..*row });
    }
    mutants
}

/// Whether the places themselves say what is read and what is written.
fn names_access(keys: KeySpec) -> bool {
    match keys {
        KeySpec::SourceDest
        | KeySpec::DestSource
        | KeySpec::DestSources { .. }
        | KeySpec::DestNumkeys { .. }
        | KeySpec::Sort
        | KeySpec::GeoRadius { .. } => true,
        KeySpec::None
        | KeySpec::Subcommands
        | KeySpec::Range { .. }
        | KeySpec::Pairs
        | KeySpec::Numkeys { .. }
        | KeySpec::Bitfield
        | KeySpec::Streams { .. }
        | KeySpec::Migrate => false,
    }
}

/// The key places with one dropped, shifted or read with the wrong step.
fn weaker_keys(keys: KeySpec) -> Vec<KeySpec> {
    let range = |first, last, step| KeySpec::Range { first, last, step };
    let mut weaker = vec![KeySpec::None];
    weaker.extend(match keys {
        KeySpec::None | KeySpec::Subcommands => vec![],
        KeySpec::Range { first, last, step } => {
            let mut weaker = vec![range(first + 1, if last < 0 { last } else { last + 1 }, step)];
            if last != first as i8 {
                weaker.push(range(first, first as i8, step));
                weaker.push(range(first + 1, last, step));
                weaker.push(range(first, last - 1, step));
                weaker.push(range(first, last, step + 1));
            }
            weaker
        }
        KeySpec::Pairs => vec![range(1, 1, 1), range(2, -1, 2), range(1, -3, 2), range(1, -1, 3)],
        KeySpec::SourceDest => vec![KeySpec::DestSource, range(1, 1, 1)],
        KeySpec::DestSource => vec![KeySpec::SourceDest, range(2, 2, 1)],
        KeySpec::DestSources { dest } => vec![
            KeySpec::DestSources { dest: dest + 1 },
            KeySpec::DestSources { dest: dest - 1 },
            range(dest + 1, -1, 1),
        ],
        KeySpec::Numkeys { at, step, count } => vec![
            KeySpec::Numkeys { at: at + 1, step, count },
            KeySpec::Numkeys { at: at - 1, step, count },
            KeySpec::Numkeys { at, step: step + 1, count },
            range(at + 1, i8::try_from(at).unwrap() + 1, 1),
            range(at + 2, -1, 1),
        ],
        KeySpec::DestNumkeys { dest, at } => vec![
            KeySpec::DestNumkeys { dest: dest + 1, at },
            KeySpec::DestNumkeys { dest, at: at + 1 },
            KeySpec::Numkeys { at, step: 1, count: CountRule::Sets },
        ],
        KeySpec::Bitfield => vec![range(2, 2, 1)],
        KeySpec::Sort => vec![range(1, 1, 1)],
        KeySpec::GeoRadius { options } => vec![
            range(1, 1, 1),
            KeySpec::GeoRadius { options: options + 1 },
            KeySpec::GeoRadius { options: options + 2 },
        ],
        KeySpec::Streams { .. } => vec![range(1, 1, 1), range(2, 2, 1)],
        KeySpec::Migrate => vec![range(3, 3, 1), range(4, -1, 1)],
    });
    weaker
}

/// Every grammar with one word wrong: taken for an option, with operands that it does not have, or
/// gone. The last is stricter, because what is not understood counts as keys; so a mutant is a word
/// that swallows what is behind it.
fn weaker_grammars() -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for grammar in GRAMMARS {
        // XREAD only reads.
        if grammar.command == "xread" {
            continue;
        }
        for (at, word) in grammar.words.iter().enumerate() {
            let mut mutant = |what: String, changed: Word| {
                let mut words = grammar.words.to_vec();
                words[at] = changed;
                mutants.push(Mutant { command: grammar.command, what, change: Change::Words(grammar.command, words) });
            };
            if word.role != Role::Option {
                mutant(format!("{} is an option of 1", word.name), Word { role: Role::Option, operands: 1, ..*word });
            }
            if word.role != Role::Keys {
                // As many as hide a whole write.
                let more = word.operands + if grammar.command == "bitfield" { 4 } else { 2 };
                mutant(format!("{} takes {more}", word.name), Word { operands: more, ..*word });
            }
        }
        let mut words = grammar.words.to_vec();
        for write in ["set", "incrby"].into_iter().filter(|_| grammar.command == "bitfield") {
            words.push(Word { name: write, operands: 3, role: Role::Option });
            mutants.push(Mutant {
                command: grammar.command,
                what: format!("{write} reads"),
                change: Change::Words(grammar.command, vec![words[0], words[1], words[words.len() - 1]]),
            });
        }
    }
    mutants
}

/// The ways to spell a case that are one request of arguments.
fn spellings(case: &Case) -> [Vec<Vec<u8>>; 2] {
    [case.args.clone(), case.mixed_case()]
}

fn is_judged(args: &[Vec<u8>]) -> bool {
    let namespaces = Namespaces::new(vec![vec![Glob::new(Bytes::from_static(b"lock:*"))]]);
    let classifier = Classifier {
        namespaces: &namespaces,
        companion_prefix: b"lw:",
        computed_names: &ComputedNames::Forward,
        enforces: &|_| true,
        foreign: &|| None,
        counts: &|_| false,
        operator_says: &|_| None,
        trusted_function: &|_| false,
        trusted_script: &|_| Default::default(),
        // One that writes its keys alone.
        function: &|_| Some(Arc::new(Names::none())),
        script: &|_| None,
        saw: &|text| Arc::new(ScriptFacts::of(text)),
    };
    let request = OwnedRequest::new(args);
    match classifier.classify(request.request()) {
        Class::Judge(_)
        | Class::Opaque(_)
        | Class::UnknownScript(_)
        | Class::UnseenScript(_)
        | Class::Computed(_)
        | Class::ComputedFunction(_)
        | Class::UnknownFunction(_)
        | Class::TooLong(..) => true,
        Class::Admin(command) => command.may_erase_locks(),
        Class::PassThrough(_)
        | Class::Trusted(..)
        | Class::Fence(..)
        | Class::Lease(_)
        | Class::Operator(_)
        | Class::Listing(..)
        | Class::Read(..)
        | Class::Session(..)
        | Class::ScriptLoad(_)
        | Class::ScriptExists(_)
        | Class::UnknownName(_)
        | Class::OtherName(_)
        | Class::Error(_)
        | Class::ErrorOfOthers(..) => false,
    }
}

fn shown(args: &[Vec<u8>]) -> String {
    let words: Vec<String> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
    words.join(" ")
}
