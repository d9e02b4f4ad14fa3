//! An estate in which every library takes its locks in its own way, with the bytes that it sends. `lockwarden discover` finds
//! each family and understands it, or says that it does not, and why. It proposes nothing else, and `lockwarden check` finds
//! no fault in the file that it proposes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use lockwarden_tests::{Client, Proxy, Redis, Reply, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// Keys that are alike, and one turn of their use. A line begins with the name of a connection; `new` is one for that line
/// alone. `{n}` is a number, `{t}` a library's owner token, `{at}` a time in a minute.
struct Family {
    glob: &'static str,
    is: Is,
    turn: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Lock,
    /// A lock that one client takes and another gives back.
    HandedOver,
    /// Reported as no lock, or as not understood: the word of the table, and the words of the reason.
    LeftOut(&'static str, &'static str),
}

use Is::{HandedOver, LeftOut, Lock};

const fn family(glob: &'static str, is: Is, turn: &'static [&'static str]) -> Family {
    Family { glob, is, turn }
}

/// Compare and delete, as redlock-py and many others send it.
const CAD: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Scripts by the names that the turns have for them.
const SCRIPTS: &[(&str, &str)] = &[
    ("$cad", CAD),
    (
        "$redis-py",
        "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) return 1",
    ),
    (
        "$prl",
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 else redis.call('del', KEYS[2]) redis.call('lpush', KEYS[2], 1) \
         redis.call('pexpire', KEYS[2], ARGV[2]) redis.call('del', KEYS[1]) return 0 end",
    ),
    (
        "$aio-set",
        "local identifier = redis.call('get', KEYS[1]) if not identifier or identifier == ARGV[1] then return \
         redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) else return redis.error_reply('ERROR') end",
    ),
    (
        "$aio-unset",
        "local identifier = redis.call('get', KEYS[1]) if not identifier then return redis.status_reply('OK') elseif identifier \
         == ARGV[1] then return redis.call('del', KEYS[1]) else return redis.error_reply('ERROR') end",
    ),
    (
        "$sherlock",
        "local result = redis.call('SETNX', KEYS[1], ARGV[1]) if result == 1 and ARGV[2] ~= -1 then redis.call('EXPIRE', KEYS[1], \
         ARGV[2]) end return result",
    ),
    (
        "$bsm",
        "local val = redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[3]) if val then return val end local offset = \
         tonumber(ARGV[2]) if redis.call('getrange', KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset) then return \
         redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[3]) end",
    ),
    (
        "$redsync",
        "local val = redis.call('GET', KEYS[1]) if val == ARGV[1] then return redis.call('DEL', KEYS[1]) elseif val == false then \
         return -1 else return 0 end",
    ),
    ("$rueidis", "local r = redis.call('SET',KEYS[1],ARGV[1],'NX','PXAT',ARGV[2]);redis.call('GET',KEYS[1]);return r"),
    (
        "$asynq-unique",
        "local ok = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) if not ok then return -1 end if redis.call('EXISTS', \
         KEYS[2]) == 1 then return 0 end redis.call('HSET', KEYS[2], 'msg', ARGV[3], 'unique_key', KEYS[1]) redis.call('LPUSH', \
         KEYS[3], ARGV[1]) return 1",
    ),
    (
        "$asynq-done",
        "if redis.call('LREM', KEYS[1], 0, ARGV[1]) == 0 then return redis.error_reply('NOT FOUND') end if redis.call('DEL', \
         KEYS[2]) == 0 then return redis.error_reply('NOT FOUND') end if redis.call('GET', KEYS[3]) == ARGV[1] then \
         redis.call('DEL', KEYS[3]) end return redis.status_reply('OK')",
    ),
    (
        "$redisson-lock",
        "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', \
         KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);",
    ),
    (
        "$redisson-unlock",
        "local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; if (redis.call('hexists', KEYS[1], \
         ARGV[3]) == 0) then return nil;end; local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then \
         redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; else redis.call('del', \
         KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; ",
    ),
    (
        "$spring-obtain",
        "local lockClientId = redis.call('GET', KEYS[1]) if lockClientId == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) \
         return true elseif not lockClientId then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end return false",
    ),
    (
        "$spring-release",
        "local lockClientId = redis.call('GET', KEYS[1]) if lockClientId == ARGV[1] then redis.call('UNLINK', KEYS[1]) \
         redis.call('PUBLISH', ARGV[2], KEYS[1]) return true end return false",
    ),
    (
        "$redlock4-lock",
        "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end for i, key in ipairs(KEYS) do \
         redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
    ),
    (
        "$redlock4-unlock",
        "local count = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then redis.pcall('del', key) count = \
         count + 1 end end return count",
    ),
    (
        "$redlock-rb",
        "if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or redis.call('get', KEYS[1]) == ARGV[1] then return \
         redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
    ),
    (
        "$symfony-save",
        "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1]) if redis.call('ZCARD', KEYS[1]) > 0 and not \
         redis.call('ZSCORE', KEYS[1], ARGV[2]) then return false end redis.call('ZADD', KEYS[1], ARGV[3], ARGV[2]) return true",
    ),
    ("$symfony-delete", "redis.call('ZREM', KEYS[1], ARGV[1]) return true"),
    (
        "$suj-lock",
        "if redis.call('HLEN', KEYS[2]) >= 1 then return nil end redis.call('HSET', KEYS[2], ARGV[1], 1) redis.call('LPUSH', KEYS[1], \
         ARGV[1]) return ARGV[1]",
    ),
    ("$suj-unlock", "redis.call('HDEL', KEYS[2], ARGV[1]) redis.call('DEL', KEYS[1]) return ARGV[1]"),
];

const FAMILIES: &[Family] = &[
    // redis-py's Lock, on one connection for each thread, and what is built on it.
    family(
        "stock:lease:*",
        Lock,
        &[
            "a> SET stock:lease:{n} {t} NX PX 9000",
            "b> SET stock:lease:{n} other-{t} NX PX 9000",
            "a> EVAL \"$redis-py\" 1 stock:lease:{n} {t}",
        ],
    ),
    family(
        "redbeat::lock",
        Lock,
        &[
            "a> SET redbeat::lock {t} NX EX 60",
            "b> SET redbeat::lock other-{t} NX EX 60",
            "a> GET redbeat::lock",
            "a> EVAL \"$redis-py\" 1 redbeat::lock {t}",
        ],
    ),
    // pottery, redlock-py, madelson/DistributedLock, RedLock.net, rslock: SET NX PX, compare and delete.
    family(
        "redlock:*",
        Lock,
        &[
            "a> SET redlock:{n} {t} NX PX 10000",
            "b> SET redlock:{n} other-{t} NX PX 10000",
            "a> EVAL \"$cad\" 1 redlock:{n} {t}",
        ],
    ),
    family(
        "lock:report:*",
        Lock,
        &[
            "a> GET lock:report:{n}",
            "a> SET lock:report:{n} {t} NX EX 10",
            "b> GET lock:report:{n}",
            "b> SET lock:report:{n} other-{t} NX EX 10",
            "a> EVAL \"$prl\" 2 lock:report:{n} lock-signal:report:{n} {t} 1000",
            "b> BLPOP lock-signal:report:{n} 1",
        ],
    ),
    family(
        "aio:*",
        Lock,
        &[
            "a> EVAL \"$aio-set\" 1 aio:{n} {t} 10000",
            "b> EVAL \"$aio-set\" 1 aio:{n} other-{t} 10000",
            "a> EVAL \"$aio-unset\" 1 aio:{n} {t}",
        ],
    ),
    family(
        "sherlock_*",
        Lock,
        &[
            "a> EVAL \"$sherlock\" 1 sherlock_{n} {t} 60",
            "b> EVAL \"$sherlock\" 1 sherlock_{n} other-{t} 60",
            "a> EVAL \"$cad\" 1 sherlock_{n} {t}",
        ],
    ),
    family(
        "huey.locks",
        LeftOut("unclear", "each field of a hash is a lock of its own"),
        &["a> HSETNX huey.locks task-{n} 1", "b> HSETNX huey.locks task-{n} 1", "a> HDEL huey.locks task-{n}"],
    ),
    // celery-once and celery-singleton: the one queues, the other gives back.
    family(
        "qo_tasks.mail_*",
        HandedOver,
        &[
            "web> SET qo_tasks.mail_{n} {t} NX PX 3600000",
            "web> SET qo_tasks.mail_{n} other-{t} NX PX 3600000",
            "web> PTTL qo_tasks.mail_{n}",
            "worker> DEL qo_tasks.mail_{n}",
        ],
    ),
    family(
        "SINGLETONLOCK_*",
        HandedOver,
        &[
            "web> SET SINGLETONLOCK_{n} {t} NX",
            "web> SET SINGLETONLOCK_{n} other-{t} NX",
            "web> GET SINGLETONLOCK_{n}",
            "worker> DEL SINGLETONLOCK_{n}",
        ],
    ),
    family(
        "arq:in-progress:*",
        Lock,
        &[
            "a> WATCH arq:in-progress:{n}",
            "a> EXISTS arq:in-progress:{n}",
            "a> MULTI",
            "a> PSETEX arq:in-progress:{n} 310000 1",
            "a> EXEC",
            "b> WATCH arq:in-progress:{n}",
            "b> EXISTS arq:in-progress:{n}",
            "b> UNWATCH",
            "a> MULTI",
            "a> DEL arq:in-progress:{n} arq:retry:{n}",
            "a> EXEC",
        ],
    ),
    family(
        "dramatiq:limit:*",
        LeftOut("marker", "never given back"),
        &[
            "a> WATCH dramatiq:limit:{n}",
            "a> GET dramatiq:limit:{n}",
            "a> MULTI",
            "a> SET dramatiq:limit:{n} 1 PX 900000",
            "a> EXEC",
        ],
    ),
    family(
        "bsm:*",
        Lock,
        &[
            "a> EVAL \"$bsm\" 1 bsm:{n} {t} 22 10000",
            "b> EVAL \"$bsm\" 1 bsm:{n} other-{t} 22 10000",
            "a> EVAL \"$cad\" 1 bsm:{n} {t}",
        ],
    ),
    family(
        "my-global-mutex",
        Lock,
        &[
            "a> set my-global-mutex {t} ex 8 nx",
            "b> set my-global-mutex other-{t} ex 8 nx",
            "b> EVAL \"$redsync\" 1 my-global-mutex other-{t}",
            "a> EVAL \"$redsync\" 1 my-global-mutex {t}",
        ],
    ),
    family(
        "rueidislock:*:jobs",
        Lock,
        &[
            "a> EVAL \"$rueidis\" 1 rueidislock:{n}:jobs {t} {at}",
            "b> EVAL \"$rueidis\" 1 rueidislock:{n}:jobs other-{t} {at}",
            "a> EVAL \"$cad\" 1 rueidislock:{n}:jobs {t}",
        ],
    ),
    family(
        "asynq:{default}:unique:mail:*",
        Lock,
        &[
            "a> EVAL \"$asynq-unique\" 3 asynq:{default}:unique:mail:{n} asynq:{default}:t:{t} asynq:{default}:pending {t} 600 message",
            "b> EVAL \"$asynq-unique\" 3 asynq:{default}:unique:mail:{n} asynq:{default}:t:o{t} asynq:{default}:pending o{t} 600 message",
            "server> EVAL \"$asynq-done\" 3 asynq:{default}:pending asynq:{default}:t:{t} asynq:{default}:unique:mail:{n} {t}",
        ],
    ),
    // An acquire that cannot be recognised, and a release that can.
    family(
        "opaque:*",
        Lock,
        &[
            "a> EVAL \"return redis.call(ARGV[1], KEYS[1], ARGV[2])\" 1 opaque:{n} SET {t}",
            "a> EVAL \"$cad\" 1 opaque:{n} {t}",
        ],
    ),
    family(
        "redisson:*",
        Lock,
        &[
            "a> EVAL \"$redisson-lock\" 1 redisson:{n} 30000 {t}:1",
            "b> EVAL \"$redisson-lock\" 1 redisson:{n} 30000 other-{t}:1",
            "a> EVAL \"$redisson-unlock\" 3 redisson:{n} redisson_lock__channel:{n} redisson_unlock_latch:{n}:{t} 0 30000 {t}:1 PUBLISH 13500",
        ],
    ),
    family(
        "registry:*",
        Lock,
        &[
            "a> EVAL \"$spring-obtain\" 1 registry:{n} {t} 60000",
            "b> EVAL \"$spring-obtain\" 1 registry:{n} other-{t} 60000",
            "a> EVAL \"$spring-release\" 1 registry:{n} {t} registry-channel:{n}",
        ],
    ),
    family(
        "job-lock:default:*",
        Lock,
        &[
            "a> SET job-lock:default:{n} ADDED:2026-11-24T22:00:00Z@host:{t} NX PX 60000",
            "b> SET job-lock:default:{n} ADDED:2026-11-24T22:00:00Z@other:{t} NX PX 60000",
            "a> DEL job-lock:default:{n}",
        ],
    ),
    // RedisTemplate.setIfAbsent, and hand-written code before it.
    family(
        "order:*:lock",
        Lock,
        &[
            "a> SETNX order:{n}:lock 1",
            "a> EXPIRE order:{n}:lock 30",
            "b> SETNX order:{n}:lock 1",
            "a> DEL order:{n}:lock",
        ],
    ),
    family(
        "seats:row:*",
        Lock,
        &[
            "a> EVAL \"$redlock4-lock\" 2 seats:row:{n} seats:row:9{n} {t} 5000",
            "b> EVAL \"$redlock4-lock\" 2 seats:row:{n} seats:row:8{n} other-{t} 5000",
            "a> EVAL \"$redlock4-unlock\" 2 seats:row:{n} seats:row:9{n} {t}",
        ],
    ),
    family(
        "mutex:*",
        Lock,
        &[
            "a> SET mutex:{n} {t} PX 10000 NX",
            "b> SET mutex:{n} other-{t} PX 10000 NX",
            "a> EVAL \"$cad\" 1 mutex:{n} {t}",
        ],
    ),
    family("lock.*", Lock, &["a> SET lock.{n} {at} PX 5000 NX", "b> SET lock.{n} {at} PX 5000 NX", "a> DEL lock.{n}"]),
    family(
        "laravel_cache:*",
        Lock,
        &[
            "a> SET laravel_cache:{n} {t} EX 10 NX",
            "b> SET laravel_cache:{n} other-{t} EX 10 NX",
            "a> EVAL \"$cad\" 1 laravel_cache:{n} {t}",
        ],
    ),
    // Unique jobs: a request of the web queues, over a connection of its own; a worker forces the release.
    family(
        "laravel_unique_job:*",
        HandedOver,
        &[
            "new> SET laravel_unique_job:{n} {t} EX 3600 NX",
            "new> SET laravel_unique_job:{n} other-{t} EX 3600 NX",
            "worker> DEL laravel_unique_job:{n}",
        ],
    ),
    family(
        "symfony-lock:*",
        LeftOut("unclear", "scripts that are not understood work on it"),
        &[
            "a> EVAL \"$symfony-save\" 1 symfony-lock:{n} 0 {t} {at}",
            "b> EVAL \"$symfony-save\" 1 symfony-lock:{n} 0 other-{t} {at}",
            "a> EVAL \"$symfony-delete\" 1 symfony-lock:{n} {t}",
        ],
    ),
    family(
        "invoice.*",
        Lock,
        &[
            "a> EVAL \"$redlock-rb\" 1 invoice.{n} {t} 2000 yes",
            "b> EVAL \"$redlock-rb\" 1 invoice.{n} other-{t} 2000 yes",
            "a> EVAL \"$cad\" 1 invoice.{n} {t}",
        ],
    ),
    family(
        "uniquejobs:*:LOCKED",
        LeftOut("unclear", "scripts that are not understood work on it"),
        &[
            "a> EVAL \"$suj-lock\" 2 uniquejobs:{n} uniquejobs:{n}:LOCKED {t}",
            "b> EVAL \"$suj-lock\" 2 uniquejobs:{n} uniquejobs:{n}:LOCKED other-{t}",
            "a> EVAL \"$suj-unlock\" 2 uniquejobs:{n} uniquejobs:{n}:LOCKED {t}",
        ],
    ),
    // StackExchange.Redis, and Jedis by hand.
    family(
        "tenant:*:exclusive",
        Lock,
        &[
            "a> SET tenant:{n}:exclusive {t} NX PX 30000",
            "b> SET tenant:{n}:exclusive other-{t} NX PX 30000",
            "a> WATCH tenant:{n}:exclusive",
            "a> GET tenant:{n}:exclusive",
            "a> MULTI",
            "a> DEL tenant:{n}:exclusive",
            "a> EXEC",
        ],
    ),
    // The GETSET idiom: a client that is refused looks whether the holder is late.
    family(
        "quote.*",
        Lock,
        &["a> SETNX quote.{n} {at}", "b> SETNX quote.{n} {at}", "b> GET quote.{n}", "a> DEL quote.{n}"],
    ),
    family(
        "import:running",
        Lock,
        &["a> INCR import:running", "a> EXPIRE import:running 60", "b> INCR import:running", "a> DEL import:running"],
    ),
    // redis-cli in a script: each command is a client of its own.
    family(
        "nightly:export",
        Lock,
        &[
            "new> SET nightly:export 4711 NX EX 600",
            "new> SET nightly:export 4712 NX EX 600",
            "new> DEL nightly:export",
        ],
    ),
    // Users of one digit are part of those with more.
    family(
        "account:u*:lock",
        Lock,
        &[
            "a> SET account:u{i}:lock {t} NX PX 9000",
            "b> SET account:u{i}:lock other-{t} NX PX 9000",
            "a> EVAL \"$cad\" 1 account:u{i}:lock {t}",
        ],
    ),
    // What is taken by the same commands, and is no lock.
    family(
        "cart:*",
        LeftOut("cache", "its value is read while it is there"),
        &[
            "a> SET cart:{n} {'items':[]} NX EX 3600",
            "b> GET cart:{n}",
            "b> SET cart:{n} {'items':[7]} XX KEEPTTL",
            "a> SET cart:{n} {'items':[]} NX EX 3600",
            "a> GET cart:{n}",
            "a> DEL cart:{n}",
        ],
    ),
    family(
        "otp:*",
        LeftOut("cache", "its value is read while it is there"),
        &[
            "a> SET otp:{n} 481516 NX EX 300",
            "b> GET otp:{n}",
            "b> DEL otp:{n}",
            "b> SET otp:{n} 234223 NX EX 300",
            "a> GET otp:{n}",
            "a> DEL otp:{n}",
        ],
    ),
    family(
        "cb:payments",
        LeftOut("cache", "its value is read while it is there"),
        &[
            "a> SET cb:payments open NX EX 30",
            "b> SET cb:payments open NX EX 30",
            "b> GET cb:payments",
            "c> GET cb:payments",
            "a> DEL cb:payments",
        ],
    ),
    family(
        "page:*",
        LeftOut("cache", "deleted by clients that never take it"),
        &["a> SET page:{n} {'title':1} NX EX 60", "b> GET page:{n}", "editor> DEL page:{n}"],
    ),
    family("hits:*", LeftOut("counter", "never deleted"), &["a> INCR hits:{n}"]),
    family("done:*", LeftOut("marker", "never given back"), &["a> SET done:{i} 1 NX EX 86400"]),
];

/// Turns of each family: as many as make a verdict certain, and some.
const TURNS: u64 = 25;

fn now_ms() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is after 1970").as_millis()
}

impl Family {
    /// Every turn of it; `connect` gives each connection.
    fn is_played(&self, connect: &dyn Fn() -> Client) {
        let mut connections: BTreeMap<&str, Client> = BTreeMap::new();
        for turn in 0..TURNS {
            let number = (10 + turn % 7).to_string();
            let token = format!("5f1c{turn:04}-aa0b-{:08x}", turn * 2_654_435_761 % 0xffff_ffff);
            let at = (now_ms() + 60_000).to_string();
            for line in self.turn {
                let (name, line) = line.split_once("> ").expect("who says it");
                let mut line = line.replace("{n}", &number).replace("{t}", &token);
                line = line.replace("{at}", &at).replace("{i}", &turn.to_string());
                for (name, text) in SCRIPTS {
                    line = line.replace(&format!("\"{name}\""), &format!("\"{text}\""));
                }
                let fresh;
                let client = match name {
                    "new" => {
                        fresh = connect();
                        &fresh
                    }
                    name => connections.entry(name).or_insert_with(connect),
                };
                let reply = client.sends(&line).reply();
                let is_error = matches!(&reply, Reply::Error(_)) && !reply.error().ends_with("ERROR");
                assert!(!is_error, "{line}: {reply}");
            }
        }
    }
}

/// By four threads.
fn all_are_played(connect: &(dyn Fn() -> Client + Sync)) {
    thread::scope(|scope| {
        for some in FAMILIES.chunks(FAMILIES.len().div_ceil(4)) {
            scope.spawn(move || some.iter().for_each(|family| family.is_played(connect)));
        }
    });
}

/// What is a lock, by the globs.
fn locks() -> BTreeSet<&'static str> {
    let is_lock = |family: &&Family| matches!(family.is, Lock | HandedOver);
    FAMILIES.iter().filter(is_lock).map(|one| one.glob).collect()
}

/// `check` finds no fault in the file, with this Redis behind it.
fn is_taken_as_it_is(redis: &Redis, toml: &str) {
    let folder = tempfile::tempdir().expect("a directory for the configuration");
    let file = folder.path().join("proposed.toml");
    let text = format!("backend = \"redis://{}\"\n{toml}", redis.address());
    fs::write(&file, &text).expect("the directory is ours");
    let checked = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
    let says = format!("{}{}", checked.stdout, checked.stderr);
    assert_eq!(checked.code, Some(0), "{says}{text}");
    assert!(!says.contains("warning") && !says.contains("never reached"), "{says}{text}");
}

fn discover(proxy: &Proxy, form: &str) -> String {
    let admin = proxy.admin_address().to_string();
    let words = ["discover", "-o", form, "--admin", &admin];
    run_to_end(&mut lockwarden(&words)).stdout
}

fn patterns(proxy: &Proxy) -> BTreeMap<String, Value> {
    let found: Value = serde_json::from_str(&discover(proxy, "json")).expect("JSON");
    let all = found["patterns"].as_array().expect("a list").iter();
    all.map(|one| (one["pattern"].as_str().expect("text").to_owned(), one.clone())).collect()
}

/// The globs that a file makes locks, with what stands in their namespaces.
fn proposed(toml: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let namespaces = toml.split("[[").skip(1);
    for namespace in namespaces.filter(|text| text.starts_with("namespace]]")) {
        let keys = namespace.lines().find_map(|line| line.strip_prefix("keys = "));
        let keys: Vec<String> = serde_json::from_str(keys.expect("it has keys")).expect("a list");
        all.extend(keys.into_iter().map(|key| (key, namespace.to_owned())));
    }
    all
}

#[test]
fn every_family_is_found_and_understood_or_it_is_said_why_not() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("keys", "[\"none\"]").start();
    all_are_played(&|| proxy.client());
    // Reports come in the order of the commands.
    proxy.client().sends("SETNX end-of-it 1").gets(":1");
    let found = wait_for_value("everything to be told", || {
        let found = patterns(&proxy);
        found.contains_key("end-of-it").then_some(found)
    });
    let toml = discover(&proxy, "toml");
    let namespaces = proposed(&toml);
    let mut wrong = Vec::new();
    for family in FAMILIES {
        let Some(seen) = found.get(family.glob) else {
            wrong.push(format!("{} was not found", family.glob));
            continue;
        };
        let namespace = namespaces.get(family.glob);
        let hands_over = namespace.is_some_and(|text| text.contains("\nhand_over = true"));
        let (kind, why) = (seen["kind"].as_str(), seen["why"].to_string());
        let is_right = match family.is {
            Lock => kind == Some("lock") && namespace.is_some() && !hands_over,
            HandedOver => kind == Some("lock") && namespace.is_some() && hands_over,
            LeftOut(word, reason) => kind == Some(word) && why.contains(reason) && namespace.is_none(),
        };
        if !is_right {
            wrong.push(format!("{}: {:?}: {seen:#}", family.glob, family.is));
        }
    }
    assert!(wrong.is_empty(), "{}\n{toml}", wrong.join("\n"));

    let globs: BTreeSet<&str> = namespaces.keys().map(|glob| &glob[..]).collect();
    assert_eq!(globs, locks(), "nothing else is proposed: {toml}");
    assert!(!toml.contains("[[guard]]"), "{toml}");
    is_taken_as_it_is(&redis, &toml);
}

/// The same straight to Redis, by the feed of `MONITOR`, which has no replies, but each command of a script.
#[test]
fn by_monitor_the_same_families_are_found() {
    let redis = Redis::start();
    let url = format!("redis://{}", redis.address());
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            let watches = || redis.client().sends("CLIENT LIST").text().contains("cmd=monitor");
            wait_for("MONITOR to have begun", watches);
            all_are_played(&|| redis.client());
        });
        let words = ["discover", "--from-monitor", "15", "-o", "toml", "--max-rate", "1000000"];
        run_to_end(lockwarden(&words).args(["--backend-url", &url]))
    });
    let toml = said.stdout;
    let namespaces = proposed(&toml);
    let globs: BTreeSet<&str> = namespaces.keys().map(|glob| &glob[..]).collect();
    assert_eq!(globs, locks(), "{toml}");
    for family in FAMILIES.iter().filter(|family| family.is == HandedOver) {
        let namespace = &namespaces[family.glob];
        assert!(namespace.contains("hand_over = true"), "{toml}");
    }
    // Signals of a lock are no data under it.
    assert!(!toml.contains("[[guard]]"), "{toml}");
    is_taken_as_it_is(&redis, &toml);
}

/// Without a file `lock:*` is watched. The first file that names a namespace replaces that one, so what it has is proposed
/// with the others; and a reload that leaves it out says so.
#[test]
fn locks_of_the_namespace_that_no_file_names_are_proposed_and_missed() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).without_namespaces().start();
    let (one, two) = (proxy.client(), proxy.client());
    for turn in 0..25 {
        for key in [format!("lock:order:{}", 10 + turn % 5), "mutex.report".to_owned()] {
            one.sends(format!("SET {key} tok-{turn}-9c1e-4a07-b2d4 NX PX 5000")).gets("+OK");
            two.sends(format!("SET {key} other NX PX 5000")).gets("nil");
            one.sends(format!("EVAL \"{CAD}\" 1 {key} tok-{turn}-9c1e-4a07-b2d4")).gets(":1");
        }
        // A lock by another name of the same namespace, taken here and given back there.
        one.sends(format!("SETNX lock:unique:{} 1", 10 + turn % 5)).gets(":1");
        two.sends(format!("DEL lock:unique:{}", 10 + turn % 5)).gets(":1");
    }
    let toml = wait_for_value("all of it to be told", || {
        let found = patterns(&proxy);
        let is_whole = |glob: &str| found.get(glob).is_some_and(|one| one["granted"] == 25);
        ["lock:order:*", "lock:unique:*", "mutex.report"].into_iter().all(is_whole).then(|| discover(&proxy, "toml"))
    });
    let namespaces = proposed(&toml);
    let globs: Vec<&str> = namespaces.keys().map(|glob| &glob[..]).collect();
    assert_eq!(globs, ["lock:order:*", "lock:unique:*", "mutex.report"], "{toml}");
    assert!(namespaces["lock:unique:*"].contains("hand_over = true"), "{toml}");
    let text = discover(&proxy, "text");
    let says = "2 patterns of locks are in the namespace that is there without a file";
    assert!(text.contains(says), "{text}");
    assert!(text.contains("1 pattern of locks is in no namespace."), "{text}");
    assert_eq!(proxy.metric("lockwarden_unclaimed_lock_patterns"), 1.0);

    let before = fs::read_to_string(proxy.config()).expect("it is ours");
    let fewer = "[[namespace]]\nname = \"reports\"\nkeys = [\"mutex.report\"]\n";
    let (status, said) = proxy.reloads(format!("{before}{fewer}").as_bytes(), "/reload");
    assert_eq!(status, 200, "{said}");
    let dropped = "no locks any more: lock:* of namespace default";
    assert!(said.contains(dropped), "{said}");
}
