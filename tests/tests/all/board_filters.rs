//! The board's first sentences, which name who did what to whose lock, and its filters by namespace, application,
//! reason, pattern of keys and time. The filters stand in the page's address, and work the same in the API.

use lockwarden_tests::{Browser, Proxy, Redis, wait_for_value};
use serde_json::json;

struct Estate {
    _redis: Redis,
    proxy: Proxy,
}

/// Payments tries twelve times to delete what billing holds; in a watched namespace stock-5 deletes two locks of
/// stock-2, each once; and once payments tries to write over a lock.
fn estate() -> Estate {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .more("[[namespace]]\nname = \"stock\"\nkeys = [\"stock:*\"]\nmode = \"monitor\"\n")
        .start();
    let [billing, payments, stock_2, stock_5] = ["billing", "payments-worker", "stock-2", "stock-5"].map(|name| {
        let client = proxy.client();
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        client
    });
    for round in 0..12 {
        billing.sends(format!("SET lock:invoice:7 b{round} NX PX 9000")).gets("+OK");
        payments.sends("DEL lock:invoice:7").gets(":0");
        billing.sends("DEL lock:invoice:7").gets(":1");
    }
    billing.sends("SET lock:order:1 b NX PX 9000").gets("+OK");
    payments.sends("SET lock:order:1 p").gets_error("LOCKDENIED overwrite");
    for key in ["stock:1", "stock:2"] {
        stock_2.sends(format!("SETNX {key} 1")).gets(":1");
        stock_5.sends(format!("DEL {key}")).gets(":1");
    }
    wait_for_value("all to be known", || (proxy.api("decisions").as_array()?.len() == 15).then_some(()));
    Estate { _redis: redis, proxy }
}

#[test]
fn the_first_sentences_name_the_lock_who_held_it_and_who_did_what_how_often() {
    let estate = estate();
    let told = estate.proxy.api("incidents");
    let sentences: Vec<&str> =
        told.as_array().expect("a list").iter().filter_map(|incident| incident["sentence"].as_str()).collect();
    assert_eq!(
        sentences,
        [
            "payments-worker was kept from deleting lock:invoice:7, which billing held, 12 times",
            "stock-5 deleted stock:2 and 1 more lock, which stock-2 held, twice",
            "payments-worker was kept from writing over lock:order:1, which billing held, once",
        ]
    );
    assert_eq!(told[0]["holder"], "billing", "{told}");
    assert_eq!((&told[1]["keys"], &told[1]["decision"]), (&json!(2), &json!("would-deny")));
    let id = told[0]["id"].as_str().expect("an id");
    let page = estate.proxy.get("/").1;
    let notices = page.split("id=\"notices\"").nth(1).expect("the part");
    let first = notices.split("</li>").next().expect("a sentence");
    for part in [
        "<b>payments-worker</b>",
        "was kept from deleting",
        "/?lock=lock%3Ainvoice%3A7&amp;db=0",
        ", which billing held, 12 times",
        &format!("/why?id={id}"),
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let narrowed = estate.proxy.api("incidents?application=stock-5");
    assert_eq!(narrowed.as_array().map(Vec::len), Some(1));
}

#[test]
fn filters_narrow_the_page_and_the_api_alike_without_script() {
    let estate = estate();
    let proxy = &estate.proxy;
    for (filter, count) in [
        ("", 15),
        ("namespace=stock", 2),
        ("application=payments-worker", 13),
        ("reason=overwrite", 1),
        ("reason=not-owner", 14),
        ("pattern=lock%3Ainvoice%3A%2A", 12),
        ("pattern=stock%3A%5B1%5D", 1),
        ("contains=invoice", 12),
        ("since=1h", 15),
        ("since=last-change", 15),
        ("since=2100-01-01T00:00:00Z", 0),
        ("application=payments-worker&reason=not-owner&since=15m&pattern=lock%3A%2A", 12),
        ("application=nobody", 0),
    ] {
        let all = proxy.api(&format!("decisions?{filter}"));
        assert_eq!(all.as_array().map(Vec::len), Some(count), "{filter}");
        let (status, page) = proxy.get(&format!("/?{filter}"));
        assert_eq!(status, 200, "{filter}");
        let refusals = page.split("id=\"refusals\"").nth(1).expect("the part");
        let refusals = refusals.split("id=\"clients\"").next().unwrap_or_default();
        assert_eq!(refusals.matches("Why, and what to do").count(), count, "{filter}");
        // Where the page leads for a file, the same is narrowed.
        let file = refusals.split("href=\"").nth(1).unwrap_or_default();
        let file = file.split('"').next().unwrap_or_default();
        let file = file.replace("&amp;", "&");
        let file = file.strip_prefix("/api/v1/").expect("the list as JSON");
        assert_eq!(proxy.api(file).as_array().map(Vec::len), Some(count), "{file}");
    }
    // Held locks, too.
    let page = proxy.get("/?pattern=lock%3Aorder%3A%2A&application=billing").1;
    assert!(page.contains("Held locks <span class=\"many\">1</span>"), "{page}");
    let page = proxy.get("/?application=payments-worker").1;
    assert!(page.contains("No held lock matches."), "{page}");
    // Since a moment, as the API was always asked.
    let newest = proxy.api("decisions?limit=1")[0]["at"].clone();
    let later = proxy.api(&format!("decisions?since={newest}"));
    assert_eq!(later, json!([]));
    for mistake in ["reason=no-owner", "since=yesterday", "pattern=%5Cq"] {
        for path in ["/", "/api/v1/decisions"] {
            assert_eq!(proxy.get(&format!("{path}?{mistake}")).0, 400, "{path} {mistake}");
        }
    }
}

#[test]
fn a_filter_that_is_chosen_stays_in_the_form_and_in_the_address_of_the_page() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let estate = estate();
    browser.open(&format!("http://{}/", estate.proxy.admin_address()));
    browser.shows("Live");
    browser.evaluates("document.querySelector('[name=application]').value = 'stock-5'");
    browser.evaluates(
        "(() => { const reason = document.querySelector('[name=reason]'); reason.value = 'not-owner'; reason.onchange(); })()",
    );
    browser.becomes_true("location.search.includes('application=stock-5')");
    browser.becomes_true("document.querySelectorAll('#refusals tbody tr').length === 2");
    let chosen = "[document.querySelector('[name=application]').value, document.querySelector('[name=reason]').value]";
    assert_eq!(browser.evaluates(chosen), json!(["stock-5", "not-owner"]));
    // What comes by events is narrowed as well: nothing else appears.
    browser.shows("Live");
    let other = estate.proxy.client();
    other.sends("DEL lock:order:1").gets(":0");
    other.sends("CLIENT SETNAME stock-5").gets("+OK");
    other.sends("SET stock:9 1 NX PX 9000").gets("+OK");
    let third = estate.proxy.client();
    third.sends("CLIENT SETNAME stock-5").gets("+OK");
    third.sends("DEL stock:9").gets(":1");
    browser.becomes_true("document.querySelectorAll('#refusals tbody tr').length === 3");
    let text = browser.evaluates("document.querySelector('#refusals').innerText");
    let text = text.as_str().unwrap_or_default();
    assert!(text.contains("stock:9") && !text.contains("lock:order:1"), "{text}");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn each_reason_leads_to_what_it_means() {
    let estate = estate();
    let page = estate.proxy.get("/").1;
    assert!(page.contains("href=\"/reasons#not-owner\""), "{page}");
    let (status, reasons) = estate.proxy.get("/reasons");
    assert_eq!(status, 200);
    for part in [
        "id=\"not-owner\"",
        "no proof that this client holds the lock",
        "What to do: ",
        "href=\"/?reason=overwrite#refusals\"",
    ] {
        assert!(reasons.contains(part), "{part}: {reasons}");
    }
}
