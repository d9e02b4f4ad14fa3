//! The globs of a flush's script compared with those of the proxy: for any bytes, both must find the same
//! namespace that claims the lock.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwarden_lock::administration::{Ruling, ServerCommands, Setting, rule};
use lockwarden_lock::classify::{Class, Classifier};
use lockwarden_lock::companion::companion_key;
use lockwarden_lock::glob::Glob;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::plan::{Form, flush};
use lockwarden_lock::rules::Mode;
use lockwarden_lock::script_facts::ScriptFacts;
use lockwarden_resp::OwnedRequest;
use lockwarden_tests::{Client, Numbers, Redis, Reply};

/// How many live leases the script finds for each namespace. It is asked for a FLUSH that Redis will not
/// understand, by a client that nothing stops: it looks, and nothing is erased.
fn found(client: &Client, namespaces: &Namespaces, count: usize) -> Vec<usize> {
    let classifier = Classifier {
        namespaces,
        companion_prefix: b"lw:",
        computed_names: &lockwarden_lock::classify::ComputedNames::Forward,
        enforces: &|_| true,
        trusted_function: &|_| false,
        trusted_script: &|_| Default::default(),
        function: &|_| None,
        foreign: &|| None,
        operator_says: &|_| None,
        counts: &|_| false,
        script: &|_| None,
        saw: &|text| Arc::new(ScriptFacts::of(text)),
    };
    let request = OwnedRequest::new(vec!["FLUSHDB", "not", "really"]);
    let Class::Admin(command) = classifier.classify(request.request()) else {
        panic!("FLUSHDB is an administration command");
    };
    let setting = Setting {
        server_commands: ServerCommands::Forward,
        listed: true,
        is_node: false,
        namespaces,
        mode: &|_| Mode::Enforce,
    };
    let Ruling::Flush(command) = rule(*command, &setting) else {
        panic!("FLUSHDB is looked at");
    };
    let step = flush(&command, namespaces, &|_| Mode::Enforce, b"lw:");
    let mut bytes = BytesMut::new();
    step.put(&mut bytes, Form::Text);
    let reply = client.sends_bytes(&bytes).reply();
    let Reply::Array(items) = &reply else {
        panic!("the script answers an array, not {reply}");
    };
    assert_eq!(items[1].to_string(), "-ERR syntax error");
    let mut counts = vec![0; count];
    for four in items[5..].chunks(4) {
        let place = usize::try_from(four[0].integer()).expect("a namespace's number");
        counts[place] = usize::try_from(four[1].integer()).expect("a count");
    }
    counts
}

#[test]
fn the_script_finds_the_namespace_that_the_proxy_finds() {
    let redis = Redis::start();
    let client = redis.client();
    let mut numbers = Numbers(20_261_121);
    let mut record = b"1L@".to_vec();
    record.extend([b'0'; 48 + 16 + 39]);
    record.extend(b"mine");
    for round in 0..12 {
        client.sends("FLUSHALL").gets("+OK");
        let mut keys: Vec<Vec<u8>> = (0..40).map(|_| numbers.word(b"ab*]-\\^}:\x00\x80\xff", 6)).collect();
        keys.sort();
        keys.dedup();
        for key in &keys {
            let companion = companion_key(b"lw:", key);
            let words: [&[u8]; 5] = [b"MSET", key, b"mine", &companion, &record];
            client.sends_arguments(&words).gets("+OK");
        }
        for _ in 0..60 {
            let patterns: Vec<Vec<Vec<u8>>> = (0..3)
                .map(|_| (0..1 + numbers.below(2)).map(|_| numbers.word(b"ab**?[]^-\\}:\x80", 8)).collect())
                .collect();
            let globs =
                |globs: &Vec<Vec<u8>>| globs.iter().map(|glob| Glob::new(Bytes::copy_from_slice(glob))).collect();
            let namespaces = Namespaces::new(patterns.iter().map(globs).collect());
            let mut expected = vec![0; patterns.len()];
            for key in &keys {
                if let Some(namespace) = namespaces.find(key) {
                    expected[usize::from(namespace.0)] += 1;
                }
            }
            let counted = found(&client, &namespaces, patterns.len());
            assert_eq!(counted, expected, "round {round}: {patterns:?} on {keys:?}");
        }
    }
}
