//! The same commands as in `bypass.rs`, with random arguments: some thousand requests in every run, many more
//! with `make soak`. The seed is printed, and `LOCKWARDEN_SEED` repeats a run.

use std::time::{SystemTime, UNIX_EPOCH};

use lockwarden_tests::cases::{Case, Form, Kind};
use lockwarden_tests::soak::number;

use super::{Arena, Others, difference, free, furnishing, lock, may_end_all_scripts, pipeline, plain, shown};

/// Requests in a usual run; `LOCKWARDEN_REQUESTS` asks for another number.
const REQUESTS: u64 = 4_000;
/// Requests between two looks at the leases.
const BATCH: usize = 32;
/// Looks after which the locks are taken anew, long before they would run out.
const BATCHES_A_LEASE: u64 = 2_000;

/// More than any number that a command takes; and as long as an owner token.
const TOO_LARGE: &str = "18446744073709551616";

/// Words for places where they may or may not belong.
const WORDS: &[&str] = &[
    "",
    "\0",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-0",
    "+1",
    "01",
    "9999999999",
    TOO_LARGE,
    "1.5",
    "nan",
    "@",
    "*",
    ">",
    "$",
    "lock:",
    "lock:*",
    "LOCK:string",
    "lock:string\0",
    "lw:{5jy}:lock:string",
    "STORE",
    "STOREDIST",
    "STREAMS",
    "KEYS",
    "BY",
    "GET",
    "LIMIT",
    "COUNT",
    "BLOCK",
    "NOACK",
    "GROUP",
    "NX",
    "XX",
    "GT",
    "LT",
    "EX",
    "PX",
    "EXAT",
    "KEEPTTL",
    "PERSIST",
    "IFEQ",
    "IFNE",
    "IFDEQ",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "REPLACE",
    "DB",
    "ABSTTL",
    "LEFT",
    "MIN",
    "WEIGHTS",
    "FIELDS",
    "IDS",
    "MAXLEN",
    "absent",
    "nobody",
];

/// The request that was sent for a case.
#[derive(Clone)]
struct Sent {
    case: Case,
    form: Form,
    requests: Vec<Vec<u8>>,
}

impl Sent {
    /// The same without one of its arguments, if there is such a request. The lock stays.
    fn without(&self, argument: usize) -> Option<Sent> {
        let mut case = self.case.clone();
        if argument == case.at {
            return None;
        }
        case.args.remove(argument);
        case.at -= usize::from(argument < case.at);
        let requests = case.requests(self.form)?;
        Some(Sent { case, form: self.form, requests })
    }
}

/// Xorshift: the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn word(&mut self) -> Vec<u8> {
        let kind = Kind::ALL[self.below(Kind::ALL.len())];
        match self.below(8) {
            0..3 => lock(kind).into_bytes(),
            3 => free().into_bytes(),
            4 => plain(kind).into_bytes(),
            5 => (0..self.below(9)).map(|_| self.below(256) as u8).collect(),
            _ => WORDS[self.below(WORDS.len())].into(),
        }
    }

    /// A case with a few arguments other than they were, in some form.
    fn request(&mut self, cases: &[Case]) -> Sent {
        loop {
            let mut case = cases[self.below(cases.len())].clone();
            for _ in 0..self.below(4) {
                let at = 1 + self.below(case.args.len());
                let inside = at < case.args.len();
                match self.below(7) {
                    0 => case.args.insert(at, self.word()),
                    1 if inside && case.args.len() > 2 => drop(case.args.remove(at)),
                    2 if inside => case.args[at].make_ascii_lowercase(),
                    // Behind a NUL Redis may stop reading a word, also the first.
                    3 => {
                        let at = self.below(case.args.len());
                        if at != case.at {
                            case.args[at].push(0);
                            let more = self.below(1_000).to_string();
                            case.args[at].extend(more.bytes().take(self.below(4)));
                        }
                    }
                    4 if inside => {
                        let word = case.args[at].clone();
                        case.args.insert(at, word);
                        case.at += usize::from(at < case.at);
                    }
                    _ if inside => case.args[at] = self.word(),
                    _ => {}
                }
            }
            let form = Form::ALL[self.below(Form::ALL.len())];
            // A script that is given an owner token may join a lock that several may hold.
            let is_script = matches!(form, Form::ScriptKeys | Form::ScriptText);
            if is_script && case.args.iter().any(|arg| arg == TOO_LARGE.as_bytes()) {
                continue;
            }
            let form = without_waiting(&case, form);
            if let Some(requests) = case.requests(form) {
                return Sent { case, form, requests };
            }
        }
    }
}

/// A command that might wait is sent in a form in which commands do not wait.
fn without_waiting(case: &Case, form: Form) -> Form {
    let waits = case.args[0].to_ascii_uppercase().starts_with(b"B")
        || case.args.iter().any(|arg| arg.to_ascii_uppercase().starts_with(b"BLOCK"));
    match form {
        Form::Plain | Form::MixedCase | Form::InlineEscaped | Form::InlineQuoted if waits => Form::Block,
        form => form,
    }
}

#[test]
fn no_random_request_changes_a_lease() {
    if may_end_all_scripts() {
        return;
    }
    let seed = number("LOCKWARDEN_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64 | 1
    });
    let wanted = number("LOCKWARDEN_REQUESTS").unwrap_or(REQUESTS);
    println!("LOCKWARDEN_SEED={seed}");
    // Reading a lock would be a proof, by design, and some of these read.
    let arena = Arena::open(|proxy| proxy.setting("owner-token", "proofs", "[\"token\", \"session\"]"));
    // MIGRATE waits for the other side.
    let cases: Vec<Case> = arena.cases(&arena.alone).into_iter().filter(|case| case.args[0] != b"MIGRATE").collect();
    let direct = arena.redis.client();
    let mut dice = Dice(seed.max(1));
    let mut others = Others::arrive(&arena);
    let (mut sent, mut batches) = (0, 0);
    while sent < wanted {
        let batch: Vec<_> = (0..BATCH).map(|_| dice.request(&cases)).collect();
        let is_stranger = dice.below(2) == 0;
        let client = others.one(is_stranger);
        let requests: Vec<Vec<u8>> = batch.iter().flat_map(|sent| sent.requests.clone()).collect();
        pipeline(client, &requests);
        let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
        let (now, before) = (held(&after), held(&others.before));
        if now != before {
            let transcript = transcript(&arena, &batch, is_stranger);
            panic!(
                "LOCKWARDEN_SEED={seed} LOCKWARDEN_REQUESTS={wanted}: after {sent} requests a lease changed{}\nby{transcript}",
                difference(&others.before, &after),
            );
        }
        sent += BATCH as u64;
        batches += 1;
        if batches % BATCHES_A_LEASE == 0 {
            others = Others::arrive(&arena);
        }
    }
    println!("{sent} random requests changed no lease");
}

/// The fewest requests of a batch that change a lease, each with the fewest arguments, or all of them where they do so no more.
fn transcript(arena: &Arena, batch: &[Sent], is_stranger: bool) -> String {
    let direct = arena.redis.client();
    let mut change_a_lease = |sent: &[Sent]| {
        let others = Others::arrive(arena);
        let requests: Vec<Vec<u8>> = sent.iter().flat_map(|sent| sent.requests.clone()).collect();
        pipeline(others.one(is_stranger), &requests);
        let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
        held(&after) != held(&others.before)
    };
    let mut kept = batch.to_vec();
    if change_a_lease(&kept) {
        kept = fewest(&kept, &mut change_a_lease);
        for at in 0..kept.len() {
            for argument in (1..kept[at].case.args.len()).rev() {
                let Some(shorter) = kept[at].without(argument) else { continue };
                let mut candidate = kept.clone();
                candidate[at] = shorter;
                if change_a_lease(&candidate) {
                    kept = candidate;
                }
            }
        }
    }
    let lines = kept
        .iter()
        .map(|Sent { case, requests, .. }| format!("\n  {}    as {}", shown(case), requests.concat().escape_ascii()));
    lines.collect()
}

/// The fewest of these that still do it, as far as leaving out one stretch after the other finds them.
fn fewest<T: Clone>(all: &[T], do_it: &mut impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = all.to_vec();
    let mut at_once = kept.len().div_ceil(2);
    while at_once > 0 {
        let mut start = 0;
        while start < kept.len() {
            let end = kept.len().min(start + at_once);
            let without = [&kept[..start], &kept[end..]].concat();
            if do_it(&without) {
                kept = without;
            } else {
                start = end;
            }
        }
        at_once /= 2;
    }
    kept
}

#[test]
fn of_a_batch_that_changes_a_lease_only_what_it_takes_is_told() {
    let all: Vec<u32> = (0..32).collect();
    let mut need_two = |some: &[u32]| some.contains(&3) && some.contains(&27);
    assert_eq!(fewest(&all, &mut need_two), [3, 27]);
    let mut need_any = |some: &[u32]| some.iter().any(|one| one % 7 == 5);
    assert_eq!(fewest(&all, &mut need_any).len(), 1);
}

/// Where nothing is enforced a DEL changes a lease, and what stands beside it does not.
#[test]
fn the_transcript_of_a_change_is_the_request_that_made_it() {
    let arena = Arena::open(|proxy| proxy.mode(lockwarden_tests::Mode::Monitor));
    let cases = arena.cases(&arena.alone);
    let deletes = cases.iter().find(|case| case.args[0] == b"DEL" && case.args.len() == 2).expect("there is one");
    let named = |name: &[u8]| {
        let case = Case { args: vec![name.to_owned(), deletes.args[1].clone()], ..deletes.clone() };
        let requests = case.requests(Form::Plain).expect("it can be sent so");
        Sent { case, form: Form::Plain, requests }
    };
    let batch = [named(b"TTL"), named(b"DEL"), named(b"TYPE")];
    let told = transcript(&arena, &batch, true);
    assert!(told.contains("DEL") && !told.contains("TTL") && !told.contains("TYPE"), "{told}");
}

/// Without the free lock, which every client may take.
fn held(look: &lockwarden_tests::Reply) -> Vec<&lockwarden_tests::Reply> {
    let mut held: Vec<_> = look.elements().iter().collect();
    held.remove(Kind::ALL.len());
    held
}
