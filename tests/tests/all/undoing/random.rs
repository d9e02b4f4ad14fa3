//! Random scripts over random keys, small and large, declared and not, of every type, with a foreign lock
//! among them. The same script runs straight on a second server, which shows what it would have left. A few
//! hundred in every run, more with `make soak`; `LOCKWARDEN_SEED` repeats a run.

use lockwarden_tests::soak::for_each_seed;
use lockwarden_tests::spelling::{Naming, Script, Word};
use lockwarden_tests::{Client, Numbers, Proxy, Redis, Reply};

use crate::held::ALICES;

const LOCK: &str = "lock:job";
const HERS: &str = "0f8fad5b-d9cb-469f-a165-70867728950e:1";

/// Scripts of one run.
const SCRIPTS: usize = 300;

/// Every key that a script may touch, and how it is made.
const KEYS: &[(&str, &[&str])] = &[
    ("s:string", &["SET s:string seven"]),
    ("s:number", &["SET s:number 7", "PEXPIREAT s:number 9000000000000"]),
    ("s:list", &["RPUSH s:list a b c", "PEXPIREAT s:list 9000000000000"]),
    ("s:hash", &["HSET s:hash f 1 g 2"]),
    ("s:set", &["SADD s:set a b c"]),
    ("s:others", &["SADD s:others x y"]),
    ("s:zset", &["ZADD s:zset 1 a 2 b"]),
    ("s:stream", &["XADD s:stream 1-1 f v", "XADD s:stream 2-1 f v", "XGROUP CREATE s:stream g 0"]),
    ("s:none", &[]),
    ("s:void", &[]),
    ("b:list", &[]),
    ("b:string", &[]),
    ("b:hash", &[]),
];

/// The commands that a script may run on keys that are no locks: `@` is a list, `$` a string, `%` a hash, `&` a
/// set, `#` a sorted set, `~` a stream, `?` any key.
const COMMANDS: &[&str] = &[
    "RPOPLPUSH @ @",
    "LMOVE @ @ LEFT RIGHT",
    "RPUSH @ new",
    "LPOP @",
    "LTRIM @ 1 1",
    "LSET @ 0 other",
    "LREM @ 0 a",
    "SORT @ ALPHA STORE ?",
    "SMOVE & & a",
    "SADD & new",
    "SREM & a",
    "SDIFFSTORE ? & &",
    "SUNIONSTORE ? & &",
    "ZADD # 3 new",
    "ZREM # a",
    "ZINCRBY # 5 a",
    "ZPOPMIN #",
    "ZUNIONSTORE ? 2 # #",
    "ZRANGESTORE ? # 0 0",
    "HSET % f other new 1",
    "HDEL % f",
    "HINCRBY % f 1",
    "SET ? x",
    "SET ? x PXAT 8000000000000",
    "SETNX ? x",
    "MSET ? x ? y",
    "GETDEL $",
    "GETSET $ x",
    "APPEND $ x",
    "SETRANGE $ 2 x",
    "INCR s:number",
    "XADD ~ 9-1 f v",
    "XDEL ~ 1-1",
    "XTRIM ~ MAXLEN 1",
    "XGROUP CREATE ~ h $",
    "XREADGROUP GROUP g c COUNT 1 STREAMS ~ >",
    "RENAME ? ?",
    "RENAMENX ? ?",
    "COPY ? ? REPLACE",
    "DEL ?",
    "UNLINK ? ?",
    "PEXPIREAT ? 8000000000000",
    "PEXPIREAT ? 1",
    "PEXPIRE ? -1",
    "PERSIST ?",
    "PFADD ? a b",
    "BITOP NOT ? $",
    "LMPOP 2 @ @ LEFT",
];

/// The commands that it may run on the lock, `L`.
const THEFTS: &[&str] = &[
    "DEL L",
    "UNLINK L",
    "SET L thief",
    "SET L thief PX 9000",
    "PEXPIRE L 1",
    "PEXPIREAT L 8000000000000",
    "PERSIST L",
    "RENAME L ?",
    "RENAME ? L",
    "COPY ? L REPLACE",
    "APPEND L x",
    "HDEL L HERS",
    "HSET L thief 1",
    "GETDEL L",
    "SORT @ ALPHA STORE L",
    "RPUSH L x",
];

const LOOK: &str = "\
local all = {}
for at, key in ipairs(KEYS) do
  local kind, seen = redis.call('TYPE', key).ok, ''
  if kind == 'string' then seen = redis.call('GET', key)
  elseif kind == 'list' then seen = table.concat(redis.call('LRANGE', key, 0, -1), ' ')
  elseif kind == 'zset' then seen = table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' ')
  elseif kind == 'set' then
    local members = redis.call('SMEMBERS', key)
    table.sort(members)
    seen = table.concat(members, ' ')
  elseif kind == 'hash' then
    local flat, fields = redis.call('HGETALL', key), {}
    for i = 1, #flat, 2 do fields[#fields + 1] = flat[i] .. '=' .. flat[i + 1] end
    table.sort(fields)
    seen = table.concat(fields, ' ')
  elseif kind == 'stream' then
    seen = cjson.encode(redis.call('XRANGE', key, '-', '+')) .. cjson.encode(redis.call('XINFO', 'GROUPS', key))
      .. redis.call('XINFO', 'STREAM', key)[8]
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      seen = seen .. cjson.encode(redis.call('XPENDING', key, group[2]))
    end
  end
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) == 'table' then
    -- Before Redis 7 a TTL is told apart by its size alone: the two points in time above, a lease, next to nothing.
    local left = redis.call('PTTL', key)
    ends = left > 6.7e12 and 'later' or left > 1e12 and 'late' or left > 60000 and 'lease' or left >= 0 and 'soon' or 'none'
  end
  if #seen > 200 then seen = #seen .. ' ' .. redis.sha1hex(seen) end
  all[at] = key .. ' ' .. kind .. ' ' .. seen .. ' ' .. ends
end
return all";

#[test]
fn a_refused_script_leaves_everything_as_it_was_or_as_the_script_left_it() {
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
        let (mut refused, mut restored, mut stood) = (0, 0, 0);
        for script in 0..SCRIPTS {
            furnish(&behind, &alone);
            let is_hash = numbers.below(4) == 0;
            take(&alice, is_hash);
            take(&alone, is_hash);
            if let Reply::Integer(end) = behind.sends(format!("PEXPIRETIME {LOCK}")).reply() {
                alone.sends(format!("PEXPIREAT {LOCK} {end}")).gets(":1");
            }
            let before = look(&behind);
            let lease = self.redis.lease(LOCK);
            let one = random_script(&mut numbers);
            let words = one.eval();
            let said = bob.sends_arguments(&words).reply();
            let would = alone.sends_arguments(&words).reply();
            let (after, left) = (look(&behind), look(&alone));
            let context = || {
                format!(
                    "LOCKWARDEN_SEED={seed}, script {script}:\n{}KEYS {:?} ARGV {:?}\nthrough the proxy: {said}\nalone: {would}\nbefore {before:#?}\nafter {after:#?}\nas the script leaves it {left:#?}",
                    one.text, one.keys, one.arguments
                )
            };
            let others = |all: &[String]| all[1..].to_vec();
            if left[0] == before[0] {
                assert_eq!(others(&after), others(&left), "{}", context());
                assert_eq!(after[0], before[0], "{}", context());
                continue;
            }
            refused += 1;
            assert_eq!(after[0], before[0], "the lock: {}", context());
            assert_eq!(self.redis.lease(LOCK), lease, "the lease: {}", context());
            let stands = said.to_string().contains(" undone=locks ");
            let expected = if stands { &left } else { &before };
            assert_eq!(others(&after), others(expected), "{}", context());
            *(if stands { &mut stood } else { &mut restored }) += 1;
        }
        eprintln!(
            "seed {seed}: of {SCRIPTS} scripts {refused} were refused; all was put back {restored} times, the locks alone {stood} times"
        );
        assert!(restored > SCRIPTS / 10 && stood > SCRIPTS / 10, "the scripts say little");
    }
}

/// The lock first, then all other keys.
fn look(client: &Client) -> Vec<String> {
    let mut words = vec!["EVAL", LOOK];
    let count = (1 + KEYS.len()).to_string();
    words.extend([&count[..], LOCK]);
    words.extend(KEYS.iter().map(|(key, _)| *key));
    let all = client.sends_arguments(&words).reply();
    all.elements().iter().map(Reply::text).collect()
}

fn furnish(behind: &Client, alone: &Client) {
    let jobs: Vec<String> = (0..2_000).map(|job| format!("job:{job}:{}", "x".repeat(30))).collect();
    let large = "y".repeat(100_000);
    let mut list = vec!["RPUSH", "b:list"];
    list.extend(jobs.iter().map(String::as_str));
    let mut hash = vec!["HSET", "b:hash"];
    hash.extend(jobs.iter().map(String::as_str));
    for client in [behind, alone] {
        client.sends("FLUSHALL").gets("+OK");
        for line in KEYS.iter().flat_map(|(_, lines)| *lines) {
            client.sends(line).reply();
        }
        client.sends_arguments(&list).reply();
        client.sends_arguments(&hash).reply();
        client.sends_arguments(&["SET", "b:string", &large]).gets("+OK");
    }
}

fn take(client: &Client, is_hash: bool) {
    let text = match is_hash {
        true => "redis.call('hset', KEYS[1], ARGV[2], 1) return redis.call('pexpire', KEYS[1], 500000)",
        false => "redis.call('set', KEYS[1], ARGV[1], 'nx') return redis.call('pexpire', KEYS[1], 500000)",
    };
    client.sends_arguments(&["EVAL", text, "1", LOCK, ALICES, HERS]).gets(":1");
}

fn random_script(numbers: &mut Numbers) -> Script {
    let mut script = Script::default();
    let naming = match numbers.below(5) {
        0..2 => Naming::Declared,
        2..4 => Naming::Told,
        _ => Naming::Computed,
    };
    // Among small keys only a copy of each can be taken.
    let only_small = numbers.below(2) == 0;
    let count = 1 + numbers.below(4);
    let theft = numbers.below(count + 1);
    for at in 0..=count {
        let line = if at == theft { numbers.one_of(THEFTS) } else { numbers.one_of(COMMANDS) };
        let names: Vec<&str> = line.split(' ').map(|word| key_for(word, only_small, numbers)).collect();
        let words: Vec<Word<'_>> = names
            .iter()
            .map(|name| match *name {
                "HERS" => Word::Plain(HERS),
                name if name == LOCK || KEYS.iter().any(|(key, _)| *key == name) => Word::Key(name),
                name => Word::Plain(name),
            })
            .collect();
        let call = call_of(&mut script, &words, naming, numbers);
        match numbers.below(3) {
            0 => script.then(&format!("pcall(function() return {call} end)")),
            _ => script.then(&format!("do local _ = {call} end")),
        }
    }
    script.then("return 'done'");
    script
}

/// The lock is always passed as a key; the other keys are named in some way.
fn call_of(script: &mut Script, words: &[Word<'_>], naming: Naming, numbers: &mut Numbers) -> String {
    let has_lock = words.iter().any(|word| matches!(word, Word::Key(LOCK)));
    let naming = if has_lock { Naming::Declared } else { naming };
    script.call(words, naming, numbers)
}

fn key_for(word: &'static str, only_small: bool, numbers: &mut Numbers) -> &'static str {
    let choices: &[&str] = match word {
        "L" => return LOCK,
        "@" => &["s:list", "s:none", "b:list"],
        "$" => &["s:string", "s:number", "b:string"],
        "%" => &["s:hash", "s:none", "b:hash"],
        "&" => &["s:set", "s:others", "s:none"],
        "#" => &["s:zset", "s:none", "s:void"],
        "~" => &["s:stream", "s:stream", "s:none"],
        "?" => &[
            "s:string", "s:list", "s:hash", "s:set", "s:zset", "s:stream", "s:none", "s:void", "b:list", "b:string",
            "b:hash",
        ],
        other => return other,
    };
    let choices: Vec<&str> = choices.iter().copied().filter(|key| !only_small || key.starts_with('s')).collect();
    numbers.one_of(&choices)
}
