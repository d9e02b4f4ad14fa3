//! What `lockwarden audit` predicts about enforcing, in lock time, compared with what happens then: programs of several threads
//! work in monitor mode, and go on while the namespaces are enforced.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::random::Random;
use lockwarden_tests::{Client, Mode, Proxy, Redis, comes_true, lockwarden, run_to_end};
use serde_json::Value;

const NAMES: [&str; 7] = ["pool", "honest", "raided", "finally", "careless", "strict", "usual"];
/// How long each mode is watched.
const WATCHED: Duration = Duration::from_secs(6);
const TTL_MS: i64 = 800;
const WORK: Duration = Duration::from_millis(40);
const POLL: Duration = Duration::from_millis(10);
/// How often it is tried on a machine whose pace changes meanwhile.
const TRIES: usize = 4;
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// The counts of a program itself.
#[derive(Default)]
struct Did {
    grants: AtomicU64,
    /// For so long its lock stayed locked after a release of its own that was refused, ms.
    unheld_ms: AtomicU64,
    /// When a holder's release was refused, and the lock was not granted since.
    refused: Mutex<Option<Instant>>,
}

impl Did {
    /// A lock that was taken then was given back, or was not.
    fn gave_back(&self, done: bool, taken: Instant) {
        if !done {
            let held = i64::try_from(taken.elapsed().as_millis()).expect("short");
            let left = u64::try_from(TTL_MS - held).unwrap_or(0);
            self.unheld_ms.fetch_add(left, Ordering::Relaxed);
        }
    }

    /// One of several threads was granted the lock, which was locked until now after the release of the last holder. Returns
    /// the number of the grant.
    fn is_granted(&self) -> u64 {
        if let Some(refused) = self.refused.lock().expect("nobody panics").take() {
            let unheld = u64::try_from(refused.elapsed().as_millis()).expect("short");
            self.unheld_ms.fetch_add(unheld, Ordering::Relaxed);
        }
        1 + self.grants.fetch_add(1, Ordering::Relaxed)
    }

    /// The holder of this grant could not give it back, and it is the last one.
    fn is_refused(&self, grant: u64) {
        if self.grants.load(Ordering::Relaxed) == grant {
            *self.refused.lock().expect("nobody panics") = Some(Instant::now());
        }
    }

    /// Its counts since the last call. A lock that is still locked counts as locked until now.
    fn take(&self) -> (u64, u64) {
        if let Some(refused) = self.refused.lock().expect("nobody panics").as_mut() {
            let unheld = u64::try_from(refused.elapsed().as_millis()).expect("short");
            self.unheld_ms.fetch_add(unheld, Ordering::Relaxed);
            *refused = Instant::now();
        }
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.grants), take(&self.unheld_ms))
    }
}

/// One of a program's connections, which all come from one address.
fn client(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client_from("127.41.0.1");
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// A thread that works under a lock, one time after the other.
fn works(lock: &str, stop: &AtomicBool, did: &Did, own: &Client, mut release: impl FnMut(u64, &str) -> i64) {
    let mut turn = 1;
    while !stop.load(Ordering::Relaxed) {
        let token = format!("{lock}-{turn:020}");
        if own.sends(format!("SET {lock} {token} NX PX {TTL_MS}")).reply().to_string() != "+OK" {
            thread::sleep(POLL);
            continue;
        }
        did.grants.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        thread::sleep(WORK);
        did.gave_back(release(turn, &token) != 0, began);
        turn += 1;
    }
}

/// Two threads on a pool that each fourth time give the lock back over the other one's connection, by bare DEL.
fn pool(proxy: &Proxy, stop: &AtomicBool, did: &Did) {
    thread::scope(|threads| {
        for _ in 0..2 {
            let (own, other) = (client(proxy, "pool"), client(proxy, "pool"));
            threads.spawn(move || {
                works("pool:a", stop, did, &own, |turn, _| {
                    let by = if turn % 4 == 0 { &other } else { &own };
                    by.sends("DEL pool:a").integer()
                });
            });
        }
    });
}

/// Two threads that give the lock back by compare-and-delete, over any connection.
fn honest(proxy: &Proxy, stop: &AtomicBool, did: &Did) {
    thread::scope(|threads| {
        for _ in 0..2 {
            let (own, other) = (client(proxy, "honest"), client(proxy, "honest"));
            threads.spawn(move || {
                works("honest:a", stop, did, &own, |turn, token| {
                    let by = if turn % 4 == 0 { &other } else { &own };
                    let deleted = by.eval(COMPARE_AND_DELETE, &["honest:a"], &[token]);
                    i64::from(deleted == ":1")
                });
            });
        }
    });
}

/// One works under the lock; another client deletes it, now and then.
fn raided(proxy: &Proxy, stop: &AtomicBool, did: &Did) {
    thread::scope(|threads| {
        let (own, stranger) = (client(proxy, "raided"), client(proxy, "raider"));
        threads.spawn(move || {
            works("raided:a", stop, did, &own, |_, _| {
                own.sends("DEL raided:a").integer();
                1
            });
        });
        threads.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                stranger.sends("DEL raided:a").integer();
                thread::sleep(3 * POLL);
            }
        });
    });
}

/// Two threads that give the lock back in a `finally`, whether they got it or not.
fn finally(proxy: &Proxy, stop: &AtomicBool, did: &Did) {
    thread::scope(|threads| {
        for _ in 0..2 {
            let own = client(proxy, "finally");
            threads.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let take = format!("SET finally:a 1 NX PX {TTL_MS}");
                    let began = Instant::now();
                    let got = own.sends(take).reply().to_string() == "+OK";
                    thread::sleep(if got { WORK } else { POLL });
                    let gave_back = own.sends("DEL finally:a").integer() != 0;
                    if got {
                        did.grants.fetch_add(1, Ordering::Relaxed);
                        did.gave_back(gave_back, began);
                    }
                }
            });
        }
    });
}

/// A pool of connections, of which any comes to hand.
struct Pool {
    idle: Mutex<(Vec<Client>, Random)>,
}

impl Pool {
    /// A connection for each of `threads`, so that there is always one.
    fn new(proxy: &Proxy, name: &str, threads: usize) -> Pool {
        let idle = (0..threads).map(|_| client(proxy, name)).collect();
        let random = Random::from_seed(7);
        Pool { idle: Mutex::new((idle, random)) }
    }

    fn sends(&self, words: &str) -> String {
        let connection = {
            let mut idle = self.idle.lock().expect("nobody panics");
            let (connections, random) = &mut *idle;
            let place = random.below(connections.len());
            connections.swap_remove(place)
        };
        let reply = connection.sends(words).reply().to_string();
        let mut idle = self.idle.lock().expect("nobody panics");
        idle.0.push(connection);
        reply
    }
}

/// Three threads on one pool that give the lock back by bare DEL: those that have it, or, in a `finally`, those that have not
/// as well.
fn share_a_pool((proxy, name, in_finally): (&Proxy, &str, bool), stop: &AtomicBool, did: &Did) {
    let pool = Pool::new(proxy, name, 3);
    let (take, give_back) = (format!("SET {name}:a 1 NX PX {TTL_MS}"), format!("DEL {name}:a"));
    let works = || {
        while !stop.load(Ordering::Relaxed) {
            let got = pool.sends(&take) == "+OK";
            let grant = got.then(|| did.is_granted());
            if got {
                thread::sleep(WORK);
            }
            let gave_back = (got || in_finally) && pool.sends(&give_back) != ":0";
            if !got {
                thread::sleep(POLL);
            }
            if let Some(grant) = grant.filter(|_| !gave_back) {
                did.is_refused(grant);
            }
        }
    };
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(works);
        }
    });
}

/// Works as the others do, but without a lock: its work in equal times is the pace of the machine.
fn keeps_pace(proxy: &Proxy, stop: &AtomicBool, did: &AtomicU64) {
    let own = client(proxy, "pace");
    while !stop.load(Ordering::Relaxed) {
        own.sends("PING").gets("+PONG");
        thread::sleep(WORK);
        did.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether what happens in one half can be compared with what happens in the other.
fn is_even(before: u64, after: u64) -> bool {
    let most = u64::try_from(WATCHED.as_millis() / WORK.as_millis()).expect("few");
    before.min(after) * 10 >= most * 7 && before.abs_diff(after) * 5 <= before.max(after)
}

fn figure(report: &Value, namespace: &str, when: &str, what: &str) -> u64 {
    let all = report["namespaces"].as_array().expect("a list");
    let is_it = |one: &&Value| one["namespace"] == namespace;
    let one = all.iter().find(is_it).expect("it is there");
    one[when][what].as_u64().expect("a number")
}

#[track_caller]
fn within_a_factor_of_two(what: &str, told: u64, was: u64) {
    assert!(2 * told >= was && told <= 2 * was, "{what}: told {told}, was {was}");
}

#[test]
fn what_is_foretold_in_lock_time_is_what_happens_within_a_factor_of_two() {
    if !(0..TRIES).any(|_| foretold_is_what_happens()) {
        println!("skipped: the pace of this machine changes too much for two halves to be compared");
    }
}

/// Returns whether the machine kept its pace; where it did not, the rest is not checked.
fn foretold_is_what_happens() -> bool {
    let redis = Redis::start();
    let namespace = |name: &str, more: &str| {
        format!("[[namespace]]\nname = \"{name}\"\nkeys = [\"{name}:*\"]\nmode = \"monitor\"\n{more}\n")
    };
    let proxy = Proxy::builder(&redis)
        .mode(Mode::Monitor)
        // Where no identity counts, a DEL over another connection proves nothing.
        .more(&namespace("pool", "[namespace.settings.owner-token]\nproofs = [\"token\", \"session\"]"))
        .more(&namespace("honest", ""))
        .more(&namespace("raided", ""))
        .more(&namespace("finally", ""))
        .more(&namespace("careless", ""))
        .more(&namespace("strict", "[namespace.settings.owner-token]\ndoubt = \"refuse\""))
        .more(&namespace("usual", ""))
        .start();
    let stop = AtomicBool::new(false);
    let did: [Did; 7] = Default::default();
    let pace = AtomicU64::new(0);
    let (watched, enforced, is_even) = thread::scope(|programs| {
        let (proxy, stop) = (&proxy, &stop);
        let [of_pool, of_honest, of_raided, of_finally, pooled @ ..] = &did;
        programs.spawn(|| pool(proxy, stop, of_pool));
        programs.spawn(|| honest(proxy, stop, of_honest));
        programs.spawn(|| raided(proxy, stop, of_raided));
        programs.spawn(|| finally(proxy, stop, of_finally));
        for (did, name) in pooled.iter().zip(["careless", "strict", "usual"]) {
            programs.spawn(move || share_a_pool((proxy, name, name == "careless"), stop, did));
        }
        programs.spawn(|| keeps_pace(proxy, stop, &pace));
        // Equal times are compared.
        thread::sleep(WATCHED);
        let pace_before = pace.swap(0, Ordering::Relaxed);
        let watched = did.each_ref().map(Did::take);
        for name in NAMES {
            assert_eq!(proxy.switch(name, Mode::Enforce), 200);
        }
        thread::sleep(WATCHED);
        let enforced = did.each_ref().map(Did::take);
        let pace_after = pace.load(Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        (watched, enforced, is_even(pace_before, pace_after))
    });
    if !is_even {
        return false;
    }
    // The last that is unheld runs out.
    let report = || proxy.api("report");
    let settled = comes_true(|| {
        let before = report();
        thread::sleep(Duration::from_millis(1_500));
        report()["namespaces"] == before["namespaces"]
    });
    assert!(settled);
    let report = report();
    let told = |name: &str, when: &str, what: &str| figure(&report, name, when, what);

    for (place, name) in NAMES.into_iter().enumerate() {
        let ((grants_before, _), (grants_after, unheld)) = (watched[place], enforced[place]);
        if ["pool", "strict"].contains(&name) {
            // How many more there would have been at the pace of before. That of the few moments in which the lock was held since is
            // the pace of the machine in these moments.
            let whole = u64::try_from(WATCHED.as_millis()).expect("few");
            let lost = grants_before * unheld / whole;
            assert!(unheld > 1_000 && lost > 0, "{name}: {unheld} ms and {lost} grants");
            for when in ["foretold", "seen"] {
                let what = format!("{name}, {when}");
                within_a_factor_of_two(&what, told(name, when, "unheld_ms"), unheld);
            }
            within_a_factor_of_two(name, told(name, "seen", "lost_grants"), lost);
            let would_be_unheld = told(name, "foretold", "unheld_ms");
            let would_be_lost = grants_before * would_be_unheld / whole;
            within_a_factor_of_two(name, told(name, "foretold", "lost_grants"), would_be_lost);
            let waits = |when| told(name, when, "waits_ms");
            within_a_factor_of_two(name, waits("foretold"), waits("seen"));
            continue;
        }
        let held = told(name, "foretold", "held_ms") + told(name, "seen", "held_ms");
        // For a program that gives back locks that it never got, one lease ends by its TTL; from then on its
        // releases are counted. One more lease does so if the machine stood still meanwhile.
        let once = match name {
            "finally" | "careless" => 2 * TTL_MS.unsigned_abs(),
            _ => 0,
        };
        for when in ["foretold", "seen"] {
            let told = told(name, when, "unheld_ms");
            assert!(
                told <= 2 * unheld + once + held / 20,
                "{name} {when}: {told} ms, was {unheld} ms, beside {held} ms"
            );
        }
        // Its lock is there to be taken for nine tenths of the time, and taken as often as the machine allows.
        let watched = u64::try_from(WATCHED.as_millis()).expect("few");
        assert!(
            grants_before > 0 && grants_after > 0 && unheld <= once + watched / 10,
            "{name}: {grants_before} grants, then {grants_after}, {unheld} ms"
        );
    }

    // Foretold and seen stand one below the other.
    let admin = proxy.admin_address().to_string();
    let said = run_to_end(&mut lockwarden(&["audit", "--all", "--admin", &admin])).stdout;
    let rows: Vec<&str> = said.lines().filter(|line| line.contains("pool") && line.contains(" %)")).collect();
    assert!(rows.iter().any(|row| row.contains("foretold")) && rows.iter().any(|row| row.contains("seen")), "{said}");
    // On one screen it is what the family of locks costs.
    let said = run_to_end(&mut lockwarden(&["audit", "--admin", &admin])).stdout;
    let of_pool = said.split("\n\n").find(|part| part.starts_with("pool:a in pool"));
    let of_pool = of_pool.unwrap_or_else(|| panic!("{said}"));
    assert!(of_pool.contains("would leave locks unheld for"), "{of_pool}");
    assert!(of_pool.contains("enforced, it did leave locks unheld for"), "{of_pool}");
    assert!(
        of_pool.contains(
            "mend  proofs = [\"token\", \"session\", \"observed\", \"identity\"] in [namespace.settings.owner-token]"
        ),
        "{of_pool}"
    );
    assert!(!said.contains("honest:a"), "{said}");
    true
}
