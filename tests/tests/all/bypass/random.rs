//! The same commands with arguments that nobody thought of: some thousand requests in every run,
//! many more with `make soak`. The seed is printed, and `LOCKWARDEN_SEED` plays a run again.

use std::time::{SystemTime, UNIX_EPOCH};

use lockwarden_tests::cases::{Case, Form, Kind};
use lockwarden_tests::soak::number;

use super::{Arena, FREE, Others, difference, furnishing, pipeline, shown};

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
            0..3 => kind.lock().into_bytes(),
            3 => FREE.into(),
            4 => kind.plain().into(),
            5 => (0..self.below(9)).map(|_| self.below(256) as u8).collect(),
            _ => WORDS[self.below(WORDS.len())].into(),
        }
    }

    /// A case with a few arguments other than they were, in some form.
    fn request(&mut self, cases: &[Case]) -> (Case, Vec<Vec<u8>>) {
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
            if let Some(requests) = case.requests(without_waiting(&case, form)) {
                return (case, requests);
            }
        }
    }
}

/// What might wait is sent where nothing waits.
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
        let requests: Vec<Vec<u8>> = batch.iter().flat_map(|(_, requests)| requests.clone()).collect();
        pipeline(client, &requests);
        let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
        let (now, before) = (held(&after), held(&others.before));
        if now != before {
            let culprits = culprits(&arena, &batch, is_stranger);
            panic!(
                "LOCKWARDEN_SEED={seed} LOCKWARDEN_REQUESTS={wanted}: after {sent} requests a lease changed{}\nby one of {culprits}",
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

/// The requests of a batch that change a lease when they are sent alone, or all of them.
fn culprits(arena: &Arena, batch: &[(Case, Vec<Vec<u8>>)], is_stranger: bool) -> String {
    let direct = arena.redis.client();
    let mut others = Others::arrive(arena);
    let (mut alone, mut all) = (String::new(), String::new());
    for (case, requests) in batch {
        let sent = requests.concat();
        let said = format!("\n  {}    as {}", shown(case), sent.escape_ascii());
        pipeline(others.one(is_stranger), requests);
        let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
        if held(&after) != held(&others.before) {
            alone.push_str(&said);
            others = Others::arrive(arena);
        }
        all.push_str(&said);
    }
    if alone.is_empty() { all } else { alone }
}

/// Without the free lock, which anybody may take.
fn held(look: &lockwarden_tests::Reply) -> Vec<&lockwarden_tests::Reply> {
    let mut held: Vec<_> = look.elements().iter().collect();
    held.remove(Kind::ALL.len());
    held
}
