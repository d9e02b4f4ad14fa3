use std::sync::Arc;

use bytes::BytesMut;
use lockwarden_resp::{OwnedRequest, RequestDecoder, RequestLimits};

use super::*;
use crate::classify::{Class, Classifier};
use crate::glob::Glob;
use crate::plan::{self, Form};
use crate::script_facts::ScriptFacts;

fn namespaces(globs: &[&'static str]) -> Namespaces {
    let glob = |glob: &&'static str| vec![Glob::new(Bytes::from_static(glob.as_bytes()))];
    Namespaces::new(globs.iter().map(glob).collect())
}

/// The command as the classifier makes it; `None` where it is none.
fn admin(line: &str, namespaces: &Namespaces) -> Option<AdminCommand> {
    let classifier = Classifier {
        namespaces,
        companion_prefix: b"lw:",
        computed_names: &crate::classify::ComputedNames::Forward,
        enforces: &|_| true,
        operator_says: &|_| None,
        trusted_function: &|_| false,
        trusted_script: &|_| Default::default(),
        function: &|_| None,
        foreign: &|| None,
        counts: &|_| false,
        script: &|_| None,
        saw: &|text| Arc::new(ScriptFacts::of(text)),
    };
    let request = OwnedRequest::new(line.split(' ').collect::<Vec<_>>());
    match classifier.classify(request.request()) {
        Class::Admin(command) => Some(*command),
        _ => None,
    }
}

/// A word for the ruling, with `lock:*` in this mode.
fn ruled(line: &str, server_commands: ServerCommands, listed: bool, mode: Mode) -> &'static str {
    let namespaces = namespaces(&["lock:*"]);
    let command = admin(line, &namespaces).expect("an administration command");
    let setting = Setting { server_commands, listed, is_node: false, namespaces: &namespaces, mode: &|_| mode };
    match rule(command, &setting) {
        Ruling::Forward(forward) => {
            assert!(!forward.pass().frame().is_empty());
            match forward.why {
                ForwardWhy::Harmless => "forwarded",
                ForwardWhy::Listed => "listed",
                ForwardWhy::Watched => "watched",
            }
        }
        Ruling::Flush(flush) if flush.lenient => {
            assert!(flush.unseen().is_some());
            "looked at"
        }
        Ruling::Flush(flush) => {
            assert!(flush.unseen().is_none(), "what is found decides");
            "stopped by leases"
        }
        Ruling::NotPermitted => "not permitted",
        Ruling::SwapRefused => "no swap",
        Ruling::DebugRefused => "no debugger",
        Ruling::ForeignRefused => "unknown",
        Ruling::Judge(_) => "judged",
    }
}

#[test]
fn a_ruling_depends_on_who_asks_and_on_what_is_enforced() {
    use Mode::{Enforce, Monitor};
    use ServerCommands::{Forward, Refuse};
    for (line, forward, monitor, listed, refuse, refuse_listed) in [
        ("CONFIG SET a b", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("CONFIG GET MaxMemory save", "forwarded", "forwarded", "forwarded", "forwarded", "forwarded"),
        ("CONFIG GET maxmemory requirepass", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("CONFIG GET max*", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("SHUTDOWN", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("FUNCTION FLUSH", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("FLUSHALL ASYNC", "stopped by leases", "looked at", "looked at", "not permitted", "looked at"),
        ("flushdb", "stopped by leases", "looked at", "looked at", "not permitted", "looked at"),
        ("SCRIPT DEBUG yes", "no debugger", "watched", "listed", "not permitted", "listed"),
        ("script debug NO", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("SWAPDB 0 1", "no swap", "watched", "listed", "not permitted", "listed"),
        ("MIGRATE h 1 lock:a 0 9", "judged", "judged", "listed", "not permitted", "listed"),
        ("MIGRATE h 1 plain 0 9", "forwarded", "forwarded", "forwarded", "not permitted", "forwarded"),
        ("RESTORE lock:a 0 x", "judged", "judged", "listed", "judged", "listed"),
    ] {
        assert_eq!(ruled(line, Forward, false, Enforce), forward, "{line}");
        assert_eq!(ruled(line, Forward, false, Monitor), monitor, "{line}");
        assert_eq!(ruled(line, Forward, true, Enforce), listed, "{line}");
        assert_eq!(ruled(line, Refuse, false, Enforce), refuse, "{line}");
        assert_eq!(ruled(line, Refuse, true, Enforce), refuse_listed, "{line}");
    }
}

#[test]
fn where_no_key_is_a_lock_a_flush_is_nobodys_business() {
    let none = namespaces(&[]);
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let setting = Setting {
            server_commands: ServerCommands::Forward,
            listed: false,
            is_node: false,
            namespaces: &none,
            mode: &|_| Mode::Enforce,
        };
        let command = admin(line, &none).expect("an administration command");
        let ruling = rule(command, &setting);
        assert!(
            matches!(&ruling, Ruling::Forward(forward) if forward.why == ForwardWhy::Harmless),
            "{line}: {ruling:?}"
        );
    }
}

#[test]
fn a_companion_is_for_no_administrator_either() {
    let namespaces = namespaces(&["lock:*"]);
    for line in ["MIGRATE h 1 lw:{0j4}:lock:a 0 9", "RESTORE lw:{0j4}:lock:a 0 x", "SET a b"] {
        assert!(admin(line, &namespaces).is_none(), "{line}");
    }
}

#[test]
fn a_node_of_the_cluster_hands_over_locks_and_what_is_our_own() {
    let namespaces = namespaces(&["lock:*"]);
    for (line, listed, node) in [
        ("RESTORE-ASKING lock:a 0 x", "listed", "forwarded"),
        ("RESTORE-ASKING lw:{0j4}:lock:a 0 x", "judged", "forwarded"),
        ("RESTORE-ASKING lw:{0j4}:lockwarden-era 0 x", "judged", "forwarded"),
        ("RESTORE lock:a 0 x", "listed", "judged"),
    ] {
        for (listed, is_node, expected) in [(true, false, listed), (false, true, node), (false, false, "judged")] {
            let command = admin(line, &namespaces).expect("an administration command");
            let setting = Setting {
                server_commands: ServerCommands::Forward,
                listed,
                is_node,
                namespaces: &namespaces,
                mode: &|_| Mode::Enforce,
            };
            let ruling = match rule(command, &setting) {
                Ruling::Forward(forward) if forward.why == ForwardWhy::Listed => "listed",
                Ruling::Forward(_) => "forwarded",
                Ruling::Judge(_) => "judged",
                other => panic!("{line}: {other:?}"),
            };
            assert_eq!(ruling, expected, "{line} {listed} {is_node}");
        }
    }
}

#[test]
fn a_flush_carries_the_globs_in_their_order_and_the_clients_own_words() {
    let namespaces = namespaces(&["lock:*", "*", "a[bc]", "a\\*"]);
    let mode = |namespace: NamespaceId| match namespace.0 {
        0 => Mode::Monitor,
        _ => Mode::Enforce,
    };
    let setting = Setting {
        server_commands: ServerCommands::Forward,
        listed: false,
        is_node: false,
        namespaces: &namespaces,
        mode: &mode,
    };
    let command = admin("FlushAll ASYNC", &namespaces).expect("an administration command");
    let Ruling::Flush(flush) = rule(command, &setting) else {
        panic!("it is looked at");
    };
    let mut out = BytesMut::new();
    plan::flush(&flush, &namespaces, &mode, b"l[w:").put(&mut out, Form::Sha);
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    decoder.decode(&out).expect("a canonical request");
    let words: Vec<String> =
        decoder.request(&out).args().skip(2).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let expected = [
        "0",
        "a",
        "l[w:",
        "l\\[w:{*}:*",
        "200000",
        "10000",
        "4",
        "0",
        "p",
        "lock:",
        "1",
        "ea",
        "*",
        "2",
        "eg",
        "a[bc]",
        "3",
        "ex",
        "a*",
        "FlushAll",
        "ASYNC",
    ];
    assert_eq!(words, expected);
}
