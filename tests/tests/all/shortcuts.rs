//! The scripts have the most common case twice: as a shortcut, because Redis pays for every line, and as part of the
//! general code. For every state of Redis and every request, both must do the same. And a group of steps must do for
//! each lock what its own step does, or nothing.

use bytes::{Bytes, BytesMut};
use lockwarden_lock::companion::{companion_key, debts_beside};
use lockwarden_lock::outcome::{Answers, AskedBack, asked_back, read};
use lockwarden_lock::plan::{Form, Plan, SENT_ALONE, Sent, put_together};
use lockwarden_lock::record::{DEBT_BYTES, DEBT_ENDS, WAITS};
use lockwarden_lock::scripts::{ACQUIRE, EXTEND, GROUP, RELEASE, Script};
use lockwarden_resp::{Protocol, ReplyLimits, ReplyScanner, Value, parse_reply};
use lockwarden_tests::{Client, Numbers, Redis};

const CASES: usize = 3_000;
const LOCK: &str = "lock:a";
/// The reply of TIME in every script, so that the written records can be compared.
const CLOCK: &str = "{'1795261959','31331'}";
const CLOCK_MS: u64 = 1_795_261_959_031;
/// Less than the difference between the TTLs of the cases, and more than a case takes.
const SAME_TTL_MS: i64 = 5_000;

/// A script as it is, and without its shortcuts.
struct Both {
    script: &'static Script,
    brief: String,
    whole: String,
}

const PREFIX: &[u8] = b"lw:";
/// What is remembered of fencing tokens whose records went with their locks.
const FLOOR: &str = "lw:{}:lockwarden-floor";

/// A lock, its record, and the debts about it.
fn keys(lock: &str) -> [String; 3] {
    let record = companion_key(PREFIX, lock.as_bytes());
    let debts = debts_beside(&record);
    [lock.into(), record, debts].map(|key| String::from_utf8(key).expect("a test's keys are text"))
}

fn at_this_time(script: &Script) -> String {
    let text = script.text().replace("redis.call('TIME')", CLOCK);
    text.replace("redis.pcall('TIME')", CLOCK).replace("read('TIME')", CLOCK)
}

impl Both {
    fn of(script: &'static Script, briefly: &[&str]) -> Both {
        let brief = at_this_time(script);
        let mut whole = brief.clone();
        for condition in briefly {
            assert!(whole.contains(condition), "{} asks for {condition}", script.name());
            whole = whole.replace(condition, " false ");
        }
        Both { script, brief, whole }
    }
}

/// The state of Redis before a step.
#[derive(Clone, Debug)]
struct Before {
    lock: Option<Vec<u8>>,
    is_hash: bool,
    has_ttl: bool,
    record: Option<Vec<u8>>,
    debts: Option<Vec<u8>>,
}

const VALUES: [&str; 5] = [
    "6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2",
    "0a94c2de-6f3b-4a55-9d1e-77b1d3c5e8f4",
    "1",
    "",
    "a value of seventy bytes, which no record holds but by its digest 1234",
];
const GRANTS: [&[u8]; 2] = [b"grant-grant-gran", b"another-grant-of"];
const SESSIONS: [&[u8]; 2] = [b"session-session-", b"another-session-"];
const CLIENTS: [&[u8]; 2] = [b"client-A", b"client-B"];
/// The rules about ownership, and the names of clients in debts that were made under them: the first digits of a SHA-1 over
/// both.
const RULES: &[u8] = b"01234567";
const DEBTORS: [&[u8]; 2] = [b"2d89728c", b"3b2206fc"];
const PROCESSES: [&[u8]; 4] = [&[0; 8], &[255; 8], b"process1", b"process2"];

fn stored(value: &str) -> String {
    let value = Bytes::copy_from_slice(value.as_bytes());
    let form = lockwarden_lock::token::stored_form(&value);
    String::from_utf8(form.to_vec()).expect("a test's value is text")
}

fn who(numbers: &mut Numbers) -> Vec<u8> {
    let session = numbers.mostly(&SESSIONS);
    [session, numbers.mostly(&CLIENTS), numbers.mostly(&PROCESSES)].concat()
}

fn record(numbers: &mut Numbers, value: &str) -> Vec<u8> {
    let flags = 64 + numbers.mostly(&[0_u8, 1, 2, 3, 4, 6, 8, 10, 12, 15, 16, 24, 32, 44, 63]);
    let since = numbers.mostly(&[CLOCK_MS - 2_000, CLOCK_MS - 20_000, CLOCK_MS - 4_000_000]);
    let fence = numbers.mostly(&[since * 1_000, 0, 7, CLOCK_MS * 1_000 + 331, 8_000_000_000_000_000]);
    let asked = numbers.mostly(&[30_000, 0, 90_000]);
    let deadline = if asked > 0 { since + asked } else { 0 };
    let version = numbers.mostly(&["1", "1", "1", "2"]);
    let state = numbers.mostly(&["L", "R", "R", "T", "E", "B"]);
    let grant = numbers.mostly(&GRANTS);
    let owner = numbers.mostly(&[stored(value), stored(VALUES[1]), stored(VALUES[0])]);
    let head = [version, state].concat();
    let tail = format!("{fence:016}{since:013}{asked:013}{deadline:013}{owner}");
    [head.as_bytes(), &[flags], grant, &who(numbers), tail.as_bytes()].concat()
}

fn debts(numbers: &mut Numbers) -> Vec<u8> {
    let mut debts = Vec::new();
    for _ in 0..numbers.below(3) {
        let ends = numbers.one_of(&[CLOCK_MS + 50_000, CLOCK_MS - 50_000]);
        debts.extend_from_slice(numbers.one_of(&["o", "o", "x"]).as_bytes());
        debts.extend_from_slice(numbers.one_of(&DEBTORS));
        debts.extend_from_slice(numbers.one_of(&PROCESSES));
        debts.extend_from_slice(format!("{ends:013}").as_bytes());
    }
    debts
}

impl Before {
    fn draw(numbers: &mut Numbers, value: &str) -> Before {
        let found = numbers.below(8);
        Before {
            lock: (found > 0).then(|| numbers.mostly(&[value, VALUES[0], VALUES[1]]).into()),
            is_hash: found == 1,
            has_ttl: numbers.below(8) > 0,
            record: match numbers.below(12) {
                0 => None,
                1 => Some(b"no record".to_vec()),
                _ => Some(record(numbers, value)),
            },
            debts: (numbers.below(2) == 0).then(|| debts(numbers)),
        }
    }

    fn put(&self, redis: &Client, name: &str) {
        let [lock, record, debts] = keys(name);
        redis.sends(format!("DEL {lock} {record} {debts}")).integer();
        if let Some(value) = &self.lock {
            if self.is_hash {
                let words: [&[u8]; 4] = [b"HSET", lock.as_bytes(), value, b"1"];
                redis.sends_arguments(&words).gets(":1");
            } else {
                let words: [&[u8]; 3] = [b"SET", lock.as_bytes(), value];
                redis.sends_arguments(&words).gets("+OK");
            }
            if self.has_ttl {
                redis.sends(format!("PEXPIRE {lock} 40000")).gets(":1");
            }
        }
        for (key, stored) in [(record, &self.record), (debts, &self.debts)] {
            if let Some(stored) = stored {
                let words: [&[u8]; 5] = [b"SET", key.as_bytes(), stored, b"PX", b"700000"];
                redis.sends_arguments(&words).gets("+OK");
            }
        }
    }
}

/// What is remembered before a step: tokens below this one, and above it, and a value that is not the proxy's.
fn floor(numbers: &mut Numbers) -> &'static str {
    numbers.mostly(&["", "1795261958031331", "1795261960000000", "no number at all"])
}

fn put_floor(redis: &Client, floor: &str) {
    redis.sends(format!("DEL {FLOOR}")).integer();
    if !floor.is_empty() {
        redis.sends_arguments(&["SET", FLOOR, floor]).gets("+OK");
    }
}

fn floor_now(redis: &Client) -> Vec<u8> {
    redis.write(&lockwarden_tests::encode(&["GET", FLOOR]));
    redis.raw_reply()
}

/// The reply of a step, and the state after it.
#[derive(Debug)]
struct After {
    answer: Result<Answers, AskedBack>,
    left: Vec<Vec<u8>>,
    ttls: Vec<i64>,
}

impl After {
    fn is_like(&self, other: &After) -> bool {
        self.answer == other.answer && self.left == other.left && are_near(&self.ttls, &other.ttls)
    }
}

fn are_near(ttls: &[i64], others: &[i64]) -> bool {
    ttls.iter().zip(others).all(|(one, two)| (one - two).abs() < SAME_TTL_MS)
}

fn after(redis: &Client, text: &str, arguments: &[Vec<u8>]) -> After {
    let answer = answer(&asked(redis, LOCK, text, arguments));
    let (left, ttls) = left(redis, LOCK);
    After { answer, left, ttls }
}

/// The reply to a step about this lock.
fn asked(redis: &Client, lock: &str, text: &str, arguments: &[Vec<u8>]) -> Bytes {
    let [lock, record, _] = keys(lock);
    let mut words: Vec<&[u8]> = vec![b"EVAL", text.as_bytes(), b"2", lock.as_bytes(), record.as_bytes()];
    words.extend(arguments.iter().map(|word| &word[..]));
    redis.write(&lockwarden_tests::encode(&words));
    Bytes::from(redis.raw_reply())
}

fn answer(raw: &Bytes) -> Result<Answers, AskedBack> {
    let value = parse_reply(raw, Protocol::Resp2).expect("a reply");
    assert!(!matches!(value, Value::Error(_)), "{value:?}");
    match asked_back(&value) {
        Some(asked) => Err(asked),
        None => Ok(read(&value).unwrap_or_else(|error| panic!("{error}: {value:?}"))),
    }
}

/// The values of the keys, and their TTLs.
fn left(redis: &Client, lock: &str) -> (Vec<Vec<u8>>, Vec<i64>) {
    let keys = keys(lock);
    let [lock, record, debts] = &keys;
    let left = [("DUMP", lock), ("DUMP", record), ("GET", debts)].map(|(command, key)| {
        redis.write(&lockwarden_tests::encode(&[command, key.as_str()]));
        let mut reply = redis.raw_reply();
        // The time at which counting begins is relative to now.
        let counted_later = reply
            .windows(DEBT_BYTES)
            .position(|entry| entry[0] == WAITS && entry[DEBT_ENDS..].iter().all(u8::is_ascii_digit));
        if let Some(at) = counted_later.filter(|_| key == debts) {
            reply[at + DEBT_ENDS..at + DEBT_BYTES].fill(b'0');
        }
        reply
    });
    let ttls = keys.map(|key| redis.sends(format!("PTTL {key}")).integer());
    (left.to_vec(), ttls.to_vec())
}

/// Plays all cases both ways. At least this many must take the shortcut: a script that never takes it would
/// be compared with itself.
fn agree(both: &Both, draw: impl Fn(&mut Numbers, &str) -> Vec<Vec<u8>>, least_briefly: usize) {
    let server = Redis::start();
    let redis = server.client();
    let mut numbers = Numbers(7);
    let mut briefly = 0;
    for case in 0..CASES {
        let value = numbers.mostly(&VALUES);
        let before = Before::draw(&mut numbers, value);
        let arguments = draw(&mut numbers, value);
        put_floor(&redis, floor(&mut numbers));
        before.put(&redis, LOCK);
        let brief = after(&redis, &both.brief, &arguments);
        before.put(&redis, LOCK);
        let whole = after(&redis, &both.whole, &arguments);
        let shown = || -> Vec<String> {
            let words = arguments.iter();
            words.map(|word| word.escape_ascii().to_string()).collect()
        };
        assert!(brief.is_like(&whole), "case {case}\n{before:?}\n{:?}\n{brief:?}\n{whole:?}", shown());
        briefly += usize::from(goes_briefly(&redis, both, &before, &arguments));
    }
    println!("{briefly} of {CASES} went the brief way");
    assert!(briefly > least_briefly, "only {briefly} of {CASES}");
}

/// Whether the reply was one string.
fn goes_briefly(redis: &Client, both: &Both, before: &Before, arguments: &[Vec<u8>]) -> bool {
    before.put(redis, LOCK);
    asked(redis, LOCK, &both.brief, arguments).starts_with(b"$")
}

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Flags of proofs, own grants, claimed value, who asks and what was observed.
fn proofs(numbers: &mut Numbers, value: &str, flags: &[&str]) -> Vec<Vec<u8>> {
    let mut letters = numbers.mostly(flags).as_bytes().to_vec();
    for letter in *b"mDpiflncuztvoxgewkqyhbB" {
        if numbers.below(30) == 0 {
            letters.push(letter);
        }
    }
    // Monitor mode stands first, as the plan writes it.
    letters.sort_by_key(|letter| *letter != b'm');
    let (first, second) = (GRANTS[0], GRANTS[1]);
    let own = numbers.mostly(&[first.to_vec(), Vec::new(), second.to_vec(), [second, first].concat()]);
    let claim = numbers.mostly(&[stored(value), String::new(), stored(VALUES[1])]);
    let seen = numbers.mostly(&[
        Vec::new(),
        [first, stored(value).as_bytes()].concat(),
        [second, stored(value).as_bytes()].concat(),
    ]);
    vec![letters, own, claim.into_bytes(), [who(numbers), RULES.to_vec(), seen].concat()]
}

fn release(numbers: &mut Numbers, value: &str) -> Vec<Vec<u8>> {
    let flags = ["rsk", "rsibDpk", "rsct", "rscuk", "rscz", "k", "rk", "rikD", "rskox", "rsibB"];
    let mut arguments = proofs(numbers, value, &flags);
    let name = numbers.mostly(&["DEL", "UNLINK"]);
    arguments.push(name.into());
    arguments
}

fn extension(numbers: &mut Numbers, value: &str) -> Vec<Vec<u8>> {
    let flags = ["rske", "rsibDpke", "rskeA", "rsct", "k", "rke", "rikDe", "rskox"];
    let mut arguments = proofs(numbers, value, &flags);
    arguments.extend(words(numbers.mostly(&[
        "20000 0000000020000 620000",
        "0 0000000000000 604800000",
        "60000 0000000090000 660000",
    ])));
    arguments.extend(words("PEXPIRE 20000"));
    arguments
}

fn acquire(numbers: &mut Numbers, value: &str) -> Vec<Vec<u8>> {
    let asks = numbers.mostly(&[value, VALUES[0], VALUES[1], VALUES[4]]);
    let mut front = b"1L".to_vec();
    front.push(64 + numbers.mostly(&[0_u8, 2, 8, 10]));
    let grant = numbers.mostly(&GRANTS);
    front.extend_from_slice(grant);
    front.extend(who(numbers));
    let mut flags = numbers.mostly(&["u", "", "ua", "uaDp"]).to_owned();
    for letter in ["A", "g", "w", "W"] {
        if numbers.below(20) == 0 {
            flags.push_str(letter);
        }
    }
    let mut arguments = vec![asks.as_bytes().to_vec(), front];
    arguments.extend(words(numbers.mostly(&[
        "30000 0000000030000 630000",
        "0 0000000000000 604800000",
        "60000 0000000000000 660000",
    ])));
    arguments.push(numbers.mostly(&["h", "hf", "s", "n", "h1000000f"]).into());
    arguments.push(flags.into_bytes());
    arguments.push(b"01234567600000 20000".to_vec());
    arguments
}

#[test]
fn a_brief_release_does_what_a_whole_one_does() {
    agree(&Both::of(&RELEASE, &["#value<=64"]), release, CASES / 10);
}

#[test]
fn a_brief_extension_does_what_a_whole_one_does() {
    agree(&Both::of(&EXTEND, &["#value<=64"]), extension, CASES / 10);
}

#[test]
fn a_brief_acquire_does_what_a_whole_one_does() {
    agree(&Both::of(&ACQUIRE, &["#held<=64", "sub(old,52,67)<number"]), acquire, CASES / 10);
}

/// Where only the proof of its own session is needed the record goes with the lock, and what is remembered from then on
/// is not below its token. Anything else is as without that.
#[test]
fn a_release_that_forgets_differs_only_in_the_record_and_what_is_remembered() {
    let text = at_this_time(&RELEASE);
    let server = Redis::start();
    let redis = server.client();
    let mut numbers = Numbers(13);
    let mut forgotten = 0;
    for case in 0..CASES {
        let value = numbers.mostly(&VALUES);
        let before = Before::draw(&mut numbers, value);
        let mut arguments = release(&mut numbers, value);
        let floor = floor(&mut numbers);
        put_floor(&redis, floor);
        before.put(&redis, LOCK);
        let known = floor_now(&redis);
        let usual = after(&redis, &text, &arguments);
        assert_eq!(floor_now(&redis), known, "case {case}");
        before.put(&redis, LOCK);
        arguments.push(b"f".to_vec());
        let forgets = after(&redis, &text, &arguments);
        let token = before.record.as_ref().and_then(|record| record.get(51..67)).unwrap_or_default();
        let is_gone = forgets.left[1] == b"$-1\r\n" && usual.left[1] != forgets.left[1];
        let shown = format!("case {case}\n{before:?}\n{arguments:?}\n{usual:?}\n{forgets:?}");
        match is_gone {
            false => {
                assert!(usual.is_like(&forgets), "{shown}");
                assert_eq!(floor_now(&redis), known, "{shown}");
            }
            true => {
                assert_eq!(
                    (usual.answer, &usual.left[0], &usual.left[2]),
                    (forgets.answer, &forgets.left[0], &forgets.left[2]),
                    "{shown}"
                );
                let is_remembered = token == b"0000000000000000" || floor_now(&redis)[5..] > *token;
                assert!(is_remembered && floor_now(&redis) >= known || floor.starts_with("no"), "{shown}");
                forgotten += 1;
            }
        }
    }
    println!("{forgotten} of {CASES} were forgotten");
    assert!(forgotten > CASES / 25, "{forgotten}");
}

fn first_of(requests: &[u8]) -> Bytes {
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    let first = scanner.skip_frames(requests, 1).expect("requests");
    Bytes::copy_from_slice(&requests[..first.bytes])
}

/// A step of a group, and the state of Redis before it.
struct Asked<'a> {
    lock: &'static str,
    kind: usize,
    both: &'a Both,
    before: Before,
    arguments: Vec<Vec<u8>>,
}

#[test]
fn a_group_does_for_each_lock_what_its_own_step_does_or_nothing() {
    const LOCKS: [&str; 5] = ["lock:a", "lock:b", "lock:c", "lock:d", "lock:e"];
    let scripts = [Both::of(&ACQUIRE, &[]), Both::of(&RELEASE, &[]), Both::of(&EXTEND, &[])];
    let draws = [acquire, release, extension];
    let server = Redis::start();
    let redis = server.client();
    let mut numbers = Numbers(11);
    let (mut together, mut alone) = ([0; 3], 0);
    for case in 0..CASES / 3 {
        let asked_for: Vec<Asked<'_>> = LOCKS
            .map(|lock| {
                let value = numbers.mostly(&VALUES);
                let kind = numbers.below(3);
                let mut before = Before::draw(&mut numbers, value);
                before.lock = before.lock.filter(|_| kind > 0 || numbers.below(2) == 0);
                let mut arguments = draws[kind](&mut numbers, value);
                if kind == 1 && numbers.below(2) == 0 {
                    arguments.push(b"f".to_vec());
                }
                Asked { lock, kind, both: &scripts[kind], before, arguments }
            })
            .into();
        let plans: Vec<Plan> = asked_for
            .iter()
            .map(|one| Plan::of_words(one.both.script, one.lock.as_bytes(), PREFIX, &one.arguments))
            .collect();
        let mut request = BytesMut::new();
        let mut order = Vec::new();
        put_together(plans.iter(), (1, Form::Text), &mut request, |sent| {
            if let Sent::Together(places) = sent {
                order.extend_from_slice(places);
            }
        });
        if order.is_empty() {
            continue;
        }
        let floor = floor(&mut numbers);
        put_floor(&redis, floor);
        // A step that is sent alone comes after the group.
        let request = first_of(&request);
        asked_for.iter().for_each(|one| one.before.put(&redis, one.lock));
        let Value::Array(mut words) = parse_reply(&request, Protocol::Resp2).expect("a request") else {
            panic!("no request");
        };
        words[1] = Value::Bulk(at_this_time(&GROUP).into());
        let words: Vec<&[u8]> = words.iter().filter_map(Value::as_bytes).map(|word| &word[..]).collect();
        redis.write(&lockwarden_tests::encode(&words));
        let reply = Bytes::from(redis.raw_reply());
        let elements = lockwarden_resp::Elements::of(&reply).expect("a list");
        let answers: Vec<Bytes> = elements.map(|range| reply.slice(range)).collect();
        assert_eq!(answers.len(), order.len(), "case {case}: {}", reply.escape_ascii());
        let remembered = floor_now(&redis);
        for (answered, place) in answers.iter().zip(order) {
            let one = &asked_for[place];
            let by_group = left(&redis, one.lock);
            one.before.put(&redis, one.lock);
            let is_done = answered != SENT_ALONE;
            put_floor(&redis, floor);
            let before = floor_now(&redis);
            let own = is_done.then(|| asked(&redis, one.lock, &one.both.brief, &one.arguments));
            let is_remembered = floor_now(&redis) == before || remembered >= floor_now(&redis);
            let (keys, ttls) = left(&redis, one.lock);
            let is_like = own.as_ref().is_none_or(|own| own == answered)
                && by_group.0 == keys
                && are_near(&by_group.1, &ttls)
                && is_remembered;
            let shown = (answered.escape_ascii().to_string(), own.map(|own| own.escape_ascii().to_string()));
            assert!(
                is_like,
                "case {case}\n{:?}\n{:?}\n{shown:?}\n{by_group:?}\n{keys:?} {ttls:?}",
                one.before, one.arguments
            );
            match is_done {
                true => together[one.kind] += 1,
                false => alone += 1,
            }
        }
    }
    println!("{together:?} went together, {alone} by themselves");
    assert!(together.iter().all(|count| *count > CASES / 75), "{together:?}");
}
