//! axe-core looks for what keeps people from using the board: contrast, names, order, roles. `.ci/setup.sh --tests`
//! installs it by npm; at a desk without it the test is skipped and says so.

use std::path::Path;

use lockwarden_tests::{Browser, Proxy, Redis, installed, wait_for_value};
use serde_json::Value;

/// What axe finds on the open page, a line each.
fn found(browser: &mut Browser) -> Vec<String> {
    let said = browser.evaluates(
        "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.flatMap((rule) =>
            rule.nodes.map((node) => `${rule.id}: ${rule.help}: ${node.html.slice(0, 120)}: ${node.failureSummary}`)))",
    );
    let said = said.as_array().expect("a list");
    said.iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[test]
fn axe_finds_nothing_on_any_page_in_any_size_and_light() {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/axe/node_modules/axe-core/axe.min.js");
    // A file that may be run is not wanted, but one that is there.
    if !axe.is_file() && !installed(&[&axe.to_string_lossy()]) {
        return;
    }
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let axe = std::fs::read_to_string(axe).expect("it is there");
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .more("[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\nmode = \"monitor\"\n")
        .start();
    let [alice, bob] = ["alice", "bob"].map(|name| {
        let client = proxy.client();
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        client
    });
    // Something in every part of the page: refusals, locks with and without TTL, circles, discovery.
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
    for _ in 0..3 {
        alice.sends("SET lock:b a1 NX PX 30000").gets("nil");
        bob.sends("SET lock:a b1 NX PX 30000").gets("nil");
    }
    bob.sends("DEL lock:a").gets(":0");
    wait_for_value("everything to be known", || {
        let all =
            ["/api/v1/discovery", "/api/v1/overview", "/api/v1/hot"].map(|path| proxy.get(path).1);
        let known = all[0].contains("\"unclaimed\":1")
            && all[1].contains("\"refused_last_hour\":1")
            && all[2].contains("\"waits_for\"");
        known.then_some(())
    });
    let refusals: Value = serde_json::from_str(&proxy.get("/api/v1/decisions").1).expect("JSON");
    let why = format!("/why?id={}", refusals[0]["id"].as_str().expect("an id"));
    let mut wrong = Vec::new();
    for path in [
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
    ] {
        browser.open(&format!("http://{}{path}", proxy.admin_address()));
        browser.evaluates(&axe);
        for size in [(1280, 900), (375, 740)] {
            for scheme in ["light", "dark"] {
                browser.is_sized(size);
                browser.is_lit(scheme);
                let found = found(&mut browser);
                wrong.extend(
                    found
                        .iter()
                        .map(|one| format!("{path} {size:?} {scheme}: {one}")),
                );
            }
        }
    }
    // It does look: an image without words is found.
    browser.evaluates("document.querySelector('main').append(document.createElement('img'))");
    assert!(!found(&mut browser).is_empty(), "axe finds nothing at all");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
