//! Services that run Redis for others: what they forbid, and logins that end. docs/rights.md says what to do for each.

mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockwarden_tests::{
    Finished, Mode, Proxy, ProxyBuilder, Redis, Server, holds_for, lockwarden, run_to_end, wait_for,
};
use service::{Rule, serve};

const COMPARE_AND_DELETE: &str = "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 lock:a 6e3d0bcd-9c1e-4a07";

/// Commands of applications, in a block and outside, and those that some applications try at the start.
const LINES: &[&str] = &[
    "CONFIG GET maxmemory-samples",
    "CLIENT SETNAME billing",
    "COMMAND INFO GET",
    "SET lock:a 6e3d0bcd-9c1e-4a07 NX PX 9000",
    "SETNX lock:a 2",
    COMPARE_AND_DELETE,
    "SETNX lock:a 1",
    "EXPIRE lock:a 9",
    "GET lock:a",
    "DEL lock:a",
    "OBJECT ENCODING plain",
    "SET plain 1",
    "INCR plain",
    "MULTI",
    "SETNX lock:b 1",
    "RPUSH jobs one",
    "EXEC",
    "MULTI",
    "DEL lock:b",
    COMPARE_AND_DELETE,
    "EXEC",
    "EXISTS lock:a lock:b",
    "ACL WHOAMI",
    "DEBUG SLEEP 0",
    "KEYS l*",
];

/// The services that docs/rights.md names, and the commands that they do not have.
const SERVICES: &[(&str, &str)] = &[
    (
        "ElastiCache, node-based",
        "BGREWRITEAOF BGSAVE CONFIG DEBUG MIGRATE MODULE PSYNC REPLICAOF SAVE SHUTDOWN SLAVEOF SYNC",
    ),
    (
        "Memorystore for Redis",
        "ACL BGREWRITEAOF BGSAVE CLIENT CLUSTER COMMAND CONFIG DEBUG LASTSAVE MIGRATE MODULE MONITOR OBJECT PSYNC REPLICAOF \
         SAVE SHUTDOWN SLAVEOF SYNC",
    ),
    (
        "Azure Cache for Redis",
        "ACL BGREWRITEAOF BGSAVE CLUSTER CONFIG DEBUG MIGRATE MODULE PSYNC REPLICAOF SAVE SHUTDOWN SLAVEOF SYNC",
    ),
    (
        "Redis Cloud",
        "BGREWRITEAOF BGSAVE CLUSTER CONFIG DEBUG LASTSAVE MIGRATE MODULE PSYNC REPLICAOF ROLE SAVE SHUTDOWN SLAVEOF SYNC WAIT",
    ),
];

fn without(commands: &str) -> Redis {
    let mut arguments = Vec::new();
    for command in commands.split_ascii_whitespace() {
        arguments.extend(["--rename-command", command, ""]);
    }
    Redis::with_arguments(&arguments)
}

/// A server whose user without a login may do everything else.
fn forbidding(command: &str) -> Redis {
    let redis = Redis::start();
    let rule = format!("ACL SETUSER default -{}", command.to_ascii_lowercase());
    redis.client().sends(rule).gets("+OK");
    redis
}

fn check(config: &Path) -> Finished {
    run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(config))
}

fn check_of(redis: &Redis) -> Finished {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let config = directory.path().join("lw.toml");
    fs::write(&config, Proxy::builder(redis).text()).expect("the directory is ours");
    check(&config)
}

/// Two clients and one lock: it is kept alive past its TTL of 600 ms, and the other one does not give it back.
#[track_caller]
fn is_governed(proxy: &Proxy, redis: &Redis, what: &str) {
    let (holder, other, console) = (proxy.client(), proxy.client(), redis.client());
    assert_eq!(holder.sends("SETNX lock:k 1").reply().to_string(), ":1", "{what}");
    assert_eq!(other.sends("SETNX lock:k 1").reply().to_string(), ":0", "{what}");
    assert_eq!(other.sends("DEL lock:k").reply().to_string(), ":0", "{what}");
    holds_for(Duration::from_millis(1500), what, || console.sends("STRLEN lock:k").integer() == 1);
    assert_eq!(holder.sends("DEL lock:k").reply().to_string(), ":1", "{what}");
}

/// Every reply is that of this server alone.
#[track_caller]
fn is_transparent(redis: &Redis, straight: &Redis, what: &str) {
    let proxy = Proxy::monitoring(redis);
    let (direct, client) = (straight.client(), proxy.client());
    for line in LINES {
        let wanted = direct.sends(*line).reply().to_string();
        let got = client.sends(*line).reply().to_string();
        assert_eq!(got, wanted, "{what}: {line}");
    }
}

#[test]
fn where_commands_are_renamed_away_locks_are_governed_and_the_rest_is_redis_own() {
    thread::scope(|scope| {
        for &(name, forbidden) in SERVICES {
            scope.spawn(move || {
                is_transparent(&without(forbidden), &without(forbidden), name);
                let redis = without(forbidden);
                let proxy = Proxy::enforcing(&redis);
                is_governed(&proxy, &redis, name);
                let end = check_of(&redis);
                assert_eq!(end.code, Some(0), "{name}: {end:?}");
                let says = end.stdout.contains("the server has no COMMAND");
                assert_eq!(says, forbidden.contains(" COMMAND "), "{name}: {end:?}");
                let told = proxy.logged(&["WARN", "can do without", "+command"]);
                assert_eq!(told, usize::from(says), "{name}: {}", proxy.log());
                assert_eq!(proxy.logged(&["ERROR"]), 0, "{name}: {}", proxy.log());
            });
        }
    });
}

#[test]
fn a_command_that_nobody_knows_counts_as_a_write_where_the_server_lists_none() {
    let redis = without("COMMAND");
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends("SETNX lock:a 1").gets(":1");
    let refused = proxy.client().sends("NOSUCH lock:a 2").reply().to_string();
    assert!(refused.contains("opaque-write"), "{refused}");
    let plain = proxy.client().sends("NOSUCH plain 2").reply().to_string();
    assert!(plain.starts_with("-ERR unknown command"), "{plain}");
}

/// What becomes of locks where a command is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Nothing, and the operator is not told.
    Nothing,
    /// Nothing, and the operator is told.
    Told,
    /// In enforce mode lock commands are refused.
    Refused,
    /// In enforce mode no client is served.
    NotServed,
}

/// Every command that the proxy itself sends, alone or in scripts.
const OWN_COMMANDS: &[(&str, Then)] = &[
    ("AUTH", Then::Nothing),
    ("HELLO", Then::Nothing),
    ("DUMP", Then::Nothing),
    ("RESTORE", Then::Nothing),
    ("CONFIG", Then::Nothing),
    ("CLIENT", Then::Nothing),
    ("ACL", Then::Nothing),
    ("PING", Then::Told),
    ("INFO", Then::Told),
    ("COMMAND", Then::Told),
    ("SCAN", Then::Told),
    ("TIME", Then::Refused),
    ("SET", Then::Refused),
    ("GET", Then::Refused),
    ("PTTL", Then::Refused),
    ("PEXPIRE", Then::Refused),
    ("SETRANGE", Then::Refused),
    ("MGET", Then::Refused),
    ("TYPE", Then::Refused),
    ("HEXISTS", Then::Refused),
    ("EVAL", Then::NotServed),
    ("EVALSHA", Then::NotServed),
];

#[test]
fn each_command_of_the_proxys_own_may_be_missing_and_what_comes_of_it_is_said() {
    for some in OWN_COMMANDS.chunks(6) {
        thread::scope(|scope| {
            for &(command, then) in some {
                scope.spawn(move || is_renamed_away(command, then));
            }
        });
    }
}

fn is_renamed_away(command: &str, then: Then) {
    is_transparent(&without(command), &without(command), command);
    let redis = without(command);
    let builder = Proxy::builder(&redis).mode(Mode::Enforce);
    let proxy = match then {
        Then::NotServed => builder.without_waiting().start(),
        Then::Nothing | Then::Told | Then::Refused => builder.start(),
    };
    match then {
        Then::Nothing | Then::Told => is_governed(&proxy, &redis, command),
        Then::Refused => is_refused(&proxy, &redis, command),
        Then::NotServed => {
            proxy.logs(&["ERROR", "no client is served", "no EVAL or no EVALSHA"]);
            assert_eq!(proxy.ready(), Some(503), "{command}");
        }
    }
    let end = check_of(&redis);
    let line = format!("backend: the server has no {command}: ");
    assert_eq!(end.stdout.contains(&line), then != Then::Nothing, "{end:?}");
    let finding = matches!(then, Then::Refused | Then::NotServed);
    assert_eq!(end.code, Some(finding.into()), "{command}: {end:?}");
}

#[test]
fn each_command_of_the_proxys_own_may_be_forbidden_and_what_comes_of_it_is_said() {
    for some in OWN_COMMANDS.chunks(6) {
        thread::scope(|scope| {
            for &(command, then) in some {
                // No user can be kept from these two.
                if !matches!(command, "AUTH" | "HELLO") {
                    scope.spawn(move || is_forbidden(command, then));
                }
            }
        });
    }
}

fn is_forbidden(command: &str, then: Then) {
    // Any answer to a heartbeat will do, so nothing is lost and nothing said.
    let then = if command == "PING" { Then::Nothing } else { then };
    is_transparent(&forbidding(command), &forbidding(command), command);
    let redis = forbidding(command);
    let proxy = Proxy::enforcing(&redis);
    match then {
        Then::Nothing | Then::Told => is_governed(&proxy, &redis, command),
        Then::Refused | Then::NotServed => is_refused(&proxy, &redis, command),
    }
    let end = check_of(&redis);
    let right = format!("+{}", command.to_ascii_lowercase());
    // The proxy's own connections do without it, and before 7.0 the server does not say what other users
    // lack.
    let is_told = command != "SET" || Server::under_test().since(7, 0);
    if then != Then::Nothing && is_told {
        assert!(end.stdout.contains(&right), "{command}: {end:?}");
        assert_eq!(end.code, Some(1), "{command}: {end:?}");
    }
    if then != Then::Nothing {
        proxy.logs(&["lacks", &right]);
    }
}

/// The client is told what is missing, and nothing was done.
#[track_caller]
fn is_refused(proxy: &Proxy, redis: &Redis, command: &str) {
    let told = proxy.client().sends("SETNX lock:k 1").reply().to_string();
    assert!(told.starts_with("-NOPERM lockwarden runs SETNX"), "{command}: {told}");
    assert!(told.contains(&format!("+{}", command.to_ascii_lowercase())), "{told}");
    assert_eq!(redis.client().sends("STRLEN lock:k").integer(), 0, "{command}");
    proxy.logs(&["its lock commands are refused", "acquire"]);
}

#[test]
fn a_service_that_wants_a_key_with_each_script_has_locks_governed() {
    let redis = Redis::start();
    let address = serve(&redis, Rule::ScriptsNameKeys);
    let builder = ProxyBuilder::for_backend(&format!("redis://{address}"));
    let proxy = builder.start();
    is_governed(&proxy, &redis, "proxy mode");
    assert_eq!(proxy.logged(&["WARN"]), 0, "{}", proxy.log());
    assert_eq!(proxy.logged(&["ERROR"]), 0, "{}", proxy.log());
    let end = check(proxy.config());
    assert_eq!(end.code, Some(0), "{end:?}");
}

/// How long a password of the service works.
const TOKEN_LIFE: Duration = Duration::from_secs(3);

/// Issues passwords that expire, as AWS and Google do: each opens connections for three seconds, and open connections
/// stay.
struct Tokens {
    redis: Redis,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Tokens {
    fn start() -> Tokens {
        let redis = Redis::with_arguments(&["--requirepass", "secret"]);
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens { redis, file: folder.path().join("token"), _folder: folder };
        tokens.issue("first");
        tokens
    }

    fn orders(&self, line: &str) -> String {
        let console = self.redis.client();
        console.sends("AUTH secret").gets("+OK");
        console.sends(line).reply().to_string()
    }

    /// Issues a new password, by which the previous ones end.
    fn issue(&self, token: &str) {
        let user = format!("ACL SETUSER warden on resetpass >{token} ~* &* +@all");
        assert_eq!(self.orders(&user), "+OK");
        fs::write(&self.file, token).expect("the folder is ours");
    }

    /// The password command of an operator.
    fn command(&self) -> String {
        format!("password_command = [\"cat\", \"{}\"]", self.file.display())
    }
}

#[test]
fn a_token_that_ends_is_asked_for_again_by_each_new_connection() {
    let tokens = Tokens::start();
    let table = format!("[backend_login]\nuser = \"warden\"\n{}\n", tokens.command());
    let proxy = Proxy::builder(&tokens.redis).more(&table).start();
    let holder = proxy.client();
    holder.sends("AUTH warden first").gets("+OK");
    holder.sends("SETNX lock:job 1").gets(":1");
    tokens.issue("second");
    // The connections that are open are left alone, and the lease is kept.
    holds_for(TOKEN_LIFE, "the lease is kept", || tokens.orders("EXISTS lock:job") == ":1");
    assert_eq!(holder.sends("DEL lock:job").reply().to_string(), ":1");
    // As after the twelve hours for which AWS lets a connection live.
    tokens.orders("CLIENT KILL USER warden");
    wait_for("the proxy to be back", || {
        proxy.metric("lockwarden_backend_reconnects_total") > 0.0 && proxy.ready() == Some(200)
    });
    let client = proxy.client();
    client.sends("AUTH warden first").gets_error("WRONGPASS");
    client.sends("AUTH warden second").gets("+OK");
    client.sends("SETNX lock:job 1").gets(":1");
    client.sends("DEL lock:job").gets(":1");
    let end = check(proxy.config());
    assert_eq!(end.code, Some(0), "{end:?}");
}

#[test]
fn connections_that_log_in_again_are_not_cut_where_logins_end() {
    let tokens = Tokens::start();
    let address = serve(&tokens.redis, Rule::LoginsEnd(TOKEN_LIFE));
    let login = format!("[backend_login]\nuser = \"warden\"\n{}\nrefresh = \"1s\"\n", tokens.command());
    let builder = ProxyBuilder::for_backend(&format!("redis://{address}")).more(&login);
    let proxy = builder.start();
    let (renewing, silent) = (proxy.client(), proxy.client());
    for client in [&renewing, &silent] {
        client.sends("AUTH warden first").gets("+OK");
    }
    renewing.sends("SETNX lock:job 1").gets(":1");
    tokens.issue("second");
    let reconnects = proxy.metric("lockwarden_backend_reconnects_total");
    for _ in 0..6 {
        thread::sleep(Duration::from_secs(1));
        renewing.sends("AUTH warden second").gets("+OK");
        assert_eq!(tokens.orders("EXISTS lock:job"), ":1");
    }
    assert_eq!(proxy.metric("lockwarden_backend_reconnects_total"), reconnects, "{}", proxy.log());
    renewing.sends("DEL lock:job").gets(":1");
    // As it would be without the proxy.
    if !proxy.is_multiplexed() {
        silent.sends("PING").gets_close();
    }
}

/// Where clients share connections: a user for them, and the ids and last commands of the server's connections of that
/// user.
impl Tokens {
    fn issue_to_clients(&self, token: &str) {
        let user = format!("ACL SETUSER app on resetpass >{token} ~* &* +@all");
        assert_eq!(self.orders(&user), "+OK");
    }

    fn connections_of_clients(&self) -> Vec<(String, String)> {
        let listed = self.orders("CLIENT LIST");
        let of_clients = listed.split("id=").filter(|one| one.contains("user=app"));
        let field = |one: &str, name: &str| {
            let value = one.split(' ').find_map(|field| field.strip_prefix(name));
            value.unwrap_or_default().to_owned()
        };
        of_clients
            .map(|one| {
                let id = one.split(' ').next().unwrap_or_default();
                (id.to_owned(), field(one, "cmd="))
            })
            .collect()
    }

    /// Closes the connections that are kept for the next client that needs one: over these the proxy never asks
    /// the server anything.
    fn close_spare_connections(&self) {
        for (id, last) in self.connections_of_clients() {
            if last == "auth" {
                self.orders(&format!("CLIENT KILL ID {id}"));
            }
        }
    }

    fn shared(&self) -> Proxy {
        let table = format!("[backend_login]\nuser = \"warden\"\n{}\n", self.command());
        Proxy::builder(&self.redis).multiplexed().more(&table).start()
    }
}

#[test]
fn a_new_connection_of_a_client_is_opened_with_the_newest_password_of_its_user() {
    let tokens = Tokens::start();
    tokens.issue_to_clients("one");
    let proxy = tokens.shared();
    let early = proxy.client();
    early.sends("AUTH app one").gets("+OK");
    early.sends("GET plain").gets("nil");
    tokens.issue_to_clients("two");
    let late = proxy.client();
    late.sends("AUTH app two").gets("+OK");
    late.sends("GET plain").gets("nil");
    tokens.close_spare_connections();
    // For a block it needs a connection of its own, and its own password opens none.
    early.sends("MULTI").gets("+OK");
    early.sends("ACL WHOAMI").gets("+QUEUED");
    early.sends("EXEC").gets("[$3 app]");
    proxy.client().sends("AUTH app one").gets_error("WRONGPASS");

    // Nor is a client let in as another user.
    let stranger = proxy.client();
    stranger.sends("AUTH warden first").gets("+OK");
    stranger.sends("ACL WHOAMI").gets("$6 warden");
}

#[test]
fn a_session_that_was_cut_off_is_not_let_in_by_the_password_of_others() {
    let tokens = Tokens::start();
    tokens.issue_to_clients("one");
    let proxy = tokens.shared();
    let early = proxy.client();
    early.sends("AUTH app one").gets("+OK");
    early.sends("GET plain").gets("nil");
    // As an operator does whose password was stolen.
    tokens.issue_to_clients("two");
    tokens.orders("CLIENT KILL USER app");
    let late = proxy.client();
    late.sends("AUTH app two").gets("+OK");
    late.sends("GET plain").gets("nil");
    early.sends("GET plain").gets_close();
    late.sends("GET plain").gets("nil");
}

#[test]
fn clients_whose_tokens_end_go_on_as_long_as_one_of_them_has_a_new_one() {
    let tokens = Tokens::start();
    tokens.issue_to_clients("0");
    let proxy = tokens.shared();
    let early = proxy.client();
    early.sends("AUTH app 0").gets("+OK");
    early.sends("SETNX lock:job 1").gets(":1");
    for number in 1..=3 {
        let token = number.to_string();
        tokens.issue_to_clients(&token);
        let newcomer = proxy.client();
        newcomer.sends(format!("AUTH app {token}")).gets("+OK");
        newcomer.sends("SETNX lock:job 1").gets(":0");
        tokens.close_spare_connections();
        early.sends("MULTI").gets("+OK");
        early.sends("GET lock:job").gets("+QUEUED");
        early.sends("EXEC").gets("[$1 1]");
    }
    early.sends("DEL lock:job").gets(":1");
}
