//! The proxy compares the time after the switch to enforce mode with the time before: where enforcing harms,
//! it says so, and switches back where the configuration wants that.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lockwarden_tests::{Client, Mode, Proxy, Redis, Stops, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// Longer than the shortest time by which enforcing is judged.
const WATCHED: Duration = Duration::from_secs(12);
const WORK: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(5);
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// How a program gives its lock back.
#[derive(Clone, Copy)]
enum Release {
    /// By bare DEL, each fourth time over another connection.
    Pooled,
    /// By compare-and-delete, over any.
    Compared,
}

/// Two threads of one program, one of which works under the lock at a time.
fn works(proxy: &Proxy, name: &str, how: Release, stop: &AtomicBool) {
    let client = || -> Client {
        let client = proxy.client_from("127.41.0.1");
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        client
    };
    let lock = format!("{name}:a");
    thread::scope(|threads| {
        for thread in 0..2 {
            let (own, other, lock) = (client(), client(), &lock);
            threads.spawn(move || {
                let mut turn = 0;
                while !stop.load(Ordering::Relaxed) {
                    let token = format!("{thread}-{turn:020}");
                    let take = format!("SET {lock} {token} NX PX 3000");
                    if own.sends(take).reply().to_string() != "+OK" {
                        thread::sleep(POLL);
                        continue;
                    }
                    turn += 1;
                    thread::sleep(WORK);
                    let by = if turn % 4 == 0 { &other } else { &own };
                    match how {
                        Release::Pooled => by.sends(format!("DEL {lock}")).integer(),
                        Release::Compared => {
                            let deleted = by.eval(COMPARE_AND_DELETE, &[lock], &[&token]);
                            i64::from(deleted == ":1")
                        }
                    };
                }
            });
        }
    });
}

/// What the overview says of a namespace.
fn namespace(proxy: &Proxy, name: &str) -> Value {
    let overview = proxy.api("overview");
    let mut all = overview["namespaces"].as_array().expect("a list").iter();
    let is_it = |one: &&Value| one["name"] == name;
    all.find(is_it).expect("it is there").clone()
}

fn harms(proxy: &Proxy, name: &str) -> f64 {
    proxy.metric(&format!("lockwarden_enforce_harms{{namespace=\"{name}\"}}"))
}

#[test]
fn enforcing_that_harms_is_said_within_a_minute_and_taken_back_where_that_is_wanted() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory");
    let trail = directory.path().join("trail.jsonl");
    // Where no identity counts, a DEL over another connection proves nothing.
    let refusing = "[namespace.settings.owner-token]\nproofs = [\"token\", \"session\"]";
    let of = |name: &str, more: &str| format!("[[namespace]]\nname = \"{name}\"\nkeys = [\"{name}:*\"]\n{more}\n");
    let proxy = Proxy::builder(&redis)
        .mode(Mode::Monitor)
        .top("audit_file", &format!("{trail:?}"))
        .more(&of("pool", refusing))
        .more(&of("back", &format!("auto_back = true\n{refusing}")))
        .more(&of("honest", "auto_back = true"))
        .start();
    let stop = AtomicBool::new(false);
    thread::scope(|programs| {
        let _stops = Stops(&stop);
        programs.spawn(|| works(&proxy, "pool", Release::Pooled, &stop));
        programs.spawn(|| works(&proxy, "back", Release::Pooled, &stop));
        programs.spawn(|| works(&proxy, "honest", Release::Compared, &stop));
        // It is compared with what is seen in this time.
        thread::sleep(WATCHED);
        // By a reload or by an order.
        let text = fs::read_to_string(proxy.config()).expect("it is there");
        let text = text.replace("name = \"pool\"", "name = \"pool\"\nmode = \"enforce\"");
        let (status, said) = proxy.reloads(text.as_bytes(), "/reload?anyway=true");
        assert!(status == 200 && said.contains("pool mode"), "{said}");
        for name in ["back", "honest"] {
            assert_eq!(proxy.switch(name, Mode::Enforce), 200);
        }
        for name in ["pool", "back", "honest"] {
            assert_eq!(namespace(&proxy, name)["mode"], "enforce");
            assert_eq!(harms(&proxy, name), 0.0);
        }
        let told = |name: &str, words: &str| {
            wait_for_value("harm to be found", || {
                let harm = namespace(&proxy, name)["harm"].as_str()?.to_owned();
                harm.contains(words).then_some(harm)
            })
        };
        let harm = told("pool", " locks a minute are granted, ");
        assert!(harm.starts_with("enforcing harms: ") && harm.contains(" before it was enforced"), "{harm}");
        proxy.logs(&[
            "\"level\":\"ERROR\"",
            "enforcing harms; lockwarden mode pool=monitor takes it back",
            "\"namespace\":\"pool\"",
        ]);
        wait_for("the other to be taken back", || namespace(&proxy, "back")["mode"] == "monitor");
        proxy.logs(&[
            "\"level\":\"WARN\"",
            "set back to monitor mode, because enforcing harms (auto_back)",
            "\"namespace\":\"back\"",
        ]);
        told("back", "enforcing harmed, so it was set back to monitor mode: ");
    });
    // The namespace without `auto_back` stays enforced. Every report says that enforcing harms, and the log
    // says it once.
    assert_eq!(namespace(&proxy, "pool")["mode"], "enforce");
    assert_eq!((harms(&proxy, "pool"), harms(&proxy, "back")), (1.0, 1.0));
    assert_eq!(proxy.logged(&["ERROR", "\"namespace\":\"pool\""]), 1);
    let (_, board) = proxy.get("/");
    let first =
        "<ul class=\"notices\"><li class=\"bad\"><a href=\"/report\">Namespace <bdi>pool</bdi>: enforcing harms: ";
    assert!(board.contains(first), "{board}");
    let admin = proxy.admin_address().to_string();
    let audit = run_to_end(&mut lockwarden(&["audit", "--admin", &admin]));
    let told = "Not ready: pool: enforcing harms: ";
    assert!(audit.stdout.contains(told), "{}", audit.stdout);
    let audit = run_to_end(&mut lockwarden(&["audit", "--all", "--admin", &admin]));
    let verdict = |name: &str| {
        let mut lines = audit.stdout.lines().rev();
        let line = lines.find(|line| line.starts_with(name) && line.contains("  no  "));
        line.unwrap_or_else(|| panic!("{name}: {}", audit.stdout)).to_owned()
    };
    assert!(verdict("pool").contains("  no     enforcing harms: "));
    assert!(verdict("back").contains("  no     enforcing harmed, so it was set back"));
    // So soon it is enforced again only by an order, or a reload, that insists.
    let again = proxy.orders("/mode", "{\"namespace\":\"back\",\"mode\":\"enforce\"}");
    let against = "the report speaks against it: back: enforcing harmed, so it was set back to monitor mode";
    assert!(again.0 == 409 && again.1.contains(against), "{again:?}");
    // The audit trail says who did it.
    let switch = wait_for_value("the switch to be in the audit trail", || {
        let text = fs::read_to_string(&trail).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.find(|line: &Value| line["event"] == "mode-switched" && line["detail"] == "back=monitor")
    });
    assert_eq!(switch["client"]["application"], "lockwarden (auto_back)");

    // Nothing is reported about the program whose releases are believed.
    let honest = namespace(&proxy, "honest");
    assert_eq!((&honest["mode"], &honest["harm"]), (&"enforce".into(), &Value::Null));
    assert_eq!(harms(&proxy, "honest"), 0.0);
    assert_eq!(proxy.logged(&["ERROR", "\"namespace\":\"honest\""]), 0);
    // An operator who takes it back ends it.
    assert_eq!(proxy.switch("pool", Mode::Monitor), 200);
    assert_eq!(namespace(&proxy, "pool")["harm"], Value::Null);
    assert_eq!(harms(&proxy, "pool"), 0.0);
}
