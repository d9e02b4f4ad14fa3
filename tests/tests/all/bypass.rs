//! Nothing gets around the proxy: every command that may change a key, with a held lock in each place where a
//! key stands and in every form that a request can have, from a stranger and from a client that held the lock
//! before. Whatever the reply, the lease is as it was. A case proves something only if Redis alone would have
//! changed the lock.

use std::collections::{BTreeMap, BTreeSet};

use lockwarden_tests::cases::{Case, EVAL_SHA, EVAL_TEXT, FUNCTION, Facts, Form, Kind, Meaning, cases};
use lockwarden_tests::{
    Client, Proxy, ProxyBuilder, Redis, Reply, Server, encode, is_whole_run_with_cluster, wait_for,
};

mod barrier;
mod frames;
mod grammar;
mod names;
mod random;

/// A free lock.
fn free() -> String {
    placed("lock:free")
}

fn lock(kind: Kind) -> String {
    placed(&kind.lock())
}

fn plain(kind: Kind) -> String {
    placed(kind.plain())
}

/// The names in cases. In front of a cluster they are all of one slot: the cluster would refuse most cases for their slots
/// alone.
fn placed(name: &str) -> String {
    if is_whole_run_with_cluster() { format!("{name}{{k}}") } else { name.to_owned() }
}

/// A script of a client with one command over two slots ends all scripts of a node of Valkey 9.1, those of the tests as well.
fn may_end_all_scripts() -> bool {
    is_whole_run_with_cluster() && Server::under_test().name() == "Valkey"
}

/// Further keys in cases.
const OTHER_KEYS: [&str; 5] = ["absent", "nothing", "elsewhere", "plain", "other"];

/// Content and end of keys.
const LOOK: &str = "\
local function seen(key)
  local dump = redis.call('DUMP', key)
  if not dump then return key .. ' absent' end
  -- A set may come back in another order, and reading a sorted set may encode it anew.
  local kind = redis.call('TYPE', key).ok
  if kind == 'set' then
    local members = redis.call('SMEMBERS', key)
    table.sort(members)
    dump = table.concat(members, ' ')
  elseif kind == 'zset' then
    dump = table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' ')
  end
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) == 'table' then
    local left = redis.call('PTTL', key)
    ends = left > 0 and 'some' or left
  end
  return key .. ' ' .. redis.sha1hex(dump) .. ' ' .. ends
end
local all = {}
for at, key in ipairs(ARGV) do all[at] = seen(key) end
return all";

/// Deletes what is neither a lock nor guarded, or everything, and makes the plain keys anew.
const FURNISH: &str = "\
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kept = key:sub(1, 5) == 'lock:' or key:sub(1, 3) == 'lw:' or key:sub(1, 8) == 'guarded:'
  if ARGV[1] == 'all' or not kept then
    redis.call('UNLINK', key)
  end
end
for at = 2, #ARGV do
  local words = {}
  for word in ARGV[at]:gmatch('%S+') do words[#words + 1] = word end
  redis.call(unpack(words))
end";

/// One Redis behind the proxy, one alone.
struct Arena {
    alone: Redis,
    redis: Redis,
    proxy: Proxy,
    payload: Vec<u8>,
    /// What the server behind the proxy knows.
    known: BTreeMap<String, ServerCommand>,
}

/// A row of `COMMAND`.
struct ServerCommand {
    write: bool,
    arity: i64,
    /// First, last and step.
    keys: [i64; 3],
}

impl Arena {
    fn open(configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder) -> Arena {
        Arena::with(Redis::start(), configure)
    }

    fn with(redis: Redis, configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder) -> Arena {
        let alone = Redis::start();
        let proxy = configure(Proxy::builder(&redis).ceiling("10m")).start();
        let payload = dump(&alone);
        for server in [&alone, &redis] {
            let client = server.client();
            client.sends_arguments(&["SCRIPT", "LOAD", EVAL_TEXT]).gets(format!("$40 {EVAL_SHA}"));
            // Redis 6.2 has no functions.
            client.sends_arguments(&["FUNCTION", "LOAD", FUNCTION]).reply();
        }
        let known = server_commands(&redis.client());
        Arena { alone, redis, proxy, payload, known }
    }

    /// Cases whose MIGRATE goes from one server to the other.
    fn cases(&self, target: &Redis) -> Vec<Case> {
        let mut cases = cases(&Facts { payload: self.payload.clone(), port: target.address().port() });
        if is_whole_run_with_cluster() {
            // It goes to another database.
            cases.retain(|case| case.args[0] != b"MIGRATE");
        }
        for argument in cases.iter_mut().flat_map(|case| &mut case.args[1..]) {
            let name = String::from_utf8_lossy(argument);
            let is_plain = Kind::ALL.iter().any(|kind| kind.plain() == name) || OTHER_KEYS.contains(&&*name);
            if is_plain || Kind::ALL.iter().any(|kind| kind.lock() == name) {
                *argument = placed(&name).into_bytes();
            }
        }
        cases
    }

    fn knows(&self, case: &Case) -> bool {
        self.known.contains_key(&case.command())
    }
}

fn dump(redis: &Redis) -> Vec<u8> {
    let client = redis.client();
    client.sends("SET string other").gets("+OK");
    client.sends("DUMP string").reply().bytes().to_vec()
}

fn server_commands(client: &Client) -> BTreeMap<String, ServerCommand> {
    let mut known = BTreeMap::new();
    let mut rows = vec![client.sends("COMMAND").reply()];
    while let Some(list) = rows.pop() {
        for row in list.elements() {
            let fields = row.elements();
            let flags: Vec<String> = fields[2].elements().iter().map(Reply::to_string).collect();
            let command = ServerCommand {
                write: flags.iter().any(|flag| flag == "+write"),
                arity: fields[1].integer(),
                keys: [3, 4, 5].map(|at: usize| fields[at].integer()),
            };
            let is_family = fields.get(9).is_some_and(|subs| !subs.elements().is_empty());
            if is_family {
                rows.push(fields[9].clone());
            }
            known.insert(fields[0].text(), command);
        }
    }
    // What 6.2 lists as one command is five.
    if known.contains_key("xgroup") && !known.contains_key("xgroup|create") {
        for sub in ["create", "setid", "destroy", "createconsumer", "delconsumer"] {
            let command = ServerCommand { write: true, arity: -2, keys: [2, 2, 1] };
            known.insert(format!("xgroup|{sub}"), command);
        }
    }
    known
}

/// The furniture as the arguments of [`FURNISH`].
fn furnishing(also_locks: bool) -> Vec<u8> {
    let scope = if also_locks { "all" } else { "plain" };
    let mut args = vec!["EVAL".to_owned(), FURNISH.to_owned(), "0".to_owned(), scope.to_owned()];
    for kind in Kind::ALL {
        args.extend(kind.furnishing(&plain(kind), "plain"));
        if also_locks {
            args.extend(kind.furnishing(&lock(kind), "own"));
            // An end that no case asks for.
            args.push(format!("PEXPIREAT {} 9000000000000", lock(kind)));
        }
    }
    encode(&args)
}

fn look(keys: &[String]) -> Vec<u8> {
    let mut args = vec!["EVAL".to_owned(), LOOK.to_owned(), "0".to_owned()];
    args.extend(keys.iter().cloned());
    encode(&args)
}

/// All locks, the free one too.
fn locks() -> Vec<String> {
    let mut locks: Vec<String> = Kind::ALL.into_iter().map(lock).collect();
    locks.push(free());
    locks
}

/// Takes every lock, whatever its type, as a lock library's script would.
fn take_all(client: &Client, ms: u64) {
    for kind in Kind::ALL {
        let calls: String = kind
            .furnishing("KEYS[1]", "own")
            .iter()
            .map(|line| {
                let words: Vec<String> = line
                    .split(' ')
                    .map(|word| if word == "KEYS[1]" { word.to_owned() } else { format!("'{word}'") })
                    .collect();
                format!("redis.call({}) ", words.join(", "))
            })
            .collect();
        let text = format!("{calls} return redis.call('PEXPIRE', KEYS[1], ARGV[1])");
        client.sends_arguments(&["EVAL", &text, "1", &lock(kind), &ms.to_string()]).gets(":1");
    }
}

/// The clients that may not change a lock, and the state that may not change.
struct Others {
    stranger: Client,
    /// Held every lock once; its leases ran out, and another client holds the locks now.
    former: Client,
    _holder: Client,
    /// Asks for every lock and every record.
    look: Vec<u8>,
    before: Reply,
    /// The name of the string's record.
    record: String,
}

impl Others {
    fn arrive(arena: &Arena) -> Others {
        let client = || arena.proxy.client();
        let (stranger, former, holder) = (client(), client(), client());
        let direct = arena.redis.client();
        direct.sends("FLUSHALL").gets("+OK");
        take_all(&former, 150);
        wait_for("the first leases to run out", || direct.sends("KEYS lock:*").reply().elements().is_empty());
        take_all(&holder, 500_000);
        direct.sends_bytes(furnishing(false)).gets("nil");
        let records = direct.sends("KEYS lw:*").reply();
        let mut names = locks();
        // Refused releases pay what an identity owes, so only leases stay as they are. The proxies' own notes
        // about all locks are no records of a lock either.
        let is_record = |name: &&String| name.contains("}:lock:");
        let records: Vec<String> = records.elements().iter().map(Reply::text).collect();
        names.extend(records.iter().filter(is_record).cloned());
        // A lease's record is written once more when its holder's process was looked up.
        wait_for("the holder's process to be known", || {
            names.iter().filter(is_record).all(|name| {
                let process = direct.sends_arguments(&["GETRANGE", name, "43", "50"]).reply();
                process.bytes() != [0xff; 8]
            })
        });
        assert_eq!(names.len(), 1 + 2 * Kind::ALL.len(), "{names:?}");
        let is_of_string = |name: &&String| name.starts_with("lw:") && name.ends_with(&lock(Kind::String));
        let record = names.iter().find(is_of_string).expect("the string is held").clone();
        let look = look(&names);
        let before = direct.sends_bytes(&look).reply();
        Others { stranger, former, _holder: holder, look, before, record }
    }
}

impl Others {
    fn one(&self, is_stranger: bool) -> &Client {
        if is_stranger { &self.stranger } else { &self.former }
    }
}

/// Sends requests in one write and reads a reply to each.
fn pipeline(client: &Client, requests: &[Vec<u8>]) -> Vec<Reply> {
    client.write(&requests.concat());
    requests.iter().map(|_| client.then().reply()).collect()
}

/// Whether Redis alone changes the lock in the case, held or free.
fn tells(arena: &Arena, client: &Client, case: &Case) -> bool {
    let look = look(&locks());
    [case.clone(), case.aimed_at(&free())].iter().any(|aim| {
        let requests = [furnishing(true), look.clone(), encode(&aim.args), look.clone()];
        let replies = pipeline(client, &requests);
        // The server behind the proxy was where MIGRATE went.
        if case.args[0] == b"MIGRATE" {
            let other = arena.redis.client();
            other.sends("SELECT 7").gets("+OK");
            other.sends("FLUSHDB").gets("+OK");
        }
        replies[1] != replies[3]
    })
}

/// Cases of write commands that no line knows, where the server says that keys stand.
fn unknown_cases(arena: &Arena, known: &BTreeSet<String>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, command) in &arena.known {
        if !command.write || known.contains(name) {
            continue;
        }
        let mut args: Vec<Vec<u8>> = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        let least = usize::try_from(command.arity.unsigned_abs()).unwrap_or(1);
        let at = usize::try_from(command.keys[0]).unwrap_or(0);
        if at == 0 {
            continue;
        }
        while args.len() < least.max(at + 1) {
            args.push(b"1".to_vec());
        }
        let line = "a command that only the server knows";
        let case = Case { line, kind: Kind::String, meaning: Meaning::Verb, at, args };
        cases.push(case.aimed_at(&lock(Kind::String)));
    }
    cases
}

fn shown(case: &Case) -> String {
    let words: Vec<String> = case.args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
    words.join(" ")
}

/// The lines in which two looks differ.
fn difference(before: &Reply, after: &Reply) -> String {
    let pairs = before.elements().iter().zip(after.elements());
    let changed = pairs.filter(|(before, after)| before != after);
    changed.map(|(before, after)| format!("\n  {before}\n  {after}")).collect()
}

#[test]
fn no_command_in_any_form_changes_a_lease_for_a_stranger() {
    let arena = Arena::open(|proxy| proxy);
    let (alone, direct) = (arena.alone.client(), arena.redis.client());
    let mut others = Others::arrive(&arena);
    let (mut sent, mut telling, mut silent, mut absent, mut bypasses) = (0, 0, Vec::new(), BTreeSet::new(), Vec::new());
    let proofs = arena.cases(&arena.redis);
    let mut pairs: Vec<(Case, Case)> = arena.cases(&arena.alone).into_iter().zip(proofs).collect();
    let lines: BTreeSet<String> = pairs.iter().map(|(case, _)| case.command()).collect();
    let unknown = unknown_cases(&arena, &lines);
    pairs.extend(unknown.iter().map(|case| (case.clone(), case.clone())));
    for (case, proof) in &pairs {
        if !arena.knows(case) {
            absent.insert(case.command());
        } else if tells(&arena, &alone, proof) {
            telling += 1;
        } else {
            silent.push(shown(case));
        }
        let mut aims = vec![case.clone()];
        if case.kind != Kind::String {
            aims.push(case.aimed_at(&lock(Kind::String)));
        }
        if case.meaning == Meaning::Write {
            aims.push(case.aimed_at(&free()));
        }
        if case.kind == Kind::String {
            aims.push(case.aimed_at(&others.record));
        }
        for aim in &aims {
            let requests: Vec<Vec<u8>> = Form::ALL
                .iter()
                // A script may acquire what is free, however it names it.
                .filter(|form| {
                    let is_script = matches!(form, Form::ScriptKeys | Form::ScriptText);
                    !is_script || aim.args[aim.at] != free().as_bytes()
                })
                .filter_map(|form| aim.requests(*form))
                .inspect(|_| sent += 2)
                .flatten()
                .collect();
            let mut changed = false;
            for (who, client) in [("a stranger", &others.stranger), ("a former holder", &others.former)] {
                let replies = pipeline(client, &requests);
                let after = pipeline(&direct, &[others.look.clone(), furnishing(false)]).swap_remove(0);
                if after != others.before {
                    let difference = difference(&others.before, &after);
                    bypasses.push(format!("{who}: {}{difference}\n{replies:?}", shown(aim)));
                    changed = true;
                    break;
                }
            }
            if changed {
                others = Others::arrive(&arena);
            }
        }
    }
    println!(
        "{sent} requests: {telling} cases would have changed a lock, {} would not, {} are of commands \
         that this server does not have, {} of commands that only it knows",
        silent.len(),
        absent.len(),
        unknown.len()
    );
    println!("not telling: {silent:#?}\nabsent: {absent:?}");
    assert!(bypasses.is_empty(), "{} bypasses:\n{}", bypasses.len(), bypasses.join("\n"));
    assert!(sent > 5_000, "only {sent} requests");
    // A server that is older than the cases refuses unknown commands.
    assert!(silent.len() * 6 < telling, "{} beside {telling} say nothing", silent.len());
}

#[test]
fn a_command_by_another_name_is_judged() {
    let redis = Redis::with_arguments(&["--rename-command", "APPEND", "mod.append"]);
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let before = redis.lease("lock:job");
    for line in ["mod.append lock:job x", "MOD.APPEND lock:job x"] {
        bob.sends(line).gets_error("LOCKDENIED opaque-write key=lock:job");
        assert_eq!(redis.lease("lock:job"), before);
    }
    bob.sends("mod.append plain x").gets(":1");
}

#[test]
fn no_command_about_a_whole_database_changes_a_lease() {
    let arena = Arena::open(|proxy| proxy);
    let direct = arena.redis.client();
    let others = Others::arrive(&arena);
    for line in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC", "FLUSHDB", "FLUSHDB ASYNC", "SWAPDB 0 1", "SWAPDB 1 0"]
    {
        let case = Case {
            line,
            kind: Kind::String,
            meaning: Meaning::Verb,
            // No argument is a lock.
            at: usize::MAX,
            args: line.split(' ').map(|word| word.into()).collect(),
        };
        for form in Form::ALL {
            // The proxy does not look into a script that flushes: docs/operations.md says so.
            if matches!(form, Form::ScriptKeys | Form::ScriptText) {
                continue;
            }
            let requests = case.requests(form).expect("plain words take every form");
            for client in [&others.stranger, &others.former] {
                let replies = pipeline(client, &requests);
                let after = direct.sends_bytes(&others.look).reply();
                assert!(
                    after == others.before,
                    "{line} as {form:?}: {replies:?}{}",
                    difference(&others.before, &after)
                );
            }
        }
    }
}
