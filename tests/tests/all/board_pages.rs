//! The board's pages about one application, about one pattern of keys with its last leases, and about the applications that
//! would break since a given time: what they say, how a person gets there, and that hostile names are shown as text.

use lockwarden_tests::{Browser, Client, Proxy, Redis, wait_for_value};
use serde_json::json;

use crate::board_discovery::{NARROW, nothing_is_beyond, presses_until};

/// A client name and a key that are to be shown as text everywhere.
const EVIL: &str = "<svg/onload=window.hit=1>..";
const EVIL_KEY: &str = "lock:<script>window.hit=1</script>\"'&:7";

struct Estate {
    _redis: Redis,
    proxy: Proxy,
    _clients: [Client; 4],
}

/// Billing takes invoices, one lease of which runs out, and holds one; payments deletes one that is not its own; refund waits.
/// And a client with a hostile name does so with a hostile key.
fn estate() -> Estate {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).start();
    let clients = ["billing", "payments-worker", "refund", EVIL].map(|name| {
        let client = proxy.client();
        client.sends_arguments(&["CLIENT", "SETNAME", name]).gets("+OK");
        client
    });
    let [billing, payments, refund, evil] = &clients;
    for number in 10..14 {
        billing.sends(format!("SET lock:invoice:{number} b{number} NX PX 9000")).gets("+OK");
        billing.sends(format!("DEL lock:invoice:{number}")).gets(":1");
    }
    billing.sends("SET lock:invoice:15 b NX PX 60").gets("+OK");
    redis.becomes_free("lock:invoice:15");
    billing.sends("DEL lock:invoice:15").gets(":0");
    billing.sends("SET lock:invoice:16 b NX PX 30000").gets("+OK");
    payments.sends("DEL lock:invoice:16").gets(":0");
    for _ in 0..3 {
        refund.sends("SET lock:invoice:16 r NX PX 9000").gets("nil");
    }
    evil.sends_arguments(&["SET", EVIL_KEY, "e", "NX", "PX", "30000"]).gets("+OK");
    payments.sends_arguments(&["DEL", EVIL_KEY]).gets(":0");
    wait_for_value("all to be known", || {
        let refused = proxy.api("decisions").as_array()?.len() >= 2;
        let known = proxy.api("patterns?history=true&pattern=lock:invoice:*");
        let history = known["patterns"][0]["history"].as_array()?.len() == 6;
        let waits = proxy.api("connections?application=refund");
        let waits = waits["connections"][0]["waiting"] == 1;
        (refused && history && waits).then_some(())
    });
    Estate { _redis: redis, proxy, _clients: clients }
}

fn address(proxy: &Proxy, path: &str) -> String {
    format!("http://{}{path}", proxy.admin_address())
}

const INVOICES: &str = "/pattern?glob=lock%3Ainvoice%3A%2A&namespace=locks";

#[test]
fn the_page_of_a_pattern_draws_its_last_leases_and_says_them_in_a_table() {
    let estate = estate();
    let proxy = &estate.proxy;
    let (status, page) = proxy.get(INVOICES);
    assert_eq!(status, 200, "{page}");
    for said in [
        "lock:invoice:*",
        "Of the last",
        "aria-label=\"billing: 6 leases, 1 ran out\"",
        "<rect class=\"well\"",
        "<rect class=\"bad\"",
        "<rect class=\"held\"",
        "/application?name=billing",
        "payments-worker",
        "was kept from deleting",
        "not-owner",
        "ran-out",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let lanes = page.split("class=\"lanes\"").nth(1).expect("the drawing");
    let lanes = lanes.split("class=\"legend\"").next().unwrap_or_default();
    assert_eq!(lanes.matches("<g>").count(), 6, "{lanes}");
    let leases = page.split("aria-label=\"The last leases\"").nth(1).expect("the table");
    let leases = leases.split("</table>").next().unwrap_or_default();
    assert_eq!(leases.matches("<tr").count(), 1 + 6, "{leases}");
    assert_eq!(leases.matches(">given back<").count(), 4, "{leases}");
    // The list of all leads there, and other patterns are left out of the page of one.
    let all = proxy.get("/patterns").1;
    assert!(all.contains(&INVOICES.replace('&', "&amp;")), "{all}");
    assert!(!page.contains("script&gt;window"), "{page}");
    let (status, none) = proxy.get("/pattern?glob=nothing%3A%2A");
    assert_eq!(status, 404);
    assert!(none.contains("No such lock was seen"), "{none}");
    for mistake in ["/pattern", "/pattern?glob=%5Cq"] {
        assert_eq!(proxy.get(mistake).0, 400, "{mistake}");
    }
}

#[test]
fn the_page_of_an_application_says_what_it_holds_waits_for_did_and_takes() {
    let estate = estate();
    let proxy = &estate.proxy;
    let part = |page: &str, id: &str| {
        let part = page.split(&format!("id=\"{id}\"")).nth(1);
        let part = part.unwrap_or_else(|| panic!("{id}: {page}"));
        part.split("class=\"part\"").next().unwrap_or_default().to_owned()
    };
    let billing = proxy.get("/application?name=billing").1;
    assert!(part(&billing, "connections").contains("lock%3Ainvoice%3A16"), "{billing}");
    assert!(part(&billing, "found").contains("ran-out"), "{billing}");
    let patterns = part(&billing, "patterns");
    assert!(patterns.contains("lock:invoice:*") && !patterns.contains("window.hit"), "{billing}");
    let refund = proxy.get("/application?name=refund").1;
    let connections = part(&refund, "connections");
    assert!(connections.contains("data-label=\"Waits for\"><a href=\"/?lock=lock%3Ainvoice%3A16"), "{connections}");
    let payments = proxy.get("/application?name=payments-worker&since=1h").1;
    for said in [
        "was kept from deleting",
        ", which billing held, once",
        "/reasons#not-owner",
        "compare-and-delete",
        "return redis.call('del', KEYS[1])",
        "<option value=\"1h\" selected>",
    ] {
        assert!(payments.contains(said), "{said}: {payments}");
    }
    assert_eq!(part(&payments, "refusals").matches("/why?id=").count(), 2, "{payments}");
    let (status, none) = proxy.get("/application?name=nobody");
    assert_eq!(status, 404);
    assert!(none.contains("has seen no application"), "{none}");
    for mistake in ["/application", "/application?name=billing&since=yesterday"] {
        assert_eq!(proxy.get(mistake).0, 400, "{mistake}");
    }
}

#[test]
fn the_report_counts_from_the_time_that_is_asked_for() {
    let estate = estate();
    let proxy = &estate.proxy;
    let page = proxy.get("/report").1;
    assert!(page.contains("payments-worker") && page.contains("lockwarden audit"), "{page}");
    proxy.orders("/reload", "");
    proxy.orders("/mode", r#"{"mode":"monitor"}"#);
    let page = proxy.get("/report?since=last-change").1;
    assert!(page.contains("<option value=\"last-change\" selected>"), "{page}");
    assert!(page.contains("lockwarden audit --since last-change"), "{page}");
    assert!(!page.contains("payments-worker"), "{page}");
    let exact = proxy.get("/report?since=2026-01-01T00:00:00Z").1;
    assert!(exact.contains("<option value=\"2026-01-01T00:00:00Z\" selected>"), "{exact}");
    assert!(exact.contains("payments-worker"), "{exact}");
    assert_eq!(proxy.get("/report?since=yesterday").0, 400);
}

#[test]
fn a_person_without_a_mouse_gets_from_the_first_sentence_to_the_drawing() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let estate = estate();
    browser.open(&address(&estate.proxy, "/"));
    browser.shows("which billing held");
    browser.shows("Live");
    let leads = |to: &str| format!("(document.activeElement.getAttribute('href') ?? '').startsWith('{to}')");
    presses_until(&mut browser, &leads("/application?name=payments-worker"));
    browser.presses("Enter");
    browser.becomes_true("location.pathname === '/application'");
    browser.shows("What enforce mode would break");
    browser.open(&address(&estate.proxy, "/application?name=billing"));
    presses_until(&mut browser, &leads("/pattern?glob=lock%3Ainvoice"));
    browser.presses("Enter");
    browser.becomes_true("location.pathname === '/pattern'");
    browser.becomes_true("document.querySelectorAll('.lane rect.well').length === 4");
    let drawn = "document.querySelector('.lane rect.bad').getBoundingClientRect().width > 0";
    assert_eq!(browser.evaluates(drawn), json!(true));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn hostile_names_are_text_on_every_page_and_nothing_is_beyond_a_telephone() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let estate = estate();
    let proxy = &estate.proxy;
    let patterns = proxy.api("patterns");
    let patterns = patterns["patterns"].as_array().expect("a list");
    let glob = patterns.iter().find_map(|one| {
        let glob = one["pattern"].as_str()?;
        glob.contains("script").then_some(glob)
    });
    let refusals = proxy.api("decisions?contains=script");
    let id = refusals[0]["id"].as_str().expect("an id");
    browser.is_sized(NARROW);
    browser.open(&address(proxy, "/"));
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let glob = glob.expect("the hostile pattern");
    for (path, shown) in [
        (format!("/application?name={}", encoded(EVIL)), EVIL),
        (format!("/pattern?glob={}", encoded(glob)), "<script>window.hit="),
        ("/patterns".to_owned(), "<script>window.hit="),
        ("/report".to_owned(), "payments-worker"),
        (format!("/why?id={id}"), "<script>window.hit="),
        ("/reasons".to_owned(), "not-owner"),
        (INVOICES.to_owned(), "lock:invoice:*"),
        (format!("/?application={}&pattern={}", encoded(EVIL), encoded(glob)), "<script>window.hit="),
    ] {
        browser.open(&address(proxy, &path));
        browser.shows(shown);
        assert_eq!(browser.evaluates("typeof window.hit"), json!("undefined"), "{path}");
        assert_eq!(browser.evaluates("document.scripts.length"), json!(1), "{path}");
        nothing_is_beyond(&mut browser);
    }
    assert_eq!(browser.complaints(), [""; 0]);
}
