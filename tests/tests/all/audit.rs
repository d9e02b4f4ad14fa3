//! The audit trail: its contents, that every line follows the schema, and that its failures do not reach a
//! client, unless the operator wants no decision without its record.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lockwarden_tests::{
    Client, Finished, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for, wait_for_value,
};
use serde_json::Value;

/// A directory, and a proxy that writes its audit trail there.
struct Audited {
    proxy: Proxy,
    directory: tempfile::TempDir,
}

impl Audited {
    fn start(redis: &Redis, configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder) -> Audited {
        let directory = tempfile::tempdir().expect("a directory for a test");
        fs::create_dir(directory.path().join("audit")).expect("a directory in it");
        let path = directory.path().join("audit/trail.jsonl");
        let builder = Proxy::builder(redis)
            .namespace("on_violation", "\"error\"")
            .top("audit_file", &format!("{:?}", path.to_str().expect("a path in UTF-8")));
        let proxy = configure(builder).start();
        Audited { proxy, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("audit/trail.jsonl")
    }

    fn lines(&self) -> Vec<Value> {
        lines(&self.path())
    }

    /// Waits for a line for which this is true.
    #[track_caller]
    fn line(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        wait_for_value(&format!("a line about {what}"), || self.lines().into_iter().find(&is_it))
    }

    /// Ends the proxy, so that everything is written.
    fn end(self) -> (Vec<Value>, tempfile::TempDir) {
        let path = self.path();
        assert_eq!(self.proxy.stop(), Some(0));
        (lines(&path), self.directory)
    }
}

/// The whole lines of a file.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn is(line: &Value, event: &str) -> bool {
    line["event"] == event
}

fn id_in(error: &str) -> String {
    let (_, rest) = error.split_once(" id=").expect("a refusal names its record");
    rest.split(' ').next().unwrap_or_default().to_owned()
}

fn why(words: &[&str]) -> Finished {
    let mut command = lockwarden(&["why"]);
    command.args(words).env_remove("LOCKWARDEN_ADMIN");
    run_to_end(&mut command)
}

#[test]
fn every_line_of_a_varied_day_is_what_the_schema_says_and_shows_no_owner_token() {
    let schema = include_str!("../../../docs/audit-record.schema.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| {
        proxy
            .top("audit", "\"all\"")
            .more("[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\nmode = \"monitor\"\n")
    });
    let (alice, bob) = (audited.proxy.client(), audited.proxy.client());
    alice.sends("CLIENT SETNAME billing-7").gets("+OK");
    alice.sends("SETNX lock:a secret-of-alice").gets(":1");
    bob.sends("SET lock:a secret-of-bob NX PX 5000").gets("nil");
    let refused = bob.sends("DEL lock:a").gets_error("LOCKDENIED not-owner");
    bob.sends("SET lock:a secret-of-bob").gets_error("LOCKDENIED overwrite");
    bob.sends("APPEND lock:a secret-of-bob").gets_error("LOCKDENIED opaque-write");
    alice.sends("PEXPIRE lock:a 7000").gets(":1");
    alice
        .sends_arguments(&[
            "EVAL",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) \
             else return 0 end",
            "1",
            "lock:a",
            "secret-of-alice",
        ])
        .gets(":1");
    bob.sends("DEL lock:a").gets(":0");
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET lock:b secret-of-alice NX PX 9000").gets("+QUEUED");
    alice.sends("DEL lock:b").gets("+QUEUED");
    alice.sends("EXEC").gets("[+OK, :1]");
    alice.sends("MSETNX lock:c secret-of-alice lock:d secret-of-alice").gets(":1");
    bob.sends("FLUSHDB").gets_error("LOCKDENIED bulk-delete");
    bob.sends("SETNX watched:x secret-of-bob").gets(":1");
    alice.sends("DEL watched:x").gets(":1");
    redis.client().sends("SET lock:old secret-of-another").gets("+OK");
    alice.sends("DEL lock:old").gets(":1");
    alice.sends_bytes(lockwarden_tests::encode(&[&b"SETNX"[..], b"lock:\xff\\\n\"", b"secret-of-alice"])).gets(":1");
    assert_eq!(audited.proxy.switch("locks", Mode::Monitor), 200);
    audited.line("the switch", |line| is(line, "mode-switched"));
    let config = fs::read_to_string(audited.proxy.config()).unwrap();
    audited.proxy.reload("listen = nonsense");
    audited.line("the bad file", |line| is(line, "reload-rejected"));
    audited.proxy.reload(&config);
    audited.line("the good file", |line| is(line, "reloaded"));
    let mode = fs::metadata(audited.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let (lines, directory) = audited.end();
    for line in &lines {
        let problems: Vec<String> = schema.iter_errors(line).map(|e| e.to_string()).collect();
        assert!(problems.is_empty(), "{problems:?} in {line}");
    }
    let text = fs::read_to_string(directory.path().join("audit/trail.jsonl")).unwrap();
    assert!(!text.contains("secret-of"), "an owner token is in the file");
    let numbers = lines.iter().map(|line| line["seq"].as_u64().unwrap());
    assert!(numbers.eq(1..=lines.len() as u64), "no line is missing");
    let events: BTreeSet<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    for event in [
        "started",
        "acquired",
        "contended",
        "refused",
        "extended",
        "released",
        "absent",
        "ungoverned",
        "mode-switched",
        "reload-rejected",
        "reloaded",
        "stopped",
    ] {
        assert!(events.contains(event), "{event} is missing in {events:?}");
    }

    let refused = id_in(&refused);
    let record = lines.iter().find(|line| line["id"] == refused.as_str()).unwrap();
    assert_eq!(record["reason"], "not-owner");
    assert_eq!(record["command"], "DEL");
    assert_eq!(record["key"], "lock:a");
    let question = &record["questions"][0];
    assert_eq!(question["operation"], "release");
    assert_eq!(question["traits"][0], "refused-since");
    assert_eq!(question["answer"]["verdict"], "permit", "the script refused");
    let acquired = lines.iter().find(|line| is(line, "acquired")).unwrap();
    assert_eq!(acquired["client"]["name"], "billing-7");
    assert_eq!(acquired["decision"], "modify");
    assert_eq!(acquired["token_length"], 15);
    assert_eq!(acquired["questions"][0]["token"], acquired["token"]);
    let both: Vec<&Value> = lines.iter().filter(|line| line["command"] == "MSETNX").collect();
    assert_eq!(both.len(), 2);
    assert!(both.iter().all(|line| line["questions"].as_array().unwrap().len() == 1));
    assert!(lines.iter().any(|line| line["key"] == "lock:\\xff\\\\\\x0a\""));
    let would = lines.iter().find(|line| line["decision"] == "would-deny").unwrap();
    assert_eq!((&would["namespace"], &would["mode"]), (&"watched".into(), &"monitor".into()));
    let changed = lines.iter().find(|line| line["decision"] == "would-modify").unwrap();
    assert_eq!(
        (&changed["command"], &changed["key"], &changed["mode"]),
        (&"SETNX".into(), &"watched:x".into(), &"monitor".into())
    );
    assert_eq!((&changed["ttl_ms"], &changed["asked_ms"]), (&0.into(), &0.into()));
    assert!(changed["would_ttl_ms"].as_u64() > Some(0));
}

#[test]
fn a_lock_that_does_its_work_leaves_no_problem_and_a_loop_leaves_one_line_a_second() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| proxy);
    let (alice, bob) = (audited.proxy.client(), audited.proxy.client());
    for _ in 0..3 {
        alice.sends("SET lock:fine a1 NX PX 5000").gets("+OK");
        bob.sends("SET lock:fine b1 NX PX 5000").gets("nil");
        alice.sends("DEL lock:fine").gets(":1");
    }
    alice.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    let ids: Vec<String> = (0..5).map(|_| id_in(&bob.sends("DEL lock:a").gets_error("LOCKDENIED not-owner"))).collect();
    let (lines, _directory) = audited.end();
    assert!(lines.iter().all(|line| line["key"] != "lock:fine"));
    let refused: Vec<&Value> = lines.iter().filter(|line| is(line, "refused")).collect();
    assert_eq!(refused[0]["id"], ids[0].as_str(), "the first comes at once");
    let times = refused.iter().map(|line| line["repeated"].as_u64().unwrap_or(1));
    assert_eq!(times.sum::<u64>(), 5);
    assert!(refused.len() < 5, "the rest is folded: {refused:?}");
    let text = serde_json::to_string(&refused).unwrap();
    assert!(ids.iter().all(|id| text.contains(id)), "{ids:?} in {text}");
}

#[test]
fn lines_of_folded_refusals_say_whose_and_which() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    for _ in 0..3 {
        bob.sends("DEL lock:a").gets(":0");
    }
    let of_bob = format!("\"client\":\"{}\"", bob.source());
    let line = [
        "\"message\":\"refused again\"",
        "\"namespace\":\"locks\"",
        "\"key\":\"lock:a\"",
        "\"cmd\":\"DEL\"",
        "\"reason\":\"not-owner\"",
        "\"repeated\":2",
        &of_bob,
    ];
    proxy.logs(&line);

    let watching = Proxy::monitoring(&redis);
    let (carol, dave) = (watching.client(), watching.client());
    carol.sends("SET lock:b c1 NX PX 60000").gets("+OK");
    for _ in 0..3 {
        dave.sends("SET lock:b d1 PX 60000").gets("+OK");
        carol.sends("SET lock:b c1 PX 60000").gets("+OK");
    }
    let again = "\"message\":\"would have been refused again\"";
    watching.logs(&[again, "lock:b", "\"cmd\":\"SET\""]);
    assert_eq!(watching.logged(&["\"message\":\"refused again\""]), 0);
}

#[test]
fn a_full_file_makes_room_and_why_finds_what_stands_in_the_older_ones() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| {
        proxy.top("audit", "\"all\"").top("audit_max_size", "\"64KiB\"").top("audit_keep", "3")
    });
    let (alice, bob) = (audited.proxy.client(), audited.proxy.client());
    alice.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    let first = id_in(&bob.sends("DEL lock:a").gets_error("LOCKDENIED not-owner"));
    audited.line("the first", |line| line["id"] == first.as_str());
    let older = |n: u32| PathBuf::from(format!("{}.{n}", audited.path().display()));
    wait_for("a full file", || {
        bob.sends("SETNX lock:a b1").reply();
        older(1).exists()
    });
    let last = id_in(&bob.sends("DEL lock:a").reply().to_string());
    audited.line("the last", |line| line["id"] == last.as_str());
    let (path, full) = (audited.path(), older(1));
    assert!(fs::metadata(&full).unwrap().len() <= 64 * 1024);
    assert!(lines(&full).iter().any(|line| line["id"] == first.as_str()));

    let path = path.to_str().unwrap();
    for id in [&first, &last] {
        let found = why(&[&id.to_lowercase(), "--log", path]);
        assert_eq!(found.code, Some(0), "{}", found.stderr);
        let head = format!("{id}: DEL lock:a was refused: not-owner");
        assert!(found.stdout.starts_with(&head), "{}", found.stdout);
        // Neither has a name; their process is known, because it runs on this machine.
        let granted = found.stdout.lines().find(|line| line.contains("granted to "));
        let holder = format!(" at {}", alice.source());
        assert!(granted.is_some_and(|line| line.contains(&holder)), "{}", found.stdout);
    }
    assert_eq!(why(&["ZZZZZZ", "--log", path]).code, Some(1));
    assert_eq!(why(&["ZZZZZZ", "--log", "no such file"]).code, Some(2));
}

#[test]
fn why_asks_the_proxy_and_tells_who_sent_what_and_what_to_do() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("on_violation", "\"error\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    bob.sends("CLIENT SETNAME stock-2").gets("+OK");
    alice.sends("CLIENT SETNAME stock-5").gets("+OK");
    alice.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    let id = id_in(&bob.sends("DEL lock:a").gets_error("LOCKDENIED not-owner"));
    let admin = proxy.admin_address().to_string();
    let told = wait_for_value("the proxy to know", || {
        let told = why(&[&id, "--admin", &admin]);
        (told.code == Some(0)).then_some(told.stdout)
    });
    for words in [
        "DEL lock:a was refused: not-owner",
        &format!("stock-2 at {}", bob.source()),
        "to a lock: release, without an owner token",
        &format!("granted to stock-5 at {}", alice.source()),
        "owner-token: not-owner (no proof that this client holds the lock); namespace locks, mode enforce",
        "release and extend only after a successful acquire, by compare-and-delete",
    ] {
        assert!(told.contains(words), "{words} in {told}");
    }
    let json = why(&[&id, "--admin", &admin, "-o", "json"]);
    let record: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(record["reason"], "not-owner");
    let unknown = why(&["ZZZZZZ", "--admin", &admin]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("does not remember ZZZZZZ"), "{}", unknown.stderr);
    drop(proxy);
    assert_eq!(why(&[&id, "--admin", &admin]).code, Some(3));
}

/// A command on several locks is answered with one error, which names one of them and its own record.
#[test]
fn the_error_about_several_locks_names_the_record_of_the_lock_that_it_names() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| proxy.namespace("on_violation", "\"error\"").top("audit", "\"all\""));
    let (alice, bob) = (audited.proxy.client(), audited.proxy.client());
    let locks = ["lock:a", "lock:b", "lock:c"];
    for lock in locks {
        alice.sends(format!("SET {lock} a1 NX PX 60000")).gets("+OK");
    }
    let mut seen = BTreeSet::new();
    for line in ["DEL lock:a lock:b", "UNLINK lock:b lock:c lock:a"] {
        let error = bob.sends(line).gets_error("LOCKDENIED not-owner");
        let id = id_in(&error);
        let record = audited.line("the record", |line| line["id"] == id.as_str());
        let key = record["key"].as_str().unwrap();
        assert!(error.contains(&format!(" key={key} ")), "{error}: {record}");
        let told = why(&[&id, "--log", audited.path().to_str().unwrap()]);
        assert!(told.stdout.contains(&format!(" {key} was refused")), "{}", told.stdout);
        seen.insert(id);
    }
    let path = audited.path();
    let refused = lines(&path).into_iter().filter(|line| line["reason"] == "not-owner");
    let ids: Vec<String> = refused.map(|line| line["id"].to_string()).collect();
    let unique: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), unique.len()), (5, 5), "an id belongs to one lock");
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew_on_sighup() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| proxy);
    audited.line("the start", |line| is(line, "started"));
    let moved = audited.directory.path().join("audit/moved");
    fs::rename(audited.path(), &moved).unwrap();
    let config = fs::read_to_string(audited.proxy.config()).unwrap();
    audited.proxy.reload(&config);
    audited.line("the reload", |line| is(line, "reloaded"));
    assert!(lines(&moved).iter().any(|line| is(line, "started")));
}

#[test]
fn a_proxy_that_was_killed_leaves_whole_lines_and_the_next_goes_on_behind_them() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| proxy.top("audit", "\"all\""));
    let client = audited.proxy.client();
    for n in 0..200 {
        client.sends(format!("SET lock:{n} a1 NX PX 9000")).gets("+OK");
    }
    audited.line("the last grant", |line| line["key"] == "lock:199");
    let (path, config) = (audited.path(), audited.proxy.config().to_owned());
    let text = fs::read_to_string(config).unwrap();
    audited.proxy.kill();
    let before = fs::read_to_string(&path).unwrap();
    assert!(before.ends_with("}\n"));
    fs::write(&path, format!("{before}{{\"v\":1,\"torn")).unwrap();

    let config = audited.directory.path().join("lockwarden.toml");
    fs::write(&config, text).unwrap();
    let mut command = lockwarden(&["run", "--config", config.to_str().unwrap()]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _next = Next(command.spawn().unwrap());
    wait_for("the next proxy's first line", || {
        let text = fs::read_to_string(&path).unwrap();
        text.starts_with(&before) && text.contains("torn\n{\"v\":1,\"seq\":1,")
    });
}

/// Ends with its test.
struct Next(std::process::Child);

impl Drop for Next {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours to end");
        self.0.wait().expect("it is ours to wait for");
    }
}

/// Takes a lock of its own, or says why not.
fn try_to_lock(client: &Client, n: &mut u32) -> String {
    *n += 1;
    client.sends(format!("SET lock:{n} a1 NX PX 9000")).reply().to_string()
}

#[test]
fn where_it_is_required_nothing_is_decided_while_it_cannot_be_written() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| {
        proxy
            .top("audit_required", "true")
            .top("audit", "\"all\"")
            .more("[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\nmode = \"monitor\"\n")
    });
    let (client, mut n) = (audited.proxy.client(), 0);
    assert_eq!(try_to_lock(&client, &mut n), "+OK");
    audited.line("the grant", |line| is(line, "acquired"));
    let directory = audited.directory.path().join("audit");
    fs::remove_dir_all(&directory).unwrap();

    let mut refused = String::new();
    wait_for("lock commands to be refused", || {
        refused = try_to_lock(&client, &mut n);
        refused != "+OK"
    });
    assert!(refused.contains("LOCKPOLICY other key=lock:"), "{refused}");
    assert!(refused.contains("policy=audit"), "{refused}");
    assert!(refused.contains("audit record of this command could not be written"), "{refused}");
    client.sends("DEL lock:1").gets_error("LOCKPOLICY other key=lock:1 cmd=DEL policy=audit");
    redis.client().sends("GET lock:1").gets("$2 a1");
    client.sends("FLUSHALL").gets_error("LOCKPOLICY other cmd=FLUSHALL policy=audit");
    client.sends("MULTI").gets("+OK");
    client.sends("DEL lock:1").gets_error("LOCKPOLICY");
    client.sends("EXEC").gets_error("EXECABORT");
    // Commands on keys that are no locks, or only watched ones, go on.
    client.sends("SET plain 1").gets("+OK");
    client.sends("SET watched:x a1 NX PX 9000").gets("+OK");
    client.sends("DEL watched:x").gets(":1");
    client.sends("GET lock:1").gets("$2 a1");
    assert_eq!(audited.proxy.logged(&["audit records cannot be written"]), 1);

    fs::create_dir(&directory).unwrap();
    wait_for("lock commands to be carried out again", || try_to_lock(&client, &mut n) == "+OK");
    audited.proxy.logs(&["audit records are written again"]);
    let refusal = audited.line("a refusal of that time", |line| line["policy"] == "audit");
    assert_eq!(refusal["decision"], "deny");
    audited.line("the watched one", |line| line["key"] == "watched:x");
}

#[test]
fn a_fifo_without_a_reader_and_a_full_disk_refuse_where_it_is_required() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for path in [fifo.to_str().unwrap(), "/dev/full"] {
        let proxy =
            Proxy::builder(&redis).top("audit_file", &format!("{path:?}")).top("audit_required", "true").start();
        let (client, mut n) = (proxy.client(), 1000);
        wait_for("lock commands to be refused", || {
            let reply = try_to_lock(&client, &mut n);
            client.sends(format!("DEL lock:{n}")).reply();
            reply.contains("policy=audit")
        });
        client.sends("SET plain 1").gets("+OK");
        if path == "/dev/full" {
            continue;
        }
        let mut reader = fs::File::open(&fifo).unwrap();
        let read = std::thread::spawn(move || {
            let mut beginning = [0; 64];
            reader.read_exact(&mut beginning).unwrap();
            (String::from_utf8_lossy(&beginning).into_owned(), reader)
        });
        wait_for("lock commands to be carried out", || try_to_lock(&client, &mut n) == "+OK");
        let (beginning, _reader) = read.join().unwrap();
        assert!(beginning.starts_with("{\"v\":1,\"seq\":1,"), "{beginning}");
    }
}

#[test]
fn where_it_is_not_required_a_client_notices_nothing_and_nothing_is_lost_in_a_short_outage() {
    let redis = Redis::start();
    let audited = Audited::start(&redis, |proxy| proxy.top("audit", "\"all\""));
    let (client, mut n) = (audited.proxy.client(), 0);
    let directory = audited.directory.path().join("audit");
    fs::remove_dir_all(&directory).unwrap();
    wait_for("the log to say so", || {
        assert_eq!(try_to_lock(&client, &mut n), "+OK");
        audited.proxy.logged(&["audit records cannot be written"]) == 1
    });
    let during = n + 1;
    assert_eq!(try_to_lock(&client, &mut n), "+OK");
    fs::create_dir(&directory).unwrap();
    audited.line("a grant in between", |line| line["key"] == format!("lock:{during}"));
    assert_eq!(audited.proxy.metric("lockwarden_audit_records_dropped_total"), 0.0);
    let written = "lockwarden_audit_records_total{sink=\"file\"}";
    wait_for("the counter", || audited.proxy.metric(written) > f64::from(n));
}

#[test]
fn a_key_makes_fingerprints_the_same_in_two_proxies_and_without_one_they_differ() {
    let redis = Redis::start();
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key");
    fs::write(&key, "a key for this test\n").unwrap();
    let fingerprint = |with_key: bool, lock: &str| {
        let audited = Audited::start(&redis, |proxy| {
            let proxy = proxy.top("audit", "\"all\"");
            match with_key {
                true => proxy.top("audit_key_file", &format!("{:?}", key.to_str().unwrap())),
                false => proxy,
            }
        });
        let client = audited.proxy.client();
        client.sends(format!("SET {lock} the-same-owner NX PX 9000")).gets("+OK");
        audited.line("the grant", |line| is(line, "acquired"))["token"].clone()
    };
    let with_key = fingerprint(true, "lock:1");
    assert_eq!(with_key, fingerprint(true, "lock:2"));
    assert_ne!(with_key, fingerprint(false, "lock:3"));
}

#[test]
fn standard_output_is_a_sink_too() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("audit_file", "\"-\"").start();
    wait_for("the line about the start", || proxy.metric("lockwarden_audit_records_total{sink=\"stdout\"}") >= 1.0);
}

#[test]
fn what_cannot_be_an_audit_trail_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("lockwarden.toml");
    let end_of = |text: &str| {
        fs::write(&config, text).unwrap();
        run_to_end(&mut lockwarden(&["run", "--config", config.to_str().unwrap()]))
    };
    let nowhere = end_of("audit_required = true\n");
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.stderr.contains("there is no audit_file"), "{}", nowhere.stderr);
    let missing = end_of("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\naudit_file = \"no/such/directory\"\n");
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("cannot write the audit file"), "{}", missing.stderr);
}

#[test]
fn a_share_of_the_connections_is_recorded_whole_and_problems_of_all() {
    const CONNECTIONS: usize = 60;
    let redis = Redis::start();
    let audited = Audited::start(&redis, |builder| builder.top("audit", "\"all\"").top("audit_questions", "\"30%\""));
    for number in 0..CONNECTIONS {
        let client = audited.proxy.client();
        client.sends(format!("CLIENT SETNAME app-{number}")).gets("+OK");
        client.sends(format!("SET lock:{number} a NX PX 5000")).gets("+OK");
        client.sends(format!("GET lock:{number}")).gets("$1 a");
        // A lock that is free.
        client.sends(format!("DEL lock:free:{number}")).gets(":0");
        client.sends(format!("DEL lock:{number}")).gets(":1");
        let stranger = audited.proxy.client();
        client.sends(format!("SET lock:{number} a NX PX 5000")).gets("+OK");
        stranger.sends(format!("CLIENT SETNAME stranger-{number}")).gets("+OK");
        stranger.sends(format!("DEL lock:{number}")).gets_error("LOCKDENIED not-owner");
    }
    let (lines, _directory) = audited.end();
    let by_name = |name: &str| -> Vec<&Value> { lines.iter().filter(|line| line["client"]["name"] == name).collect() };
    let (mut whole, mut refused) = (0, 0);
    for number in 0..CONNECTIONS {
        let own = by_name(&format!("app-{number}"));
        let asked = own.iter().filter(|line| line["questions"].is_array()).count();
        assert!([0, 4].contains(&asked), "all of a connection, or nothing: {own:?}");
        whole += usize::from(asked > 0);
        refused += by_name(&format!("stranger-{number}")).iter().filter(|line| line["decision"] == "deny").count();
    }
    assert!((5..=35).contains(&whole), "{whole} of {CONNECTIONS}");
    assert_eq!(refused, CONNECTIONS, "a refusal is a problem of any connection");
}
