//! Commands that would change a lock in a way that has no lock meaning. Enforced, none of them changes
//! anything, whichever client sends it; monitored, each does what it does without the proxy.

use lockwarden_tests::{Mode, Proxy, Redis, Server};

/// Sent while `lock:job` holds a string and other keys hold one value of each type.
const WRITES: &[&str] = &[
    "APPEND lock:job x",
    "INCR lock:job",
    "DECR lock:job",
    "INCRBY lock:job 5",
    "DECRBY lock:job 5",
    "INCRBYFLOAT lock:job 1.5",
    "SETRANGE lock:job 0 x",
    "SETBIT lock:job 0 1",
    "BITFIELD lock:job SET u8 0 255",
    "BITFIELD lock:job GET u8 0 INCRBY u8 0 1",
    "BITOP NOT lock:job string",
    "RENAME lock:job elsewhere",
    "RENAME string lock:job",
    "RENAMENX lock:job elsewhere",
    "RENAMENX string lock:job",
    "COPY string lock:job REPLACE",
    "MOVE lock:job 5",
    "SORT list ALPHA STORE lock:job",
    "SORT list ALPHA STORE elsewhere STORE lock:job",
    "HSET lock:job f v",
    "HMSET lock:job f v",
    "HSETNX lock:job f v",
    "HDEL lock:job f",
    "HINCRBY lock:job f 1",
    "HINCRBYFLOAT lock:job f 1",
    "LPUSH lock:job x",
    "RPUSH lock:job x",
    "LPUSHX lock:job x",
    "RPUSHX lock:job x",
    "LINSERT lock:job BEFORE a b",
    "LSET lock:job 0 x",
    "LREM lock:job 0 x",
    "LTRIM lock:job 0 0",
    "LPOP lock:job",
    "RPOP lock:job",
    "LMOVE list lock:job LEFT RIGHT",
    "LMOVE lock:job list LEFT RIGHT",
    "RPOPLPUSH list lock:job",
    "BLMOVE list lock:job LEFT RIGHT 1",
    "BRPOPLPUSH list lock:job 1",
    "BLPOP lock:job 1",
    "BRPOP absent lock:job 1",
    "SADD lock:job x",
    "SREM lock:job x",
    "SPOP lock:job",
    "SMOVE set lock:job a",
    "SMOVE lock:job set a",
    "SDIFFSTORE lock:job set",
    "SINTERSTORE lock:job set",
    "SUNIONSTORE lock:job set",
    "ZADD lock:job 1 x",
    "ZINCRBY lock:job 1 x",
    "ZREM lock:job x",
    "ZPOPMIN lock:job",
    "ZPOPMAX lock:job",
    "ZREMRANGEBYRANK lock:job 0 1",
    "ZREMRANGEBYSCORE lock:job 0 1",
    "ZREMRANGEBYLEX lock:job [a [b",
    "BZPOPMIN lock:job 1",
    "BZPOPMAX absent lock:job 1",
    "ZUNIONSTORE lock:job 1 zset",
    "ZINTERSTORE lock:job 1 zset",
    "ZDIFFSTORE lock:job 1 zset",
    "ZRANGESTORE lock:job zset 0 -1",
    "GEOADD lock:job 13 38 here",
    "GEORADIUS geo 13 38 100 km STORE lock:job",
    "GEORADIUSBYMEMBER geo here 100 km STOREDIST lock:job",
    "GEOSEARCHSTORE lock:job geo FROMMEMBER here BYRADIUS 100 km",
    "PFADD lock:job x",
    "PFMERGE lock:job hll",
    "PFMERGE elsewhere lock:job",
    "PFCOUNT lock:job",
    "XADD lock:job 1-1 f v",
    "XDEL lock:job 1-1",
    "XTRIM lock:job MAXLEN 1",
    "XSETID lock:job 1-1",
    "XACK lock:job g 1-1",
    "XGROUP CREATE lock:job g $ MKSTREAM",
    "XGROUP DESTROY lock:job g",
    "XREADGROUP GROUP g c STREAMS lock:job >",
    "XCLAIM lock:job g c 0 1-1",
    "XAUTOCLAIM lock:job g c 0 0",
    "MSET plain x lock:job x",
    "MSETNX absent x lock:job x",
    "append lock:job x",
    "hSeT lock:job f v",
];

/// The same, for servers that have these commands.
const WRITES_SINCE_7_0: &[&str] = &[
    "LMPOP 2 absent lock:job LEFT",
    "BLMPOP 1 2 absent lock:job LEFT",
    "ZMPOP 1 lock:job MIN",
    "BZMPOP 1 1 lock:job MIN",
];

fn writes() -> Vec<&'static str> {
    let newer = if Server::under_test().lacks("LMPOP and ZMPOP", 7, 0) { &[] } else { WRITES_SINCE_7_0 };
    [WRITES, newer].concat()
}

const READS: &[&str] = &[
    "GET lock:job",
    "MGET lock:job string",
    "GETRANGE lock:job 0 1",
    "STRLEN lock:job",
    "GETBIT lock:job 0",
    "BITCOUNT lock:job",
    "BITFIELD lock:job GET u8 0",
    "BITFIELD_RO lock:job GET u8 0",
    "EXISTS lock:job lock:job string",
    "TOUCH lock:job",
    "TYPE lock:job",
    "OBJECT ENCODING lock:job",
    "SORT_RO list ALPHA",
    "HGET lock:job f",
    "LRANGE lock:job 0 -1",
    "SMEMBERS lock:job",
    "ZRANGE lock:job 0 -1",
    "XLEN lock:job",
    "LCS lock:job string",
    "BITOP NOT elsewhere lock:job",
    "COPY lock:job elsewhere",
    "SUNIONSTORE elsewhere set",
];

/// The same keys on any server.
fn furnish(redis: &Redis) {
    let client = redis.client();
    client.sends("FLUSHALL").gets("+OK");
    for line in [
        "SET string hello",
        "RPUSH list a b c",
        "SADD set a",
        "ZADD zset 1 a 2 b",
        "GEOADD geo 13 38 here",
        "PFADD hll a b",
    ] {
        client.sends(line).reply();
    }
}

const TAKE: &str = "SET lock:job 12345 NX PX 9000";

#[test]
fn enforced_no_write_without_a_lock_meaning_changes_a_lock() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    furnish(&redis);
    alice.sends(TAKE).gets("+OK");
    let before = redis.lease("lock:job");
    for line in writes() {
        for client in [&bob, &alice] {
            client.sends(line).gets_error("LOCKDENIED opaque-write key=lock:job cmd=");
            assert_eq!(redis.lease("lock:job"), before, "{line}");
        }
    }
    assert!(redis.is_free("elsewhere") && redis.is_free("plain"));
    proxy.counts(
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"write\",reason=\"opaque-write\",decision=\"deny\"}",
        2.0 * writes().len() as f64,
    );
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn enforced_no_write_without_a_lock_meaning_makes_a_lock() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let bob = proxy.client();
    furnish(&redis);
    for line in writes() {
        bob.sends(line).gets_error("LOCKDENIED opaque-write key=lock:job cmd=");
        assert!(redis.is_free("lock:job"), "{line}");
    }
}

#[test]
fn enforced_dump_and_restore_cannot_bring_a_lock_into_being() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let bob = proxy.client();
    furnish(&redis);
    let dump = bob.sends("DUMP string").reply();
    bob.sends_arguments(&[b"RESTORE".as_slice(), b"lock:job", b"0", dump.bytes()])
        .gets_error("LOCKDENIED opaque-write");
    assert!(redis.is_free("lock:job"));
}

#[test]
fn enforced_a_write_that_the_server_does_not_have_is_for_the_server_to_refuse() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends(TAKE).gets("+OK");
    for line in ["HSETEX lock:job EX 1 FIELDS 1 f v", "HEXPIRE lock:job 1 FIELDS 1 f", "HGETDEL lock:job FIELDS 1 f"] {
        let name = line.split(' ').next().unwrap_or_default();
        let known = redis.client().sends(format!("COMMAND INFO {name}")).reply();
        alice.sends(line).gets_error(if known.elements()[0].to_string().starts_with("nil") {
            // Clients that try a newer command first fall back on exactly these words.
            "ERR unknown command"
        } else {
            "LOCKDENIED opaque-write"
        });
    }
    alice.sends("FROBNICATE lock:job").gets_error("ERR unknown command");
    assert_eq!(redis.value("lock:job"), "$5 12345");
}

#[test]
fn reads_of_a_lock_pass_untouched() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, direct) = (proxy.client(), redis.client());
    furnish(&redis);
    alice.sends(TAKE).gets("+OK");
    let before = redis.lease("lock:job");
    for line in READS {
        let expected = direct.sends(*line).reply();
        redis.client().sends("DEL elsewhere").reply();
        proxy.client().sends(*line).gets(expected);
        redis.client().sends("DEL elsewhere").reply();
        assert_eq!(redis.lease("lock:job"), before, "{line}");
    }
}

#[test]
fn monitored_every_write_does_what_it_does_without_the_proxy_and_is_counted() {
    let (plain, watched) = (Redis::start(), Redis::start());
    let proxy = Proxy::builder(&watched).mode(Mode::Monitor).start();
    for line in writes() {
        furnish(&plain);
        furnish(&watched);
        let (direct, through) = (plain.client(), proxy.client());
        direct.sends(TAKE).gets("+OK");
        through.sends(TAKE).gets("+OK");
        let expected = direct.sends(line).reply();
        through.sends(line).gets(expected);
        let look = "EVAL \"local k = redis.call('keys', '*') local kept = {} for _, n in ipairs(k) do if n:sub(1, 3) ~= 'lw:' then kept[#kept + 1] = n .. ' ' .. redis.sha1hex(redis.call('dump', n)) end end table.sort(kept) return kept\" 0";
        let after = plain.client().sends(look).reply();
        watched.client().sends(look).gets(after);
    }
    proxy.counts(
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"write\",reason=\"opaque-write\",decision=\"would-deny\"}",
        writes().len() as f64,
    );
}

#[test]
fn no_client_may_name_a_companion() {
    // Globs that match the names of records as well.
    for keys in ["lock:*", "*:job", "*"] {
        name_companions(keys);
    }
}

fn name_companions(keys: &str) {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("keys", &format!("[\"{keys}\"]")).start();
    let alice = proxy.client();
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let names = redis.client().sends("KEYS lw:{*}:lock:job").reply();
    let name = names.elements()[0].text();
    let before = redis.lease("lock:job");
    for line in [
        "GET {}",
        "DEL {}",
        "SET {} x",
        "SETNX {} x",
        "SET {} x NX PX 9",
        "GETSET {} x",
        "EXPIRE {} 1",
        "INCR {}",
        "APPEND {} x",
        "RENAME {} elsewhere",
        "EXISTS plain {}",
        "DEBUG OBJECT {}",
        "DEBUG DIGEST-VALUE plain {}",
        "EVAL \"return redis.call('del', KEYS[1])\" 1 {}",
        "EVAL \"return redis.call('del', '{}')\" 0",
    ] {
        let line = line.replace("{}", &name);
        let text = alice.sends(&line).gets_error("");
        assert!(text.starts_with("LOCKDENIED") || text.starts_with("NOPERM"), "{keys}: {line}: {text}");
        assert_eq!(redis.lease("lock:job"), before, "{keys}: {line}");
    }
    // An application's own names that begin alike are its own.
    if keys != "*" {
        alice.sends("SET lw:mine 1").gets("+OK");
        alice.sends("SET lw:{x}:plain 1").gets("+OK");
    }
    assert_eq!(alice.sends("KEYS lw:{*}:lock:job").reply().elements().len(), 0);
}
