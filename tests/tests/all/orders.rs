//! Orders to a running proxy, and queries about its clients, as an operator types them.

use std::process::Command;

use lockwarden_tests::{Client, Finished, Proxy, Redis, encode, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// The admin token of the harness's configuration.
const ADMIN_TOKEN: &str = "the-tests-own-admin-token";

/// `lockwarden` with these words, pointed at the proxy, with its admin token.
fn asks(proxy: &Proxy, words: &[&str]) -> Command {
    let mut command = lockwarden(words);
    command.env("LOCKWARDEN_ADMIN", proxy.admin_address().to_string());
    command.env("LOCKWARDEN_ADMIN_TOKEN", ADMIN_TOKEN);
    command
}

#[track_caller]
fn ends_with(mut command: Command, code: i32) -> Finished {
    let finished = run_to_end(&mut command);
    assert_eq!(finished.code, Some(code), "{command:?}: {finished:?}");
    finished
}

#[track_caller]
fn says(proxy: &Proxy, words: &[&str]) -> String {
    ends_with(asks(proxy, words), 0).stdout
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// The clients as JSON, as soon as they are as expected: the list is some milliseconds behind the real state.
#[track_caller]
fn clients_that(proxy: &Proxy, words: &[&str], expected: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let words = [&["clients", "-o", "json"], words].concat();
    wait_for_value("the clients to be told as expected", || {
        let told = json(&says(proxy, &words));
        let clients = told["connections"].as_array()?.clone();
        expected(&clients).then_some(clients)
    })
}

#[test]
fn the_clients_are_told_with_what_they_hold_and_wait_for() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    assert_eq!(says(&proxy, &["clients"]), "no such client is connected\n");
    let (idle, waiter, holder) = (named(&proxy, "idle-1"), named(&proxy, "waiter-1"), named(&proxy, "holder-1"));
    idle.sends("CLIENT SETINFO LIB-NAME jedis").reply();
    holder.sends("SET lock:a a-secret-owner-token NX PX 60000").gets("+OK");
    holder.sends("SET lock:b b1 NX PX 60000").gets("+OK");
    for _ in 0..3 {
        waiter.sends("SET lock:a w1 NX PX 60000").gets("nil");
    }
    let told = clients_that(&proxy, &[], |clients| {
        clients.len() == 3 && clients[0]["holding"] == 2 && clients[1]["waiting"] == 1
    });
    let names: Vec<_> = told.iter().map(|one| &one["client"]["name"]).collect();
    assert_eq!(names, ["holder-1", "waiter-1", "idle-1"], "holders first");
    assert_eq!(told[0]["holds"][0]["key"], "lock:a");
    assert_eq!(told[0]["holds"][1]["key"], "lock:b");
    assert_eq!(told[1]["waits_for"][0]["key"], "lock:a");
    assert_eq!(told[2]["holding"], 0);
    assert_eq!(told[0]["client"]["address"], holder.source().to_string(), "{}", told[0]);
    assert!(told[0]["since"].as_u64() > Some(1_700_000_000_000));
    // Its process was looked up when it was granted a lock: it is this one.
    let process =
        clients_that(&proxy, &["--holding"], |clients| clients.len() == 1 && clients[0]["process"].is_object());
    assert_eq!(process[0]["process"]["id"], std::process::id());
    let table = says(&proxy, &["clients"]);
    for word in ["holder-1", "lock:a, lock:b", "jedis", "WAITS FOR"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    assert!(!table.contains("a-secret-owner-token"), "{table}");
    holder.sends("DEL lock:a lock:b").gets(":2");
    clients_that(&proxy, &["--holding"], <[Value]>::is_empty);
}

#[test]
fn the_clients_are_narrowed_to_an_application_and_a_number() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let _clients: Vec<_> = (0..5).map(|_| named(&proxy, "billing")).collect();
    let _other = named(&proxy, "stock");
    clients_that(&proxy, &["--application", "billing"], |clients| clients.len() == 5);
    clients_that(&proxy, &["--application", "bill"], <[Value]>::is_empty);
    let table = says(&proxy, &["clients", "--limit", "2"]);
    assert!(table.contains("and 4 more; --limit 6 shows them"), "{table}");
    let first = proxy.get("/api/v1/connections?limit=1").1;
    let first = json(&first);
    assert_eq!(first["matching"], 6);
    assert_eq!(first["connections"].as_array().map(Vec::len), Some(1));
    assert_eq!(proxy.get("/api/v1/connections?aplication=x").0, 400);
}

/// A terminal obeys what it is sent, and names are chosen by clients.
#[test]
fn a_hostile_name_and_key_are_spelled_in_the_list_of_clients() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends_arguments(&[&b"CLIENT"[..], b"SETNAME", b"=cmd|<script>"]).gets("+OK");
    client.sends_arguments(&[&b"SET"[..], b"lock:\x1b[2J\xff", b"1", b"NX", b"PX", b"60000"]).gets("+OK");
    clients_that(&proxy, &["--holding"], |clients| clients.len() == 1);
    let table = says(&proxy, &["clients"]);
    assert!(table.contains(r"lock:\x1b[2J\xff"), "{table:?}");
    assert!(table.contains("=cmd|<script>"), "{table:?}");
    assert!(!table.contains('\x1b'), "{table:?}");
}

#[test]
fn a_drain_ends_the_proxy_once_its_clients_have_finished() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("drain", "\"10s\"").start();
    let mut without_token = lockwarden(&["drain"]);
    without_token.env("LOCKWARDEN_ADMIN", proxy.admin_address().to_string());
    without_token.env("LOCKWARDEN_ADMIN_TOKEN", "a-wrong-admin-token");
    let said = ends_with(without_token, 1);
    assert!(said.stderr.contains("401"), "{said:?}");
    assert_eq!(proxy.ready(), Some(200), "nobody has stopped it");
    let busy = proxy.client();
    busy.write(&encode(&["BLPOP", "queue", "0"]));
    wait_for("BLPOP to wait in Redis", || {
        let clients = redis.client().sends("INFO clients").text();
        clients.contains("blocked_clients:1")
    });
    let said = says(&proxy, &["drain"]);
    assert_eq!(said, "stopping; clients connected: 1\n");
    wait_for("/ready to refuse", || proxy.ready() != Some(200));
    redis.client().sends("RPUSH queue work").gets(":1");
    busy.then().gets("[$5 queue, $4 work]");
    assert_eq!(proxy.ends(), Some(0));
}

#[test]
fn the_log_says_more_and_less_while_the_proxy_runs() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory");
    let trail = directory.path().join("audit.jsonl");
    let proxy = Proxy::builder(&redis).top("audit_file", &format!("{:?}", trail.display())).start();
    assert_eq!(says(&proxy, &["config", "--log"]), "info\n");
    let said = says(&proxy, &["config", "--log", "lockwarden_console::admin=debug"]);
    assert_eq!(said, "info,lockwarden_console::admin=debug, before: info\n");
    proxy.logs(&["log filter changed", "info,lockwarden_console::admin=debug"]);
    // An INFO line of another module, before and after.
    says(&proxy, &["mode", "monitor"]);
    proxy.logs(&["mode set"]);
    says(&proxy, &["config", "--log", "error"]);
    assert_eq!(says(&proxy, &["config", "--log"]), "error\n");
    says(&proxy, &["mode", "enforce"]);
    says(&proxy, &["config", "--log", "info", "-o", "json"]);
    says(&proxy, &["mode", "monitor"]);
    wait_for("the last switch to be logged", || proxy.logged(&["mode switched"]) == 2);
    assert_eq!(json(&proxy.get("/api/v1/log").1)["filter"], "info", "whoever may read may ask");
    wait_for("the changes to be in the audit trail", || {
        let text = std::fs::read_to_string(&trail).unwrap_or_default();
        let changes = text.lines().map(json);
        let changes = changes.filter(|line| line["event"] == "log-changed");
        let details: Vec<_> = changes.map(|line| line["detail"].clone()).collect();
        details
            == [
                "info -> info,lockwarden_console::admin=debug",
                "info,lockwarden_console::admin=debug -> error",
                "error -> info",
            ]
    });
}

#[test]
fn a_log_level_that_is_none_changes_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for wrong in ["debg", "lockwarden=loud", "[span]=info", "\u{1b}[2J", ""] {
        let said = ends_with(asks(&proxy, &["config", "--log", wrong]), 2);
        assert!(said.stderr.contains("debug"), "{said:?}");
        assert!(!said.stderr.contains('\u{1b}'), "{said:?}");
    }
    let mut stranger = lockwarden(&["config", "--log", "debug"]);
    stranger.env("LOCKWARDEN_ADMIN", proxy.admin_address().to_string());
    stranger.env("LOCKWARDEN_ADMIN_TOKEN", "a-wrong-admin-token");
    ends_with(stranger, 1);
    assert_eq!(says(&proxy, &["config", "--log"]), "info\n");
}

/// The setting of this key, in this table or on top of the file.
#[track_caller]
fn setting(proxy: &Proxy, table: Option<&str>, key: &str) -> Value {
    let told = json(&says(proxy, &["config", "-o", "json"]));
    let settings = told["settings"].as_array().expect("a list");
    let is_it = |one: &&Value| one["table"].as_str() == table && one["key"] == key;
    let found = settings.iter().find(is_it);
    found.unwrap_or_else(|| panic!("{key}: {told}")).clone()
}

#[test]
fn the_configuration_in_force_is_told_with_where_it_came_from() {
    let redis = Redis::start();
    let builder = Proxy::builder(&redis).top("drain", "\"7s\"");
    let text = builder.text();
    let line = 1 + text.lines().position(|line| line.starts_with("drain")).expect("it is in the file");
    let proxy = builder.environment("LOCKWARDEN_ALLOW_OPEN", "true").start();
    let drain = setting(&proxy, None, "drain");
    assert_eq!(drain["value"], "\"7s\"");
    let place = format!("{}:{line}", proxy.config().display());
    assert_eq!(drain["origin"], place);
    assert_eq!(drain["default"], false);
    let open = setting(&proxy, None, "allow_open");
    assert_eq!(open["origin"], "LOCKWARDEN_ALLOW_OPEN");
    assert_eq!(setting(&proxy, None, "sweep")["origin"], "default");
    // An order changes a mode, and a reload takes that back.
    let mode = |proxy: &Proxy| setting(proxy, Some("namespace locks"), "mode");
    assert_eq!(mode(&proxy)["value"], "\"enforce\"");
    says(&proxy, &["mode", "monitor"]);
    let ordered = mode(&proxy);
    assert_eq!((&ordered["value"], &ordered["origin"]), (&"\"monitor\"".into(), &"order".into()));
    // A setting that needs a restart is not in force before a restart.
    proxy.reload(&text.replace("\"7s\"", "\"9s\""));
    proxy.logs(&["configuration loaded"]);
    assert_eq!(mode(&proxy)["value"], "\"enforce\"");
    let drain = setting(&proxy, None, "drain");
    assert_eq!(drain["value"], "\"7s\"");
    assert_eq!(drain["after_restart"], "\"9s\"");
    let table = says(&proxy, &["config", "--changed"]);
    assert!(table.contains("after a restart: \"9s\""), "{table}");
    assert!(!table.contains("sweep"), "{table}");
    let all = says(&proxy, &["config"]) + &says(&proxy, &["config", "-o", "json"]);
    assert!(all.contains("sweep"), "{all}");
    assert!(!all.contains(ADMIN_TOKEN), "{all}");
}

/// Words for all these proxies.
fn asks_all(proxies: &[&Proxy], more: &[&str], words: &[&str]) -> Command {
    let mut command = lockwarden(words);
    command.env("LOCKWARDEN_ADMIN_TOKEN", ADMIN_TOKEN);
    let addresses = proxies.iter().map(|proxy| proxy.admin_address().to_string());
    let addresses: Vec<_> = addresses.chain(more.iter().map(|one| (*one).to_owned())).collect();
    command.arg("--fleet").arg(addresses.join(","));
    command
}

#[test]
fn a_fleet_is_asked_as_one_and_each_row_names_its_proxy() {
    let redis = Redis::start();
    let (one, two) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let (billing, stock) = (named(&one, "billing-7"), named(&two, "stock-2"));
    billing.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    stock.sends("SET lock:b b1 NX PX 60000").gets("+OK");
    let both = [&one, &two];
    let rows = |table: &str, word: &str| -> Vec<String> {
        let lines = table.lines().filter(|line| line.contains(word));
        lines.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    let addresses = [one.admin_address().to_string(), two.admin_address().to_string()];
    let locks = wait_for_value("both locks to be listed", || {
        let said = run_to_end(&mut asks_all(&both, &[], &["locks", "list"])).stdout;
        (said.contains("billing-7") && said.contains("stock-2")).then_some(said)
    });
    assert!(locks.starts_with("PROXY "), "{locks}");
    assert_eq!(rows(&locks, "lock:a"), addresses[..1], "{locks}");
    assert_eq!(rows(&locks, "lock:b"), addresses[1..], "{locks}");
    let clients = ends_with(asks_all(&both, &[], &["clients"]), 0).stdout;
    assert_eq!(rows(&clients, "billing-7"), addresses[..1], "{clients}");
    assert_eq!(rows(&clients, "stock-2"), addresses[1..], "{clients}");
    let modes = ends_with(asks_all(&both, &[], &["mode", "monitor"]), 0).stdout;
    assert_eq!(rows(&modes, "monitor"), addresses, "{modes}");
    for proxy in both {
        assert_eq!(setting(proxy, Some("namespace locks"), "mode")["origin"], "order");
    }
    let reloaded = ends_with(asks_all(&both, &[], &["reload"]), 0).stdout;
    for address in &addresses {
        assert!(reloaded.contains(&format!("{address}: 1 namespace in force")), "{reloaded}");
    }
    let said = ends_with(asks_all(&both, &[], &["drain"]), 0).stdout;
    assert_eq!(said.lines().count(), 2, "{said}");
    drop((billing, stock));
    assert_eq!(one.ends(), Some(0));
    assert_eq!(two.ends(), Some(0));
}

#[test]
fn a_proxy_that_does_not_answer_has_a_line_and_the_others_their_answers() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let _client = named(&proxy, "billing-7");
    // Nothing listens there: the port is reserved.
    let nobody = "127.0.0.1:1";
    for words in
        [&["clients"][..], &["locks", "list"], &["audit"], &["discover"], &["mode", "monitor"], &["config", "--log"]]
    {
        let said = ends_with(asks_all(&[&proxy], &[nobody], words), 1);
        assert!(said.stderr.contains("127.0.0.1:1: the admin address"), "{words:?}: {said:?}");
        assert!(!said.stdout.is_empty(), "{words:?}");
    }
    let said = ends_with(asks_all(&[&proxy], &[nobody], &["clients", "-o", "json"]), 1);
    let told = json(&said.stdout);
    let address = proxy.admin_address().to_string();
    assert_eq!(told["proxies"][0]["proxy"], address);
    assert_eq!(told["proxies"][0]["answer"]["matching"], 1);
    assert_eq!(told["proxies"][1]["proxy"], nobody);
    assert!(told["proxies"][1]["error"].is_string());
    // Where no proxy answers, the exit code is that of a single proxy.
    ends_with(asks_all(&[], &[nobody], &["clients"]), 3);
    ends_with(asks_all(&[&proxy], &["localhost"], &["clients"]), 2);
}

#[test]
fn audit_tells_what_each_proxy_saw_and_ends_with_one_verdict() {
    let redis = Redis::start();
    let (one, two) = (Proxy::monitoring(&redis), Proxy::monitoring(&redis));
    let both = [&one, &two];
    for (proxy, releases) in [(&one, 2), (&two, 3)] {
        let (holder, stranger) = (named(proxy, "billing"), named(proxy, "stock"));
        for _ in 0..releases {
            holder.sends("SET lock:a a1 NX PX 60000").gets("+OK");
            stranger.sends("DEL lock:a").gets(":1");
        }
    }
    let refused = |told: &Value, at: usize| {
        let report = &told["proxies"][at]["answer"];
        report["namespaces"][0]["would_refuse"].as_u64()
    };
    wait_for("all releases to be reported", || {
        let said = run_to_end(&mut asks_all(&both, &[], &["audit", "-o", "json"]));
        let told = json(&said.stdout);
        (refused(&told, 0), refused(&told, 1)) == (Some(2), Some(3))
    });
    let said = ends_with(asks_all(&both, &[], &["audit", "--all"]), 1).stdout;
    for proxy in both {
        assert!(said.contains(&format!("proxy {}\nWhat was seen in the last ", proxy.admin_address())), "{said}");
    }
    assert!(said.ends_with("\n2 proxies: not ready: locks\n"), "{said}");
    // The answers of the other proxies, a line for the silent one, and an exit code that shows it.
    let said = ends_with(asks_all(&both, &["127.0.0.1:1"], &["audit"]), 1);
    assert!(said.stdout.ends_with("\n2 proxies: not ready: locks\n"), "{said:?}");
    assert!(said.stderr.contains("127.0.0.1:1: the admin"), "{said:?}");
    // One proxy that is asked without a fleet has no line of verdict.
    assert!(!ends_with(asks(&one, &["audit"]), 1).stdout.contains("not ready: locks"));
}

#[test]
fn discover_tells_what_each_proxy_saw_and_ends_with_one_verdict() {
    let redis = Redis::start();
    let (one, two) = (Proxy::monitoring(&redis), Proxy::monitoring(&redis));
    let both = [&one, &two];
    let worker = named(&one, "worker");
    for number in 0..15 {
        let key = format!("job:{number}:mutex");
        worker.sends(format!("SET {key} w NX PX 30000")).gets("+OK");
        worker.sends(format!("DEL {key}")).gets(":1");
    }
    wait_for("all that was taken to be told", || {
        let said = run_to_end(&mut asks_all(&both, &[], &["discover", "-o", "json"]));
        json(&said.stdout)["proxies"][0]["answer"]["patterns"][0]["granted"] == 15
    });
    let said = ends_with(asks_all(&both, &[], &["discover"]), 1).stdout;
    let [first, second] = both.map(|proxy| proxy.admin_address().to_string());
    assert_eq!(said.matches("job:*:mutex  ").count(), 1, "{said}");
    assert!(said.starts_with(&format!("proxy {first}\n")) && said.contains(&format!("\nproxy {second}\n")), "{said}");
    assert!(said.ends_with(&format!("\n2 proxies: locks that are in no namespace were seen by {first}\n")), "{said}");
    let toml = ends_with(asks_all(&both, &[], &["discover", "-o", "toml"]), 1).stdout;
    assert_eq!(toml.matches("[[namespace]]").count(), 1, "{toml}");
    // Pasted as it is, behind what there was.
    let file = one.directory().join("pasted.toml");
    let text = std::fs::read_to_string(one.config()).expect("its configuration");
    std::fs::write(&file, format!("{text}\n{toml}")).expect("the directory is ours");
    let file = file.display().to_string();
    ends_with(lockwarden(&["check", "-c", &file]), 0);
}
