//! Guests that break their rules, and modules that are none: what the loader says about them, and
//! that a host which ran them goes on as if nothing had been.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lockwarden_lock::decision::{ClientDescription, Decide, Decision, FaultKind, Fence, Operation, Question, Verdict};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_policy::{
    ChainSpec, Chains, Generation, Limits, LoadError, Metadata, ModuleSource, Observer, PolicyHost, PolicySource,
    package,
};

#[path = "../build/guest.rs"]
mod guest;

/// A guest of `policies/sdk/tests/guests`, built beside the built-in policies.
fn guest_file(name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let target_dir = PathBuf::from(concat!(env!("OUT_DIR"), "/policies"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = ["--example", name];
    let built = guest::build(&cargo, &root, &target_dir, "lockwarden-policy-sdk", &target).unwrap();
    built.join("examples").join(format!("{name}.wasm"))
}

fn naughty() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| guest_file("naughty")).clone()
}

fn source(name: &str, module: ModuleSource) -> PolicySource {
    PolicySource { name: name.to_owned(), module, sha256: None, limits: Limits::default() }
}

fn chain(namespace: &str, policies: &[(&str, &[(&str, &str)])]) -> ChainSpec {
    let owned =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ChainSpec {
        namespace: namespace.to_owned(),
        policies: policies.iter().map(|(policy, settings)| ((*policy).to_owned(), owned(settings))).collect(),
    }
}

fn question(key: &[u8]) -> Question<'_> {
    Question { client: 7, ..Question::plain(Operation::Acquire, key) }
}

/// One host with the naughty guest alone in its chain.
struct World {
    host: PolicyHost,
    generation: Arc<Generation>,
    chains: Chains,
}

impl World {
    fn with_limits(limits: Limits) -> World {
        let host = PolicyHost::new().unwrap();
        let policy = PolicySource { limits, ..source("naughty", ModuleSource::File(naughty())) };
        let generation = Arc::new(host.load(&[policy], &[chain("orders", &[("naughty", &[])])]).unwrap());
        let mut chains = Chains::new();
        chains.follow(&generation);
        World { host, generation, chains }
    }

    fn new() -> World {
        World::with_limits(Limits::default())
    }

    fn ask(&mut self, key: &str) -> Decision {
        self.chains.decide(NamespaceId(0), &question(key.as_bytes()), &|client| {
            (client == 7).then(|| ClientDescription {
                name: "billing".to_owned(),
                user: "app".to_owned(),
                address: "10.0.0.7".to_owned(),
                certificate: Some("spiffe://corp/billing".to_owned()),
                application: String::new(),
            })
        })
    }

    fn fault(&mut self, key: &str) -> FaultKind {
        let decision = self.ask(key);
        assert_eq!(decision.verdict, Verdict::Permit, "a fault says nothing by itself");
        let fault = decision.fault.unwrap_or_else(|| panic!("{key} was answered"));
        assert_eq!(&*fault.policy, "naughty");
        fault.kind
    }

    fn detail(&mut self, key: &str) -> String {
        match self.ask(key).verdict {
            Verdict::Deny(denial) => denial.detail.unwrap(),
            Verdict::Permit => panic!("{key} was permitted"),
        }
    }

    fn failures(&self, kind: FaultKind) -> u64 {
        self.host.counters()[0].1.failures(kind)
    }
}

fn load_errors(sources: &[PolicySource], chains: &[ChainSpec]) -> Vec<String> {
    let errors = PolicyHost::new().unwrap().load(sources, chains).unwrap_err();
    let lines: Vec<String> = errors.iter().map(LoadError::to_string).collect();
    for line in &lines {
        assert!(!line.contains('\n'), "more than one line: {line:?}");
    }
    lines
}

#[track_caller]
fn assert_one_error(lines: &[String], parts: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in parts {
        assert!(lines[0].contains(part), "{part:?} is not in {:?}", lines[0]);
    }
}

#[test]
fn every_way_to_fail_is_a_fault_of_its_kind_and_the_next_call_works() {
    let mut world = World::new();
    for (key, kind) in [
        ("loop", FaultKind::Fuel),
        ("trap", FaultKind::Trap),
        ("bomb", FaultKind::Memory),
        // Rust's own stack lies in linear memory and ends before the engine's.
        ("recursion", FaultKind::Trap),
        ("long", FaultKind::BadReply),
        ("a little too long", FaultKind::BadReply),
    ] {
        let before = world.failures(kind);
        assert_eq!(world.fault(key), kind, "{key}");
        assert_eq!(world.failures(kind), before + 1, "{key}");
        let next = world.ask("ordinary");
        assert_eq!(next, Decision::permit(), "after {key}");
    }
    assert_eq!(world.host.counters()[0].1.calls, 12);
}

/// What a client can do with a long key is found when the policy is loaded.
#[test]
fn a_policy_is_asked_about_the_longest_key_and_owner_token_when_it_is_loaded() {
    let source = || [source("naughty", ModuleSource::File(naughty()))];
    // An ordinary key costs it some 50,000 units of fuel, the longest five millions.
    let dear = chain("orders", &[("naughty", &[("per_byte", "1000")])]);
    let lines = load_errors(&source(), &[dear]);
    assert_one_error(&lines, &["naughty", "with a key of 1024 bytes and an owner token of 16384"]);
    let cheap = chain("orders", &[("naughty", &[("per_byte", "10")])]);
    PolicyHost::new().unwrap().load(&source(), &[cheap]).unwrap();
}

#[test]
fn the_wall_clock_stops_what_has_fuel_left() {
    let mut world =
        World::with_limits(Limits { deadline: Duration::from_millis(5), fuel: u64::MAX, ..Limits::default() });
    assert_eq!(world.fault("loop"), FaultKind::Timeout);
    assert_eq!(world.failures(FaultKind::Timeout), 1);
    assert_eq!(world.host.counters()[0].1.calls, 1);
    assert_eq!(world.ask("ordinary"), Decision::permit());
}

/// However busy the machine is: what counts is the time that the thread has run.
#[cfg(target_os = "linux")]
#[test]
fn a_deadline_is_the_time_that_a_call_takes_and_not_a_multiple_of_it() {
    let deadline = Duration::from_millis(100);
    let mut world = World::with_limits(Limits { deadline, fuel: u64::MAX, ..Limits::default() });
    let ran = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    world.ask("ordinary");
    let before = ran();
    assert_eq!(world.fault("loop"), FaultKind::Timeout);
    let took = ran() - before;
    assert!(took >= deadline && took < 2 * deadline, "{took:?}");
}

#[test]
fn a_text_is_bounded_and_stays_one_line() {
    let mut world = World::new();
    assert_eq!(world.detail("as long as may be").len(), 4 << 10);
    assert_eq!(world.detail("lines"), "a  -b c");
}

#[test]
fn a_policy_may_ask_who_its_client_is_and_nobody_else() {
    let mut world = World::new();
    assert!(world.generation.policies()[0].asks_clients);
    assert_eq!(world.detail("who"), "billing/app/10.0.0.7");
    assert_eq!(world.detail("who else"), "nobody");
    assert_eq!(world.detail("certificate"), "spiffe://corp/billing");
    assert_eq!(world.detail("certificate of another"), "nobody");
}

/// A policy that was built for 1.0, before there were certificates, asks as it always did.
#[test]
fn a_policy_of_an_older_minor_version_works_as_before() {
    let host = PolicyHost::new().unwrap();
    let old = source("old", ModuleSource::File(guest_file("from_the_past")));
    let spec = chain("orders", &[("old", &[("suffix", "!")]), ("ttl-ceiling", &[])]);
    let generation = Arc::new(host.load(&[old], &[spec]).unwrap());
    assert!(generation.policies()[0].asks_clients);
    let mut chains = Chains::new();
    chains.follow(&generation);
    let describe = |client| {
        (client == 7).then(|| ClientDescription {
            name: "billing".to_owned(),
            certificate: Some("shop".to_owned()),
            ..ClientDescription::default()
        })
    };
    let question = question(b"lock:test");
    let decision = chains.decide(NamespaceId(0), &question, &describe);
    assert_eq!(decision.fault, None);
    match decision.verdict {
        Verdict::Deny(denial) => {
            assert_eq!(denial.detail.as_deref(), Some("billing asks for lock:test!"));
        }
        Verdict::Permit => panic!("the policy was not asked"),
    }
}

#[test]
fn a_policy_that_asks_for_certificates_imports_what_it_asks_for() {
    let module = std::fs::read(naughty()).unwrap();
    let imports = |name: &str| {
        let mut windows = module.windows(name.len());
        windows.any(|bytes| bytes == name.as_bytes())
    };
    assert!(imports("lockwarden:policy/clients@1.2.0"));
    let old = std::fs::read(guest_file("from_the_past")).unwrap();
    let mut windows = old.windows(b"lockwarden:policy/clients@1.0.0".len());
    assert!(windows.any(|bytes| bytes == b"lockwarden:policy/clients@1.0.0"));
}

#[test]
fn memory_is_counted_while_instances_live() {
    let mut world = World::new();
    world.ask("ordinary");
    let before = world.host.counters()[0].1.memory_bytes;
    world.ask("hoard");
    let hoarded = world.host.counters()[0].1.memory_bytes;
    assert!(hoarded >= before + (1 << 20), "{before} then {hoarded}");
    world.chains = Chains::new();
    assert_eq!(world.host.counters()[0].1.memory_bytes, 0);
}

#[test]
fn a_fault_does_not_keep_the_other_policies_from_answering() {
    let host = PolicyHost::new().unwrap();
    let policies = [source("naughty", ModuleSource::File(naughty()))];
    let spec = chain("orders", &[("naughty", &[]), ("ttl-ceiling", &[])]);
    let generation = Arc::new(host.load(&policies, &[spec]).unwrap());
    let mut chains = Chains::new();
    chains.follow(&generation);
    let decision = chains.decide(NamespaceId(0), &question(b"trap"), &|_| None);
    assert_eq!(decision.fault.unwrap().kind, FaultKind::Trap);
    assert_eq!(decision.obligations.ttl_cap_ms, Some(3_600_000));
}

/// Where a policy denies all samples, loading finds no contradiction: a client's command does.
#[test]
fn a_contradiction_that_only_a_command_shows_is_counted() {
    let host = PolicyHost::new().unwrap();
    let policies = [source("naughty", ModuleSource::File(naughty()))];
    let fences = |samples| {
        let settings = [("fence", "sequential"), ("samples", samples)];
        host.load(&policies, &[chain("orders", &[("fencing", &[]), ("naughty", &settings)])])
    };
    let found = fences("answer").unwrap_err();
    assert!(found[0].to_string().contains("contradict each other"));

    let mut chains = Chains::new();
    chains.follow(&Arc::new(fences("deny").unwrap()));
    for _ in 0..3 {
        let decision = chains.decide(NamespaceId(0), &question(b"lock:a"), &|_| None);
        assert!(decision.fault.is_none(), "{decision:?}");
        assert_eq!(decision.obligations.fence, Fence::Hybrid);
    }
    let counters = host.counters();
    let (_, naughty) = counters.iter().find(|(name, _)| &**name == "naughty").unwrap();
    assert_eq!(naughty.failures(FaultKind::BadReply), 3);
}

/// An author's samples are keys that the policy permits, so what it wants shows when it is loaded.
#[test]
fn an_authors_samples_show_what_ours_do_not() {
    let host = PolicyHost::new().unwrap();
    let naughty = std::fs::read(naughty()).unwrap();
    let loaded = |samples: &[&str]| {
        let samples = samples.iter().map(|key| (*key).to_owned()).collect();
        let metadata = Metadata { name: "naughty".into(), version: "1.0.0".into(), samples, ..Metadata::default() };
        let module = package(&naughty, &metadata, false).unwrap();
        let settings = [("fence", "sequential"), ("samples", "deny")];
        let policies = [source("naughty", ModuleSource::Bytes(module))];
        host.load(&policies, &[chain("orders", &[("fencing", &[]), ("naughty", &settings)])])
    };
    loaded(&[]).unwrap();
    loaded(&["lock:sample", ""]).unwrap();
    let found = loaded(&["lock:a"]).unwrap_err();
    assert!(found[0].to_string().contains("contradict each other on acquire"), "{found:?}");
}

#[test]
fn an_observer_is_told_of_failures_and_of_some_evaluations() {
    #[derive(Default)]
    struct Notes(Mutex<(Vec<FaultKind>, u32)>);
    impl Observer for Notes {
        fn evaluated(&self, policy: &str, nanos: u64) {
            assert_eq!(policy, "naughty");
            assert!(nanos > 0);
            self.0.lock().unwrap().1 += 1;
        }
        fn failed(&self, policy: &str, kind: FaultKind) {
            assert_eq!(policy, "naughty");
            self.0.lock().unwrap().0.push(kind);
        }
    }
    let notes = Arc::new(Notes::default());
    let host = PolicyHost::with_observer(notes.clone()).unwrap();
    let policies = [source("naughty", ModuleSource::File(naughty()))];
    let spec = chain("orders", &[("naughty", &[])]);
    let mut chains = Chains::new();
    chains.follow(&Arc::new(host.load(&policies, &[spec]).unwrap()));
    for _ in 0..128 {
        chains.decide(NamespaceId(0), &question(b"ordinary"), &|_| None);
    }
    chains.decide(NamespaceId(0), &question(b"trap"), &|_| None);
    let notes = notes.0.lock().unwrap();
    assert_eq!(notes.0, [FaultKind::Trap]);
    assert_eq!(notes.1, 3);
}

#[test]
fn a_file_that_is_no_policy_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "(module)").unwrap();
    let load = |module| load_errors(&[source("mine", module)], &[]);

    let missing = load(ModuleSource::File(directory.path().join("gone.wasm")));
    assert_one_error(&missing, &["policy mine", "cannot read", "gone.wasm", "No such file"]);
    let is_directory = load(ModuleSource::File(directory.path().to_owned()));
    assert_one_error(&is_directory, &["policy mine", "cannot read"]);
    let no_wasm = load(ModuleSource::File(text));
    assert_one_error(&no_wasm, &["policy mine", "notes.txt is no WebAssembly", "lockwarden policy build"]);
    assert_one_error(&load(ModuleSource::Bytes(Vec::new())), &["is no WebAssembly"]);
    for empty in [b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"] {
        let lines = load(ModuleSource::Bytes(empty.to_vec()));
        assert_one_error(&lines, &["policy mine", "does not fit the world"]);
    }
}

#[test]
fn foreign_imports_are_refused_by_name() {
    let load = |guest| load_errors(&[source("mine", ModuleSource::File(guest_file(guest)))], &[]);
    assert_one_error(
        &load("foreign_module"),
        &["policy mine", "imports ", "env", "wasi_snapshot_preview1", "nothing but lockwarden:policy"],
    );
    assert_one_error(&load("foreign_interface"), &["imports other:clock/wall@0.3.0"]);
    assert_one_error(
        &load("from_the_future"),
        &["built for lockwarden:policy/oracle@2.0.0", "speaks lockwarden:policy 1.2"],
    );
    assert_one_error(
        &load("from_the_next_minor"),
        &["built for lockwarden:policy 1.9.0: it asks history.foresee", "speaks lockwarden:policy 1.2"],
    );
}

#[test]
fn a_pin_must_fit_the_file() {
    let file = naughty();
    let host = PolicyHost::new().unwrap();
    let spec = [chain("orders", &[("naughty", &[])])];
    let mut policy = source("naughty", ModuleSource::File(file));
    let unpinned = host.load(std::slice::from_ref(&policy), &spec).unwrap();
    let digest = unpinned.policies()[0].sha256.clone();
    assert_eq!(unpinned.policies()[0].digest(), &digest[..12]);

    let mut pin = [0; 32];
    for (place, byte) in pin.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digest[2 * place..2 * place + 2], 16).unwrap();
    }
    policy.sha256 = Some(pin);
    host.load(std::slice::from_ref(&policy), &spec).unwrap();

    pin[31] ^= 1;
    policy.sha256 = Some(pin);
    let lines = load_errors(&[policy], &spec);
    assert_one_error(&lines, &["policy naughty", "has sha256", &digest, "review the file"]);
}

#[test]
fn what_goes_wrong_while_loading_names_the_namespace() {
    let policies = [source("naughty", ModuleSource::File(naughty()))];
    for (settings, parts) in [
        (("configure", "reject"), &["rejected its settings: no thanks"][..]),
        (("configure", "reject at length"), &["failed (bad-reply) while it was configured"]),
        (("configure", "loop"), &["failed (fuel) while it was configured"]),
        (("configure", "trap"), &["failed (trap) while it was configured"]),
        (("samples", "trap"), &["failed (trap) while it was asked about a sample extend"]),
        (("require", ""), &["on acquire and lets none count"]),
        (("fense", "hybrid"), &["unknown setting \"fense\", did you mean fence?"]),
    ] {
        let lines = load_errors(&policies, &[chain("orders", &[("naughty", &[settings])])]);
        assert_one_error(&lines, &[&["namespace orders: policy naughty"], parts].concat());
    }
}

#[test]
fn a_damaged_module_is_refused_or_loads_and_never_panics() {
    let good = std::fs::read(naughty()).unwrap();
    let host = PolicyHost::new().unwrap();
    let mut refused = 0;
    // A step that is no power of two, so that all kinds of sections are hit.
    for place in (8..good.len()).step_by(good.len() / 40) {
        let mut bad = good.clone();
        bad[place] ^= 0xff;
        let damaged = host.load(&[source("bad", ModuleSource::Bytes(bad))], &[]);
        let cut = ModuleSource::Bytes(good[..place].to_vec());
        assert!(host.load(&[source("cut", cut)], &[]).is_err());
        refused += usize::from(damaged.is_err());
    }
    assert!(refused > 0);
}
