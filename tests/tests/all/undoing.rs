//! What a refused script leaves behind: its locks are as before. All other keys are either as before, too, or
//! all as the script left them. There is no third case, whatever the script does to whatever keys.

use lockwarden_tests::{Client, Proxy, Redis, Server};

use crate::held::{ALICES, Held};

mod random;

const NOT_HIS: &str = "-LOCKDENIED not-owner key=lock:job";

impl Held {
    fn effects_left(&self, count: f64) {
        self.proxy.counts("lockwarden_script_effects_left_total{namespace=\"locks\"}", count);
    }
}

fn jobs(client: &Client, queue: &str, count: usize) {
    let mut words = vec!["RPUSH".to_owned(), queue.to_owned()];
    words.extend((0..count).map(|number| format!("job:{number}:{}", "x".repeat(32))));
    assert_eq!(client.sends_arguments(&words).integer(), count as i64);
}

/// A queue that is too large to be copied is moved, and a stranger's lock is freed: not one job is lost.
#[test]
fn a_queue_that_a_refused_script_has_moved_is_not_lost() {
    let held = Held::new();
    jobs(&held.bob, "queue", 3_000);
    let said = held.refuses(
        NOT_HIS,
        "redis.call('rename', KEYS[2], KEYS[3]) return redis.call('del', KEYS[1])",
        &["lock:job", "queue", "taken"],
        &[],
    );
    assert!(said.contains(" undone=locks hint=\"only the locks were put back"), "{said}");
    held.bob.sends("EXISTS queue").gets(":0");
    held.bob.sends("LLEN taken").gets(":3000");
    held.effects_left(1.0);
    held.proxy.logs(&["refused", "lock:job"]);
    held.alice.sends("DEL lock:job").gets(":1");
}

/// One job goes from a large queue to a small one: it is in one of them, and not in both.
#[test]
fn a_job_that_a_refused_script_has_moved_is_neither_lost_nor_doubled() {
    for declared in [true, false] {
        let held = Held::new();
        jobs(&held.bob, "queue", if declared { 3_000 } else { 3 });
        let jobs = held.bob.sends("LLEN queue").integer();
        let text = if declared {
            "redis.call('rpoplpush', KEYS[2], KEYS[3]) return redis.call('del', KEYS[1])"
        } else {
            "local from = redis.call('echo', ARGV[1]) redis.call('rpoplpush', from, KEYS[2]) \
             return redis.call('del', KEYS[1])"
        };
        let keys: &[&str] = match declared {
            true => &["lock:job", "queue", "work"],
            false => &["lock:job", "work"],
        };
        held.refuses(NOT_HIS, text, keys, &["queue"]);
        let (left, moved) = (held.bob.sends("LLEN queue").integer(), held.bob.sends("LLEN work").integer());
        assert_eq!(left + moved, jobs, "{left} and {moved}");
    }
}

/// Small keys that the script names are put back as they were: values, types, groups, TTLs, and no key where
/// there was none.
#[test]
fn everything_is_put_back_that_a_copy_was_taken_of() {
    let held = Held::new();
    let bob = &held.bob;
    bob.sends("RPUSH list a b c").gets(":3");
    bob.sends("PEXPIREAT list 9000000000000").gets(":1");
    bob.sends("XADD stream 1-1 f v").gets("$3 1-1");
    bob.sends("XGROUP CREATE stream g 0").gets("+OK");
    bob.sends("XREADGROUP GROUP g c COUNT 1 STREAMS stream >").reply();
    bob.sends("HSET hash f 1").gets(":1");
    let expires_fields = !bob.sends("HPEXPIREAT hash 9000000000000 FIELDS 1 f").reply().to_string().starts_with('-');
    let said = held.refuses(NOT_HIS, "redis.call('del', KEYS[2]) redis.call('xack', KEYS[3], 'g', '1-1') redis.call('xadd', KEYS[3], '2-1', 'f', 'w') \
         redis.call('hset', KEYS[4], 'f', 2) redis.call('set', KEYS[5], 'new') redis.call('set', ARGV[1] .. ':made', 1) \
         return redis.call('del', KEYS[1])",
        &["lock:job", "list", "stream", "hash", "fresh"],
        &["told"],
    );
    assert!(!said.contains("undone="), "{said}");
    bob.sends("LRANGE list 0 -1").gets("[$1 a, $1 b, $1 c]");
    assert!(held.redis.pttl("list") > 1_000_000_000);
    bob.sends("XLEN stream").gets(":1");
    bob.sends("XPENDING stream g").gets("[:1, $3 1-1, $3 1-1, [[$1 c, $1 1]]]");
    bob.sends("HGET hash f").gets("$1 1");
    if expires_fields {
        bob.sends("HPEXPIRETIME hash FIELDS 1 f").gets("[:9000000000000]");
    }
    bob.sends("EXISTS fresh told:made").gets(":0");
    held.effects_left(0.0);
}

/// The script's own "no" would say that it did nothing.
#[test]
fn a_script_whose_effects_stand_is_answered_by_an_error() {
    let held = Held::new();
    let bob = &held.bob;
    held.alice.sends("DEL lock:job").gets(":1");
    held.alice.sends("SET lock:job same NX PX 8000").gets("+OK");
    jobs(bob, "signal", 3_000);
    // Another's constant value is compared with, and a signal is given beside it.
    let text = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 7 end \
        redis.call('lpush', KEYS[2], 1) redis.call('del', KEYS[1]) return 0";
    let said = held.refuses(NOT_HIS, text, &["lock:job", "signal"], &["same"]);
    assert!(said.contains("undone=locks"), "{said}");
    bob.sends("LLEN signal").gets(":3001");
    bob.sends("DEL signal").gets(":1");
    assert_eq!(bob.eval(text, &["lock:job", "signal"], &["same"]), ":7");
    bob.sends("EXISTS signal").gets(":0");
}

/// The audit trail says it, too.
#[test]
fn what_stands_is_in_the_audit_trail() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("audit_file", "\"audit.jsonl\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    jobs(&bob, "queue", 3_000);
    let text = "redis.call('rpop', KEYS[2]) return redis.call('del', KEYS[1])";
    let said = bob.eval(text, &["lock:job", "queue"], &[]);
    assert!(said.contains("undone=locks"), "{said}");
    let file = proxy.directory().join("audit.jsonl");
    lockwarden_tests::wait_for("the entry", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().any(|line| {
            line.contains("not-owner")
                && line.contains("only the locks were put back: what the script did to other keys stands")
        })
    });
}

/// A server that was out of memory when the script began gets its lock back all the same.
#[test]
fn a_lock_is_put_back_when_memory_is_out() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    let hers = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    let enter = "redis.call('hincrby', KEYS[1], ARGV[2], 1) return redis.call('pexpire', KEYS[1], ARGV[1])";
    assert_eq!(alice.eval(enter, &["lock:h"], &["8000", hers]), ":1");
    bob.sends("RPUSH queue a b").gets(":2");
    let direct = redis.client();
    direct.sends("CONFIG SET maxmemory 500kb").gets("+OK");
    bob.sends("SET x y").gets_error("OOM");
    for key in ["lock:job", "lock:h"] {
        let before = redis.lease(key);
        let text = "redis.call('del', KEYS[1]) redis.call('del', KEYS[2]) return 1";
        let said = bob.eval(text, &[key, "queue"], &[]);
        // Redis before 7.0 cannot be asked for rights while memory is out, so nothing is run there.
        assert!(said.starts_with('-'), "{said}");
        assert_eq!(redis.lease(key), before, "{said}");
        bob.sends("LLEN queue").gets(":2");
    }
    direct.sends("CONFIG SET maxmemory 0").gets("+OK");
    direct.sends(format!("HGET lock:h {hers}")).gets("$1 1");
    alice.sends("DEL lock:job").gets(":1");
}

/// Where nothing that the script may do could be refused, nothing is copied: a holder's release is as fast as it can be.
#[test]
fn nothing_is_copied_for_a_holder() {
    let held = Held::new();
    held.bob.sends("RPUSH signal a b").gets(":2");
    let text = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end \
        redis.call('rpush', KEYS[2], 1) redis.call('del', KEYS[1]) return 0";
    let direct = held.redis.client();
    // Before Redis 7.0 each script tries once whether it may.
    let dumps = || direct.calls("dump");
    let before = dumps();
    assert_eq!(held.alice.eval(text, &["lock:job", "signal"], &[ALICES]), ":0");
    let holders = dumps() - before;
    held.alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    assert_eq!(held.bob.eval(text, &["lock:job", "signal"], &["other"]), ":1");
    let strangers = dumps() - before - holders;
    let trials = u64::from(!Server::under_test().since(7, 0));
    assert_eq!(holders, trials);
    assert!(strangers > trials, "one may have to be put back");
}
