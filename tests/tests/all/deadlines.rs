//! Locks whose value is a deadline: the rows A6 to A8. Whether a client may take over is decided by Redis's
//! clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockwarden_tests::{Client, Proxy, Redis, World, wait_for};

/// Milliseconds of the clock that this machine shares with its Redis, moved by so much.
fn clock(moved_by_ms: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    i64::try_from(now.as_millis()).expect("the year is below 292 million") + moved_by_ms
}

/// A lock whose deadline has passed, and its holder.
fn overdue(world: &World) -> (Client, i64) {
    let alice = world.client();
    let deadline = passes(world.redis(), &alice);
    (alice, deadline)
}

/// Takes the lock with a deadline that lay ahead then, and has passed.
fn passes(redis: &Redis, holder: &Client) -> i64 {
    let deadline = clock(-2_000);
    holder.sends(format!("SETNX lock:job {deadline}")).gets(":1");
    redis.was_granted_earlier("lock:job", Duration::from_secs(9));
    deadline
}

/// A6: two waiters read the same passed deadline; the loser's GETSET overwrites the winner's.
fn two_waiters_with_getset(world: &World) {
    let (_alice, passed) = overdue(world);
    let (bob, carol) = (world.client(), world.client());
    for waiter in [&bob, &carol] {
        let read: i64 = waiter.sends("GET lock:job").text().parse().expect("a number");
        assert_eq!(read, passed);
    }
    let (winner, loser) = (clock(5_000), clock(8_000));
    bob.sends(format!("GETSET lock:job {winner}")).gets(format!("$13 {passed}"));
    // Carol learns that she lost, by a value that is not the one she had read.
    carol.sends(format!("GETSET lock:job {loser}")).gets(format!("$13 {winner}"));

    let stands = world.redis().value("lock:job");
    assert_eq!(stands, format!("$13 {}", world.either(loser, winner)));
    world.counted_for("take-over", 1);
}
in_every_world!(two_waiters_with_getset);

/// A6: a waiter whose clock is ahead takes a lock that is still held.
fn a_getset_by_a_clock_that_is_ahead(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let deadline = clock(5_000);
    alice.sends(format!("SETNX lock:job {deadline}")).gets(":1");
    bob.sends("GET lock:job").gets(format!("$13 {deadline}"));

    let taken = bob.sends(format!("GETSET lock:job {}", clock(90_000)));
    if world.is_harmed() {
        // This is the value that Bob had read, so he believes that he has won.
        taken.gets(format!("$13 {deadline}"));
    } else {
        taken.gets_error("LOCKDENIED take-over key=lock:job cmd=GETSET policy=owner-token");
        assert_eq!(world.redis().value("lock:job"), format!("$13 {deadline}"));
        alice.sends("DEL lock:job").gets(":1");
    }
    world.counted_for("take-over", 1);
}
in_every_world!(a_getset_by_a_clock_that_is_ahead);

/// A6, honest: take-over of an overdue lock gives a lease of its own, which the winner releases.
fn a_take_over_of_an_overdue_lock(world: &World) {
    let (alice, passed) = overdue(world);
    let bob = world.client();
    bob.sends("GET lock:job").gets(format!("$13 {passed}"));
    let mine = clock(5_000);
    bob.sends(format!("GETSET lock:job {mine}")).gets(format!("$13 {passed}"));
    // The client that lost it comes late.
    alice.sends("DEL lock:job").gets(world.either(":1", ":0"));
    if !world.is_harmed() {
        assert!(world.redis().pttl("lock:job") > 0);
        bob.sends("DEL lock:job").gets(":1");
    }
    world.counted("release", "expired", 1);
}
in_every_world!(a_take_over_of_an_overdue_lock);

/// A7: with DEL and SETNX instead of GETSET two waiters both delete, and both win.
fn two_waiters_with_del_and_setnx(world: &World) {
    let (_alice, passed) = overdue(world);
    let (bob, carol) = (world.client(), world.client());
    for waiter in [&bob, &carol] {
        waiter.sends("GET lock:job").gets(format!("$13 {passed}"));
    }
    bob.sends("DEL lock:job").gets(":1");
    bob.sends(format!("SETNX lock:job {}", clock(5_000))).gets(":1");
    carol.sends("DEL lock:job").gets(world.either(":1", ":0"));
    carol.sends(format!("SETNX lock:job {}", clock(6_000))).gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(two_waiters_with_del_and_setnx);

/// A7 before the deadline: the waiter's clock is ahead.
fn a_del_before_the_deadline(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let deadline = clock(5_000);
    alice.sends(format!("SETNX lock:job {deadline}")).gets(":1");
    bob.sends("GET lock:job").gets(format!("$13 {deadline}"));
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(a_del_before_the_deadline);

/// A8: GETSET without looking first; the reply is compared with the clock, or not at all.
fn a_getset_without_a_look(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let deadline = clock(5_000);
    alice.sends(format!("SETNX lock:job {deadline}")).gets(":1");
    let taken = bob.sends(format!("GETSET lock:job {}", clock(60_000)));
    if world.is_harmed() {
        taken.gets(format!("$13 {deadline}"));
        assert_ne!(world.redis().value("lock:job"), format!("$13 {deadline}"));
    } else {
        taken.gets_error("LOCKDENIED take-over");
        assert_eq!(world.redis().value("lock:job"), format!("$13 {deadline}"));
    }
    world.counted_for("take-over", 1);
}
in_every_world!(a_getset_without_a_look);

/// A8: the same with `SET … GET`, and on a free lock, where both are an acquire.
fn set_get_as_an_acquire_and_as_a_theft(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 GET PX 5000").gets("nil");
    let taken = bob.sends("SET lock:job b1 GET PX 5000");
    if world.is_harmed() {
        taken.gets("$2 a1");
    } else {
        taken.gets_error("LOCKDENIED take-over");
        alice.sends("SET lock:job a2 GET PX 5000").gets("$2 a1");
        alice.sends("GETSET lock:job a3").gets("$2 a2");
        assert!(world.redis().pttl("lock:job") > 0);
        alice.sends("DEL lock:job").gets(":1");
    }
    let carol = world.client();
    carol.sends("GETSET lock:free c1").gets("nil");
    assert_eq!(world.redis().pttl("lock:free") == -1, world.is_harmed());
    world.counted_for("take-over", 1);
}
in_every_world!(set_get_as_an_acquire_and_as_a_theft);

#[test]
fn a_loser_that_looks_at_nothing_is_told_by_an_error_where_violations_are_errors() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("on_violation", "\"error\"").start();
    let (alice, bob, carol) = (proxy.client(), proxy.client(), proxy.client());
    let passed = passes(&redis, &alice);
    bob.sends("GET lock:job").gets(format!("$13 {passed}"));
    carol.sends("GET lock:job").gets(format!("$13 {passed}"));
    let winner = clock(5_000);
    bob.sends(format!("GETSET lock:job {winner}")).gets(format!("$13 {passed}"));
    carol.sends(format!("GETSET lock:job {}", clock(8_000))).gets_error("LOCKDENIED take-over");
    assert_eq!(redis.value("lock:job"), format!("$13 {winner}"));
}

#[test]
fn nothing_is_taken_over_where_the_setting_says_never() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "take_over", "\"never\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    let passed = passes(&redis, &alice);
    bob.sends("GET lock:job").gets(format!("$13 {passed}"));
    bob.sends(format!("GETSET lock:job {}", clock(5_000))).gets_error("LOCKDENIED take-over");
    bob.sends("DEL lock:job").gets(":0");
    assert_eq!(redis.value("lock:job"), format!("$13 {passed}"));
}

#[test]
fn a_number_that_is_no_deadline_is_never_taken_over() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for value in ["1", "12345", "1000000000", "9999999999999", "locked", "-5"] {
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends(format!("SETNX lock:{value} {value}")).gets(":1");
        bob.sends(format!("GET lock:{value}")).gets(format!("${} {value}", value.len()));
        bob.sends(format!("GETSET lock:{value} {}", clock(5_000))).gets_error("LOCKDENIED take-over");
        bob.sends(format!("DEL lock:{value}")).gets(":0");
    }
}

/// A value that says when the lock was taken. It was never a deadline, so no waiter may think that it has passed: the
/// stranger's GETSET took over, the holder's DEL got 0, and the stranger's connection kept the lock.
#[test]
fn the_time_at_which_a_lock_was_taken_is_no_deadline() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    // Seconds, milliseconds and a fraction; and a client whose clock is a little ahead.
    let (ms, ahead) = (clock(0), clock(40));
    let values =
        [(ms / 1_000).to_string(), ms.to_string(), format!("{}.{:03}517", ms / 1_000, ms % 1_000), ahead.to_string()];
    for value in values {
        let (holder, stranger, reader) = (proxy.client(), proxy.client(), proxy.client());
        holder.sends(format!("SETNX lock:job {value}")).gets(":1");
        wait_for("the time to have passed", || clock(-5) > ahead);
        stranger
            .sends(format!("GETSET lock:job {}", clock(0)))
            .gets_error("LOCKDENIED take-over key=lock:job cmd=GETSET");
        let bulk = format!("${} {value}", value.len());
        reader.sends("GET lock:job").gets(&bulk);
        reader.sends(format!("GETSET lock:job {}", clock(5_000))).gets_error("LOCKDENIED take-over");
        reader.sends("DEL lock:job").gets(":0");
        assert_eq!(redis.value("lock:job"), bulk);
        holder.sends("DEL lock:job").gets(":1");
    }
}

/// A deadline that lay ahead when the lock was taken, by seconds and by milliseconds.
#[test]
fn a_deadline_that_lay_ahead_is_taken_over_when_it_has_passed() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for unit in [1, 1_000] {
        let (holder, waiter) = (proxy.client(), proxy.client());
        holder.sends("PING").gets("+PONG");
        let value = clock(2_500) / unit;
        let at = value * unit;
        holder.sends(format!("SETNX lock:job {value}")).gets(":1");
        waiter.sends("GET lock:job").text();
        wait_for("the deadline to pass", || clock(-5) > at);
        waiter.sends(format!("GETSET lock:job {}", clock(9_000))).gets(format!("${} {value}", value.to_string().len()));
        waiter.sends("DEL lock:job").gets(":1");
    }
}

/// A deadline in whole seconds that begins less than a tenth of a second after the lock was taken is one, too.
#[test]
fn a_deadline_in_whole_seconds_is_one_though_it_is_near() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    let mut near = 0;
    while near < 3 {
        wait_for("the last tenth of a second", || clock(0) % 1_000 > 910);
        let deadline = clock(0) / 1_000 + 1;
        alice.sends(format!("SETNX lock:job {deadline}")).gets(":1");
        let names = redis.client().sends("KEYS lw:{*}:lock:job").reply();
        let name = names.elements()[0].text();
        let own = redis.client();
        let since = own.sends(format!("GETRANGE {name} 67 79")).text();
        let since: i64 = since.parse().expect("it is a time");
        let ahead = deadline * 1_000 - since;
        if !(1..100).contains(&ahead) {
            alice.sends("DEL lock:job").gets(":1");
            continue;
        }
        near += 1;
        // By a clock that is behind, it has not passed yet.
        wait_for("the deadline to pass", || clock(0) > deadline * 1_000 + 5);
        bob.sends("GET lock:job").gets(format!("$10 {deadline}"));
        let next = clock(60_000) / 1_000;
        bob.sends(format!("GETSET lock:job {next}")).gets(format!("$10 {deadline}"));
        alice.sends("DEL lock:job").gets(":0");
        assert_eq!(redis.value("lock:job"), format!("$10 {next}"));
        bob.sends("DEL lock:job").gets(":1");
    }
}
