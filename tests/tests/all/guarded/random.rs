//! Random scripts that name ordinary keys and locks in every way there is: declared, written in the text, computed when
//! they run. After each of them every lock of another client is as it was; a script that names no lock has the effects
//! and the reply that it has on a server alone. More of them with `make soak`; `LOCKWARDEN_SEED` repeats a run.

use lockwarden_tests::soak::for_each_seed;
use lockwarden_tests::spelling::{Naming, Script, Word};
use lockwarden_tests::{Client, Numbers, Proxy, Redis};

use crate::held::ALICES;

/// Scripts of one run.
const SCRIPTS: usize = 300;

const LOCKS: &[&str] = &["lock:one", "lock:two", "lock:hash"];
const PLAIN: &[&str] = &["a:string", "a:other", "lock", "locks:none"];

/// `?` is any key.
const COMMANDS: &[&str] = &[
    "SET ? x",
    "SET ? x PX 100000",
    "SETNX ? x",
    "MSET ? x ? y",
    "GETSET ? x",
    "GETDEL ?",
    "APPEND ? x",
    "DEL ?",
    "UNLINK ? ?",
    "RENAME ? ?",
    "COPY ? ? REPLACE",
    "PEXPIRE ? 100000",
    "PERSIST ?",
    "BITOP NOT ? ?",
    "SUNIONSTORE ? ? ?",
    "SORT ? ALPHA STORE ?",
    "SADD ? x",
    "HSET ? f x",
    "HDEL ? f",
    "RPUSH ? x",
    "LMPOP 2 ? ? LEFT",
    "PFADD ? x",
    "GET ?",
    "EXISTS ?",
    "TYPE ?",
];

#[test]
fn no_random_script_changes_a_lock_of_somebody_else() {
    let arena = Arena::open();
    for_each_seed(&[1], |seed| arena.run(seed));
}

/// One server behind the proxy, one alone.
struct Arena {
    redis: Redis,
    alone: Redis,
    proxy: Proxy,
}

impl Arena {
    fn open() -> Arena {
        let (redis, alone) = (Redis::start(), Redis::start());
        let proxy = Proxy::builder(&redis).ceiling("10m").start();
        Arena { redis, alone, proxy }
    }

    fn run(&self, seed: u64) {
        let mut numbers = Numbers(seed);
        let (alice, bob) = (self.proxy.client(), self.proxy.client());
        let (behind, alone) = (self.redis.client(), self.alone.client());
        behind.sends("FLUSHALL").gets("+OK");
        take(&alice);
        let (mut refused, mut done) = (0, 0);
        for script in 0..SCRIPTS {
            alone.sends("FLUSHALL").gets("+OK");
            take(&alone);
            for client in [&behind, &alone] {
                let mut words = vec!["DEL"];
                words.extend(PLAIN);
                client.sends_arguments(&words).reply();
                client.sends("MSET a:string seven lock x").gets("+OK");
            }
            let before = self.locks();
            let (one, names_locks) = random_script(&mut numbers);
            let words = one.eval();
            let said = bob.sends_arguments(&words).reply().to_string();
            let would = alone.sends_arguments(&words).reply().to_string();
            let context = || {
                format!(
                    "LOCKWARDEN_SEED={seed}, script {script}:\n{}KEYS {:?} ARGV {:?}\nthrough the proxy: {said}\nalone: {would}",
                    one.text, one.keys, one.arguments
                )
            };
            assert_eq!(self.locks(), before, "{}", context());
            if names_locks {
                refused += usize::from(said.starts_with("-LOCKDENIED"));
                continue;
            }
            done += 1;
            assert_eq!(without_line(&said), without_line(&would), "{}", context());
            for key in PLAIN {
                assert_eq!(look(&behind, key), look(&alone, key), "{key}: {}", context());
            }
        }
        eprintln!("seed {seed}: of {SCRIPTS} scripts {refused} were refused; {done} named no lock");
        assert!(refused > SCRIPTS / 10 && done > SCRIPTS / 10, "the scripts say little");
    }

    /// Every lock with its end and its record.
    fn locks(&self) -> Vec<String> {
        let client = self.redis.client();
        let lease = |lock: &&str| format!("{lock} {:?}", self.redis.lease(lock));
        let mut all: Vec<String> = LOCKS.iter().map(lease).collect();
        all.push(client.sends("HGETALL lock:hash").reply().to_string());
        all
    }
}

/// All content of a key.
fn look(client: &Client, key: &str) -> String {
    let dump = client.sends(format!("DUMP {key}")).reply();
    let left = client.sends(format!("PTTL {key}")).integer();
    format!("{dump} {}", left.min(0))
}

/// Where a function ends with the call of a command, Lua forgets its line before the guard could see it, and before 7.0
/// Redis words errors otherwise then.
fn without_line(said: &str) -> &str {
    if said.starts_with('-') { "-" } else { said }
}

fn take(client: &Client) {
    for lock in ["lock:one", "lock:two"] {
        client.sends(format!("SET {lock} {ALICES} NX PX 500000")).gets("+OK");
    }
    let text = "redis.call('hset', KEYS[1], ARGV[1], 1) return redis.call('pexpire', KEYS[1], 500000)";
    client.sends_arguments(&["EVAL", text, "1", "lock:hash", ALICES]).gets(":1");
}

/// A script, and whether it names a lock.
fn random_script(numbers: &mut Numbers) -> (Script, bool) {
    let mut script = Script::default();
    let names_locks = numbers.below(2) == 0;
    if numbers.below(4) == 0 {
        // Where it declares a lock of its own, what it did is judged as well.
        script.keys.push("lock:bobs".to_owned());
    }
    for _ in 0..=numbers.below(3) {
        let line = numbers.one_of(COMMANDS);
        let naming = match numbers.below(4) {
            0 => Naming::Told,
            1 => Naming::Declared,
            _ => Naming::Computed,
        };
        let keys: Vec<&str> = line
            .split(' ')
            .map(|_| match names_locks && numbers.below(2) == 0 {
                true => numbers.one_of(LOCKS),
                false => numbers.one_of(PLAIN),
            })
            .collect();
        let words: Vec<Word<'_>> = line
            .split(' ')
            .zip(&keys)
            .map(|(word, key)| match word {
                "?" => Word::Key(key),
                word => Word::Plain(word),
            })
            .collect();
        let call = script.call(&words, naming, numbers);
        match numbers.below(3) {
            0 => script.then(&format!("pcall(function() return {call} end)")),
            _ => script.then(&format!("do local _ = {call} end")),
        }
    }
    script.then("return 'done'");
    (script, names_locks)
}
