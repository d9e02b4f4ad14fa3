//! The servers know which words of a request are keys, and which slot a key is in: the proxy's own table and its own sum say the same.
//! On them rests which lock a command is about, and which node of a cluster it goes to.

use std::collections::BTreeMap;

use lockwarden_lock::companion::slot;
use lockwarden_lock::table::{Access, Lookup, for_each_key, lookup};
use lockwarden_resp::OwnedRequest;
use lockwarden_tests::cases::{Case, Facts, cases};
use lockwarden_tests::random::Random;
use lockwarden_tests::{Client, Redis, Reply, Server, encode};

/// The keys of a request by the table, and whether each may be written.
fn by_table(case: &Case) -> Option<BTreeMap<Vec<u8>, bool>> {
    let request = OwnedRequest::new(case.args.iter());
    let request = request.request();
    let Lookup::Known(spec) = lookup(&request) else {
        return None;
    };
    let mut keys = BTreeMap::new();
    for_each_key(spec, &request, &mut |_, key, access| {
        *keys.entry(key.to_vec()).or_default() |= access == Access::Write;
    })
    .ok()?;
    Some(keys)
}

/// The same by the server; `None` where it cannot tell.
fn by_server(client: &Client, case: &Case) -> Option<BTreeMap<Vec<u8>, bool>> {
    let question = [b"COMMAND".to_vec(), b"GETKEYSANDFLAGS".to_vec()];
    let words: Vec<Vec<u8>> = question.into_iter().chain(case.args.clone()).collect();
    let Reply::Array(keys) = client.sends_bytes(encode(&words)).reply() else {
        return None;
    };
    let mut told = BTreeMap::new();
    for one in &keys {
        let [key, flags] = one.elements() else {
            panic!("{one}");
        };
        let is_written = flags.elements().iter().any(|flag| ["+RW", "+OW", "+RM"].contains(&&*flag.to_string()));
        *told.entry(key.bytes().to_vec()).or_default() |= is_written;
    }
    Some(told)
}

#[test]
fn the_keys_of_each_request_are_those_that_the_server_tells() {
    if Server::under_test().lacks("COMMAND GETKEYSANDFLAGS", 7, 0) {
        return;
    }
    let redis = Redis::start();
    let client = redis.client();
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in cases(&Facts { payload: b"x".to_vec(), port: redis.address().port() }) {
        // Of a key with the name of an option the server looks for the name behind it, and carries it out otherwise.
        if case.line.contains("STORE STOREDIST") {
            continue;
        }
        let Some(told) = by_server(&client, &case) else {
            continue;
        };
        compared += 1;
        let ours = by_table(&case).unwrap_or_default();
        // The table holds the sources of PFMERGE and the streams of XREADGROUP for written, as they are, and of two
        // options STORE both names.
        let has_all = told.iter().all(|(key, is_written)| ours.get(key).is_some_and(|ours| ours >= is_written));
        let stores = case.args.iter().filter(|word| word.to_ascii_uppercase().starts_with(b"STORE")).count();
        if !has_all || (ours.len() != told.len() && stores < 2) {
            let line: Vec<String> = case.args.iter().map(|word| word.escape_ascii().to_string()).collect();
            wrong.push(format!("{}: {ours:?}, the server: {told:?}", line.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 250, "only {compared}");
}

#[test]
fn the_slot_of_each_key_is_the_one_that_the_server_tells() {
    let redis = Redis::with_arguments(&["--cluster-enabled", "yes"]);
    let client = redis.client();
    let mut random = Random::from_seed(1);
    for number in 0..3_000 {
        let key: Vec<u8> = (0..random.below(24)).map(|_| *random.among(b"{}{}abc:\0\xff0189")).collect();
        let told = client.sends_bytes(encode(&[&b"CLUSTER"[..], b"KEYSLOT", &key])).reply().integer();
        assert_eq!(i64::from(slot(&key)), told, "{number}: {}", key.escape_ascii());
    }
}
