//! Users who may do almost everything: each lock idiom, run by a user who lacks one of the commands that
//! the proxy's scripts use, or the names of the records. Monitored it does what it does without the
//! proxy, once; enforced it is either done completely or changes nothing.

mod idioms;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lockwarden_lock::scripts;
use lockwarden_tests::{
    Client, Finished, Mode, Proxy, ProxyBuilder, Record, Redis, Reply, Server, State, lockwarden, run_to_end, wait_for,
};

use idioms::{IDIOMS, Idiom};

/// Every command that a client's step may use, to be taken away in turn, and some that only the application uses.
fn commands() -> BTreeSet<String> {
    let steps = scripts::all().into_iter().filter(|script| script.is_for_clients());
    let used = steps.flat_map(|script| script.commands().to_vec());
    let others = ["eval", "evalsha", "getrange", "setnx", "expire", "unlink"];
    // 6.2 does not have the one, and cannot be asked for the right to the other without writing.
    let newer = ["pexpiretime", "setnx"];
    let has = |command: &&str| !newer.contains(command) || Server::under_test().since(7, 0);
    used.chain(others)
        .filter(has)
        // Before 7.0 a rule about a subcommand can only allow.
        .map(|command| command.split('|').next().unwrap_or_default().to_owned())
        .collect()
}

/// The rights of the users, as ACL rules after their name and password.
fn users() -> Vec<(String, String)> {
    let mut users: Vec<(String, String)> =
        commands().into_iter().map(|command| (format!("no-{command}"), format!("~* &* +@all -{command}"))).collect();
    for (name, rules) in [
        ("not-dangerous", "~* &* +@all -@dangerous"),
        ("no-records", "~lock:* ~other:* ~jobs:* ~count:* &* +@all"),
        ("no-debts", "~lock:* ~other:* ~jobs:* ~count:* ~lw:{*}:* &* +@all"),
        ("no-scripts", "~* &* +@all -@scripting"),
        ("no-select", "~* &* +@all -select"),
        ("redis-py", "~* &* -@all +set +get +del +pttl +pexpire +evalsha +eval +script|load +ping +multi +exec"),
        ("nothing", "~* &* -@all +ping"),
    ] {
        let rules = match Server::under_test().since(7, 0) {
            true => rules.to_owned(),
            false => rules.replace("+script|load", "+script"),
        };
        users.push((name.to_owned(), rules));
    }
    users
}

fn add_users(redis: &Redis) {
    let admin = redis.client();
    for (name, rules) in users() {
        admin.sends(format!("ACL SETUSER {name} on >pw {rules}")).gets("+OK");
    }
}

/// The application's own keys in this idiom: for each its value and its rounded TTL.
fn state(client: &Client, tag: &str) -> Vec<String> {
    let keys = ["lock", "other", "jobs", "count"];
    keys.iter()
        .map(|kind| {
            let key = format!("{kind}:{tag}");
            let value = match client.sends(format!("TYPE {key}")).reply().to_string().as_str() {
                "+string" => client.sends(format!("GET {key}")).reply().to_string(),
                "+hash" => client.sends(format!("HGETALL {key}")).reply().to_string(),
                "+list" => client.sends(format!("LRANGE {key} 0 -1")).reply().to_string(),
                other => other.to_owned(),
            };
            let left = client.sends(format!("PTTL {key}")).integer();
            // Seconds, rounded so that what a loaded machine takes does not show.
            format!("{kind} {value} {}", if left > 0 { (left + 15_000) / 30_000 } else { left })
        })
        .collect()
}

/// The words of a reply; the tag of a key in an error is not compared.
fn words(reply: &Reply, tag: &str) -> String {
    reply.to_string().replace(tag, "TAG")
}

fn log_in(client: &Client, user: &str) {
    client.sends(format!("AUTH {user} pw")).gets("+OK");
}

/// Runs an idiom on both, and compares each reply and what it left.
fn compare(direct: (&Client, &Client), proxied: (&Client, &Client), idiom: &Idiom, tag: &str, whose: &str) {
    for line in idiom.lines {
        let line = line.replace("{k}", tag);
        let wanted = direct.1.sends(&line).reply();
        let got = proxied.1.sends(&line).reply();
        assert_eq!(words(&got, tag), words(&wanted, tag), "{whose}: {}: {line}", idiom.name);
    }
    assert_eq!(state(proxied.0, tag), state(direct.0, tag), "{whose}: {}", idiom.name);
}

#[test]
fn monitored_a_user_without_a_command_has_the_answers_and_effects_of_redis_itself() {
    let (straight, redis) = (Redis::start(), Redis::start());
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    add_users(&straight);
    add_users(&redis);
    let (ground, admin) = (straight.client(), redis.client());
    for (user, _) in users() {
        for (at, idiom) in IDIOMS.iter().enumerate() {
            // The first time nothing is known of the user's rights, the second time all is.
            for time in 0..2 {
                let (direct, proxied) = (straight.client(), proxy.client());
                log_in(&direct, &user);
                log_in(&proxied, &user);
                let tag = format!("{user}-{at}-{time}");
                compare((&ground, &direct), (&admin, &proxied), idiom, &tag, &user);
            }
        }
    }
    assert!(proxy.metric("lockwarden_unjudged_commands_total{why=\"no-rights\"}") > 100.0);
}

/// The keys of one lock on Redis, with its record.
fn lease(admin: &Client, tag: &str) -> (Vec<String>, Option<Record>) {
    let record = Record::of(admin, &format!("lock:{tag}"));
    (state(admin, tag), record.map(Record::without_process))
}

fn is_held(state: &[String]) -> bool {
    !state[0].starts_with("lock +none")
}

#[test]
fn enforced_a_user_without_a_command_does_all_of_it_or_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    add_users(&redis);
    let admin = redis.client();
    for (user, _) in users() {
        for (at, idiom) in IDIOMS.iter().enumerate() {
            for time in 0..2 {
                let client = proxy.client();
                log_in(&client, &user);
                let tag = format!("{user}-{at}-{time}");
                all_or_nothing(&admin, &client, idiom, &tag);
            }
        }
    }
}

fn all_or_nothing(redis: &Client, client: &Client, idiom: &Idiom, tag: &str) {
    let mut before = lease(redis, tag);
    for line in idiom.lines {
        let line = line.replace("{k}", tag);
        let reply = client.sends(&line).reply().to_string();
        let after = lease(redis, tag);
        let context = format!("{tag}: {}: {line}: {reply}", idiom.name);
        assert!(!reply.contains("['?'") && !reply.contains("$1 ?"), "{context}");
        // An error of its own ends an application's script halfway, as without the proxy.
        if reply.starts_with("-NOPERM") || reply.starts_with("-LOCK") {
            assert_eq!(after, before, "{context}");
        }
        let live = after.1.as_ref().is_some_and(|record| record.state == State::Live);
        // Only a lock from before the proxy could be held without a record, and there is none here.
        if is_held(&after.0) {
            assert!(live, "{context}: held without a record: {after:?}");
            assert!(!after.0[0].ends_with(" -1"), "{context}: without a TTL: {after:?}");
        } else {
            assert!(!live, "{context}: gone without a word: {after:?}");
        }
        before = after;
    }
}

/// The rights change while the session lives, so what the proxy knows of them is no longer true.
#[test]
fn rights_that_are_taken_from_a_living_session() {
    let (straight, redis) = (Redis::start(), Redis::start());
    let (watching, enforcing) = (Proxy::monitoring(&redis), Proxy::enforcing(&redis));
    let admins = [straight.client(), redis.client()];
    for command in commands() {
        let user = format!("app-{command}");
        for admin in &admins {
            admin.sends(format!("ACL SETUSER {user} on >pw ~* &* +@all")).gets("+OK");
        }
        let (direct, watched, enforced) = (straight.client(), watching.client(), enforcing.client());
        for client in [&direct, &watched, &enforced] {
            log_in(client, &user);
        }
        for (at, idiom) in IDIOMS.iter().enumerate() {
            compare((&admins[0], &direct), (&admins[1], &watched), idiom, &format!("{command}-w{at}"), &user);
            all_or_nothing(&admins[1], &enforced, idiom, &format!("{command}-e{at}"));
        }
        for admin in &admins {
            admin.sends(format!("ACL SETUSER {user} -{command}")).gets("+OK");
        }
        for (at, idiom) in IDIOMS.iter().enumerate() {
            // Only EXEC shows which right a step in a block lacks; and the proxy notices that a script may not
            // be sent any more when it looks at the rights again.
            let in_block = idiom.name.contains("block");
            if !in_block && !["eval", "evalsha"].contains(&command.as_str()) {
                compare((&admins[0], &direct), (&admins[1], &watched), idiom, &format!("{command}-v{at}"), &user);
            }
            all_or_nothing(&admins[1], &enforced, idiom, &format!("{command}-f{at}"));
        }
    }
}

#[test]
fn the_check_names_what_users_lack() {
    let redis = Redis::start();
    let admin = redis.client();
    for (user, rules) in [
        ("good", "~lock:* ~lw:* +@all"),
        ("jobs", "~lock:* -@all +@write +@read +@keyspace +evalsha"),
        ("cache", "~cache:* +@all"),
    ] {
        admin.sends(format!("ACL SETUSER {user} on >pw {rules}")).gets("+OK");
    }
    let check = |url: &str| checked(url).stdout;
    let said = check(&format!("redis://{}", redis.address()));
    assert!(!said.contains("own user"), "{said}");
    let told = said.contains("backend: user jobs may take locks of namespace default and lacks +eval +time ~lw:*\n");
    assert_eq!(told, Server::under_test().since(7, 0), "{said}");
    assert!(!said.contains("user good"), "{said}");
    assert!(!said.contains("user cache"), "{said}");

    admin.sends("ACL SETUSER keeper on >pw ~lock:* ~lw:* +@all -time -setrange").gets("+OK");
    let said = check(&format!("redis://keeper:pw@{}", redis.address()));
    let line = "backend: the proxy's own user keeper lacks +setrange +time: leases whose TTL";
    assert!(said.contains(line), "{said}");
}

/// `lockwarden check --backend` of a server at this URL.
fn checked(url: &str) -> Finished {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("check.toml");
    std::fs::write(&file, format!("backend = \"{url}\"\n")).expect("the directory is ours");
    let mut command = lockwarden(&["check", "--backend", "--config"]);
    run_to_end(command.arg(&file))
}

/// No user was named, so it is the default one that is logged in.
#[test]
fn a_default_user_without_info_is_one_that_is_logged_in() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER default -info").gets("+OK");
    let proxy = ProxyBuilder::for_backend(&redis.url()).start();
    let alice = proxy.client();
    alice.sends("SETNX lock:a 1").gets(":1");
    proxy.logs(&["WARN", "+info"]);
    assert_eq!(proxy.logged(&["may not log in"]), 0, "{}", proxy.log());
    let said = checked(&redis.url()).stdout;
    assert!(!said.contains("may not log in"), "{said}");
    assert!(said.contains("the proxy's own user default lacks +info"), "{said}");
    let mut shown = serde_json::Value::Null;
    wait_for("the lock to be shown", || {
        shown = proxy.api("locks/lock:a")["lock"].clone();
        shown["fence"].is_u64()
    });
    let order = format!("{{\"db\":0,\"fence\":{},\"reason\":\"a test\"}}", shown["fence"]);
    let (status, answer) = proxy.orders("/api/v1/locks/lock:a/break", &order);
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn a_command_that_a_server_has_under_another_name_is_no_lack_of_rights() {
    for command in ["SET", "DEL"] {
        let redis = Redis::with_arguments(&["--rename-command", command, "other"]);
        let proxy = ProxyBuilder::for_backend(&redis.url()).mode(Mode::Enforce).start();
        proxy.logs(&["ERROR", "the server lacks commands", &format!("\"commands\":\"{command}\"")]);
        let client = proxy.client();
        let asked = match command {
            "SET" => "SETNX lock:a 1",
            _ => "UNLINK lock:a",
        };
        let said = client.sends(asked).reply().to_string();
        let blames = |text: &str| text.contains(&format!("+{}", command.to_lowercase()));
        assert!(!said.contains("this user lacks"), "{said}");
        assert_eq!(proxy.logged(&["lacks rights"]), 0, "{}", proxy.log());
        let checked = checked(&redis.url()).stdout;
        assert!(checked.contains(&format!("the server has no {command}")), "{checked}");
        assert!(!checked.lines().any(|line| line.contains("lacks") && blames(line)), "{checked}");
    }
}

#[test]
fn a_full_server_is_complained_of_once_and_its_end_is_told() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (admin, client) = (redis.client(), proxy.client());
    client.sends("SETNX lock:a 1").gets(":1");
    admin.sends("CONFIG SET maxmemory-policy noeviction").gets("+OK");
    admin.sends("CONFIG SET maxmemory 1").gets("+OK");
    let trouble = "cannot be found by other proxies";
    proxy.logs(&["WARN", trouble, "OOM"]);
    let begun = Instant::now();
    wait_for("four seconds, and some tries", || begun.elapsed() > Duration::from_secs(4));
    assert_eq!(proxy.logged(&[trouble]), 1, "{}", proxy.log());
    admin.sends("CONFIG SET maxmemory 0").gets("+OK");
    proxy.logs(&["INFO", "are found by other proxies again"]);
    assert_eq!(proxy.logged(&[trouble]), 1);
}

#[test]
fn what_the_own_user_lacks_is_said_once_as_an_error() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER keeper on >pw ~* +@all -time").gets("+OK");
    let url = format!("redis://keeper:pw@{}", redis.address());
    let proxy = ProxyBuilder::for_backend(&url).start();
    proxy.logs(&["ERROR", "the proxy's own connection lacks rights", "+time"]);
    let index = "cannot be found by other proxies";
    proxy.logs(&["WARN", index]);
    let lacking = proxy;
    let proxy = Proxy::enforcing(&redis);
    proxy.client().sends("SETNX lock:a 1").gets(":1");
    assert_eq!(proxy.logged(&["lacks rights"]), 0);
    // The consequences are reported for missing rights, and for nothing else.
    let admin = redis.client();
    admin.sends("ACL SETUSER keeper reset on >pw ~* +@all -set").gets("+OK");
    let proxy = ProxyBuilder::for_backend(&url).start();
    let free = "a namespace with a quarantine grants no free lock";
    proxy.logs(&["ERROR", "+set", free]);
    assert_eq!(proxy.logged(&["are not renewed"]), 0);
    admin.sends("ACL SETUSER keeper reset on >pw ~* +@all -ping").gets("+OK");
    let proxy = ProxyBuilder::for_backend(&url).start();
    proxy.client().sends("SETNX lock:b 1").gets(":1");
    assert_eq!(proxy.logged(&["lacks rights"]), 0);
    let said = checked(&url);
    assert_eq!(said.code, Some(0), "{said:?}");
    // It is not asked for again and again.
    let begun = Instant::now();
    wait_for("two seconds", || begun.elapsed() > Duration::from_secs(2));
    assert_eq!(lacking.logged(&["WARN", index]), 1);
}
