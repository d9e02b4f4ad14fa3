//! What a command costs before and after the policies, in one process and without a socket: what it
//! means, which namespace a key belongs to, the step that carries it out, and all that a command
//! which passes through pays: `cargo bench -p lockwarden-lock --bench commands`.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use divan::{Bencher, black_box};
use lockwarden_lock::classify::{Class, Classifier, ComputedNames};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::{Decision, Fence, Obligations, Proofs};
use lockwarden_lock::evidence::{Facts, Own};
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::op::LockCommand;
use lockwarden_lock::plan::{Form, Who, plan};
use lockwarden_lock::rules::{
    Adopt, Doubt, HolderLost, KeepAliveBy, KeepAliveTtl, Mode, OnFault, OnRepeat, OnViolation, OpaqueScripts, Released,
    Rules, RulesTag, TrustAddress,
};
use lockwarden_lock::script_facts::{ScriptFacts, ScriptSha};
use lockwarden_lock::settle::{Judged, Lock, Permitted, Said, Settled, settle};
use lockwarden_lock::token::{FencingToken, Grant, Identity, Process, SessionId, stored_form};
use lockwarden_resp::{OwnedRequest, ReplyLimits, ReplyScanner, Request, RequestDecoder, RequestLimits, Step};
use smallvec::smallvec;

/// So many times in one sample: the clock counts in steps of some nanoseconds.
const TIMES: u32 = 256;

fn main() {
    divan::Divan::default().sample_size(TIMES).sample_count(400).config_with_args().main();
}

const COMPARE_AND_DELETE: &str = "if redis.call('get',KEYS[1])==ARGV[1] \
    then return redis.call('del',KEYS[1]) else return 0 end";

fn namespaces(globs: impl IntoIterator<Item = Vec<String>>) -> Namespaces {
    let read = |globs: Vec<String>| globs.into_iter().map(|glob| Glob::new(glob.into()));
    Namespaces::new(globs.into_iter().map(|globs| read(globs).collect()).collect())
}

fn lock_namespace() -> Namespaces {
    namespaces([vec!["lock:*".to_owned()]])
}

/// Gives each request its meaning, with one script known.
struct Meanings {
    namespaces: Namespaces,
    script: Arc<ScriptFacts>,
}

impl Meanings {
    fn new() -> Meanings {
        Meanings { namespaces: lock_namespace(), script: Arc::new(ScriptFacts::of(COMPARE_AND_DELETE.as_bytes())) }
    }

    fn of<'r>(&self, request: Request<'r>) -> Class<'r> {
        Classifier {
            namespaces: &self.namespaces,
            companion_prefix: b"lw:",
            computed_names: &ComputedNames::Forward,
            enforces: &|_| true,
            operator_says: &|_| None,
            trusted_function: &|_| false,
            trusted_script: &|_| Default::default(),
            function: &|_| None,
            foreign: &|| None,
            counts: &|_| false,
            script: &|_| Some(self.script.clone()),
            saw: &|_| self.script.clone(),
        }
        .classify(request)
    }
}

/// The words that one space keeps apart; `SCRIPT` stands for a compare-and-delete, `SHA` for its name.
fn request(line: &str) -> OwnedRequest {
    let sha = ScriptSha::of(COMPARE_AND_DELETE.as_bytes()).to_string();
    OwnedRequest::new(line.split(' ').map(|word| match word {
        "SCRIPT" => COMPARE_AND_DELETE.to_owned(),
        "SHA" => sha.clone(),
        "64B" => "x".repeat(64),
        "UUID" => "6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2".to_owned(),
        word => word.to_owned(),
    }))
}

const OTHERS: [&str; 12] = [
    "PING",
    "GET user:4711",
    "get user:4711",
    "SET user:4711 64B",
    "INCR visits",
    "HSET user:4711 name 64B",
    "ZADD last:seen 1 user:4711",
    "CONFIG GET maxmemory",
    "SUBSCRIBE news",
    "EVALSHA SHA 1 user:4711 UUID",
    "GRAPH.QUERY user:4711 x",
    "GET latest:4711",
];

/// Commands that touch no lock.
#[divan::bench(args = OTHERS)]
fn classify_other(bencher: Bencher<'_, '_>, line: &str) {
    let (meanings, request) = (Meanings::new(), request(line));
    bencher.bench_local(|| {
        let class = meanings.of(black_box(request.request()));
        matches!(black_box(&class), Class::PassThrough(_))
    });
}

/// As many keys in one MGET.
#[divan::bench(args = [1, 10, 50])]
fn classify_mget(bencher: Bencher<'_, '_>, keys: usize) {
    let (meanings, request) = (Meanings::new(), request(&format!("MGET{}", " user:4711".repeat(keys))));
    bencher.bench_local(|| {
        let class = meanings.of(black_box(request.request()));
        matches!(black_box(&class), Class::PassThrough(_))
    });
}

const LOCKS: [&str; 9] = [
    "GET lock:order:42",
    "SETNX lock:order:42 UUID",
    "SET lock:order:42 UUID NX PX 30000",
    "EXPIRE lock:order:42 30",
    "DEL lock:order:42",
    "EVAL SCRIPT 1 lock:order:42 UUID",
    "EVALSHA SHA 1 lock:order:42 UUID",
    "HSET lock:order:42 field 64B",
    "DEL lock:a lock:b user:1",
];

/// Commands that do. The time includes that of dropping what was understood.
#[divan::bench(args = LOCKS)]
fn classify_lock(bencher: Bencher<'_, '_>, line: &str) {
    let (meanings, request) = (Meanings::new(), request(line));
    bencher.bench_local(|| {
        let class = meanings.of(black_box(request.request()));
        assert!(!matches!(black_box(&class), Class::PassThrough(_)));
    });
}

/// So many namespaces with so many globs each.
#[derive(Clone, Copy)]
struct Size(usize, usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.0, self.1)
    }
}

const SIZES: [Size; 6] = [Size(1, 1), Size(1, 10), Size(10, 1), Size(100, 1), Size(100, 10), Size(1_000, 10)];

/// Namespaces as people write them: `lock:svc7:3:*`.
fn by_beginning(Size(namespaces_, globs): Size) -> Namespaces {
    let glob = |namespace, glob| format!("lock:svc{namespace}:{glob}:*");
    namespaces((0..namespaces_).map(|n| (0..globs).map(|g| glob(n, g)).collect()))
}

fn find(bencher: Bencher<'_, '_>, namespaces: &Namespaces, key: &str, found: bool) {
    assert_eq!(namespaces.find(key.as_bytes()).is_some(), found, "{key}");
    bencher.bench_local(|| namespaces.find(black_box(key.as_bytes())));
}

/// A key in the first namespace.
#[divan::bench(args = SIZES)]
fn namespace_first(bencher: Bencher<'_, '_>, size: Size) {
    find(bencher, &by_beginning(size), "lock:svc0:0:order:42", true);
}

/// A key in the last namespace, by its last glob.
#[divan::bench(args = SIZES)]
fn namespace_last(bencher: Bencher<'_, '_>, size: Size) {
    let key = format!("lock:svc{}:{}:order:42", size.0 - 1, size.1 - 1);
    find(bencher, &by_beginning(size), &key, true);
}

/// A key that begins like every glob and matches none.
#[divan::bench(args = SIZES)]
fn namespace_none_nearly(bencher: Bencher<'_, '_>, size: Size) {
    find(bencher, &by_beginning(size), "lock:svcx:order:42", false);
}

/// A key that begins like none, as nearly all keys do.
#[divan::bench(args = SIZES)]
fn namespace_none(bencher: Bencher<'_, '_>, size: Size) {
    find(bencher, &by_beginning(size), "user:4711", false);
}

/// No key, by globs that say how a lock's name ends.
#[divan::bench(args = SIZES)]
fn namespace_none_by_end(bencher: Bencher<'_, '_>, size: Size) {
    let glob = |namespace, glob| format!("*:svc{namespace}:{glob}:lock");
    let ends = (0..size.0).map(|n| (0..size.1).map(|g| glob(n, g)).collect());
    find(bencher, &namespaces(ends), "user:4711:block", false);
}

const KINDS: [&str; 7] = ["lock:order:42:held", "lock:*", "*:held", "lock:*:held", "lock:*:4?:*", "[lm]ock:*", "*"];

/// One glob of each kind, and a key that it matches.
#[divan::bench(args = KINDS)]
fn glob(bencher: Bencher<'_, '_>, glob: &str) {
    let namespaces = namespaces([vec![glob.to_owned()]]);
    find(bencher, &namespaces, "lock:order:42:held", true);
}

/// One glob of each kind, and a key that only the last one matches.
#[divan::bench(args = KINDS[..6].iter().copied())]
fn glob_misses(bencher: Bencher<'_, '_>, glob: &str) {
    let namespaces = namespaces([vec![glob.to_owned()]]);
    find(bencher, &namespaces, "user:4711:profile", false);
}

const RULES: Rules = Rules {
    mode: Mode::Enforce,
    on_violation: OnViolation::Native,
    on_fault: OnFault::Deny,
    adopt: Adopt::Report,
    scripts: OpaqueScripts::Wrap,
    counter_locks: false,
    on_repeat: OnRepeat::Refuse,
    trust_address: TrustAddress::Auto,
    doubt: Doubt::Refuse,
    tag: RulesTag(*b"01234567"),
    keep_alive_by: KeepAliveBy::Identity,
    hand_over: false,
    quarantined: false,
    longest_ms: None,
    tokens_ahead_ms: 0,
    holder_lost: HolderLost::Keep,
    released: Released::Record,
    keep_alive_ttl: KeepAliveTtl::Proxy,
    grace_ms: 0,
    debt_max_age_ms: None,
    durability: None,
};

fn who() -> Who {
    Who {
        session: SessionId([1; 16]),
        client: Identity::of(&[b"app"]),
        process: Process::None,
        application: None,
        local: true,
        trust: None,
        db: 0,
        may_ask_back: false,
        looks_first: false,
    }
}

fn holder() -> Facts {
    Facts {
        own: Some(Own {
            grant: Grant([9; 16]),
            fence: FencingToken(7),
            stored: stored_form(&Bytes::from_static(b"6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2")).into(),
            ends: None,
            asked_end: None,
            lapsed: None,
            came_back: false,
            unwitnessed: false,
        }),
        ..Facts::default()
    }
}

/// The command, permitted with what the built-in policies ask for.
fn permitted(line: &str) -> Permitted {
    let request = request(line);
    let Class::Judge(command) = Meanings::new().of(request.request()) else {
        panic!("{line} is judged");
    };
    let decision = Decision {
        obligations: Obligations {
            ttl_default_ms: Some(30_000),
            ttl_cap_ms: Some(60_000),
            require: Some(Proofs::ALL),
            fence: Fence::Hybrid,
            ..Obligations::default()
        },
        ..Decision::permit()
    };
    match settled(command, holder(), decision) {
        Settled::Permitted(permitted) => permitted,
        _ => panic!("{line} is permitted"),
    }
}

fn settled(command: Box<LockCommand>, facts: Facts, decision: Decision) -> Settled {
    let target = command.op.target().clone();
    let key = DbKey::new(0, &target.key);
    let judged = Judged { lock: Lock::new(target, key, facts), said: Said::Command(decision) };
    settle(command.into(), smallvec![judged], &|_| RULES)
}

const STEPS: [&str; 5] = [
    "SETNX lock:order:42 UUID",
    "SET lock:order:42 UUID NX PX 30000",
    "EXPIRE lock:order:42 30",
    "DEL lock:order:42",
    "EVALSHA SHA 1 lock:order:42 UUID",
];

/// From a permitted command to its step.
#[divan::bench(args = STEPS)]
fn plan_step(bencher: Bencher<'_, '_>, line: &str) {
    let (mut permitted, who) = (permitted(line), who());
    bencher.bench_local(|| {
        let mut draw = || Grant([3; 16]);
        black_box(&plan(&mut permitted, &who, b"lw:", &mut draw)).script_name()
    });
}

/// The step as bytes for Redis.
#[divan::bench(args = STEPS)]
fn put_step(bencher: Bencher<'_, '_>, line: &str) {
    let plan = plan(&mut permitted(line), &who(), b"lw:", &mut || Grant([3; 16]));
    let mut out = BytesMut::with_capacity(1024);
    bencher.bench_local(|| {
        out.clear();
        plan.put(&mut out, Form::Sha);
        out.len()
    });
}

/// All that is done for a command that passes through, but for its system calls: the request is
/// found and understood, its reply is passed over.
#[divan::bench(args = [
    ("GET user:4711", 64),
    ("SET user:4711 64B", 0),
    ("GET latest:4711", 64),
    ("HGET user:4711 name", 64),
])]
fn passed_through(bencher: Bencher<'_, '_>, (line, reply): (&str, usize)) {
    let meanings = Meanings::new();
    let frame = request(line).frame().clone();
    let reply = match reply {
        0 => b"+OK\r\n".to_vec(),
        length => format!("${length}\r\n{}\r\n", "x".repeat(length)).into_bytes(),
    };
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    let mut scanner = ReplyScanner::new(ReplyLimits::default());
    bencher.bench_local(|| {
        let input = black_box(&frame);
        let Ok(Step::Request { consumed }) = decoder.decode(input) else {
            panic!("{line} is a request");
        };
        let Class::PassThrough(pass) = meanings.of(decoder.request(input)) else {
            panic!("{line} passes through");
        };
        let sent = black_box(pass.frame()).len();
        let skipped = scanner.skip_frames(black_box(&reply), u64::MAX);
        (consumed, sent, skipped)
    });
}
