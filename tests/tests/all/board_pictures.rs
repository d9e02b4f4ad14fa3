//! Makes the pictures of `docs/board.md` from a scenario that runs for some seconds. Not a test: `cargo test
//! -p lockwarden-tests --test all -- --ignored pictures`.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use lockwarden_tests::{Browser, Client, Proxy, Redis};

fn named(proxy: &Proxy, name: &str, library: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    let (library, version) = library.split_once(' ').expect("a name and a version");
    client.sends(format!("CLIENT SETINFO LIB-NAME {library}")).reply();
    client.sends(format!("CLIENT SETINFO LIB-VER {version}")).reply();
    client
}

#[test]
#[ignore = "makes the pictures of docs/board.md"]
fn pictures_of_the_board() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    std::fs::create_dir_all(&images).expect("docs is writable");
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .namespace("name", "\"orders\"")
        .namespace("keys", "[\"lock:order:*\", \"lock:pay:*\"]")
        .default_ttl("30s")
        .ceiling("60s")
        .more("[[namespace]]\nname = \"stock\"\nkeys = [\"lock:stock:*\"]\nmode = \"monitor\"")
        .start();
    let page = format!("http://{}/", proxy.admin_address());
    browser.open(&page);
    browser.shows("Live");

    // Orders are enforced: a worker outlives its lease, and acts on it when another has it.
    let (slow, next, late) = (
        named(&proxy, "billing-3", "jedis 4.3.1"),
        named(&proxy, "billing-7", "jedis 4.3.1"),
        named(&proxy, "billing-5", "jedis 4.3.1"),
    );
    let (pay, refund) = (named(&proxy, "pay-1", "redis-py 5.0.1"), named(&proxy, "refund-1", "redis-py 5.0.1"));
    for _ in 0..40 {
        next.sends("SET lock:order:41 n NX PX 20000").gets("+OK");
        sleep(Duration::from_millis(8));
        next.sends("DEL lock:order:41").gets(":1");
    }
    slow.sends("SET lock:order:42 b3 NX PX 1200").gets("+OK");
    for _ in 0..4 {
        next.sends("SET lock:order:42 b7 NX PX 30000").gets("nil");
        sleep(Duration::from_millis(150));
    }
    redis.becomes_free("lock:order:42");
    next.sends("SET lock:order:42 b7 NX PX 30000").gets("+OK");
    slow.sends("DEL lock:order:42").gets(":0");
    pay.sends("SET lock:pay:77 p1 NX PX 30000").gets("+OK");
    refund.sends("SET lock:pay:78 r1 NX PX 45000").gets("+OK");

    // Stock is watched: locks without a TTL, deleted by any client.
    let (first, second) = (named(&proxy, "stock-2", "phpredis 6.0.2"), named(&proxy, "stock-5", "phpredis 6.0.2"));
    first.sends("SETNX lock:stock:9 1").gets(":1");
    first.sends("SETNX lock:stock:10 1").gets(":1");
    second.sends("DEL lock:stock:10").gets(":1");
    second.sends("SETNX lock:stock:11 1").gets(":1");
    second.sends("EXPIRE lock:stock:11 40").gets(":1");

    // These keys are in no namespace.
    for number in 0..24 {
        pay.sends(format!("SETNX order:{number}:lock 1")).gets(":1");
        pay.sends(format!("EXPIRE order:{number}:lock 30")).gets(":1");
        refund.sends(format!("SET mutex.refund.{number} 0a94c2de-6f3b-4a55-{number} NX PX 5000")).gets("+OK");
        refund.sends(format!("SET page:{number} <html> NX EX 60")).reply();
        second.sends(format!("INCR hits:{}", number % 4)).reply();
        sleep(Duration::from_millis(12));
        pay.sends(format!("DEL order:{number}:lock")).gets(":1");
        refund.sends(format!("DEL mutex.refund.{number}")).gets(":1");
        first.sends(format!("DEL page:{number}")).reply();
    }

    // Some wait, and two for each other.
    for _ in 0..8 {
        late.sends("SET lock:order:42 b5 NX PX 30000").gets("nil");
        second.sends("SETNX lock:stock:9 2").gets(":0");
        pay.sends("SET lock:pay:78 p1 NX PX 30000").gets("nil");
        refund.sends("SET lock:pay:77 r1 NX PX 30000").gets("nil");
        sleep(Duration::from_millis(200));
    }
    browser.shows("lock:order:42");
    browser.shows("Waiting for each other");
    browser.becomes_true("document.querySelector('#refusals').innerText.includes('not-owner')");
    for (size, scheme, name) in [
        ((1280, 1240), "light", "board.png"),
        ((1280, 1240), "dark", "board-dark.png"),
        ((375, 860), "light", "board-narrow.png"),
        ((375, 860), "dark", "board-narrow-dark.png"),
    ] {
        browser.draws(size, scheme, &images.join(name));
    }
    browser.open(&format!("{page}discovery"));
    browser.shows("order:*:lock");
    for (size, scheme, name) in [
        ((1280, 1000), "light", "discovery.png"),
        ((1280, 1000), "dark", "discovery-dark.png"),
        ((375, 860), "light", "discovery-narrow.png"),
        ((375, 860), "dark", "discovery-narrow-dark.png"),
    ] {
        browser.draws(size, scheme, &images.join(name));
    }
    for (path, shows, name, height) in [
        ("pattern?glob=lock%3Aorder%3A%2A&namespace=orders", "The last leases", "pattern", 1000),
        ("application?name=billing-3", "What enforce mode would break", "application", 1000),
    ] {
        browser.open(&format!("{page}{path}"));
        browser.shows(shows);
        for (size, scheme, kind) in [
            ((1280, height), "light", ""),
            ((1280, height), "dark", "-dark"),
            ((375, 860), "light", "-narrow"),
            ((375, 860), "dark", "-narrow-dark"),
        ] {
            browser.draws(size, scheme, &images.join(format!("{name}{kind}.png")));
        }
    }
    late.sends("SET lock:order:42 b5 NX PX 30000").gets("nil");
    browser.open(&format!("{page}?lock=lock%3Aorder%3A42&contains=order"));
    browser.shows("What happened lately");
    browser.shows("Live");
    browser.evaluates("document.querySelector('.break').open = true");
    for (scheme, name) in [("light", "board-lock.png"), ("dark", "board-lock-dark.png")] {
        browser.draws((1280, 1180), scheme, &images.join(name));
    }
}
