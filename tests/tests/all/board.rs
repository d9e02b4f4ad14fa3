//! The lock board as a person sees it in a browser: without script, with hostile names, with very many locks,
//! and without a backend. Also what the admin address may never show or do.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lockwarden_tests::{
    Browser, Client, Mode, Proxy, ProxyBuilder, Redis, encode, lockwarden, run_to_end, wait_for, wait_for_value,
};
use serde_json::{Value, json};

fn page(proxy: &Proxy) -> String {
    format!("http://{}/", proxy.admin_address())
}

fn json_of(proxy: &Proxy, path: &str) -> Value {
    let (status, body) = proxy.get(path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

#[test]
fn a_lock_appears_on_an_open_page_and_goes_by_itself() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    browser.open(&page(&proxy));
    browser.shows("Nobody holds a lock.");
    browser.evaluates("window.stayed = true");
    let alice = proxy.client();
    alice.sends("CLIENT SETNAME billing-7").gets("+OK");
    alice.sends("SET lock:order:42 a1 NX PX 9000").gets("+OK");
    browser.shows("lock:order:42");
    browser.shows("billing-7");
    browser.shows(&redis.fence("lock:order:42").to_string());
    // Ages go on between the events, by the page's own clock.
    let age = "document.querySelector('.locks [data-since]').textContent";
    let before = browser.evaluates(age);
    browser.becomes_true(&format!("{age} !== {before}"));
    alice.sends("DEL lock:order:42").gets(":1");
    browser.becomes_true("!document.querySelector('#locks').innerText.includes('lock:order:42')");
    assert_eq!(browser.evaluates("window.stayed"), json!(true), "the page was not loaded anew");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_paused_page_stays_as_it_is_until_it_goes_on() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    browser.open(&page(&proxy));
    browser.shows("Live");
    browser.evaluates("document.getElementById('pause').click()");
    browser.shows("Paused at");
    proxy.client().sends("SET lock:a a1 NX PX 9000").gets("+OK");
    wait_for("the API to know", || json_of(&proxy, "/api/v1/locks")["matching"] == json!(1));
    browser.shows("Nobody holds a lock.");
    browser.evaluates("document.getElementById('pause').click()");
    browser.shows("lock:a");
}

#[test]
fn names_that_look_like_script_are_text_and_run_nothing() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let evil = "lock:<script>window.hit=1</script><img/src=x/onerror='window.hit=1'>\"onfocus=window.hit=1//";
    let hidden = "lock:\u{202e}gpj.exe\u{200b}";
    let alice = proxy.client();
    alice.sends_arguments(&["CLIENT", "SETNAME", "<svg/onload=window.hit=1>"]).gets("+OK");
    let (bob, taken) = (proxy.client(), "+OK");
    alice.sends_arguments(&["SET", evil, "a1", "NX", "PX", "9000"]).gets(taken);
    browser.open(&page(&proxy));
    browser.shows("<script>window.hit=1</script>");
    // By an event, too, and in every part that can show it.
    alice.sends_arguments(&["SET", hidden, "a1", "NX", "PX", "9000"]).gets(taken);
    bob.sends_arguments(&["DEL", evil]).gets(":0");
    browser.shows(r"lock:\xe2\x80\xaegpj.exe\xe2\x80\x8b");
    browser.becomes_true("document.querySelector('#refusals').innerText.includes('<script>')");
    browser.evaluates("document.querySelector('.locks tbody a[href*=script]').click()");
    browser.shows("What happened lately");
    assert_eq!(browser.evaluates("document.querySelector('#detail-head').textContent"), json!(evil));
    let held = browser.evaluates("document.querySelector('.detail').textContent");
    assert!(held.as_str().is_some_and(|text| text.contains("<svg/onload=window.hit=1>")), "{held}");
    assert_eq!(browser.evaluates("typeof window.hit"), json!("undefined"));
    assert_eq!(browser.evaluates("document.scripts.length"), json!(1));
    assert_eq!(browser.evaluates("document.querySelectorAll('main img, main svg').length"), json!(0));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Takes locks `lock:n:0` to `lock:n:9999`.
fn ten_thousand(client: &Client) {
    for thousand in 0..10 {
        let requests: Vec<u8> = (0..1_000)
            .flat_map(|one| {
                let key = format!("lock:n:{}", thousand * 1_000 + one);
                encode(&["SET", &key, "a1", "NX", "PX", "600000"])
            })
            .collect();
        client.write(&requests);
        for _ in 0..1_000 {
            client.then().gets("+OK");
        }
    }
}

#[test]
fn of_ten_thousand_locks_the_page_shows_some_and_says_so() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("1h").start();
    let client = proxy.client();
    ten_thousand(&client);
    let body = wait_for_value("all to be known", || {
        let body = proxy.get("/").1;
        body.contains("These are 200 of 10,000").then_some(body)
    });
    assert_eq!(body.matches("<tr").count(), 1 + 200 + namespaces_and_policies(&body));
    let (_, all) = proxy.get("/api/v1/locks?limit=10000&format=csv");
    assert_eq!(all.lines().count(), 10_001);
    let (_, more) = proxy.get("/?limit=1000000");
    assert!(more.contains("These are 1,000 of 10,000"));
    let (_, one) = proxy.get("/?contains=n:4711");
    assert!(one.contains("lock:n:4711"));
    assert!(!one.contains("lock:n:4712"));

    let Some(mut browser) = Browser::start() else {
        return;
    };
    browser.open(&page(&proxy));
    browser.shows("These are 200 of 10,000");
    browser.shows("Live");
    client.sends("DEL lock:n:0").gets(":1");
    browser.shows("These are 200 of 9,999");
}

/// Rows of the other tables of a page where nothing but locks is to be seen.
fn namespaces_and_policies(page: &str) -> usize {
    let other = page.split("id=\"refusals\"").nth(1).unwrap_or_default();
    other.matches("<tr").count()
}

#[test]
fn the_page_is_complete_without_script() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    assert!(proxy.get("/").1.contains("SET 'lock:try' me NX PX 30000"));
    alice.sends("CLIENT SETNAME billing-7").gets("+OK");
    bob.sends("CLIENT SETNAME billing-3").gets("+OK");
    alice.sends("SET lock:order:42 a1 NX PX 9000").gets("+OK");
    bob.sends("DEL lock:order:42").gets(":0");
    let body = wait_for_value("the refusal to be shown", || {
        let body = proxy.get("/?lock=lock:order:42&namespace=locks&contains=order").1;
        // Its parts are looked up one after the other, and the refusal may come between them.
        (body.contains("not-owner") && body.contains("/why?id=")).then_some(body)
    });
    for part in [
        "lock:order:42",
        "billing-7",
        "billing-3",
        "<progress",
        "/why?id=",
        "curl -X POST",
        "lockwarden locks break",
        "value=\"order\"",
        "<option value=\"locks\" selected>",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert!(!body.contains(" style=") && !body.contains("onclick"), "nothing inline: {body}");
    for (path, kind) in [("board.css", "body"), ("board.js", "EventSource"), ("icon.svg", "<svg")] {
        let (status, file) = proxy.get(&format!("/board/{path}"));
        assert!(status == 200 && file.contains(kind), "{path}");
    }
    assert_eq!(proxy.get("/?db=no").0, 400);
}

#[test]
fn a_refusal_opens_the_words_of_lockwarden_why_and_says_who_held_the_lock() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .more("[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\nmode = \"monitor\"\n")
        .start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("CLIENT SETNAME billing").gets("+OK");
    bob.sends_arguments(&["CLIENT", "SETNAME", "<i>payments"]).gets("+OK");
    for (key, deleted) in [("lock:invoice:7", ":0"), ("watched:invoice:7", ":1")] {
        alice.sends(format!("SET {key} a1 NX PX 9000")).gets("+OK");
        bob.sends(format!("DEL {key}")).gets(deleted);
    }
    let refusals = wait_for_value("both to be known", || {
        let all = json_of(&proxy, "/api/v1/decisions");
        (all.as_array()?.len() == 2).then_some(all)
    });
    let admin = proxy.admin_address().to_string();
    for refusal in refusals.as_array().expect("a list") {
        let id = refusal["id"].as_str().expect("an id");
        let told = &json_of(&proxy, &format!("/api/v1/why/{id}"))[0];
        assert_eq!(told["holder"]["application"], "billing", "{told}");
        assert_eq!(&told["decision"], refusal);
        let asked = ["why", id, "--admin", &admin];
        let terminal = run_to_end(&mut lockwarden(&asked)).stdout;
        let (status, page) = proxy.get(&format!("/why?id={id}"));
        assert_eq!(status, 200);
        let lines = told["lines"].as_array().expect("lines");
        assert!(lines.len() >= 5, "{told}");
        for words in lines.iter().map(|line| &line["words"]).chain([&told["headline"]]) {
            let words = words.as_str().expect("words");
            assert!(terminal.contains(words), "{words}: {terminal}");
            let escaped = words.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            assert!(page.contains(&escaped), "{escaped}: {page}");
        }
        assert!(terminal.contains("granted to billing"), "{terminal}");
        assert!(!page.contains("<i>payments"), "{page}");
    }
    let (status, page) = proxy.get("/why?id=NOSUCH");
    assert_eq!(status, 404);
    assert!(page.contains("lockwarden why NOSUCH --log audit.jsonl"), "{page}");
    assert_eq!(proxy.get("/api/v1/why/NOSUCH").0, 404);
    assert_eq!(proxy.get("/why").0, 400);
}

#[test]
fn a_backend_that_is_gone_is_the_first_thing_to_read_and_its_return_is_seen() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let mut redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    browser.open(&page(&proxy));
    browser.shows("● up");
    redis.stop();
    browser.shows("No client is served.");
    browser.shows("▲ down");
    redis.start_again();
    browser.shows("● up");
    browser.becomes_true("!document.body.innerText.includes('No client is served.')");
}

/// Asks for events and returns the status and a reader of what follows.
fn listens(to: SocketAddr) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(to).expect("the admin address is open");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    write!(stream, "GET /events HTTP/1.1\r\nHost: {to}\r\n\r\n").expect("it reads");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("it answers");
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.expect("a status"), reader)
}

#[test]
fn so_many_pages_are_kept_up_to_date_and_a_place_is_free_again_when_one_goes() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let mut open: Vec<_> = (0..16).map(|_| listens(proxy.admin_address())).collect();
    assert!(open.iter().all(|(status, _)| *status == 200));
    assert_eq!(listens(proxy.admin_address()).0, 503);
    assert_eq!(proxy.get("/").0, 200, "the page itself is for everybody");
    open.pop();
    let again = wait_for_value("a place to be free", || {
        let again = listens(proxy.admin_address());
        (again.0 == 200).then_some(again)
    });
    let mut lines = again.1.lines().map_while(Result::ok);
    let event = lines.find_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
    let event: Value = serde_json::from_str(&event.expect("an event")).expect("JSON");
    assert!(event["parts"]["locks"].as_str().is_some_and(|part| part.contains("Nobody holds")), "{event}");
}

#[test]
fn lists_can_be_had_as_csv_in_which_no_cell_is_a_formula() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("keys", "[\"lock:*\", \"=*\"]").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends_arguments(&["SET", "=1+1,\"x\"", "a1", "NX", "PX", "9000"]).gets("+OK");
    bob.sends_arguments(&["DEL", "=1+1,\"x\""]).gets(":0");
    for path in ["/api/v1/locks?format=csv", "/api/v1/decisions?format=csv"] {
        let table = wait_for_value("a row", || {
            let table = proxy.get(path).1;
            (table.lines().count() == 2).then_some(table)
        });
        assert!(table.contains("\"'=1+1,\"\"x\"\"\""), "{table}");
    }
    assert_eq!(proxy.get("/api/v1/locks?format=xml").0, 400);
}

/// Every address that can be read.
const READABLE: [&str; 26] = [
    "/",
    "/?lock=lock:a",
    "/?lock=lock:b&problems=1",
    "/metrics",
    "/live",
    "/ready",
    "/api/v1/overview",
    "/api/v1/locks",
    "/api/v1/locks?format=csv",
    "/api/v1/locks/lock:a",
    "/api/v1/locks/lock:b",
    "/api/v1/decisions",
    "/api/v1/decisions?format=csv",
    "/api/v1/clients",
    "/api/v1/policies",
    "/api/v1/hot",
    "/api/v1/report",
    "/api/v1/config",
    "/api/v1/incidents",
    "/api/v1/patterns?history=true",
    "/application?name=127.16.0.1",
    "/patterns",
    "/pattern?glob=lock:a",
    "/pattern?glob=lock:b",
    "/report",
    "/discovery",
];

fn no_owner_token_is_shown(configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder) {
    const TOKENS: [&str; 6] = [
        "owner-1b671a64-40d5",
        "owner-2f1c9e0e-88aa",
        "owner-3d2a7c15-91be",
        "owner-4e9b8d26-03cf",
        "owner-5a8c7e37-14d0",
        "owner-6b7d6f48-25e1",
    ];
    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    const UNKNOWN: &str = "redis.call('set', KEYS[1], ARGV[1], 'px', 9000) return {KEYS[1], ARGV[1]}";
    let redis = Redis::start();
    let proxy = configure(Proxy::builder(&redis)).start();
    let (alice, bob, carol) = (proxy.client(), proxy.client(), proxy.client());
    let [a, b, c, d, e, f] = TOKENS;
    let all: [(&Client, Vec<&str>); 14] = [
        (&alice, vec!["SET", "lock:a", a, "NX", "PX", "9000"]),
        (&bob, vec!["SET", "lock:a", b, "NX", "PX", "9000"]),
        (&bob, vec!["SETNX", "lock:a", b]),
        (&bob, vec!["SET", "lock:a", c]),
        (&bob, vec!["GETSET", "lock:a", c]),
        (&bob, vec!["APPEND", "lock:a", d]),
        (&bob, vec!["EVAL", RELEASE, "1", "lock:a", d]),
        (&bob, vec!["EVAL", UNKNOWN, "1", "lock:a", e]),
        (&bob, vec!["DEL", "lock:a"]),
        (&alice, vec!["SETNX", "lock:b", f]),
        (&carol, vec!["SETNX", "lock:b", f]),
        (&carol, vec!["SET", "lock:b", f, "XX", "IFEQ", f]),
        (&alice, vec!["EVAL", RELEASE, "1", "lock:b", f]),
        (&carol, vec!["SETNX", "lock:b", f]),
    ];
    for (client, words) in all {
        // The replies are the subject of other tests; GETSET may return the value to the client that asks.
        client.sends_arguments(&words).reply();
    }
    wait_for("the view to have seen it all", || {
        let detail = proxy.get("/api/v1/locks/lock:b").1;
        serde_json::from_str::<Value>(&detail)
            .is_ok_and(|detail| detail["timeline"].as_array().is_some_and(|moments| moments.len() >= 4))
    });
    let order = json!({ "fence": redis.fence("lock:b"), "reason": "test" }).to_string();
    let mut shown = vec![("break", proxy.orders("/api/v1/locks/lock:b/break", &order).1)];
    shown.extend(READABLE.map(|path| (path, proxy.get(path).1)));
    let (_, events) = listens(proxy.admin_address());
    let mut lines = events.lines().map_while(Result::ok);
    let event = lines.find(|line| line.starts_with("data: ")).expect("an event");
    shown.push(("events", event));
    let admin = proxy.admin_address().to_string();
    for words in [
        &["locks", "list"][..],
        &["locks", "show", "lock:a"],
        &["locks", "list", "-o", "json"],
        &["audit"],
        &["audit", "--all"],
        &["audit", "-o", "json"],
    ] {
        let done = run_to_end(&mut lockwarden(&[words, &["--admin", &admin]].concat()));
        assert!(done.code != Some(2) && done.code != Some(3), "{words:?}: {done:?}");
        shown.push((words[0], done.stdout + &done.stderr));
    }
    shown.push(("the log", proxy.log()));
    for (place, text) in &shown {
        for token in TOKENS {
            assert!(!text.contains(token), "{place} shows {token}: {text}");
        }
    }
    // The same look finds what is no secret, so it would have found a token.
    assert!(shown.iter().filter(|(_, text)| text.contains("lock:a")).count() >= 6);
}

#[test]
fn no_owner_token_is_shown_anywhere_enforced() {
    no_owner_token_is_shown(|proxy| proxy);
}

#[test]
fn no_owner_token_is_shown_anywhere_monitored() {
    no_owner_token_is_shown(|proxy| proxy.mode(Mode::Monitor));
}

#[test]
fn reading_changes_nothing_and_orders_need_the_admin_token() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    let before = redis.lease("lock:a");
    for path in READABLE {
        proxy.get(path);
    }
    for path in ["/api/v1/mode?mode=monitor", "/api/v1/reload", "/mode?mode=monitor", "/reload"] {
        assert_eq!(proxy.get(path).0, 405, "{path}");
    }
    let fence = redis.fence("lock:a");
    let order = format!("{{\"fence\":{fence},\"reason\":\"x\"}}");
    for token in [None, Some("wrong")] {
        let status = proxy.post_with(token, "/api/v1/locks/lock:a/break", &order).0;
        assert_eq!(status, 401, "{token:?}");
        assert_eq!(proxy.post_with(token, "/api/v1/mode?mode=monitor", "").0, 401);
    }
    let after = redis.lease("lock:a");
    assert_eq!((before.0, before.2), (after.0, after.2));
    assert_eq!(json_of(&proxy, "/api/v1/config")[0]["mode"], json!("enforce"));
    let (status, body) = proxy.orders("/api/v1/mode", "{\"mode\":\"monitor\"}");
    assert_eq!(status, 200, "{body}");
    assert_eq!(json_of(&proxy, "/api/v1/config")[0]["mode"], json!("monitor"));
    assert_eq!(proxy.orders("/api/v1/reload", "").0, 200);
}
