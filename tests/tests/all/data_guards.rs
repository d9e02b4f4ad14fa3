//! `[[guard]]`: data that only the holder of a lock may write. A write of a holder that woke too late is refused and not
//! carried out; the reply to an allowed command is Redis's own, byte for byte.

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, Server, lockwarden, run_to_end};

const GUARD: &str = r#"
[[guard]]
name = "stock"
keys = ["stock:{id}", "order:{id}:*"]
lock = "lock:sale:{id}"
"#;

const STALE: &str = "this write belongs to a lease of the lock that is over: stop, and read again under a new one";
const STRANGER: &str = "writes to this key need the lock; take it on this connection first";

fn with_guard(redis: &Redis, more: &str) -> ProxyBuilder {
    Proxy::builder(redis).more(&format!("{GUARD}mode = \"enforce\"\n{more}"))
}

/// Two clients of different machines, by their addresses.
fn two(proxy: &Proxy) -> (Client, Client) {
    (proxy.client_from("127.0.0.2"), proxy.client_from("127.0.0.3"))
}

#[track_caller]
fn takes(client: &Client) {
    client.sends("SET lock:sale:7 3b241101-e2bb-4255 NX PX 60000").gets("+OK");
}

/// How often the guard had this result for a write.
fn said(mode: &str, result: &str) -> String {
    let labels = format!("guard=\"stock\",mode=\"{mode}\",result=\"{result}\"");
    format!("lockwarden_guarded_writes_total{{{labels}}}")
}

/// The first was granted the lock, which ran out; the second has it now.
fn late_and_holder(proxy: &Proxy, redis: &Redis) -> (Client, Client) {
    let (late, holder) = two(proxy);
    late.sends("SET lock:sale:7 f81d4fae-7dec-11d0 NX PX 50").gets("+OK");
    redis.becomes_free("lock:sale:7");
    takes(&holder);
    (late, holder)
}

#[track_caller]
fn is_refused(client: &Client, request: &str, reason: &str, hint: &str) {
    let reply = client.sends(request).reply().to_string();
    let begins = format!("-LOCKDENIED {reason} key=stock:7 cmd=");
    assert!(reply.starts_with(&begins), "{request}: {reply}");
    assert!(reply.contains(" lock=lock:sale:7 guard=stock id="), "{reply}");
    assert!(reply.contains(&format!("hint=\"{hint}\"")), "{reply}");
}

#[test]
fn the_holder_writes_and_a_late_one_does_not() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    redis.client().sends("SET stock:7 100").gets("+OK");
    is_refused(&late, "SET stock:7 99", "stale-fence", STALE);
    is_refused(&late, "DECR stock:7", "stale-fence", STALE);
    holder.sends("DECR stock:7").gets(":99");
    holder.sends("SET order:7:lines 1").gets("+OK");
    late.sends("GET stock:7").gets("$2 99");
    is_refused(&late, "DEL other stock:7 stock:8", "stale-fence", STALE);
    holder.sends("DEL lock:sale:7").gets(":1");
    is_refused(&late, "SET stock:7 98", "stale-fence", STALE);
    // No other client was granted the lock since, so what this one read under it is still true.
    holder.sends("SET stock:7 97").gets("+OK");
    late.sends("SET stock:unguarded:7 1").gets("+OK");
    proxy.counts(&said("enforce", "stale-fence"), 4.0);
    proxy.counts(&said("enforce", "holder"), 2.0);
    proxy.counts(&said("enforce", "late"), 1.0);
    assert_eq!(redis.client().sends("GET stock:7").reply().to_string(), "$2 97");
    // Another database has locks of its own.
    takes(&holder);
    holder.sends("SELECT 1").gets("+OK");
    is_refused(&holder, "SET stock:7 96", "not-owner", STRANGER);
}

#[test]
fn a_refusal_tells_the_writers_own_fencing_token() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, holder) = two(&proxy);
    late.sends("SET lock:sale:7 f81d4fae-7dec-11d0 NX PX 200").gets("+OK");
    let own = late.sends("LOCKWARDEN FENCE lock:sale:7").integer();
    redis.becomes_free("lock:sale:7");
    takes(&holder);
    let reply = late.sends("SET stock:7 99").reply().to_string();
    assert!(reply.contains(&format!(" fence={own} hint=")), "{own}: {reply}");
}

#[test]
fn who_never_had_the_lock_writes_only_where_that_is_allowed() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (holder, stranger) = two(&proxy);
    is_refused(&stranger, "SET stock:7 99", "not-owner", STRANGER);
    takes(&holder);
    is_refused(&stranger, "SET stock:7 99", "not-owner", STRANGER);
    holder.sends("DEL lock:sale:7").gets(":1");
    is_refused(&stranger, "SET stock:7 99", "not-owner", STRANGER);
    reloads(&proxy, &proxy_text(&redis, "unlocked = \"allow\"\nexempt = [\"name:import\"]\n"));
    stranger.sends("SET stock:7 99").gets("+OK");
    takes(&holder);
    is_refused(&stranger, "SET stock:7 98", "not-owner", STRANGER);
    stranger.sends("CLIENT SETNAME import").gets("+OK");
    stranger.sends("SET stock:7 98").gets("+OK");
    proxy.counts(&said("enforce", "exempt"), 1.0);
    proxy.counts(&said("enforce", "unlocked"), 1.0);
}

#[track_caller]
fn reloads(proxy: &Proxy, text: &str) {
    let (status, said) = proxy.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{said}");
}

fn proxy_text(redis: &Redis, more: &str) -> String {
    with_guard(redis, more).text()
}

#[test]
fn another_connection_of_the_holders_process_writes_unless_only_the_session_counts() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (one, other) = (proxy.client_from("127.0.0.2"), proxy.client_from("127.0.0.2"));
    takes(&one);
    other.sends("SET stock:7 1").gets("+OK");
    proxy.counts(&said("enforce", "identity"), 1.0);
    reloads(&proxy, &proxy_text(&redis, "proofs = [\"session\"]\n"));
    is_refused(&other, "SET stock:7 2", "not-owner", STRANGER);
    one.sends("SET stock:7 3").gets("+OK");
}

#[test]
fn a_lock_that_an_operator_broke_is_nobodys() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let holder = proxy.client();
    takes(&holder);
    holder.sends("SET stock:7 1").gets("+OK");
    let order = format!("{{\"fence\": {}, \"reason\": \"it hangs\"}}", redis.fence("lock:sale:7"));
    let (status, told) = proxy.orders("/api/v1/locks/lock:sale:7/break", &order);
    assert_eq!(status, 200, "{told}");
    is_refused(&holder, "SET stock:7 2", "stale-fence", STALE);
}

#[test]
fn monitor_mode_refuses_nothing_and_counts_what_it_would() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).more(GUARD).start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    late.sends("SET stock:7 99").gets("+OK");
    holder.sends("SET stock:7 98").gets("+OK");
    late.sends("BLPOP stock:7 1").reply();
    for (result, times) in [("stale-fence", 1.0), ("holder", 1.0), ("not-owner", 0.0)] {
        proxy.counts(&said("monitor", result), times);
    }
    proxy.counts("lockwarden_guard_unchecked_total{guard=\"stock\",why=\"blocking\"}", 1.0);
    proxy.logs(&["would have been refused", "stale-fence", "lock:sale:7", "SET"]);
    proxy.logs(&["in force: stock:{id} order:{id}:* are for holders of lock:sale:{id}, in monitor mode"]);
    let guard = &proxy.api("guards")[0];
    assert_eq!(guard["name"], "stock");
    assert_eq!(guard["mode"], "monitor");
    assert_eq!(guard["writes"]["stale-fence"], 1, "{guard}");
    assert_eq!(guard["unchecked"]["blocking"], 1, "{guard}");
    late.sends("MULTI").gets("+OK");
    late.sends("SET stock:7 97").gets("+QUEUED");
    late.sends("INCR stock:7").gets("+QUEUED");
    late.sends("EXEC").gets("[+OK, :98]");
    proxy.counts(&said("monitor", "stale-fence"), 3.0);
    assert_eq!(redis.client().sends("GET stock:7").reply().to_string(), "$2 98");
}

#[test]
fn what_a_guard_says_is_told_of_applications_and_is_no_word_on_the_namespace() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).more(GUARD).start();
    let (late, _holder) = late_and_holder(&proxy, &redis);
    late.sends("CLIENT SETNAME seller").gets("+OK");
    late.sends("SET stock:7 99").gets("+OK");
    late.sends("SET stock:8 99").gets("+OK");
    let report = proxy.api("report");
    let namespace = &report["namespaces"][0];
    assert_eq!(namespace["operations"], 2, "the acquires: {namespace}");
    assert_eq!(namespace["would_refuse"], 0, "{namespace}");
    let admin = proxy.admin_address().to_string();
    let said = run_to_end(&mut lockwarden(&["audit", "--all", "--admin", &admin])).stdout;
    for part in [
        "seller",
        "SET stock:8 from 127.0.0.2",
        "of guarded data: late-write (1 time), write-without-lock (1 time)",
        "SET lock:sale:7 VALUE NX PX MILLISECONDS",
        "take that lock first, over the same connection",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_order_switches_a_guard_and_the_order_for_all_lets_everything_through() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).more(GUARD).start();
    let stranger = proxy.client();
    stranger.sends("SET stock:7 1").gets("+OK");
    let config = proxy.config().display().to_string();
    let admin = proxy.admin_address().to_string();
    let whom = ["--config", &config, "--admin", &admin];
    let mode = |word: &str| run_to_end(lockwarden(&["mode", word]).args(whom));
    let told = mode("guard:stock=enforce");
    assert_eq!(told.stdout, "NAMESPACE    MODE\nguard:stock  enforce\n", "{told:?}");
    is_refused(&stranger, "SET stock:7 2", "not-owner", STRANGER);
    assert_eq!(proxy.api("guards")[0]["mode"], "enforce");
    // Orders for namespaces switch no guard on.
    assert_eq!(mode("monitor").code, Some(0));
    stranger.sends("SET stock:7 3").gets("+OK");
    assert_eq!(mode("enforce").code, Some(0));
    stranger.sends("SET stock:7 4").gets("+OK");
    let told = mode("guard:none=enforce");
    assert!(told.stderr.contains("guard:stock"), "{told:?}");
}

#[test]
fn a_block_is_carried_out_whole_or_not_at_all() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    for client in [&late, &holder] {
        client.sends("MULTI").gets("+OK");
        client.sends("SET other x").gets("+QUEUED");
        client.sends("INCRBY stock:7 10").gets("+QUEUED");
        client.sends("GET stock:7").gets("+QUEUED");
    }
    let reply = late.sends("EXEC").reply().to_string();
    let begins =
        "-EXECABORT Transaction discarded because of previous errors: LOCKDENIED stale-fence key=stock:7 cmd=INCRBY";
    assert!(reply.starts_with(begins), "{reply}");
    assert_eq!(redis.client().sends("EXISTS other stock:7").integer(), 0);
    holder.sends("EXEC").gets("[+OK, :10, $2 10]");
    // The connection goes on as any.
    late.sends("SET other y").gets("+OK");
    late.sends("MULTI").gets("+OK");
    late.sends("SET other z").gets("+QUEUED");
    late.sends("EXEC").gets("[+OK]");
}

#[test]
fn a_block_with_a_lock_command_is_carried_out_in_its_order() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    holder.sends("MULTI").gets("+OK");
    holder.sends("SET stock:7 5").gets("+QUEUED");
    holder.sends("DEL lock:sale:7").gets("+QUEUED");
    holder.sends("GET lock:sale:7").gets("+QUEUED");
    holder.sends("EXEC").gets("[+OK, :1, nil]");
    assert!(redis.is_free("lock:sale:7"));
    // A lock that is taken in the same block does not count: the write does not depend on it there.
    late.sends("MULTI").gets("+OK");
    late.sends("SET lock:sale:7 f81d4fae-7dec-11d0 NX PX 60000").gets("+QUEUED");
    late.sends("SET stock:7 6").gets("+QUEUED");
    late.sends("EXEC").gets_error("EXECABORT");
    assert!(redis.is_free("lock:sale:7"));
    assert_eq!(redis.value("stock:7"), "$1 5");
}

#[test]
fn a_block_that_is_too_long_to_be_checked_is_not_carried_out() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let holder = proxy.client();
    takes(&holder);
    holder.sends("MULTI").gets("+OK");
    holder.sends_arguments(&["SET", "other", &"x".repeat(1_200_000)]).gets("+QUEUED");
    holder.sends("INCR stock:7").gets("+QUEUED");
    let said = holder.sends("EXEC").gets_error("EXECABORT");
    assert!(said.contains("LOCKLIMIT guarded-write"), "{said}");
    let own = redis.client();
    assert_eq!(own.sends("EXISTS other stock:7").integer(), 0);
    holder.sends("INCR stock:7").gets(":1");
}

#[test]
fn a_clients_own_watch_is_kept_and_covers_the_record() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    let block = |client: &Client, watched: &str| {
        client.sends(format!("WATCH {watched}")).gets("+OK");
        client.sends("MULTI").gets("+OK");
        let queued = client.sends("INCR stock:7").reply().to_string();
        (queued, client.sends("EXEC").reply().to_string())
    };
    let (queued, executed) = block(&holder, "stock:7");
    assert_eq!((&queued[..], &executed[..]), ("+QUEUED", "[:1]"));
    let (queued, executed) = block(&late, "stock:7");
    assert_eq!(queued, "+QUEUED");
    assert!(executed.starts_with("-EXECABORT") && executed.contains("LOCKDENIED stale-fence"), "{executed}");
    let (queued, executed) = block(&holder, "other");
    assert!(queued.starts_with("-LOCKLIMIT guarded-write key=stock:7 cmd=INCR guard=stock"), "{queued}");
    assert!(queued.ends_with("hint=\"WATCH the guarded key too\""), "{queued}");
    assert!(executed.starts_with("-EXECABORT"), "{executed}");
    // A newer lease since the WATCH: nothing is done, as where the key itself had changed.
    holder.sends("WATCH stock:7").gets("+OK");
    holder.sends("DEL lock:sale:7").gets(":1");
    proxy.client_from("127.0.0.4").sends("SET lock:sale:7 0d2b1d5e-41f6-4d7c NX PX 60000").gets("+OK");
    holder.sends("MULTI").gets("+OK");
    holder.sends("INCR stock:7").gets("+QUEUED");
    holder.sends("EXEC").gets("nil-array");
    holder.sends("WATCH other").gets("+OK");
    let reply = holder.sends("INCR stock:7").reply().to_string();
    assert!(reply.contains("a WATCH is in force"), "{reply}");
    holder.sends("UNWATCH").gets("+OK");
    assert_eq!(redis.client().sends("GET stock:7").reply().to_string(), "$1 1");
}

/// A command that takes a lock away from its holder is refused for that, whatever else it would write.
#[test]
fn a_theft_of_the_lock_by_a_command_that_writes_guarded_data_is_refused_as_a_theft() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (holder, stranger) = (proxy.client(), proxy.client_from("127.0.0.7"));
    takes(&holder);
    holder.sends("SET stock:7 5").gets("+OK");
    for (request, says) in [
        ("DEL lock:sale:7 stock:7", "LOCKDENIED not-owner key=lock:sale:7 cmd=DEL"),
        ("UNLINK stock:7 lock:sale:7", "LOCKDENIED not-owner key=lock:sale:7 cmd=UNLINK"),
        ("RENAME stock:7 lock:sale:7", "LOCKDENIED opaque-write key=lock:sale:7 cmd=RENAME"),
        ("RENAME lock:sale:7 stock:7", "LOCKDENIED opaque-write key=lock:sale:7 cmd=RENAME"),
        ("MSET stock:7 0 lock:sale:7 x", "LOCKDENIED opaque-write key=lock:sale:7 cmd=MSET"),
    ] {
        stranger.sends(request).gets_error(says);
        assert_eq!(redis.value("stock:7"), "$1 5");
        assert!(!redis.is_free("lock:sale:7"));
    }
    holder.sends("DEL lock:sale:7 stock:7").gets_error("LOCKLIMIT guarded-write key=stock:7 cmd=DEL");
    holder.sends("DEL lock:sale:7").gets(":1");
}

#[test]
fn what_cannot_be_checked_is_refused_with_what_to_do() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let holder = proxy.client();
    takes(&holder);
    for (request, says) in [
        ("BLPOP stock:7 1", "a blocking command cannot be checked"),
        ("DEL lock:sale:7 stock:7", "a command that changes locks as well"),
    ] {
        let reply = holder.sends(request).reply().to_string();
        assert!(reply.starts_with("-LOCKLIMIT guarded-write key=stock:7 cmd="), "{reply}");
        assert!(reply.contains(says), "{reply}");
    }
    assert!(!redis.is_free("lock:sale:7"));
    // Redis's own errors are Redis's.
    holder.sends("SET stock:7").gets("-ERR wrong number of arguments for 'set' command");
    holder.sends("LPUSH stock:7 a").gets(":1");
    holder.sends("INCR stock:7").gets("-WRONGTYPE Operation against a key holding the wrong kind of value");
}

#[test]
fn a_lock_of_another_database_opens_no_guarded_data() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let client = proxy.client();
    redis.client().sends("SET stock:7 9").gets("+OK");
    client.sends("SELECT 1").gets("+OK");
    takes(&client);
    client.sends("SET xx 0").gets("+OK");
    client.sends("SET stock:7 1").gets("+OK");
    let elsewhere = "this writes in another database than that whose lock would be read";
    for request in ["COPY xx stock:7 DB 0 REPLACE", "MOVE stock:7 0"] {
        let said = client.sends(request).reply().to_string();
        assert!(said.starts_with("-LOCKLIMIT guarded-write key=stock:7 cmd="), "{request}: {said}");
        assert!(said.contains(elsewhere), "{request}: {said}");
    }
    client.sends("COPY xx stock:7 DB 1 REPLACE").gets(":1");
    client.sends("MULTI").gets("+OK");
    client.sends("SELECT 0").gets("+QUEUED");
    let said = client.sends("SET stock:7 0").reply().to_string();
    assert!(said.contains(elsewhere), "{said}");
    let said = client.sends("EXEC").reply().to_string();
    assert!(said.starts_with("-EXECABORT"), "{said}");
    // Nor one that was watched there.
    client.sends("WATCH stock:7").gets("+OK");
    client.sends("SELECT 0").gets("+OK");
    client.sends("MULTI").gets("+OK");
    let said = client.sends("SET stock:7 0").reply().to_string();
    assert!(said.contains("WATCH the guarded key too"), "{said}");
    let stands = redis.client().sends("GET stock:7").reply().to_string();
    assert_eq!(stands, "$1 9");
}

#[test]
fn a_guarded_key_that_a_script_names_in_its_text_is_judged() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    for (text, arguments) in [
        ("return redis.call('set', 'stock:7', '0')", vec![]),
        ("return redis.call('set', ARGV[1], '0')", vec!["stock:7"]),
        ("return redis.call('set', 'stock:' .. ARGV[1], '0')", vec!["7"]),
    ] {
        let said = late.eval(text, &[], &arguments);
        assert!(said.starts_with("-LOCKDENIED stale-fence key=stock:7 cmd=EVAL "), "{text}: {said}");
        assert_eq!(holder.eval(text, &[], &arguments), "+OK", "{text}");
    }
}

#[test]
fn a_user_without_the_rights_is_told_which() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER shop on >secret ~stock:* ~lock:* ~lw:* +@all -watch").gets("+OK");
    let proxy = with_guard(&redis, "").start();
    let client = proxy.client();
    client.sends("AUTH shop secret").gets("+OK");
    takes(&client);
    let reply = client.sends("SET stock:7 1").reply().to_string();
    assert!(
        reply.starts_with(
            "-NOPERM lockwarden checks a write of guarded data by the record of its lock: this user needs +watch"
        ),
        "{reply}"
    );
    assert_eq!(redis.client().sends("EXISTS stock:7").integer(), 0);
    proxy.counts("lockwarden_guard_unchecked_total{guard=\"stock\",why=\"no-rights\"}", 1.0);
}

#[test]
fn where_connections_are_shared_a_guarded_write_has_its_own() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").multiplexed().start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    for n in 1..=20_u32 {
        holder.sends("INCR stock:7").gets(format!(":{n}"));
        holder.sends("GET stock:7").gets(format!("${} {n}", n.to_string().len()));
        is_refused(&late, "SET stock:7 0", "stale-fence", STALE);
    }
}

#[test]
fn what_is_no_guard_is_an_error_that_says_what_to_do() {
    let redis = Redis::start();
    let says = |guard: &str| {
        let text = Proxy::builder(&redis).more(guard).text();
        let path = std::env::temp_dir().join(format!("lockwarden-guard-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        let mut check = lockwarden(&["check", "--config"]);
        let end = run_to_end(check.arg(&path));
        let _ = std::fs::remove_file(&path);
        assert_eq!(end.code, Some(2), "{guard}: {end:?}");
        end.stderr + &end.stdout
    };
    let guard = |keys: &str, lock: &str| format!("[[guard]]\nname = \"stock\"\nkeys = [{keys}]\nlock = {lock}\n");
    for (text, expected) in [
        (
            guard("\"order:*\"", "\"lock:{id}\""),
            "guard \"stock\": \"order:*\" captures no {id}, which lock \"lock:{id}\" needs",
        ),
        (guard("\"stock:{id}\"", "\"sale:{id}\""), "guard \"stock\": lock \"sale:{id}\" is in no namespace"),
        (
            guard("\"lock:{id}\"", "\"lock:x:{id}\""),
            "guard \"stock\": \"lock:{id}\" is a lock key itself, in namespace",
        ),
        (guard("\"{a}{b}\"", "\"lock:{a}\""), "two captures without a fixed byte between them: \"{a}{b}\""),
        (guard("", "\"lock:1\""), "guard \"stock\": keys: the list is empty"),
        (guard("\"stock:1\"", "\"lock:*\""), "a lock's name has no * and no ?"),
        (
            guard("\"stock:1\"", "\"lock:1\"") + "proofs = [\"identity\"]\n",
            "without \"session\" a holder could not write over its own connection",
        ),
    ] {
        let said = says(&text);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn guarded_writes_are_told_to_who_asks_why() {
    let redis = Redis::start();
    let proxy = with_guard(&redis, "").start();
    let (late, _holder) = late_and_holder(&proxy, &redis);
    let reply = late.sends("SET stock:7 99").reply().to_string();
    let id = reply.split(" id=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an id");
    let admin = proxy.admin_address().to_string();
    let why = || run_to_end(&mut lockwarden(&["why", id, "--admin", &admin]));
    let end = why();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let (_, page) = proxy.get("/");
    for part in ["Guarded data", "<small>stale-fence 1</small>", "guards <code dir=\"ltr\">stock:7</code>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for word in [
        "SET stock:7 was refused: stale-fence",
        "guard stock keeps that for who holds lock:sale:7",
        "own had fencing token",
    ] {
        assert!(end.stdout.contains(word), "{word}: {}", end.stdout);
    }
}

#[test]
fn replicas_and_the_append_only_file_get_what_the_client_wrote() {
    if Server::under_test().lacks("a block of one command told as that command", 7, 0) {
        return;
    }
    let redis = Redis::with_arguments(&["--appendonly", "yes", "--appendfsync", "always"]);
    let proxy = with_guard(&redis, "").start();
    let holder = proxy.client();
    takes(&holder);
    let written = || {
        let folder = redis.folder().join("appendonlydir");
        let files = std::fs::read_dir(folder).expect("a folder").flatten();
        let files = files.filter(|file| file.path().extension().is_some_and(|end| end == "aof"));
        files.map(|file| std::fs::read(file.path()).expect("a file")).collect::<Vec<_>>().concat()
    };
    let before = written().len();
    holder.sends("SET stock:7 1").gets("+OK");
    let added = String::from_utf8_lossy(&written()[before..]).into_owned();
    assert!(added.ends_with("*3\r\n$3\r\nSET\r\n$7\r\nstock:7\r\n$1\r\n1\r\n"), "{added}");
    assert!(!added.to_uppercase().contains("MULTI"), "{added}");
}
