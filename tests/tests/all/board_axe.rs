//! axe-core looks for what keeps people from using the board: contrast, names, order, roles. `.ci/setup.sh --tests`
//! installs it by npm; on a developer's machine without it the test is skipped and says so.

use std::path::Path;

use lockwarden_tests::{Browser, Proxy, ProxyBuilder, Redis, Sentinels, installed, wait_for, wait_for_value};
use serde_json::Value;

/// The findings of axe on the open page, a line each.
fn found(browser: &mut Browser) -> Vec<String> {
    let said = browser.evaluates(
        "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.flatMap((rule) =>
            rule.nodes.map((node) => `${rule.id}: ${rule.help}: ${node.html.slice(0, 120)}: ${node.failureSummary}`)))",
    );
    let said = said.as_array().expect("a list");
    said.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A browser, and axe as it is run in a page; `None` where either is lacking.
fn browser_with_axe() -> Option<(Browser, String)> {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/axe/node_modules/axe-core/axe.min.js");
    // The file need not be executable; it must only exist.
    if !axe.is_file() && !installed(&[&axe.to_string_lossy()]) {
        return None;
    }
    let browser = Browser::start()?;
    Some((browser, std::fs::read_to_string(axe).expect("it is there")))
}

/// The findings of axe on these pages in every size and colour scheme, a line each.
fn wrong_on(pages: &[&str], proxy: &Proxy, browser: &mut Browser, axe: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in pages {
        browser.open(&format!("http://{}{path}", proxy.admin_address()));
        browser.evaluates(axe);
        for size in [(1280, 900), (375, 740)] {
            for scheme in ["light", "dark"] {
                browser.is_sized(size);
                browser.is_lit(scheme);
                let found = found(browser);
                wrong.extend(found.iter().map(|one| format!("{path} {size:?} {scheme}: {one}")));
            }
        }
    }
    wrong
}

#[test]
fn axe_finds_nothing_on_any_page_in_any_size_and_light() {
    let Some((mut browser, axe)) = browser_with_axe() else {
        return;
    };
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .more("[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\nmode = \"monitor\"\n")
        .more("[[guard]]\nname = \"stock\"\nkeys = [\"stock:{id}\"]\nlock = \"lock:{id}\"\nproofs = [\"session\"]\nmode = \"enforce\"\n")
        .start();
    let [alice, bob] = ["alice", "bob"].map(|name| {
        let client = proxy.client();
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        client
    });
    // Something in every part of the page: refusals, locks with and without TTL, circles, guarded data, discovery.
    for _ in 0..25 {
        alice.sends("SETNX order:7:busy 1").gets(":1");
        alice.sends("DEL order:7:busy").gets(":1");
    }
    alice.sends("SETNX watched:a 1").gets(":1");
    bob.sends("SETNX watched:b 1").gets(":1");
    bob.sends("DEL watched:a").gets(":1");
    alice.sends("SETNX watched:a 1").gets(":1");
    alice.sends("SET lock:a a1 NX PX 30000").gets("+OK");
    bob.sends("SET lock:b b1 NX PX 30000").gets("+OK");
    alice.sends("SET stock:a 7").gets("+OK");
    bob.sends("SET stock:a 8").gets_error("LOCKDENIED");
    for _ in 0..3 {
        alice.sends("SET lock:b a1 NX PX 30000").gets("nil");
        bob.sends("SET lock:a b1 NX PX 30000").gets("nil");
    }
    bob.sends("DEL lock:a").gets(":0");
    wait_for_value("everything to be known", || {
        let all = ["/api/v1/discovery", "/api/v1/overview", "/api/v1/hot"].map(|path| proxy.get(path).1);
        let known = all[0].contains("\"unclaimed\":1")
            && all[1].contains("\"refused_last_hour\":2")
            && all[2].contains("\"waits_for\"");
        known.then_some(())
    });
    let refusals: Value = serde_json::from_str(&proxy.get("/api/v1/decisions").1).expect("JSON");
    let why = format!("/why?id={}", refusals[0]["id"].as_str().expect("an id"));
    let pages = [
        "/",
        "/?lock=lock%3Aa&db=0",
        "/discovery",
        "/reasons",
        &why,
        "/application?name=bob",
        "/patterns",
        "/pattern?glob=lock%3Aa&namespace=locks",
        "/pattern?glob=watched%3Aa",
        "/report?since=1h",
    ];
    let wrong = wrong_on(&pages, &proxy, &mut browser, &axe);
    // It does look: an image without words is found.
    browser.evaluates("document.querySelector('main').append(document.createElement('img'))");
    assert!(!found(&mut browser).is_empty(), "axe finds nothing at all");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn axe_finds_nothing_on_the_pages_that_tell_of_a_failover() {
    let Some((mut browser, axe)) = browser_with_axe() else {
        return;
    };
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let careful = "[[namespace]]\nname = \"careful\"\nkeys = [\"careful:*\"]\nmode = \"enforce\"\nquarantine = \"10m\"";
    let proxy = ProxyBuilder::for_backend(&all.url()).more(careful).start();
    let alice = proxy.client();
    alice.sends("CLIENT SETNAME alice").gets("+OK");
    let old = all.primary().expect("nothing has happened");
    all.cuts_off_server(old);
    alice.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    // A sentinel that does not answer is shown with the reason.
    all.kills_sentinel(2);
    let lost = wait_for_value("the lease to be lost", || {
        let lost = proxy.api("lost");
        lost[0]["id"].as_str().map(str::to_owned)
    });
    // Its end is known once most sentinels name the new primary.
    for words in ["What the sentinels of", "quarantine until", "Lost in failovers"] {
        wait_for(words, || proxy.get("/").1.contains(words));
    }
    let why = format!("/why?id={lost}");
    let pages = ["/", "/?lock=lock%3Aa&db=0", &why, "/application?name=alice"];
    let wrong = wrong_on(&pages, &proxy, &mut browser, &axe);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
