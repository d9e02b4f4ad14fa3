//! `lockwarden policy new` and `build`: a policy in each language begins with a folder that builds, decides
//! as its cases say, and is loaded by a proxy; the SDK of each language passes on everything that the
//! contract has. A language whose tools are not on the machine is skipped and says so; `make test-languages`
//! installs those of interpreted ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Finished, Proxy, Redis, installed, lockwarden, run_to_end};
use tempfile::TempDir;

use crate::documentation::repository;

const CASES: &str = "policies/examples/cases.toml";

/// A folder that `policy new` made.
struct Folder {
    /// Kept until the end.
    _above: TempDir,
    path: PathBuf,
}

impl Folder {
    fn new(language: &str, name: &str) -> Folder {
        let above = tempfile::tempdir().expect("a directory");
        let mut command = lockwarden(&["policy", "new", name, "--lang", language]);
        let end = run_to_end(command.current_dir(above.path()));
        assert_eq!(end.code, Some(0), "{end:?}");
        let next = format!("next: cd {name}; lockwarden policy build; lockwarden policy test\n");
        assert!(end.stdout.ends_with(&next), "{end:?}");
        let path = above.path().join(name);
        Folder { _above: above, path }
    }

    /// The policy that asks the SDK for all that it has.
    fn probe(language: &str) -> Folder {
        let folder = Folder::new(language, "probe");
        let policies = repository().join("tests/policies");
        let mut files = vec![policies.join("cases.toml")];
        let own = fs::read_dir(policies.join(language)).expect("there is one in this language");
        files.extend(own.map(|entry| entry.expect("it can be read").path()));
        for file in files {
            fs::copy(&file, folder.path.join(file.file_name().expect("a name"))).expect("the folder is ours");
        }
        // It has other settings than the policy that one begins with, and is to judge them itself.
        let project = folder.path.join("policy.toml");
        let text = fs::read_to_string(&project).expect("it was written");
        let (without_settings, _) = text.split_once("\n# What it can be told").expect("its settings");
        fs::write(&project, without_settings).expect("the folder is ours");
        folder
    }

    /// A compiler has no time limit here.
    fn typed(&self, line: &str) -> Finished {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = lockwarden(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(&self.path).env("PATH", format!("{}/bin:{path}", languages().display()));
        let end = command.output().expect("it can be run");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Finished { code: end.status.code(), stdout: text(end.stdout), stderr: text(end.stderr) }
    }

    fn builds(&self) {
        let end = self.typed("policy build");
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(end.stdout.contains("\n[[policy]]\nname     = \""), "{end:?}");
    }

    /// All cases pass.
    fn passes(&self, cases: &str) {
        let count = cases.matches("[[case]]").count();
        let end = self.typed("policy test");
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(end.stdout.contains(&format!("\n{count} passed, 0 failed; most fuel ")), "{end:?}");
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(repository().join(path)).expect("it is in the repository")
}

/// A new policy decides as the cases of every language say, and a policy that panics reports the reason.
fn a_new_policy_is_good(language: &str, panic: &str, prepare: impl Fn(&Folder)) {
    let folder = Folder::new(language, "my-policy");
    prepare(&folder);
    folder.builds();
    folder.passes(&text(CASES));
    let end = folder.typed("policy inspect my-policy.wasm");
    assert!(
        end.stdout.contains("\npolicy    my-policy 0.1.0\nsummary   Locks carry the name of their team"),
        "{end:?}"
    );

    let probe = Folder::probe(language);
    prepare(&probe);
    probe.builds();
    probe.passes(&text("tests/policies/cases.toml"));
    let end = probe.typed("policy run --key panics");
    assert_eq!((end.code, &*end.stdout), (Some(1), "no answer of probe: trap\n"), "{end:?}");
    let end = probe.typed("policy build --debug");
    assert!(
        end.stdout.ends_with("built for debugging: what it prints is shown by test and run, and no proxy loads it\n")
    );
    let end = probe.typed("policy run --key panics");
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.starts_with(&format!("no answer of probe: trap\n      | {panic}\n")), "{end:?}");
    probe.passes(&text("tests/policies/cases.toml"));
}

#[test]
fn a_policy_in_c() {
    if installed(&["clang", "wasm-ld"]) {
        a_new_policy_is_good("c", "it is over", |_| {});
    }
}

#[test]
fn a_policy_in_go() {
    if installed(&["go"]) {
        a_new_policy_is_good("go", "panic: it is over", |_| {});
    }
}

/// Where `make test-languages` puts the tools of interpreted languages.
fn languages() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target directory");
    target.join("languages")
}

/// A tool that `make test-languages` installs; prints a line if it is missing.
fn tool(name: &str) -> Option<PathBuf> {
    let tool = languages().join(name);
    if !tool.exists() {
        eprintln!("skipped: no {}; make test-languages installs it", tool.display());
        return None;
    }
    Some(tool)
}

#[test]
fn a_policy_in_python() {
    if tool("bin/componentize-py").is_some() {
        a_new_policy_is_good("python", "ValueError: it is over", |_| {});
    }
}

#[test]
fn a_policy_in_javascript() {
    let Some(modules) = tool("node_modules") else { return };
    a_new_policy_is_good("javascript", "Error: it is over", |folder| {
        let end = folder.typed("policy build");
        assert_eq!((end.code, &*end.stderr), (Some(2), "lockwarden: what builds it is not in .: npm install\n"));
        symlink(&modules, folder.path.join("node_modules")).expect("the folder is ours");
    });
}

/// The crate of a new policy stands alone, with its copy of the SDK.
#[test]
fn a_policy_in_rust() {
    let folder = Folder::new("rust", "my-policy");
    // Built once for all runs of this test.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-policy");
    fs::create_dir_all(&target).expect("the directory is ours");
    symlink(&target, folder.path.join("target")).expect("the folder is ours");
    folder.builds();
    folder.passes(&text(CASES));

    let source = folder.path.join("src/lib.rs");
    let policy = fs::read_to_string(&source).expect("it was written");
    let decide = "fn decide(&self, request: &Request) -> Decision {\n";
    assert!(policy.contains(decide), "{policy}");
    let said =
        "lockwarden_policy_sdk::say(\"now\\n\"); assert!(request.key.len() > 9, \"a key of {}\", request.key.len());";
    fs::write(&source, policy.replace(decide, &format!("{decide}{said}"))).expect("the folder is ours");
    folder.builds();
    let end = folder.typed("policy run --key lock:boom");
    assert_eq!((end.code, &*end.stdout), (Some(1), "no answer of my-policy: trap\n"), "{end:?}");
    let end = folder.typed("policy build --debug");
    assert_eq!(end.code, Some(0), "{end:?}");
    let end = folder.typed("policy run --key lock:boom");
    assert!(
        end.stdout.starts_with("no answer of my-policy: trap\n      | now\n      | panicked at src/lib.rs:"),
        "{end:?}"
    );
    assert!(end.stdout.ends_with("\n      | a key of 9\n"), "{end:?}");
    let end = folder.typed("policy test");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("ok    a team's own lock  ") && end.stdout.contains("\n      | now\n"), "{end:?}");
}

/// From `policy new` to a refused lock, and what the proxy shows about the policy meanwhile.
#[test]
fn a_proxy_serves_what_was_built_and_not_what_was_built_for_debugging() {
    if !installed(&["clang", "wasm-ld"]) {
        return;
    }
    let folder = Folder::new("c", "my-policy");
    folder.builds();
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"my-policy\"]")
        .setting("my-policy", "teams", "[\"billing\", \"stock\"]")
        .more(&format!("[[policy]]\nname = \"my-policy\"\nmodule = \"{}/my-policy.wasm\"\n", folder.path.display()))
        .start();
    let client = proxy.client();
    client.sends("SET lock:billing:7 a NX PX 3000").gets("+OK");
    let refused = client.sends("SET lock:sales:7 a NX PX 3000").gets_error("LOCKDENIED limited");
    assert!(refused.contains(" policy=my-policy ") && refused.contains("teams are billing, stock"), "{refused}");
    proxy.counts("lockwarden_policy_info{policy=\"my-policy\",version=\"0.1.0\"}", 1.0);

    let source = folder.path.join("policy.c");
    let policy = fs::read_to_string(&source).expect("it was written");
    let policy = policy.replace("    return lw_permit();", "    lw_say(request->key);\n    return lw_permit();");
    fs::write(&source, policy).expect("the folder is ours");
    let end = folder.typed("policy build --debug");
    assert!(end.stdout.contains("\nbuilt for debugging: "), "{end:?}");
    let text = fs::read(proxy.config()).expect("the file is there");
    let (status, answer) = proxy.reloads(&text, "/reload");
    assert_eq!(status, 422, "{answer}");
    assert!(answer.contains("my-policy.wasm was built for debugging; build it without --debug"), "{answer}");
    client.sends("SET lock:stock:7 a NX PX 3000").gets("+OK");
}

/// A folder that an older lockwarden made goes on to name the contract of that time.
#[test]
fn a_folder_with_the_sdk_of_an_older_contract_is_built() {
    if !installed(&["clang", "wasm-ld"]) {
        return;
    }
    let folder = Folder::new("c", "my-policy");
    let header = folder.path.join("lockwarden.h");
    let text = fs::read_to_string(&header).expect("it was written");
    let old = text.replace("lockwarden:policy/clients@1.2.0", "lockwarden:policy/clients@1.1.0");
    assert_ne!(text, old);
    fs::write(&header, old).expect("the folder is ours");
    let source = folder.path.join("policy.c");
    let policy = fs::read_to_string(&source).expect("it was written");
    let asks = "    lw_bytes name;\n    if (lw_certificate(request, &name))\n        return lw_deny(LW_OTHER, \"certified\");\n";
    fs::write(&source, policy.replace("    return lw_permit();", &format!("{asks}    return lw_permit();")))
        .expect("ours");
    folder.builds();
    let end = folder.typed("policy inspect my-policy.wasm");
    assert!(end.stdout.contains("\ncontract  lockwarden:policy 1.1.0\ncalls     clients.certificate\n"), "{end:?}");
    let end = folder.typed("policy run --key lock:billing:7 --client-certificate a");
    assert_eq!(end.stdout, "deny other policy=my-policy: certified\n", "{end:?}");
}

/// Clients go on while a policy of 2.6 MB is loaded anew, again and again with other settings: no command
/// fails, and each answer is that of one chain as a whole. With `LOCKWARDEN_RELOADS=300` it goes on for half
/// a minute, ten times a second.
#[test]
fn reloads_of_a_large_policy_fail_no_command_and_each_answer_is_of_a_whole_chain() {
    if !installed(&["go"]) {
        return;
    }
    let folder = Folder::new("go", "my-policy");
    folder.builds();
    let module = folder.path.join("my-policy.wasm");
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .namespace("on_violation", "\"error\"")
        .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"my-policy\"]")
        .setting("my-policy", "teams", "[\"billing\", \"stock\"]")
        .more(&format!(
            "[[policy]]\nname = \"my-policy\"\nmodule = {module:?}\nmemory = \"16MiB\"\nfuel = 5000000\ndeadline = \"50ms\"\n"
        ))
        .start();
    let one = fs::read_to_string(proxy.config()).expect("the file is there");
    let other = one.replace("[\"billing\", \"stock\"]", "[\"billing\", \"audit\", \"night\"]");
    assert_ne!(one, other);
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        let until_done = |work: &dyn Fn(u64)| (0..).take_while(|_| !done.load(Ordering::Relaxed)).for_each(work);
        for client in [proxy.client(), proxy.client()] {
            threads.spawn(move || {
                until_done(&|round| {
                    client.sends(format!("SET plain:{round} {round}")).gets("+OK");
                    client.sends(format!("GET plain:{round}")).gets(format!("${} {round}", round.to_string().len()));
                });
            });
        }
        let client = proxy.client();
        threads.spawn(move || {
            until_done(&|round| {
                client.sends(format!("SET lock:billing:{round} a NX PX 5000")).gets("+OK");
                let refused =
                    client.sends(format!("SET lock:sales:{round} a NX PX 5000")).gets_error("LOCKDENIED limited");
                let teams = ["teams are billing, stock\"", "teams are billing, audit, night\""];
                assert!(teams.iter().any(|teams| refused.contains(teams)), "{refused}");
                client.sends(format!("DEL lock:billing:{round}")).gets(":1");
            });
        });
        let (begun, many) = (Instant::now(), std::env::var("LOCKWARDEN_RELOADS"));
        let many: Option<u32> = many.ok().map(|many| many.parse().expect("LOCKWARDEN_RELOADS is a number"));
        for round in 0..many.unwrap_or(30) {
            if many.is_some() {
                thread::sleep((round * Duration::from_millis(100)).saturating_sub(begun.elapsed()));
            }
            let text = if round % 2 == 0 { &other } else { &one };
            let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
            assert_eq!(status, 200, "{answer}");
        }
        println!("{} ms", begun.elapsed().as_millis());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(proxy.metrics().get("lockwarden_policy_failures_total{policy=\"my-policy\"}"), 0.0);
}

#[test]
fn what_is_wrong_with_a_folder_is_said_in_a_line() {
    let folder = Folder::new("c", "my-policy");
    let good = fs::read_to_string(folder.path.join("policy.toml")).expect("it was written");
    for (from, to, words) in [
        (
            "name     = ",
            "nome     = ",
            "policy.toml:2:1 error: unknown field `nome`, expected one of `name`, `version`, ",
        ),
        ("\"c\"", "\"cobol\"", "policy.toml:5:12 error: unknown variant `cobol`, expected one of `rust`, `go`, `c`, "),
        ("\"my-policy\"", "\"My Policy\"", "policy.toml:2:12 error: \"My Policy\""),
        ("\"my-policy\"", "\"fencing\"", "\"fencing\" ships with the proxy; choose another name"),
        ("\"0.1.0\"", "1", "policy.toml:3:12 error: invalid type: integer `1`, expected a string"),
        ("language", "limits = { memory = \"65MiB\" }\nlanguage", "\"65MiB\""),
        ("min     = \"1\"", "min = \"one\"", "setting max_attempts: min = \"one\" is no number"),
        ("min     = \"1\"", "min = \"101\"", "setting max_attempts: default = \"100\": write 101 at least"),
        ("language", "limits = { fuel = 0 }\nlanguage", "expected a nonzero u64"),
        ("language", "limits = { deadline = \"1h\" }\nlanguage", "\"1h\""),
        (
            "language",
            "limits = { cpu = 1 }\nlanguage",
            "unknown field `cpu`, expected one of `memory`, `fuel`, `deadline`",
        ),
    ] {
        fs::write(folder.path.join("policy.toml"), good.replace(from, to)).expect("the folder is ours");
        let end = folder.typed("policy build");
        assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{to}: {end:?}");
        assert!(end.stderr.contains(words) && end.stderr.lines().count() == 1, "{to}: {end:?}");
    }
    fs::write(folder.path.join("policy.toml"), good).expect("the folder is ours");

    let end = folder.typed("policy test");
    assert_eq!(
        (end.code, &*end.stderr),
        (Some(2), "lockwarden: my-policy.wasm is not there: lockwarden policy build\n")
    );
    let mut without_tools = lockwarden(&["policy", "build"]);
    let end = run_to_end(without_tools.current_dir(&folder.path).env("PATH", "/nowhere"));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.stderr.contains("clang is not on this machine: install clang and lld, packages of "), "{end:?}");

    let above = folder.path.parent().expect("it is in one");
    for (line, words) in [
        ("policy test", "say --module or --config; or go to the folder of a policy, where policy.toml is"),
        ("policy build", "policy.toml: No such file or directory"),
        ("policy new my-policy", "my-policy: File exists"),
        ("policy new fencing", "the last part is the policy's name: \"fencing\" ships with the proxy"),
        ("policy new gone/my-policy", "gone/my-policy: No such file or directory"),
        ("policy new Größe", "the last part is the policy's name: "),
    ] {
        let end = run_to_end(lockwarden(&line.split(' ').collect::<Vec<_>>()).current_dir(above));
        assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{line}: {end:?}");
        assert!(end.stderr.contains(words) && end.stderr.lines().count() == 1, "{line}: {end:?}");
    }
}

/// The compiler's messages are shown as they are, and the previous module is not taken for a new one.
#[test]
fn a_policy_that_does_not_compile_ends_with_the_compilers_words() {
    if !installed(&["clang", "wasm-ld"]) {
        return;
    }
    let folder = Folder::new("c", "my-policy");
    folder.builds();
    let before = fs::read(folder.path.join("my-policy.wasm")).expect("it was built");
    fs::write(folder.path.join("policy.c"), "#include \"lockwarden.h\"\nnonsense;\n").expect("the folder is ours");
    let end = folder.typed("policy build");
    assert_eq!((end.code, &*end.stdout), (Some(1), ""), "{end:?}");
    assert!(end.stderr.contains("policy.c:2:1: ") && end.stderr.contains("lockwarden: clang ended with "), "{end:?}");
    assert_eq!(fs::read(folder.path.join("my-policy.wasm")).expect("it is still there"), before);

    // It compiles, and is no policy.
    fs::write(folder.path.join("policy.c"), "int number;\n").expect("the folder is ours");
    let end = folder.typed("policy build");
    assert_eq!((end.code, &*end.stdout), (Some(2), ""), "{end:?}");
    assert!(end.stderr.contains("my-policy.wasm: "), "{end:?}");
    assert_eq!(fs::read(folder.path.join("my-policy.wasm")).expect("it is still there"), before);
}
