//! The board's page about keys that no namespace has: how a person gets there, what it says, and that it works on a
//! telephone, with the keyboard alone, and without script.

use lockwarden_tests::{Browser, Client, Proxy, Redis, wait_for_value};
use serde_json::json;

/// A narrow window: the width of a small telephone.
pub(crate) const NARROW: (u32, u32) = (375, 740);

/// Takes and gives back a lock that no namespace has, often enough to be taken for one.
fn locks(client: &Client, key: &str) {
    for _ in 0..25 {
        client.sends_arguments(&["SETNX", key, "1"]).gets(":1");
        client.sends_arguments(&["EXPIRE", key, "30"]).gets(":1");
        client.sends_arguments(&["DEL", key]).gets(":1");
    }
}

/// A key that no namespace has, all of which must be shown as text.
const EVIL: &str = "evil<script>window.hit=1</script><img/src=x/onerror='window.hit=1'>";

struct Estate {
    _redis: Redis,
    proxy: Proxy,
    _client: Client,
}

/// Two patterns of locks that no namespace has, one of them with a hostile name.
fn estate() -> Estate {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends_arguments(&["CLIENT", "SETNAME", "<svg/onload=window.hit=1>"]).gets("+OK");
    locks(&client, "order:7:busy");
    locks(&client, EVIL);
    wait_for_value("both to be found", || {
        let found = proxy.get("/api/v1/discovery").1;
        found.contains("\"unclaimed\":2").then_some(())
    });
    Estate { _redis: redis, proxy, _client: client }
}

fn address(proxy: &Proxy, path: &str) -> String {
    format!("http://{}{path}", proxy.admin_address())
}

#[test]
fn the_page_says_without_script_which_keys_are_locks_and_what_would_govern_them() {
    let estate = estate();
    let (status, page) = estate.proxy.get("/discovery");
    assert_eq!(status, 200);
    for said in [
        "2 patterns of locks are in no namespace",
        "order:*:busy",
        "order:7:busy",
        "given back by who takes it",
        "SETNX",
        "&lt;svg/onload=window.hit=1&gt;",
        "[[namespace]]",
        "mode = &quot;monitor&quot;",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert_eq!(page.matches("<script").count(), 1, "only its own: {page}");
    let board = estate.proxy.get("/").1;
    assert!(board.contains("<a href=\"/discovery\">2 patterns of locks are in no namespace"), "{board}");
}

#[test]
fn a_person_without_a_mouse_goes_from_the_board_to_the_configuration() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let estate = estate();
    browser.open(&address(&estate.proxy, "/"));
    browser.shows("2 patterns of locks are in no namespace");
    browser.shows("Live");
    presses_until(&mut browser, "document.activeElement.getAttribute('href') === '/discovery'");
    browser.presses("Enter");
    browser.becomes_true("location.pathname === '/discovery'");
    browser.shows("order:*:busy");
    browser.shows("<script>window.hit=1</script>");
    presses_until(&mut browser, "document.activeElement.classList.contains('copy')");
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.evaluates(outline), json!("solid"), "it is seen");
    browser.presses("Enter");
    // Where it may not copy it marks the text.
    browser
        .becomes_true("['Copied', 'Marked: copy it by Ctrl+C'].includes(document.querySelector('.copy').textContent)");
    let proposed = "document.querySelector('#proposal pre').textContent";
    let proposed = browser.evaluates(proposed);
    let proposed = proposed.as_str().unwrap_or_default();
    assert!(proposed.contains("[[namespace]]"), "{proposed}");
    assert_eq!(browser.evaluates("typeof window.hit"), json!("undefined"));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Presses Tab until this is so; a page that has no such place fails.
#[track_caller]
pub(crate) fn presses_until(browser: &mut Browser, reached: &str) {
    for _ in 0..60 {
        browser.presses("Tab");
        if browser.evaluates(reached) == json!(true) {
            return;
        }
    }
    panic!("60 times Tab, and never {reached}");
}

#[test]
fn on_a_telephone_nothing_is_out_of_sight_to_the_side() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let estate = estate();
    let stranger = estate.proxy.client();
    for command in ["SET lock:order:4711:a-rather-long-name-of-a-lock a1 NX PX 30000", "DEL lock:none"] {
        stranger.sends(command).reply();
    }
    browser.is_sized(NARROW);
    browser.open(&address(&estate.proxy, "/?lock=lock%3Aorder%3A4711%3Aa-rather-long-name-of-a-lock"));
    browser.shows("What happened lately");
    nothing_is_beyond(&mut browser);
    browser.open(&address(&estate.proxy, "/discovery"));
    nothing_is_beyond(&mut browser);
    // A card says what each of its numbers is.
    let label = "getComputedStyle(document.querySelector('#patterns tbody td'), '::before').content";
    assert_eq!(browser.evaluates(label), json!("\"Looks like \""));
}

/// Whether everything is within the width of the window, and no box is to be moved sideways.
#[track_caller]
pub(crate) fn nothing_is_beyond(browser: &mut Browser) {
    browser.becomes_true("innerWidth === 375");
    let beyond = "[...document.querySelectorAll('body, body *')]\
        .filter((one) => one.getClientRects().length && one.getBoundingClientRect().right > 376)\
        .map((one) => one.outerHTML.slice(0, 80))";
    assert_eq!(browser.evaluates(beyond), json!([]));
    let scrolls =
        "[...document.querySelectorAll('.scroll, pre')].filter((box) => box.scrollWidth > box.clientWidth + 1).length";
    assert_eq!(browser.evaluates(scrolls), json!(0));
}
