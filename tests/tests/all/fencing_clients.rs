//! How programs get their fencing token with unchanged client libraries: the examples of `docs/fencing.md`, each in its own
//! language. `make test-clients` installs the libraries; an example whose library is missing is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::{Proxy, Redis, installed, run_to_end};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn example(name: &str) -> PathBuf {
    repository().join("docs/examples/fencing/clients").join(name)
}

/// Runs an example, which prints its fencing token and the reply of `CHECK` to it.
#[track_caller]
fn tells_its_number(command: &mut Command) {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let address = proxy.address();
    command.args([address.ip().to_string(), address.port().to_string()]);
    let done = run_to_end(command);
    let fence = redis.fence("lock:stock:lamp");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout, format!("{fence} 1\n"), "{done:?}");
    assert!(redis.is_free("lock:stock:lamp"));
}

/// Where `make test-clients` has installed the libraries of a language, if it has.
fn libraries(of: &str) -> Option<PathBuf> {
    let found = Some(repository().join("target/clients").join(of)).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no {of}; make test-clients installs it");
    }
    found
}

#[test]
fn redis_py() {
    let Some(python) = libraries("python/usual/bin/python") else {
        return;
    };
    for name in ["redis_py.py", "redis_py_pool.py"] {
        tells_its_number(Command::new(&python).arg("-B").arg(example(name)));
    }
}

#[test]
fn ioredis_and_node_redis() {
    let Some(modules) = libraries("node/node_modules") else {
        return;
    };
    for name in ["ioredis.js", "node-redis.js"] {
        tells_its_number(Command::new("node").env("NODE_PATH", &modules).arg(example(name)));
    }
}

#[test]
fn phpredis() {
    if installed(&["php"]) {
        tells_its_number(Command::new("php").arg(example("phpredis.php")));
    }
}

#[test]
fn go_redis() {
    if libraries("go/clients").is_some() {
        let module = repository().join("tests/clients/go");
        let mut go = Command::new("go");
        go.current_dir(module).args(["run", "-mod=readonly"]);
        tells_its_number(go.arg(example("go-redis.go")));
    }
}

#[test]
fn jedis_and_lettuce() {
    let Some(jars) = libraries("java/lib") else {
        return;
    };
    for name in ["UsingJedis.java", "UsingLettuce.java"] {
        let mut java = Command::new("java");
        java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"]);
        tells_its_number(java.arg(jars.join("*")).arg(example(name)));
    }
}

#[test]
fn redis_rs() {
    let Some(built) = libraries("rust") else {
        return;
    };
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "-q", "--locked", "--offline", "--example", "redis-rs", "--manifest-path"])
        .arg(repository().join("tests/clients/rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(&built);
    // A compiler may take longer than what is tested.
    let done = cargo.output().expect("cargo runs");
    assert!(done.status.success(), "{done:?}");
    tells_its_number(&mut Command::new(built.join("debug/examples/redis-rs")));
}
