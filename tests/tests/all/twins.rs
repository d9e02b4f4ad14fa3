//! The second barrier: `lockwarden acl` takes lock keys and records away from the users of applications, and with
//! `[[user_map]]` sessions touch them as a twin. Around the proxy Redis itself refuses; through the proxy everything works as
//! before, and shows the client's own user.

use std::fs;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Record, Redis, Server, lockwarden, run_to_end, wait_for};
use tempfile::TempDir;

/// A server with a user for the proxy and one for an application, and the folder of the twins' passwords.
pub(crate) struct Guarded {
    pub(crate) redis: Redis,
    folder: TempDir,
}

impl Guarded {
    pub(crate) fn start() -> Guarded {
        Guarded::with_arguments(&[])
    }

    fn with_arguments(arguments: &[&str]) -> Guarded {
        let guarded =
            Guarded { redis: Redis::with_arguments(arguments), folder: tempfile::tempdir().expect("a folder") };
        guarded.admin("ACL SETUSER warden on >warden ~* &* +@all");
        guarded.admin("ACL SETUSER shop on >pw ~* &* +@all");
        fs::write(guarded.folder.path().join("warden"), "warden\n").expect("the folder is ours");
        guarded
    }

    /// Runs a command as a user with all rights.
    pub(crate) fn admin(&self, line: &str) -> String {
        let client = self.redis.client();
        client.sends("AUTH warden warden").reply();
        client.sends(line).reply().to_string()
    }

    /// The server, for good.
    pub(crate) fn into_redis(self) -> (Redis, TempDir) {
        (self.redis, self.folder)
    }

    /// The part of a configuration for these users.
    pub(crate) fn tables(&self, users: &[&str]) -> String {
        let folder = self.folder.path().display();
        let mut text = format!("[backend_login]\nuser = \"warden\"\npassword_file = \"{folder}/warden\"\n");
        for user in users {
            text.push_str(&format!(
                "[[user_map]]\nuser = \"{user}\"\ntwin = \"{user}-lw\"\ntwin_password_file = \"{folder}/{user}-lw\"\n"
            ));
        }
        text
    }

    pub(crate) fn proxy(&self, users: &[&str]) -> ProxyBuilder {
        Proxy::builder(&self.redis).more(&self.tables(users))
    }

    /// Runs `lockwarden acl` with the configuration of such a proxy.
    pub(crate) fn acl(&self, users: &[&str], flags: &[&str]) -> (String, Option<i32>) {
        let file = self.folder.path().join("lockwarden.toml");
        fs::write(&file, self.proxy(users).text()).expect("the folder is ours");
        let path = file.display().to_string();
        let ended = run_to_end(lockwarden(&["acl", "-c", &path]).args(flags));
        (format!("{}{}", ended.stdout, ended.stderr), ended.code)
    }

    /// The same, which has to work.
    pub(crate) fn bars(&self, users: &[&str]) {
        let (told, code) = self.acl(users, &["--apply", "--without-twin"]);
        assert_eq!(code, Some(0), "{told}");
    }

    fn check(&self, users: &[&str]) -> String {
        let file = self.folder.path().join("lockwarden.toml");
        fs::write(&file, self.proxy(users).text()).expect("the folder is ours");
        let path = file.display().to_string();
        run_to_end(&mut lockwarden(&["check", "--backend", "-c", &path])).stdout
    }
}

/// A client that has logged in.
fn shop(client: Client) -> Client {
    client.sends("AUTH shop pw").gets("+OK");
    client
}

fn is_refused(client: &Client, line: &str) {
    client.sends(line).gets_error("NOPERM");
}

/// The record of the lock is read by the twin, and the write between `MULTI` and `EXEC` is its, too.
#[test]
fn guarded_data_is_written_by_a_user_who_may_not_touch_locks() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let guard = "[[guard]]\nname = \"stock\"\nkeys = [\"stock:{id}\"]\nlock = \"lock:{id}\"\nmode = \"enforce\"\n";
    let proxy = guarded.proxy(&["shop"]).more(guard).start();
    let holder = shop(proxy.client_from("127.0.0.2"));
    let other = shop(proxy.client_from("127.0.0.3"));
    holder.sends("SET lock:7 mine NX PX 9000").gets("+OK");
    holder.sends("SET stock:7 1").gets("+OK");
    other.sends("SET stock:7 2").gets_error("LOCKDENIED not-owner");
    for client in [&holder, &other] {
        client.sends("MULTI").gets("+OK");
        client.sends("SET elsewhere x").gets("+QUEUED");
        client.sends("INCR stock:7").gets("+QUEUED");
    }
    other.sends("EXEC").gets_error("EXECABORT");
    holder.sends("EXEC").gets("[+OK, :2]");
    holder.sends("ACL WHOAMI").gets("$4 shop");
}

#[test]
fn around_the_proxy_redis_refuses_lock_keys_and_records_and_nothing_else() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).start();
    let inside = shop(proxy.client());
    inside.sends("SET lock:a mine NX PX 9000").gets("+OK");
    let around = shop(guarded.redis.client());
    let record = guarded.admin("KEYS lw:{*}:lock:a");
    let record = record.split_whitespace().last().expect("it has a record").to_owned();
    for line in [
        "SET lock:a other",
        "DEL lock:a",
        "GET lock:a",
        "RENAME lock:a plain",
        "COPY lock:a plain",
        "FLUSHALL",
        "SWAPDB 0 1",
        &format!("DEL {record}"),
        &format!("GET {record}"),
    ] {
        is_refused(&around, line);
    }
    around.sends_arguments(&["EVAL", "return redis.call('del', 'lo' .. 'ck:a')", "0"]).gets_error("ERR");
    for (line, reply) in [("SET loc:a 1", "+OK"), ("SET lock 1", "+OK"), ("SET x 1", "+OK"), ("DEL lock loc:a x", ":3")]
    {
        around.sends(line).gets(reply);
    }
    inside.sends("DEL lock:a").gets(":1");
}

#[test]
fn through_the_proxy_locks_work_and_the_client_sees_its_own_user() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).start();
    let client = shop(proxy.client());
    for _ in 0..3 {
        client.sends("SET lock:a mine NX PX 9000").gets("+OK");
        client.sends("GET lock:a").gets("$4 mine");
        client.sends("SET plain 1").gets("+OK");
        client.sends("EXISTS lock:a plain").gets(":2");
        client.sends("ACL WHOAMI").gets("$4 shop");
        client.sends("DEL lock:a").gets(":1");
    }
    client.pipelines(
        &["SETNX lock:b 1", "ACL WHOAMI", "GET lock:b", "SET plain 2", "DEL lock:b", "GET plain"],
        &[":1", "$4 shop", "$1 1", "+OK", ":1", "$1 2"],
    );
    let list = guarded.admin("CLIENT LIST");
    assert!(list.contains("user=shop ") && !list.contains("user=shop-lw"), "{list}");
    let hello = proxy.client();
    hello.sends("HELLO 2 AUTH shop pw SETNAME me").reply();
    hello.sends("SETNX lock:c 1").gets(":1");
    hello.sends("ACL WHOAMI").gets("$4 shop");
    hello.sends("DEL lock:c").gets(":1");
    assert!(proxy.metric("lockwarden_twin_logins_total{result=\"ok\"}") > 0.0);
    assert_eq!(proxy.metric("lockwarden_twin_logins_total{result=\"failed\"}"), 0.0);
    // A script of a library, a wrapped one, and a flush.
    let text = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    client.sends("SET lock:d mine NX PX 9000").gets("+OK");
    client.sends_arguments(&["EVAL", text, "1", "lock:d", "mine"]).gets(":1");
    client.sends("FLUSHALL").gets("+OK");
    client.sends("EXISTS plain").gets(":0");
}

#[test]
fn a_login_that_redis_refuses_gets_no_locks() {
    let guarded = Guarded::with_arguments(&["--requirepass", "secret"]);
    guarded.admin("ACL SETUSER warden on >warden ~* &* +@all");
    let root = guarded.redis.client();
    root.sends("AUTH secret").gets("+OK");
    root.sends("ACL SETUSER warden on >warden ~* &* +@all").gets("+OK");
    root.sends("ACL SETUSER shop on >pw ~* &* +@all").gets("+OK");
    guarded.bars(&["shop", "default"]);
    let proxy = guarded.proxy(&["shop", "default"]).start();
    let client = proxy.client();
    client.sends("SETNX lock:a 1").gets_error("NOAUTH");
    client.sends("AUTH shop wrong").gets_error("WRONGPASS");
    client.sends("SETNX lock:a 1").gets_error("NOAUTH");
    client.sends("MULTI").gets_error("NOAUTH");
    assert_eq!(guarded.admin("EXISTS lock:a"), ":0");
    client.sends("AUTH shop pw").gets("+OK");
    client.sends("SETNX lock:a 1").gets(":1");
    // After a failed login a client stays logged in as the same user.
    client.sends("AUTH shop wrong").gets_error("WRONGPASS");
    client.sends("DEL lock:a").gets(":1");
    client.sends("AUTH secret").gets("+OK");
    client.sends("SETNX lock:a 1").gets(":1");
    client.sends("ACL WHOAMI").gets("$7 default");
}

#[test]
fn blocks_with_locks_are_carried_out_whole() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).start();
    let client = shop(proxy.client());
    client.pipelines(
        &["MULTI", "SET plain 1", "INCR plain", "SETNX lock:a 1", "ACL WHOAMI", "GET lock:a", "EXEC"],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, :2, :1, $4 shop, $1 1]"],
    );
    client.sends("ACL WHOAMI").gets("$4 shop");
    client.pipelines(
        &["WATCH lock:a", "GET lock:a", "MULTI", "DEL lock:a", "EXEC"],
        &["+OK", "$1 1", "+OK", "+QUEUED", "[:1]"],
    );
    // An error at queue time is not lost when the block is begun anew.
    client.pipelines(&["MULTI", "NOSUCH", "SETNX lock:a 1"], &["+OK"]);
    client.then().gets_error("ERR unknown command");
    client.then().gets("+QUEUED");
    client.sends("EXEC").gets_error("EXECABORT");
    client.pipelines(&["MULTI", "SETNX lock:a 1", "DISCARD"], &["+OK", "+QUEUED", "+OK"]);
    client.sends("ACL WHOAMI").gets("$4 shop");
    // Without a lock the block is the client's own.
    client.sends("MULTI").gets("+OK");
    client.sends("ACL WHOAMI").gets("+QUEUED");
    client.sends("EXEC").gets("[$4 shop]");
    assert_eq!(guarded.admin("EXISTS lock:a"), ":0");
    let long = "x".repeat(600 * 1024);
    client.sends("MULTI").gets("+OK");
    for _ in 0..2 {
        client.sends_arguments(&["SET", "plain", &long]).gets("+QUEUED");
    }
    client.sends("SETNX lock:a 1").gets_error("ERR lockwarden");
    client.sends("EXEC").gets_error("EXECABORT");
    client.sends("SETNX lock:a 1").gets(":1");
    client.sends("DEL lock:a").gets(":1");
}

#[test]
fn an_application_without_a_login_has_a_twin_too() {
    let guarded = Guarded::start();
    guarded.bars(&["default"]);
    let around = guarded.redis.client();
    is_refused(&around, "SETNX lock:a 1");
    let proxy = guarded.proxy(&["default"]).start();
    let client = proxy.client();
    client.sends("SETNX lock:a 1").gets(":1");
    client.sends("ACL WHOAMI").gets("$7 default");
    is_refused(&around, "DEL lock:a");
    client.sends("DEL lock:a").gets(":1");
    client.sends("MULTI").gets("+OK");
    client.sends("SETNX lock:a 1").gets("+QUEUED");
    client.sends("EXEC").gets("[:1]");
    let other = proxy.client();
    other.sends("MULTI").gets("+OK");
    other.sends("SETNX lock:b 1").gets("+QUEUED");
    other.sends("EXEC").gets("[:1]");
    other.sends("RESET").gets("+RESET");
    other.sends("DEL lock:b").gets(":1");
}

#[test]
fn names_that_are_computed_are_refused_by_redis_itself() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).top("computed_names", "\"forward\"").start();
    let client = shop(proxy.client());
    client.sends("SET lock:a mine NX PX 9000").gets("+OK");
    let name = "local name = 'lo' .. string.char(99, 107, 58, 97) ";
    let text = format!("{name} return redis.call('del', name)");
    client.sends_arguments(&["EVAL", &text, "0"]).gets_error("ERR");
    if Server::under_test().since(7, 0) {
        let library = format!(
            "#!lua name=sly\nredis.register_function('sly', function() {name} return redis.call('del', name) end)"
        );
        guarded.redis.client().sends_arguments(&["FUNCTION", "LOAD", &library]).gets("$3 sly");
        let answer = client.sends("FCALL sly 0").reply().to_string();
        assert!(answer.starts_with('-'), "{answer}");
    }
    client.sends("GET lock:a").gets("$4 mine");
}

#[test]
fn a_user_that_is_changed_in_redis_ends_as_there() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).start();
    let (deleted, changed) = (shop(proxy.client()), shop(proxy.client()));
    for client in [&deleted, &changed] {
        client.sends("SETNX lock:a 1").gets(":1");
        client.sends("DEL lock:a").gets(":1");
        // With its reply the client's own user is back.
        client.sends("ACL WHOAMI").gets("$4 shop");
    }
    guarded.admin("ACL SETUSER shop resetpass >new");
    if proxy.is_multiplexed() {
        // It needs a connection of its own: the old password opens no new one, but there may be one to spare.
        changed.write(b"SETNX lock:b 1\r\n");
        changed.reads_to_end();
    } else {
        // Commands that touch no lock go on, as on Redis.
        changed.sends("SET plain 1").gets("+OK");
        // A lock is still granted, and then the client's own user is not let in any more.
        changed.sends("SETNX lock:b 1").gets(":1");
        changed.then().gets_close();
        wait_for("the metric", || proxy.metric("lockwarden_twin_logins_total{result=\"not-back\"}") > 0.0);
    }
    guarded.admin("ACL DELUSER shop");
    if proxy.is_multiplexed() {
        // A shared connection that Redis closes is made anew when it is needed.
        deleted.write(b"SET plain 2\r\n");
        deleted.reads_to_end();
        assert_ne!(guarded.admin("GET plain"), "$1 2");
    } else {
        deleted.then().gets_close();
    }
}

#[test]
fn a_twin_that_was_changed_by_hand_is_named_and_counted() {
    let guarded = Guarded::start();
    guarded.bars(&["shop", "default"]);
    let users = ["shop", "default"];
    let told = guarded.check(&users);
    assert!(told.contains("barrier: user shop is refused"), "{told}");
    assert!(!told.contains("was changed"), "{told}");
    guarded.admin("ACL SETUSER shop-lw nopass -debug");
    let told = guarded.check(&users);
    assert!(told.contains("twin shop-lw of shop") && told.contains("nopass"), "{told}");
    let (printed, _) = guarded.acl(&users, &[]);
    assert!(printed.contains("twin shop-lw of shop was changed"), "{printed}");
    guarded.admin("ACL SETUSER shop-lw resetpass >other");
    let proxy = guarded.proxy(&users).start();
    let client = shop(proxy.client());
    is_refused(&client, "SETNX lock:a 1");
    client.sends("SET plain 1").gets("+OK");
    client.sends("ACL WHOAMI").gets("$4 shop");
    assert!(proxy.metric("lockwarden_twin_logins_total{result=\"failed\"}") > 0.0);
    proxy.logs(&["a twin cannot be used"]);
    let told = guarded.check(&users);
    assert!(told.contains("twin shop-lw of shop cannot log in"), "{told}");
    guarded.admin("ACL SETUSER shop ~lock:*");
    let told = guarded.check(&users);
    assert!(told.contains("user shop may touch"), "{told}");
}

#[test]
fn the_rules_are_printed_set_once_and_kept_away_from_who_runs_it() {
    let guarded = Guarded::start();
    guarded.admin("ACL SETUSER cache on >pw ~cache:* +@all -@dangerous");
    guarded.admin("ACL SETUSER mixed on >pw ~cache:* ~lock:mine -@all +get +set");
    let users = ["shop", "mixed"];
    let before = guarded.admin("ACL LIST");
    let (printed, code) = guarded.acl(&users, &[]);
    assert_eq!(guarded.admin("ACL LIST"), before, "printing changes nothing");
    assert_eq!(code, Some(1), "default has no twin: {printed}");
    for line in [
        "ACL SETUSER shop resetkeys ~ ~[^l]* ~l ~l[^ow]* ~lo ~lo[^c]* ~loc ~loc[^k]* ~lock ~lock[^:]* ~lw ~lw[^:]* -flushall",
        "# twin shop-lw of shop has no password yet",
        "# default may touch lock keys, and has no twin",
        "# cache may use georadius georadiusbymember pfmerge, which reach lock keys, and has no twin",
        "# nothing was changed; --apply sets these rules",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    assert!(!printed.contains("SETUSER cache") && !printed.contains("SETUSER warden"), "{printed}");
    let (applied, code) = guarded.acl(&users, &["--apply"]);
    assert_eq!(code, Some(1), "{applied}");
    assert!(applied.contains("# 4 users set"), "{applied}");
    let mixed = guarded.admin("ACL LIST");
    assert!(mixed.contains("user mixed on") && !mixed.contains("~lock:mine &"), "{mixed}");
    let password = guarded.folder.path().join("shop-lw");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&password).expect("it was made"));
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(&password).expect("it is ours");
    assert!(!applied.contains(secret.trim()), "{applied}");
    let set = guarded.admin("ACL LIST");
    let (again, _) = guarded.acl(&users, &["--apply"]);
    assert!(again.contains("# nothing is to be changed"), "{again}");
    assert_eq!(guarded.admin("ACL LIST"), set);
    // The password that is there stays.
    assert_eq!(fs::read_to_string(&password).expect("it is ours"), secret);
    let client = shop(guarded.redis.client());
    is_refused(&client, "SETNX lock:a 1");
}

#[test]
fn twins_can_be_made_before_anybody_is_barred() {
    let guarded = Guarded::start();
    let (told, code) = guarded.acl(&["shop"], &["--apply", "--only-twins"]);
    assert_eq!(code, Some(0), "{told}");
    let around = shop(guarded.redis.client());
    around.sends("SETNX lock:a 1").gets(":1");
    around.sends("DEL lock:a").gets(":1");
    let proxy = guarded.proxy(&["shop"]).start();
    let client = shop(proxy.client());
    client.sends("SETNX lock:a 1").gets(":1");
    guarded.bars(&["shop"]);
    is_refused(&around, "DEL lock:a");
    client.sends("DEL lock:a").gets(":1");
}

#[test]
fn without_a_login_of_its_own_lockwarden_bars_nobody() {
    let redis = Redis::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lockwarden.toml");
    fs::write(&file, Proxy::builder(&redis).text()).expect("the folder is ours");
    let path = file.display().to_string();
    let ended = run_to_end(&mut lockwarden(&["acl", "--apply", "-c", &path]));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("default is lockwarden's own login"), "{}", ended.stdout);
    redis.client().sends("SETNX lock:a 1").gets(":1");
}

#[test]
fn where_all_is_only_watched_nothing_is_different_for_the_application() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).mode(Mode::Monitor).start();
    let client = shop(proxy.client());
    for (line, reply) in [
        ("SETNX lock:a 1", ":1"),
        ("GET lock:a", "$1 1"),
        ("DEL lock:a", ":1"),
        // Commands without a lock meaning are forwarded, and seen.
        ("HSET lock:h f 1", ":1"),
        ("HGET lock:h f", "$1 1"),
        ("RENAME lock:h lock:i", "+OK"),
        ("DEL lock:i", ":1"),
    ] {
        client.sends(line).gets(reply);
    }
    let text = "return redis.call('set', 'lo' .. 'ck:c', 'x')";
    client.sends_arguments(&["EVAL", text, "0"]).gets("+OK");
    client.sends("MULTI").gets("+OK");
    client.sends("SETNX lock:b 1").gets("+QUEUED");
    client.sends("HSET lock:h f 1").gets("+QUEUED");
    client.sends("EXEC").gets("[:1, :1]");
    client.sends("BLPOP lock:list 1").gets("nil-array");
    client.sends("ACL WHOAMI").gets("$4 shop");
}

#[test]
fn commands_that_the_user_lost_go_on_through_the_proxy() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).start();
    let (client, around) = (shop(proxy.client()), shop(guarded.redis.client()));
    is_refused(&around, "PFMERGE a b");
    is_refused(&around, "PFMERGE lock:a");
    client.sends("PFADD b 1").gets(":1");
    client.sends("PFMERGE a b").gets("+OK");
    client.sends("GEOADD geo 13.3 38.1 here").gets(":1");
    client.sends("GEORADIUS geo 13 38 100 km STORE near").gets(":1");
    client.sends("PFMERGE lock:a").gets_error("LOCKDENIED");
    client.sends("GEORADIUS geo 13 38 100 km STORE near STORE lock:a").gets_error("LOCKDENIED");
    // Commands that administer the server are refused.
    is_refused(&client, "CONFIG SET maxmemory 0");
    is_refused(&client, "ACL SETUSER shop ~*");
    client.sends("SET lock:a mine NX PX 9000").gets("+OK");
    client.sends("FLUSHALL").gets_error("LOCKDENIED");
    let fence = client.sends("LOCKWARDEN FENCE lock:a").integer();
    client.sends(format!("LOCKWARDEN CHECK lock:a {fence}")).gets(":1");
    client.sends("DEL lock:a").gets(":1");
    client.sends("FLUSHDB").gets("+OK");
}

#[test]
fn a_lock_is_proven_by_the_process_and_in_both_protocols() {
    let guarded = Guarded::start();
    guarded.bars(&["shop"]);
    let proxy = guarded.proxy(&["shop"]).default_ttl("9s").start();
    // One machine, and so one process.
    let (one, other) = (shop(proxy.client_from("127.0.0.9")), proxy.client_from("127.0.0.9"));
    other.sends("HELLO 3 AUTH shop pw").reply();
    for _ in 0..3 {
        one.sends("SETNX lock:a 1").gets(":1");
        other.sends("DEL lock:a").gets(":1");
        other.sends("SETNX lock:a 1").gets(":1");
        wait_for("the record to name the process", || {
            let record = record_of(&guarded, "lock:a");
            record != record.clone().without_process()
        });
        one.sends("DEL lock:a").gets(":1");
    }
    other.sends("ACL WHOAMI").gets("$4 shop");
}

/// The record of a lock, by a user who may read it.
fn record_of(guarded: &Guarded, key: &str) -> Record {
    let client = guarded.redis.client();
    client.sends("AUTH warden warden").gets("+OK");
    Record::of(&client, key).expect("it is held")
}

#[test]
fn selectors_and_patterns_for_reading_lose_the_locks_too() {
    if Server::under_test().lacks("selectors", 7, 0) {
        return;
    }
    let guarded = Guarded::start();
    guarded.admin("ACL SETUSER shop resetkeys -@all ~app:* %R~* +@all -@dangerous");
    let rules = ["ACL", "SETUSER", "shop", "clearselectors", "(~lock:* +get)", "(%W~* +set)"];
    let root = guarded.redis.client();
    root.sends_arguments(&rules).gets("+OK");
    root.sends("ACL SETUSER odd on >pw ~*foo*bar* -@all +get").gets("+OK");
    guarded.bars(&["shop"]);
    let (around, inside) = (shop(guarded.redis.client()), guarded.proxy(&["shop"]).start());
    is_refused(&around, "GET lock:a");
    is_refused(&around, "SET lock:a 1");
    around.sends("GET other").gets("nil");
    around.sends("SET other 1").gets("+OK");
    around.sends("APPEND app:a 1").gets(":1");
    is_refused(&around, "APPEND other 1");
    let client = shop(inside.client());
    client.sends("SET lock:a mine NX PX 9000").gets("+OK");
    client.sends("GET lock:a").gets("$4 mine");
    client.sends("DEL lock:a").gets(":1");
    is_refused(&client, "APPEND other 1");
    let (again, _) = guarded.acl(&["shop"], &["--without-twin"]);
    assert!(again.contains("# nothing is to be changed"), "{again}");
    let users = guarded.admin("ACL LIST");
    assert!(!users.contains("foo"), "{users}");
}
