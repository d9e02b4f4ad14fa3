//! Scripts whose meaning is not known run as they are, in one step with a look at what they did to the locks
//! among their keys: rows A, B and C of the misuse catalogue in scripts of no known library, locks that are
//! hashes or sorted sets, and everything that could show a client that there is a wrap.

use lockwarden_tests::{Proxy, Redis, World};

const ALICES: &str = "3f1c9a1e-alice-5a77";
const BOBS: &str = "77e0b2d4-bob-90cc41";

/// Two things at once, so that it is no recipe.
const TAKE: &str = "redis.call('incr', KEYS[2]) \
    if redis.call('exists', KEYS[1]) == 1 then return redis.call('get', KEYS[1]) end \
    redis.call('set', KEYS[1], ARGV[1]) if ARGV[2] then redis.call('pexpire', KEYS[1], ARGV[2]) end return 'mine'";

/// A lock that a script takes has a TTL, a fencing token and a holder like any other.
#[test]
fn a_script_takes_a_lock() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("5s").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    assert_eq!(alice.eval(TAKE, &["lock:a", "tries"], &[ALICES]), "$4 mine");
    let ttl = redis.pttl("lock:a");
    assert!((4000..=5000).contains(&ttl), "the default: {ttl}");
    assert_eq!(alice.eval(TAKE, &["lock:b", "tries"], &[ALICES, "86400000"]), "$4 mine");
    let ttl = redis.pttl("lock:b");
    assert!((9000..=10_000).contains(&ttl), "the ceiling: {ttl}");
    assert_eq!(alice.eval(TAKE, &["lock:c", "tries"], &[ALICES, "2000"]), "$4 mine");
    assert!((1000..=2000).contains(&redis.pttl("lock:c")));
    let first = redis.fence("lock:a");

    assert_eq!(
        bob.eval(TAKE, &["lock:a", "tries"], &[BOBS]),
        format!("${} {ALICES}", ALICES.len()),
        "held: the script's own answer"
    );
    bob.sends("DEL lock:a").gets(":0");
    alice.sends("DEL lock:a").gets(":1");
    assert_eq!(bob.eval(TAKE, &["lock:a", "tries"], &[BOBS]), "$4 mine");
    assert!(redis.fence("lock:a") > first);
    assert_eq!(redis.value("tries"), "$1 5");
    proxy.counts("lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"acquired\"}", 4.0);
    proxy.counts("lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"contended\"}", 1.0);
}

/// B1 in a script without a comparison: everything it did to its keys is put back.
fn a_script_deletes_a_strangers_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    bob.sends("RPUSH queue one two").gets(":2");
    bob.sends("PEXPIRE queue 9000").gets(":1");
    let before = world.redis().lease("lock:job");
    let text = "redis.call('rpush', KEYS[2], 'three') redis.call('set', KEYS[3], 'new') \
                redis.call('del', KEYS[1]) return 'gone'";
    let said = bob.eval(text, &["lock:job", "queue", "fresh"], &[]);
    if world.is_harmed() {
        assert_eq!(said, "$4 gone");
        world.redis().becomes_free("lock:job");
    } else {
        assert!(said.starts_with("-LOCKDENIED not-owner key=lock:job cmd=EVAL policy=owner-token"), "{said}");
        assert_eq!(world.redis().lease("lock:job"), before);
        bob.sends("LRANGE queue 0 -1").gets("[$3 one, $3 two]");
        assert!((8000..=9000).contains(&world.redis().pttl("queue")));
        bob.sends("EXISTS fresh").gets(":0");
        alice.sends("DEL lock:job").gets(":1");
    }
    world.counted("release", "not-owner", 1);
}
in_every_world!(a_script_deletes_a_strangers_lock);

/// A10 and C1 in a script: another's value, another's TTL.
fn a_script_overwrites_and_prolongs_a_strangers_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for (key, text, reason) in [
        ("lock:1", "return redis.call('set', KEYS[1], 'thief', 'PX', 9000)", "overwrite"),
        ("lock:2", "return redis.call('append', KEYS[1], 'x')", "overwrite"),
        ("lock:3", "return redis.call('pexpire', KEYS[1], 100)", "not-owner"),
        ("lock:4", "return redis.call('del', KEYS[1]) + redis.call('lpush', KEYS[1], 'x')", "overwrite"),
        ("lock:5", "return redis.call('rename', KEYS[1], KEYS[2])", "not-owner"),
    ] {
        alice.sends(format!("SET {key} {ALICES} NX PX 8000")).gets("+OK");
        let before = world.redis().lease(key);
        let said = bob.eval(text, &[key, "elsewhere"], &[]);
        if world.is_harmed() {
            assert!(!said.starts_with('-'), "{said}");
        } else {
            // A script that only sets a TTL gets the reply that EXPIRE would get.
            let refused = said.starts_with(&format!("-LOCKDENIED {reason} key={key}"));
            assert!(refused || (key == "lock:3" && said == ":0"), "{said}");
            assert_eq!(world.redis().lease(key), before);
            bob.sends("EXISTS elsewhere").gets(":0");
        }
    }
}
in_every_world!(a_script_overwrites_and_prolongs_a_strangers_lock);

/// A client that gives the script the stored value has proven that it holds the lock, over any connection.
fn the_holders_own_scripts(world: &World) {
    let (alice, pooled) = (world.client(), world.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 3000")).gets("+OK");
    let extend = "redis.call('incr', KEYS[2]) \
        if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 7000) end return 'no'";
    let keys = ["lock:job", "beats"];
    assert_eq!(pooled.eval(extend, &keys, &[ALICES]), ":1");
    assert!(world.redis().pttl("lock:job") > 6000);
    assert_eq!(pooled.eval(extend, &keys, &[BOBS]), "$2 no");
    let release = "redis.call('incr', KEYS[2]) \
        if redis.call('get', KEYS[1]) ~= ARGV[1] then return {'not yours', 7} end \
        redis.call('del', KEYS[1]) return {'done'}";
    assert_eq!(pooled.eval(release, &keys, &[BOBS]), "[$9 not yours, :7]");
    assert_eq!(pooled.eval(release, &keys, &[ALICES]), "[$4 done]");
    assert!(world.redis().is_free("lock:job"));
    assert_eq!(world.redis().value("beats"), "$1 4");
}
in_every_world!(the_holders_own_scripts);

/// C4 in a script: the lock keeps a TTL.
#[test]
fn a_script_that_persists_a_lock_leaves_it_a_ttl() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    let text = "redis.call('incr', KEYS[2]) return redis.call('persist', KEYS[1])";
    assert_eq!(alice.eval(text, &["lock:job", "n"], &[]), ":1");
    assert!((1..=10_000).contains(&redis.pttl("lock:job")));
}

/// The reentrant hash: a field a holder, its value a count.
const REENTER: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
    return redis.call('pttl', KEYS[1])";
const LEAVE: &str = "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end \
    if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end \
    redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1";
const FORCE: &str = "if redis.call('del', KEYS[1]) == 1 then redis.call('publish', KEYS[2], '0') return 1 end return 0";

fn a_lock_that_is_a_hash(world: &World) {
    let (one, two, thief) = (world.client(), world.client(), world.client());
    let hers = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    let his = "7c9e6679-7425-40de-944b-e07fc1f90ae7:1";
    let keys = ["lock:h"];
    assert_eq!(one.eval(REENTER, &keys, &["5000", hers]), "nil");
    // Another connection of her pool enters again.
    assert_eq!(two.eval(REENTER, &keys, &["6000", hers]), "nil");
    let waits = thief.eval(REENTER, &keys, &["5000", his]);
    assert!(waits.starts_with(':'), "held: the time to wait, {waits}");
    let with_channel = ["lock:h", "channel"];
    assert_eq!(thief.eval(LEAVE, &with_channel, &["5000", his]), "nil");
    assert_eq!(two.eval(LEAVE, &with_channel, &["5000", hers]), ":0");
    if world.is_harmed() {
        assert_eq!(thief.eval(FORCE, &with_channel, &[]), ":1");
    } else {
        let said = thief.eval(FORCE, &with_channel, &[]);
        assert!(said.starts_with("-LOCKDENIED not-owner key=lock:h"), "{said}");
        // Nor by any plain command.
        thief.sends("DEL lock:h").gets(":0");
        thief.sends("PEXPIRE lock:h 1").gets(":0");
        thief.sends("HSET lock:h x 1").gets_error("LOCKDENIED opaque-write");
        thief.sends("SET lock:h x").gets_error("LOCKDENIED overwrite");
        thief.sends("SETNX lock:h x").gets(":0");
        thief.sends("SET lock:h x NX").gets("nil");
        thief.sends("UNLINK lock:h plain").gets(":0");
        one.sends(format!("HGET lock:h {hers}")).gets("$1 1");
        assert_eq!(two.eval(LEAVE, &with_channel, &["5000", hers]), ":1");
    }
    assert!(world.redis().is_free("lock:h"));
    assert_eq!(thief.eval(REENTER, &keys, &["5000", his]), "nil");
}
in_every_world!(a_lock_that_is_a_hash);

#[test]
fn a_hash_has_a_ceiling_a_fence_and_keep_alive() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("900ms").start();
    let one = proxy.client();
    let hers = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    assert_eq!(one.eval(REENTER, &["lock:h"], &["60000", hers]), "nil");
    assert!(redis.pttl("lock:h") <= 900);
    let fence = redis.fence("lock:h");
    assert!(fence > 0);
    lockwarden_tests::wait_for("four renewals", || {
        proxy.metric("lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"renewed\"}") >= 4.0
    });
    one.sends("EXISTS lock:h").gets(":1");
    assert_eq!(redis.fence("lock:h"), fence);
    drop(one);
    redis.becomes_free("lock:h");
}

/// Readers share a lock; only a reader takes a share away.
fn a_lock_with_several_readers(world: &World) {
    const JOIN: &str =
        "redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1) return redis.call('pexpire', KEYS[1], ARGV[2])";
    const PART: &str = "redis.call('hdel', KEYS[1], ARGV[1]) \
        if redis.call('hlen', KEYS[1]) > 1 then return redis.call('pexpire', KEYS[1], ARGV[2]) end \
        redis.call('del', KEYS[1]) return 'last'";
    let (one, two, thief) = (world.client(), world.client(), world.client());
    let (first, second) = ("0f8fad5b-reader-one:1", "7c9e6679-reader-two:1");
    assert_eq!(one.eval(JOIN, &["lock:rw"], &[first, "5000"]), ":1");
    assert_eq!(two.eval(JOIN, &["lock:rw"], &[second, "6000"]), ":1");
    one.sends("HLEN lock:rw").gets(":3");
    // The first one leaves; the lock goes on with the second.
    assert_eq!(one.eval(PART, &["lock:rw"], &[first, "4000"]), ":1");
    let expel = "return redis.call('hdel', KEYS[1], unpack(redis.call('hkeys', KEYS[1])))";
    let said = thief.eval(expel, &["lock:rw"], &[]);
    if world.is_harmed() {
        assert_eq!(said, ":2");
    } else {
        assert!(said.starts_with("-LOCKDENIED not-owner key=lock:rw"), "{said}");
        thief.sends("DEL lock:rw").gets(":0");
        assert_eq!(two.eval(PART, &["lock:rw"], &[second, "4000"]), "$4 last");
    }
    assert!(world.redis().is_free("lock:rw"));
}
in_every_world!(a_lock_with_several_readers);

/// The forced unlock of lock libraries, meant for cleaning up, names no holder. The holder's application may
/// use it, over any of its connections, and no other holder's share goes with it.
fn a_lock_is_unlocked_by_force(world: &World) {
    let (one, mate) = (world.client_from("127.9.1.1"), world.client_from("127.9.1.1"));
    let thief = world.client();
    let hers = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    let his = "7c9e6679-7425-40de-944b-e07fc1f90ae7:1";
    let with_channel = ["lock:f", "channel"];
    for holder in [&one, &mate] {
        assert_eq!(holder.eval(REENTER, &["lock:f"], &["5000", hers]), "nil");
        assert_eq!(mate.eval(FORCE, &with_channel, &[]), ":1");
        assert!(world.redis().is_free("lock:f"));
    }
    let join = "redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1";
    assert_eq!(one.eval(join, &["lock:f"], &["5000", hers]), ":1");
    assert_eq!(thief.eval(join, &["lock:f"], &["5000", his]), ":1");
    let said = mate.eval(FORCE, &with_channel, &[]);
    if world.is_harmed() {
        assert_eq!(said, ":1");
    } else {
        assert!(said.starts_with("-LOCKDENIED not-owner key=lock:f"), "{said}");
        one.sends(format!("HGET lock:f {his}")).gets("$1 1");
    }
}
in_every_world!(a_lock_is_unlocked_by_force);

/// Many locks in one hash, as Redisson's multi-lock by values has them: a field says who holds the value, others
/// have both names in theirs. The holder's name shows the owner, over any connection.
fn many_locks_in_one_hash(world: &World) {
    const HOLD: &str = "for i = 3, #ARGV do local by = redis.call('hget', KEYS[1], ARGV[i]) \
            if by and by ~= ARGV[2] then return redis.call('pttl', KEYS[1]) end end \
        for i = 3, #ARGV do redis.call('hset', KEYS[1], ARGV[i], ARGV[2]) \
            redis.call('hincrby', KEYS[1], ARGV[i] .. ':' .. ARGV[2] .. ':lock_count', 1) end \
        redis.call('pexpire', KEYS[1], ARGV[1]) return nil";
    const DROP: &str = "for i = 2, #ARGV do \
            if redis.call('hdel', KEYS[1], ARGV[i] .. ':' .. ARGV[1] .. ':lock_count') == 0 then return nil end \
            redis.call('hdel', KEYS[1], ARGV[i]) end return 1";
    const STRIP: &str = "for _, field in ipairs(redis.call('hkeys', KEYS[1])) do \
            if string.find(field, ARGV[1], 1, true) then redis.call('hdel', KEYS[1], field) end end return 1";
    let (one, two, thief) = (world.client(), world.client(), world.client());
    let hers = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    let his = "7c9e6679-7425-40de-944b-e07fc1f90ae7:1";
    let (x, y, z) = ("aontSToqYqQXNA8h9vd9SA", "UAtNwcfhLzLiIyViPu3ySw", "wDpdcGUTKRa7KkkIo8XXyg");
    assert_eq!(one.eval(HOLD, &["lock:g"], &["5000", hers, x, y]), "nil");
    assert_eq!(two.eval(HOLD, &["lock:g"], &["5000", his, z]), "nil");
    let waits = two.eval(HOLD, &["lock:g"], &["5000", his, y]);
    assert!(waits.starts_with(':'), "held: the time to wait, {waits}");
    assert_eq!(thief.eval(DROP, &["lock:g"], &[his, x]), "nil");
    let said = thief.eval(STRIP, &["lock:g"], &[x]);
    if world.is_harmed() {
        assert_eq!(said, ":1");
        return;
    }
    assert!(said.starts_with("-LOCKDENIED not-owner key=lock:g"), "{said}");
    // Each leaves over another connection than it came.
    assert_eq!(two.eval(DROP, &["lock:g"], &[hers, x, y]), ":1");
    two.sends(format!("HGET lock:g {z}")).gets(format!("${} {his}", his.len()));
    assert_eq!(one.eval(DROP, &["lock:g"], &[his, z]), ":1");
    assert!(world.redis().is_free("lock:g"));
}
in_every_world!(many_locks_in_one_hash);

/// A sorted set: a member a holder, its score the end of its share.
fn a_lock_that_is_a_sorted_set(world: &World) {
    const SAVE: &str = "local t = redis.call('time') local now = t[1] * 1000 + math.floor(t[2] / 1000) \
        redis.call('zremrangebyscore', KEYS[1], '-inf', now) \
        if not redis.call('zscore', KEYS[1], ARGV[1]) and redis.call('zcard', KEYS[1]) > 0 then return false end \
        redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) redis.call('zadd', KEYS[1], now + ARGV[2], '__write__') \
        redis.call('pexpireat', KEYS[1], now + ARGV[2]) return true";
    const GIVE: &str = "if not redis.call('zrem', KEYS[1], ARGV[1]) then return false end \
        redis.call('zrem', KEYS[1], '__write__') return true";
    let (one, two) = (world.client(), world.client());
    let keys = ["lock:z"];
    assert_eq!(one.eval(SAVE, &keys, &[ALICES, "5000"]), ":1");
    assert_eq!(two.eval(SAVE, &keys, &[BOBS, "5000"]), "nil");
    assert_eq!(one.eval(SAVE, &keys, &[ALICES, "7000"]), ":1", "once more");
    two.sends("DEL lock:z").gets(world.either(":1", ":0"));
    if !world.is_harmed() {
        assert!(redis_fence_is_new(world, "lock:z"));
        assert_eq!(two.eval(GIVE, &keys, &[ALICES]), ":1", "by its name, from anywhere");
    }
    assert_eq!(two.eval(SAVE, &keys, &[BOBS, "5000"]), ":1");
}
in_every_world!(a_lock_that_is_a_sorted_set);

fn redis_fence_is_new(world: &World, key: &str) -> bool {
    world.redis().fence(key) > 0
}

/// A script sees and returns the same as without a wrap.
fn a_wrapped_script_sees_and_says_what_it_always_did(world: &World) {
    let alice = world.client();
    let said = |text: &str| alice.eval(text, &["lock:w", "plain"], &["one", "two"]);
    assert_eq!(
        said("return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2], KEYS[3], 'end'}"),
        "[:2, :2, $6 lock:w, $5 plain, $3 one, $3 two]"
    );
    assert_eq!(
        said("local n = 0 for _ in ipairs(KEYS) do n = n + 1 end for _ in pairs(ARGV) do n = n + 1 end return n"),
        ":4"
    );
    assert_eq!(said("return"), "nil");
    assert_eq!(said("return nil"), "nil");
    assert_eq!(said("return false"), "nil");
    assert_eq!(said("return true"), ":1");
    assert_eq!(said("return 3.99"), ":3");
    assert_eq!(said("return {1, {2, 'three', {}}, false, 'four'}"), "[:1, [:2, $5 three, []], nil, $4 four]");
    assert_eq!(said("return redis.status_reply('FINE')"), "+FINE");
    assert_eq!(said("return {ok = 'GOOD'}"), "+GOOD");
    assert_eq!(said("return redis.error_reply('MINE own words')"), "-MINE own words");
    assert_eq!(said("return redis.sha1hex('')"), "$40 da39a3ee5e6b4b0d3255bfef95601890afd80709");
    assert_eq!(said("return 1 -- a comment at the end"), ":1");
    assert_eq!(
        said("local function f(n) if n == 0 then return 'deep' end return f(n - 1) end return f(100)"),
        "$4 deep"
    );
    assert_eq!(said("return redis.call('select', 1)"), "+OK");
    alice.sends("GET plain").gets("nil");
    for broken in [
        "return ... == nil and nosuch or 'something'",
        "return nosuch",
        "\n\n  return nosuch",
        "error('x')",
        "error({err='MY words'})",
        "local x = nil return x.y",
        "return redis.call('hget', KEYS[1])",
        "redis.call('set', KEYS[2], 'x') return redis.call('hget', KEYS[2], 'f')",
        "return redis.call('nosuchcommand')",
        "return 1 +",
        "return 1 end foo = 1 local _ = function()",
        "return ]]",
        "--[[ never closed",
        "return 'never closed",
        "x = 1",
        "redis.call('publish')",
        "return loadstring('return nosuch')()",
    ] {
        let here = said(broken);
        let there = world.redis().client().eval(broken, &["lock:w", "plain"], &["one", "two"]);
        if there == ":1" {
            // Redis 6.2 lets a text end the function that it is made into; the wrap does not.
            assert!(here.starts_with("-ERR Error compiling script") || world.proxy().is_none());
            continue;
        }
        assert_eq!(here, there, "{broken}");
        assert!(here.starts_with('-'), "{broken}: {here}");
    }
    let sha = alice.sends("SCRIPT LOAD \"return nosuch\"").text();
    let by_name = format!("EVALSHA {sha} 1 lock:w");
    assert_eq!(alice.sends(&by_name).reply().to_string(), world.redis().client().sends(&by_name).reply().to_string());
    assert_eq!(
        said("#!lua flags=allow-oom\nreturn nosuch"),
        world.redis().client().eval("#!lua flags=allow-oom\nreturn nosuch", &["lock:w", "plain"], &[])
    );
    let shebang = "#!lua\nredis.call('set', KEYS[2], 'y') return #KEYS";
    assert_eq!(said(shebang), world.redis().client().eval(shebang, &["lock:w", "plain"], &[]));
    assert_eq!(said("#!nosuch\nreturn 1"), world.redis().client().eval("#!nosuch\nreturn 1", &[], &[]));
}
in_every_world!(a_wrapped_script_sees_and_says_what_it_always_did);

/// The same to a client that speaks RESP3.
fn a_wrapped_script_in_resp3(world: &World) {
    let alice = world.client();
    alice.sends("HELLO 3").reply();
    let direct = world.redis().client();
    direct.sends("HELLO 3").reply();
    for text in [
        "return nil",
        "return false",
        "return {1, false, nil, 2}",
        "return {double = 3.5}",
        "return {map = {a = 1}}",
        "return {set = {a = true}}",
        "redis.setresp(3) return true",
        "redis.setresp(3) return redis.call('hgetall', KEYS[2])",
        "redis.setresp(3) redis.call('set', KEYS[1], 'x', 'px', 50) redis.call('del', KEYS[1]) return redis.call('get', 'nosuch')",
        "return redis.call('hgetall', KEYS[2])",
        "return redis.call('get', 'nosuch')",
    ] {
        let keys = ["lock:3", "h"];
        assert_eq!(alice.eval(text, &keys, &[]), direct.eval(text, &keys, &[]), "{text}");
    }
}
in_every_world!(a_wrapped_script_in_resp3);

/// A script that fails half-way has done half: on its own keys that stays, as on Redis; a stranger's
/// lock is put back.
fn a_script_that_fails_half_way(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    let take = "redis.call('set', KEYS[1], ARGV[1], 'px', 5000) redis.call('incr', KEYS[2]) error('half-way')";
    let said = bob.eval(take, &["lock:new", "n"], &[BOBS]);
    assert!(said.contains("user_script:1: half-way"), "{said}");
    assert_eq!(world.redis().value("lock:new"), format!("${} {BOBS}", BOBS.len()));
    bob.sends("DEL lock:new").gets(":1");
    let steal = "redis.call('incr', KEYS[2]) redis.call('del', KEYS[1]) error('half-way')";
    let said = bob.eval(steal, &["lock:job", "n"], &[]);
    if world.is_harmed() {
        assert!(said.contains("user_script:1: half-way"), "{said}");
        assert!(world.redis().is_free("lock:job"));
    } else {
        assert!(said.starts_with("-LOCKDENIED not-owner"), "{said}");
        assert_eq!(world.redis().value("lock:job"), format!("${} {ALICES}", ALICES.len()));
        assert_eq!(world.redis().value("n"), "$1 1", "nothing half-done");
    }
}
in_every_world!(a_script_that_fails_half_way);

/// Scripts that try to escape from the wrap, or to deceive it.
#[test]
fn nothing_breaks_out_of_the_wrap() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, thief) = (proxy.client(), proxy.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    let before = redis.lease("lock:job");
    let record = redis.client().sends("KEYS lw:{*}:lock:job").reply().to_string();
    let companion = record.trim_matches(['[', ']']).split(' ').nth(1).expect("a record").to_owned();
    let fence = redis.fence("lock:job");
    let steal = "redis.call('del', KEYS[1])";
    // Before Redis 6.2.7 a script can replace what all other scripts call (CVE-2022-24735): no
    // script is safe on such a server, and neither are the proxy's.
    let read_only =
        redis.client().sends("EVAL \"redis.call = redis.call return 1\" 0").reply().to_string().starts_with('-');
    let poison = |text: &str| {
        ["redis.call =", "redis.pcall =", "rawset(redis", "rawset(_G", "setmetatable(_G", "getmetatable("]
            .iter()
            .any(|word| text.contains(word))
    };
    for text in [
        // Ends the function that it is wrapped into.
        format!("return 1 end {steal} local _ = function()"),
        format!("{steal} do return 1 end end do"),
        // Takes the wrap's own words from it.
        "local k = KEYS[1] KEYS = {} ARGV = {} redis.call('del', k) return 1".to_owned(),
        "local k = KEYS[1] KEYS[1] = 'other' for i = 1, 100 do ARGV[i] = 'x' end redis.call('del', k)".to_owned(),
        "local k = KEYS[1] rawset(KEYS, 1, 'other') redis.call('del', k)".to_owned(),
        format!("{steal} redis.call = function() return 1 end"),
        format!("{steal} redis.pcall = nil string.sub = nil"),
        format!("{steal} rawset(redis, 'call', 1)"),
        format!("{steal} rawset(_G, 'xpcall', 1)"),
        format!("{steal} setmetatable(_G, nil)"),
        format!("{steal} if setfenv then setfenv(3, {{}}) end"),
        format!("{steal} getmetatable('').__index = nil"),
        // Looks like something else.
        format!("redis.call('select', 3) redis.call('select', 0) {steal} redis.call('select', 5)"),
        format!("redis.setresp(3) {steal} return redis.call('get', 'x')"),
        format!("redis.set_repl(redis.REPL_NONE) {steal}"),
        format!(
            "{steal} error(setmetatable({{}}, {{__index = function() return 'x' end, __tostring = function() return 1 end}}))"
        ),
        format!("{steal} error({{err = 'OK fine'}})"),
        format!("{steal} return {{err = 'MY error'}}"),
        format!("{steal} return coroutine.yield(1)"),
        format!("{steal} return coroutine.wrap(function() return 1 end)()"),
        // Writes the record itself, under its computed name.
        format!(
            "redis.call('del', '{{'..'x') redis.call('del', 'lw'..'{}') {steal}",
            companion.trim_start_matches("lw")
        ),
        format!("redis.call('setrange', 'lw'..'{}', 1, 'R')", companion.trim_start_matches("lw")),
        // Comes back with the same value, and another's TTL; or as something else.
        "redis.call('set', KEYS[1], redis.call('get', KEYS[1]), 'px', 1)".to_owned(),
        format!("local v = redis.call('get', KEYS[1]) {steal} redis.call('rpush', KEYS[1], v)"),
        format!("local v = redis.call('get', KEYS[1]) {steal} redis.call('set', KEYS[1], v)"),
        "redis.call('copy', KEYS[2], KEYS[1], 'REPLACE')".to_owned(),
        "redis.call('move', KEYS[1], 9)".to_owned(),
    ] {
        if poison(&text) && !read_only {
            continue;
        }
        redis.client().sends("SET other thing").gets("+OK");
        let said = thief.eval(&text, &["lock:job", "other"], &["x"]);
        let now = redis.lease("lock:job");
        assert_eq!(now, before, "{text} said {said}");
        assert_eq!(redis.fence("lock:job"), fence, "{text}");
        assert!(said.starts_with('-'), "{text} said {said}");
    }
    alice.sends("DEL lock:job").gets(":1");
    assert_eq!(
        thief.eval(
            "redis.call('incr', KEYS[2]) return redis.call('set', KEYS[1], ARGV[1])",
            &["lock:job", "n"],
            &[BOBS]
        ),
        "+OK"
    );
    thief.sends("DEL lock:job").gets(":1");
}

/// By SHA, in a block, in a pipeline: always the same script.
fn a_wrapped_script_by_its_sha_and_in_a_block(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let sha = alice.sends_arguments(&["SCRIPT", "LOAD", TAKE]).text();
    alice.sends(format!("EVALSHA {sha} 2 lock:a tries {ALICES} 5000")).gets("$4 mine");
    bob.sends("MULTI").gets("+OK");
    bob.sends("SET plain 1").gets("+QUEUED");
    bob.sends(format!("EVALSHA {sha} 2 lock:a tries {BOBS} 5000")).gets("+QUEUED");
    bob.sends(format!("EVALSHA {sha} 2 lock:b tries {BOBS} 5000")).gets("+QUEUED");
    bob.sends_arguments(&[
        "EVAL",
        "redis.call('incr', KEYS[1]) redis.call('pexpire', KEYS[2], 9000) return {KEYS[2]}",
        "2",
        "tries",
        "lock:b",
    ])
    .gets("+QUEUED");
    bob.sends("GET plain").gets("+QUEUED");
    bob.sends("EXEC").gets(format!("[+OK, ${} {ALICES}, $4 mine, [$6 lock:b], $1 1]", ALICES.len()));
    assert!(world.redis().pttl("lock:b") > 8000);
    bob.sends("DEL lock:b").gets(":1");
    bob.sends("MULTI").gets("+OK");
    let steal = "redis.call('incr', KEYS[2]) redis.call('del', KEYS[1]) return 'gone'";
    bob.sends_arguments(&["EVAL", steal, "2", "lock:a", "tries"]).gets("+QUEUED");
    bob.sends("SET plain 2").gets("+QUEUED");
    let exec = bob.sends("EXEC").reply().to_string();
    if world.is_harmed() {
        assert_eq!(exec, "[$4 gone, +OK]");
    } else {
        assert!(exec.starts_with("[-LOCKDENIED not-owner key=lock:a cmd=EVAL"), "{exec}");
        assert!(exec.ends_with(", +OK]"), "{exec}");
        alice.sends("DEL lock:a").gets(":1");
    }
}
in_every_world!(a_wrapped_script_by_its_sha_and_in_a_block);

#[test]
fn an_operator_may_refuse_such_scripts_or_let_them_run() {
    let redis = Redis::start();
    let refusing = Proxy::builder(&redis).namespace("opaque_scripts", "\"deny\"").start();
    let said = refusing.client().eval(TAKE, &["lock:a", "n"], &[ALICES]);
    assert!(said.starts_with("-LOCKDENIED unsafe-script key=lock:a cmd=EVAL policy=scripts"), "{said}");
    assert!(redis.is_free("lock:a"));
    let forwarding = Proxy::builder(&redis).namespace("opaque_scripts", "\"forward\"").start();
    assert_eq!(forwarding.client().eval(TAKE, &["lock:a", "n"], &[ALICES]), "$4 mine");
    assert_eq!(redis.pttl("lock:a"), -1);
    forwarding.counts("lockwarden_unjudged_commands_total{namespace=\"locks\",why=\"forwarded-script\"}", 1.0);
}

/// A policy denies a script: its effects are undone.
#[test]
fn a_lease_above_its_longest_hold_is_not_extended_by_a_script() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "max_hold", "\"200ms\"").start();
    let alice = proxy.client();
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    lockwarden_tests::wait_for("the longest hold to pass", || redis.pttl("lock:job") < 7700);
    let text = "redis.call('incr', KEYS[2]) return redis.call('pexpire', KEYS[1], 9000)";
    let said = alice.eval(text, &["lock:job", "n"], &[]);
    assert!(said.starts_with("-LOCKDENIED limited key=lock:job cmd=EVAL policy=ttl-ceiling"), "{said}");
    assert!(redis.pttl("lock:job") <= 8000);
}

/// A lock that a script names in its text, or gets as an argument, counts as any other.
fn a_script_that_names_a_lock_in_its_text(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    let before = world.redis().lease("lock:job");
    for (text, reason) in [
        ("return redis.call('set', 'lock:job', 'x', 'px', 8000)", "overwrite"),
        ("return redis.call('set', 'lock:' .. ARGV[1], 'x', 'px', 8000)", "overwrite"),
        ("return redis.call('set', ARGV[2], 'x', 'px', 8000)", "overwrite"),
        (
            "for _, k in ipairs(redis.call('keys', 'lock:j*')) do redis.call('set', k, 'x', 'px', 8000) end",
            "unsafe-script",
        ),
    ] {
        for keys in [&[][..], &["plain"], &["lock:other"]] {
            let said = bob.eval(text, keys, &["job", "lock:job"]);
            if world.is_harmed() {
                assert!(!said.starts_with('-'), "{said}");
                assert_eq!(world.redis().value("lock:job"), "$1 x");
            } else {
                assert!(said.starts_with(&format!("-LOCKDENIED {reason} key=lock:j")), "{text}: {said}");
                assert_eq!(world.redis().lease("lock:job"), before);
            }
        }
    }
    // Reading by name, and writing other keys, is free.
    let reads = "redis.call('set', 'plain', 'lock:job') return redis.call('exists', 'lock:job')";
    assert_eq!(bob.eval(reads, &[], &[]), ":1");
    // Its holder's scripts do what they always did.
    if !world.is_harmed() {
        let text = "redis.call('incr', 'n') return redis.call('del', 'lock:' .. ARGV[1])";
        assert_eq!(alice.eval(text, &[], &["job"]), ":1");
        assert_eq!(bob.eval("return redis.call('set', ARGV[1], ARGV[2], 'nx')", &[], &["lock:job", BOBS]), "+OK");
        assert!(world.redis().pttl("lock:job") > 0, "it has the default TTL");
        bob.sends("DEL lock:job").gets(":1");
    }
}
in_every_world!(a_script_that_names_a_lock_in_its_text);

/// A script that sets TTLs without a check of the owner returns what EXPIRE would.
fn a_script_that_only_sets_ttls(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for key in ["lock:1", "lock:2"] {
        alice.sends(format!("SET {key} {ALICES} NX PX 8000")).gets("+OK");
    }
    let before = world.redis().lease("lock:1");
    let text = "local set = 0 for i = 1, #KEYS do \
        if redis.call('pexpire', KEYS[i], ARGV[1]) == 1 then set = 1 end end return set";
    assert_eq!(bob.eval(text, &["lock:1", "lock:2"], &["900"]), world.either(":1", ":0"));
    if !world.is_harmed() {
        assert_eq!(world.redis().lease("lock:1"), before);
        assert_eq!(alice.eval(text, &["lock:1", "lock:2"], &["900"]), ":1");
        assert!(world.redis().pttl("lock:2") <= 900);
    }
}
in_every_world!(a_script_that_only_sets_ttls);

/// A refused script whose own "no" is known says that.
fn a_refused_script_says_no_in_its_own_words(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job same NX PX 8000").gets("+OK");
    // Codes the other way round, a signal beside it; a constant value proves nothing to a stranger.
    let text = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 7 end \
        redis.call('lpush', KEYS[2], 1) redis.call('del', KEYS[1]) return 0";
    let keys = ["lock:job", "signal"];
    assert_eq!(bob.eval(text, &keys, &["same"]), world.either(":0", ":7"));
    if !world.is_harmed() {
        assert_eq!(world.redis().value("lock:job"), "$4 same");
        bob.sends("EXISTS signal").gets(":0");
        assert_eq!(alice.eval(text, &keys, &["same"]), ":0");
    }
}
in_every_world!(a_refused_script_says_no_in_its_own_words);
