//! The second barrier by itself. There are two: the judgement of the proxy, and the rights of the application's user in Redis,
//! which include no lock key. "With either barrier alone" means here: the same cases that the proxy refuses are sent (a)
//! straight to Redis by the application's user, so that no proxy judges them, and (b) through a proxy whose namespace is another
//! one, so that its judgement knows none of the locks, and it sends every command that it takes for no lock command as the
//! client's own user. In both, no lease and no record changes, and no free lock is taken. The other tests of this folder, whose
//! users may do everything, show that the judgement is enough by itself.

use lockwarden_tests::cases::{Case, Form, Kind, Meaning};
use lockwarden_tests::{Client, Proxy, Server};
use tempfile::TempDir;

use super::{Arena, Others, difference, free, furnishing, pipeline, shown, unknown_cases};
use crate::twins::Guarded;

/// A server whose application is barred, the proxy that serves it, and one that does not know its locks.
fn behind_the_barrier() -> (Arena, Proxy, TempDir) {
    let guarded = Guarded::start();
    let (told, _) = guarded.acl(&["shop"], &["--apply"]);
    assert!(told.contains("ACL SETUSER shop resetkeys"), "{told}");
    let blind = guarded.proxy(&["shop"]).namespace("keys", "[\"nothing:*\"]").top("sweep", "\"off\"").start();
    let tables = guarded.tables(&["shop"]);
    let (redis, passwords) = guarded.into_redis();
    let arena = Arena::with(redis, |proxy| proxy.more(&tables));
    (arena, blind, passwords)
}

fn as_shop(client: Client) -> Client {
    client.sends("AUTH shop pw").gets("+OK");
    client
}

/// Commands whose keys Redis's ACLs cannot tell, or do not all check. The barred user has lost them; through the proxy
/// the twin sends them, and the judgement stands alone.
const JUDGED_ALONE: [&str; 6] = ["FLUSHALL", "FLUSHDB", "GEORADIUS", "GEORADIUSBYMEMBER", "PFMERGE", "SORT"];

fn is_judged_alone(case: &Case) -> bool {
    let since_7 = Server::under_test().since(7, 0);
    JUDGED_ALONE.iter().any(|name| case.args[0] == name.as_bytes() && !(since_7 && *name == "SORT"))
}

/// The cases, and the commands about all keys at once.
fn all_cases(arena: &Arena) -> Vec<Case> {
    let mut cases = arena.cases(&arena.alone);
    let lines = cases.iter().map(Case::command).collect();
    cases.extend(unknown_cases(arena, &lines));
    cases.retain(|case| arena.knows(case));
    for line in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1", "DEBUG FLUSHALL"] {
        cases.push(Case {
            line,
            kind: Kind::String,
            meaning: Meaning::Verb,
            at: usize::MAX,
            args: line.split(' ').map(|word| word.into()).collect(),
        });
    }
    cases
}

/// Sends every case in every form, and looks at the locks and records each time.
fn nothing_gets_through(arena: &Arena, client: &Client, is_left_out: fn(&Case) -> bool) {
    let direct = arena.redis.client();
    let mut others = Others::arrive(arena);
    let (mut sent, mut refused, mut passed) = (0, 0, Vec::new());
    for case in all_cases(arena).into_iter().filter(|case| !is_left_out(case)) {
        let mut aims = vec![case.clone()];
        if case.at < case.args.len() {
            aims.push(case.aimed_at(&free()));
            aims.push(case.aimed_at(&others.record));
        }
        for aim in &aims {
            let requests: Vec<Vec<u8>> =
                Form::ALL.iter().filter_map(|form| aim.requests(*form)).inspect(|_| sent += 1).flatten().collect();
            let replies = pipeline(client, &requests);
            refused += replies.iter().filter(|reply| reply.to_string().contains("NOPERM")).count();
            let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
            if after != others.before {
                let difference = difference(&others.before, &after);
                passed.push(format!("{}{difference}\n{replies:?}", shown(aim)));
                others = Others::arrive(arena);
            }
        }
    }
    println!("{sent} requests, {refused} refused by Redis for want of rights");
    assert!(passed.is_empty(), "{} got through:\n{}", passed.len(), passed.join("\n"));
    assert!(sent > 4_000, "only {sent} requests");
    // The others are refused in scripts, or at the end of a block, or wrong in themselves.
    assert!(refused * 4 > sent, "{refused} of {sent}");
    // The application's other keys are untouched by all that: it may still write them.
    client.sends("SET string other").gets("+OK");
}

#[test]
fn nobody_who_goes_around_the_proxy_changes_a_lease() {
    let (arena, _blind, _passwords) = behind_the_barrier();
    nothing_gets_through(&arena, &as_shop(arena.redis.client()), |_| false);
}

#[test]
fn without_the_judgement_redis_itself_refuses_what_it_would_have() {
    let (arena, blind, _passwords) = behind_the_barrier();
    nothing_gets_through(&arena, &as_shop(blind.client()), is_judged_alone);
}
