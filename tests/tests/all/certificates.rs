//! The name in a client's certificate: where people see it, and what an operator may configure about it. The clients
//! come through a balancer that ends TLS, so that no test has to speak TLS.

use std::fs;

use lockwarden_tests::balancer::{certified, introduced};
use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

const SHOP: &str = "spiffe://corp/ns/shop/api";
const BILLING: &str = "spiffe://corp/ns/billing/api";

/// The harness's clients are the balancer: they come from loopback addresses.
fn behind_a_balancer(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).top("proxy_protocol_from", "[\"127.0.0.0/8\"]").without_waiting()
}

fn started(builder: ProxyBuilder) -> Proxy {
    let proxy = builder.start();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    proxy
}

fn named(proxy: &Proxy, name: &str) -> Client {
    introduced(proxy, &certified(0, name))
}

/// What a command prints.
#[track_caller]
fn said(proxy: &Proxy, words: &[&str]) -> String {
    let admin = proxy.admin_address().to_string();
    let words = [words, &["--admin", &admin]].concat();
    run_to_end(&mut lockwarden(&words)).stdout
}

#[test]
fn people_see_the_name_in_a_certificate_wherever_they_see_its_client() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory for a test");
    let trail = directory.path().join("trail.jsonl");
    let proxy = started(
        behind_a_balancer(&redis)
            .top("audit_file", &format!("{:?}", trail.to_str().expect("UTF-8")))
            .top("admin_identities", &format!("[\"certificate:{SHOP}\"]"))
            .namespace("on_violation", "\"error\""),
    );
    let (shop, billing) = (named(&proxy, SHOP), named(&proxy, BILLING));
    shop.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    billing.sends("CLIENT SETNAME billing-7").gets("+OK");
    let refusal = billing.sends("DEL lock:job").reply().to_string();
    assert!(refusal.contains("not-owner"), "{refusal}");
    assert!(!refusal.contains("spiffe"), "it is for the log: {refusal}");
    let id = refusal.split("id=").nth(1).expect("an id");
    let id = id.split(' ').next().expect("an id");

    proxy.logs(&["\"refused\"", &format!("\"certificate\":\"{BILLING}\"")]);
    let line = wait_for_value("the line about the refusal", || {
        let text = fs::read_to_string(&trail).unwrap_or_default();
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains(id))?.to_owned();
        serde_json::from_str::<Value>(&line).ok()
    });
    assert_eq!(line["client"]["certificate"], BILLING);

    // Without a name or a user of its own a client is called by its certificate.
    let held = wait_for_value("the lock on the board", || {
        let list = proxy.api("locks");
        list["locks"].get(0).cloned()
    });
    assert_eq!(held["holder"]["certificate"], SHOP);
    assert_eq!(held["holder"]["application"], SHOP);
    let connections = proxy.api("connections");
    let connections = connections["connections"].as_array().expect("a list");
    let mut shown: Vec<_> = connections.iter().map(|one| one["client"]["certificate"].as_str()).collect();
    shown.sort();
    assert_eq!(shown, [Some(BILLING), Some(SHOP)]);
    let page = proxy.get(&format!("/application?name={}", SHOP.replace('/', "%2F")));
    assert!(page.1.contains(&format!("<bdi>{SHOP}</bdi>")), "{}", page.1);
    let csv = proxy.get("/api/v1/decisions?format=csv").1;
    assert!(csv.contains(BILLING), "{csv}");

    let clients = said(&proxy, &["clients"]);
    assert!(clients.contains("CERTIFICATE") && clients.contains(BILLING), "{clients}");
    let lock = said(&proxy, &["locks", "show", "lock:job"]);
    assert!(lock.contains(SHOP) && !lock.contains("certificate"), "{lock}");
    billing.sends("SET lock:other b1 NX PX 60000").gets("+OK");
    wait_for("the certificate of a client that has a name", || {
        said(&proxy, &["locks", "show", "lock:other"]).contains(&format!("certificate {BILLING}"))
    });
    let why = said(&proxy, &["why", id]);
    assert!(why.contains(&format!("certificate {BILLING}")), "{why}");
    billing.sends("LOCKWARDEN CLIENTS").gets_error("NOPERM");
    let told = shop.sends("LOCKWARDEN CLIENTS").reply().to_string();
    assert!(told.contains(SHOP), "{told}");
}

#[test]
fn where_nobody_has_a_certificate_nothing_is_said_of_any() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    wait_for("the lock on the board", || {
        let list = proxy.api("locks").to_string();
        assert!(!list.contains("certificate"), "{list}");
        list.contains("lock:job")
    });
    assert!(!proxy.api("connections").to_string().contains("certificate"));
    assert!(!said(&proxy, &["clients"]).contains("CERTIFICATE"));
}

#[test]
fn a_namespace_is_enforced_for_certificates() {
    let redis = Redis::start();
    let proxy = started(
        behind_a_balancer(&redis)
            .mode(Mode::Monitor)
            .namespace("enforce_for", "{ certificates = [\"spiffe://corp/ns/shop/*\"] }"),
    );
    let owner = introduced(&proxy, &[]);
    owner.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    named(&proxy, SHOP).sends("DEL lock:job").gets(":0");
    // A name that the client gives itself is none.
    let pretender = introduced(&proxy, &[]);
    pretender.sends(format!("CLIENT SETNAME {SHOP}")).gets("+OK");
    pretender.sends("DEL lock:job").gets(":1");
    owner.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    named(&proxy, BILLING).sends("DEL lock:job").gets(":1");
}

#[test]
fn an_application_is_known_by_its_certificate_from_its_first_command_on() {
    let redis = Redis::start();
    let proxy = started(
        behind_a_balancer(&redis)
            .mode(Mode::Monitor)
            .namespace("enforce_for", "{ applications = [\"the-shop\"] }")
            .more("[[application]]\nname = \"the-shop\"\ncertificate = \"spiffe://corp/ns/shop/*\"\n"),
    );
    let owner = introduced(&proxy, &[]);
    owner.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    let shop = named(&proxy, SHOP);
    shop.sends("DEL lock:job").gets(":0");
    let clients = proxy.api("connections").to_string();
    assert!(clients.contains("\"application\":\"the-shop\""), "{clients}");
    named(&proxy, BILLING).sends("DEL lock:job").gets(":1");
}

#[test]
fn a_name_that_is_a_formula_or_markup_stays_text() {
    let redis = Redis::start();
    let proxy = started(behind_a_balancer(&redis));
    let odd = "=cmd|'<b>\"x\"</b>,";
    let client = named(&proxy, odd);
    client.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    wait_for("the lock on the board", || proxy.api("locks").to_string().contains("lock:job"));
    let csv = proxy.get("/api/v1/locks?format=csv").1;
    assert!(csv.contains("\"'=cmd|'<b>\"\"x\"\"</b>,\""), "{csv}");
    assert!(!csv.contains(",=cmd") && !csv.contains(",\"=cmd"), "{csv}");
    let board = proxy.get("/").1;
    assert!(!board.contains("<b>\"x\"") && board.contains("&lt;b&gt;"), "{board}");
}
