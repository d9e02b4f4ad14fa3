//! The results of `make install`, `make deb` and `make image` are complete, and work where nothing else was
//! installed.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use lockwarden_tests::{Client, PATIENCE, Redis, binary, free_port, installed, wait_for};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command to its end, and returns its output.
#[track_caller]
fn runs(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{command:?}: {said}{complained}");
    said
}

/// A target of the Makefile, of the binary that is tested.
fn make(target: &str, settings: &[(&str, &Path)]) {
    let mut command = Command::new("make");
    command.arg("-C").arg(repository()).args(["-s", target]);
    command.arg(format!("BINARY={}", binary().display()));
    // The tests may themselves be run by make.
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        command.env_remove(name);
    }
    // A package for a test need not be small.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    for (name, value) in settings {
        command.arg(format!("{name}={}", value.display()));
    }
    runs(&mut command);
}

fn mode(path: &Path) -> u32 {
    let metadata = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    metadata.permissions().mode() & 0o7777
}

fn files_below(folder: &Path) -> Vec<String> {
    let found = runs(Command::new("find").arg(folder).args(["-type", "f", "-printf", "%P\n"]));
    let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
    found.sort();
    found
}

#[test]
fn what_is_installed_is_removed_again_but_for_the_configuration() {
    let stage = tempfile::tempdir().expect("a directory");
    let settings = [("DESTDIR", stage.path()), ("PREFIX", Path::new("/opt/lw"))];
    make("install", &settings);
    let expected = [
        "opt/lw/bin/lockwarden",
        "opt/lw/etc/lockwarden/lockwarden.toml",
        "opt/lw/lib/systemd/system/lockwarden.service",
        "opt/lw/lib/systemd/system/lockwarden.service.d/processes.conf",
        "opt/lw/share/bash-completion/completions/lockwarden",
        "opt/lw/share/fish/vendor_completions.d/lockwarden.fish",
        "opt/lw/share/zsh/site-functions/_lockwarden",
    ];
    let installed = files_below(stage.path());
    let (documents, rest): (Vec<_>, Vec<_>) =
        installed.iter().partition(|path| path.starts_with("opt/lw/share/doc/lockwarden/"));
    let (pages, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|path| path.starts_with("opt/lw/share/man/man1/"));
    assert_eq!(rest, expected);
    // A page for each command.
    let made = stage.path().join("made");
    fs::create_dir(&made).expect("it is ours");
    runs(Command::new(binary()).args(["man", "--dir"]).arg(&made));
    let wanted = files_below(&made);
    fs::remove_dir_all(&made).expect("it is ours");
    let wanted: Vec<_> = wanted.iter().map(|page| format!("opt/lw/share/man/man1/{page}.gz")).collect();
    assert_eq!(pages.into_iter().cloned().collect::<Vec<_>>(), wanted);
    assert!(wanted.len() > 20, "{wanted:?}");
    // Every page, and the files for monitoring the proxy.
    let has = |path: &str| {
        let path = format!("opt/lw/share/doc/lockwarden/{path}");
        assert!(documents.contains(&&path), "{path} is not installed");
    };
    for page in files_below(&repository().join("docs")) {
        has(&format!("docs/{page}"));
    }
    for file in [
        "grafana/prometheus/alerts.rules.yml",
        "grafana/prometheus/recording.rules.yml",
        "grafana/prometheus/prometheus.yml",
        "grafana/dashboards/lockwarden.json",
        "grafana/provisioning/dashboards/lockwarden.yaml",
        // The proxy's own log names it.
        "examples/lockwarden-processes.conf",
    ] {
        has(file);
    }
    // The pages that are named in the files that a person reads first are there.
    for file in [expected[1], expected[2]] {
        let text = fs::read_to_string(stage.path().join(file)).expect("it is there");
        let named: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || ",:;()".contains(c))
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.ends_with(".md"))
            .collect();
        assert!(!named.is_empty(), "{file}");
        for page in named {
            let page = page.strip_prefix('/').unwrap_or_else(|| panic!("{file}: {page}"));
            assert!(stage.path().join(page).exists(), "{file}: {page}");
        }
    }
    let config = stage.path().join("opt/lw/etc/lockwarden/lockwarden.toml");
    assert_eq!(mode(&config), 0o640);
    runs(Command::new(binary()).args(["check", "--config"]).arg(&config));
    let unit = fs::read_to_string(stage.path().join(expected[2])).expect("it is there");
    let start = "ExecStart=/opt/lw/bin/lockwarden run --config /opt/lw/etc/lockwarden/lockwarden.toml --takeover";
    assert!(unit.lines().any(|line| line == start), "{unit}");
    // It works at once: the rights to see processes are given beside the unit, not only shown as an example.
    let drop_in = fs::read_to_string(stage.path().join(expected[3])).expect("it is there");
    assert_eq!(capabilities(&drop_in, "AmbientCapabilities="), ["sys_ptrace", "dac_read_search"]);
    // A configuration that an operator has written is not replaced.
    fs::write(&config, "listen = \"127.0.0.1:7000\"\n").expect("it is ours");
    make("install", &settings);
    let kept = fs::read_to_string(&config).expect("it is there");
    assert!(kept.contains("7000"), "{kept}");
    make("uninstall", &settings);
    assert_eq!(files_below(stage.path()), [expected[1]]);
}

/// Ends with the value.
struct Running(Child);

impl Running {
    /// Waits until it serves clients.
    #[track_caller]
    fn serves(&mut self, address: SocketAddr) {
        wait_for("it to serve", || {
            assert_eq!(self.0.try_wait().expect("it is ours"), None, "it has ended");
            says_pong(address)
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a client is served there. One that comes before the proxy knows its server is hung up on.
fn says_pong(address: SocketAddr) -> bool {
    let mut reply = [0; 7];
    let asked = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"PING\r\n")?;
        stream.read_exact(&mut reply)
    });
    asked.is_ok() && reply == *b"+PONG\r\n"
}

/// Whether this can be tried here: it takes root, and what CI installs.
fn may_change_roots(program: &str) -> bool {
    let is_root = runs(Command::new("id").arg("-u")).trim() == "0";
    if !is_root {
        eprintln!("SKIPPED: only root may change roots");
    }
    installed(&[program]) && is_root
}

#[test]
fn a_package_works_in_a_fresh_debian_and_leaves_nothing_behind() {
    if !may_change_roots("mmdebstrap") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let deb = directory.path().join("lockwarden.deb");
    make("deb", &[("DEB", &deb)]);
    let root = directory.path().join("root");
    let release = fs::read_to_string("/etc/os-release").expect("Debian says what it is");
    let mut lines = release.lines();
    let suite = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME=")).expect("it has a name");
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap.args(["--quiet", "--mode=root", "--variant=essential"]);
    bootstrap.args(["--include=adduser", suite]).arg(&root);
    let made = bootstrap.output().expect("it is installed");
    if !made.status.success() {
        // Its packages come from a mirror, and some machines let not even root mount: no verdict on the package.
        let why = String::from_utf8_lossy(&made.stderr).into_owned();
        eprintln!("NOT RUN: no fresh Debian can be made here: {why}");
        return;
    }
    let inside = |words: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(&root).args(words);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    fs::copy(&deb, root.join("lockwarden.deb")).expect("there is room");
    runs(&mut inside(&["dpkg", "-i", "/lockwarden.deb"]));
    let config = root.join("etc/lockwarden/lockwarden.toml");
    let owner = runs(&mut inside(&["stat", "-c", "%a %U:%G", "/etc/lockwarden/lockwarden.toml"]));
    assert_eq!(owner.trim(), "640 root:lockwarden");
    assert!(root.join("usr/share/man/man1/lockwarden-check.1.gz").exists());

    let redis = Redis::start();
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let text = format!("listen = \"{address}\"\nbackend = \"redis://{}\"\nadmin = \"off\"\n", redis.address());
    fs::write(&config, text).expect("it is there");
    let unit = fs::read_to_string(root.join("lib/systemd/system/lockwarden.service")).expect("it is there");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it starts something");
    let user = unit.lines().find_map(|line| line.strip_prefix("User=")).expect("it has a user");
    let drop_in = "lib/systemd/system/lockwarden.service.d/processes.conf";
    assert!(root.join(drop_in).exists(), "it works at once");
    let mut command = Command::new("chroot");
    command.arg(format!("--userspec={user}:{user}")).arg(&root).args(start.split(' '));
    let mut running = Running(command.stdin(Stdio::null()).spawn().expect("chroot is there"));
    running.serves(address);
    let client = Client::connect(address);
    client.sends("SET a b").gets("+OK");
    redis.client().sends("GET a").gets("$1 b");
    drop(client);
    drop(running);

    runs(&mut inside(&["dpkg", "-r", "lockwarden"]));
    assert!(!root.join("usr/bin/lockwarden").exists());
    assert!(config.exists(), "a configuration stays until it is purged");
    runs(&mut inside(&["dpkg", "-P", "lockwarden"]));
    assert!(!root.join("etc/lockwarden").exists());
    let users = fs::read_to_string(root.join("etc/passwd")).expect("it is there");
    assert!(!users.contains("lockwarden"), "{users}");
}

/// The capabilities that a line of a unit names.
fn capabilities(unit: &str, key: &str) -> Vec<String> {
    let line = unit.lines().find_map(|line| line.strip_prefix(key));
    let names = line.unwrap_or_else(|| panic!("no {key}: {unit}"));
    let small = names.split_whitespace().map(str::to_lowercase);
    small.filter_map(|name| name.strip_prefix("cap_").map(str::to_owned)).collect()
}

/// The rights of the drop-in show the processes of other users, and fewer rights do not.
#[test]
fn the_drop_in_shows_processes_of_other_users_and_without_it_they_stay_unknown() {
    if !may_change_roots("setpriv") {
        return;
    }
    let examples = repository().join("docs/examples");
    let read = |name: &str| fs::read_to_string(examples.join(name)).expect("it is there");
    let drop_in = read("lockwarden-processes.conf");
    let given = capabilities(&drop_in, "AmbientCapabilities=");
    assert_eq!(capabilities(&drop_in, "CapabilityBoundingSet="), given);
    assert!(given.len() > 1, "{drop_in}");
    let unit = read("lockwarden.service");
    assert_eq!(capabilities(&unit, "CapabilityBoundingSet="), Vec::<String>::new());

    let redis = Redis::start();
    let none: Vec<String> = Vec::new();
    let less = given.iter().map(|left_out| {
        let rest = given.iter().filter(|one| *one != left_out);
        (rest.cloned().collect(), false)
    });
    for (capabilities, seen) in [(none, false), (given.clone(), true)].into_iter().chain(less) {
        let directory = tempfile::tempdir().expect("a directory");
        // Another user reads it.
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), all.clone()).expect("it is ours");
        let program = directory.path().join("lockwarden");
        // By another process: a program that this one has open for writing, or a test beside it that starts something just
        // then, cannot be run.
        runs(Command::new("cp").arg(binary()).arg(&program));
        fs::set_permissions(&program, all).expect("it is ours");
        let (address, admin): (SocketAddr, SocketAddr) =
            (([127, 0, 0, 1], free_port()).into(), ([127, 0, 0, 1], free_port()).into());
        let config = directory.path().join("lockwarden.toml");
        let text = format!(
            "listen = \"{address}\"\nbackend = \"redis://{}\"\nadmin = \"{admin}\"\n\
             [[namespace]]\nname = \"a\"\nkeys = [\"lock:*\"]\nmode = \"enforce\"\n",
            redis.address()
        );
        fs::write(&config, text).expect("the directory is ours");
        let list = |sign: &str| -> String {
            let signed = capabilities.iter().map(|name| format!(",{sign}{name}"));
            signed.collect()
        };
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg("--no-new-privs")
            .arg(format!("--inh-caps=-all{}", list("+")))
            .arg(format!("--ambient-caps=-all{}", list("+")))
            .arg(format!("--bounding-set=-all{}", list("+")))
            .arg(&program)
            .args(["run", "--config"])
            .arg(&config);
        let mut running =
            Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("setpriv is there"));
        running.serves(address);
        // This test is the client, and root's.
        let client = Client::connect(address);
        client.sends("SETNX lock:a 1").gets(":1");
        let mut asked = Command::new(binary());
        asked.args(["clients", "-o", "json", "--admin"]).arg(admin.to_string());
        let mut told = String::new();
        wait_for("the lock to be told", || {
            told = runs(&mut asked);
            told.contains("lock:a")
        });
        let own = format!("\"id\": {},", std::process::id());
        assert_eq!(told.contains(&own), seen, "{capabilities:?}: {told}");
        client.sends("DEL lock:a").gets(":1");
        drop(running);
    }
}

#[test]
fn an_image_is_as_the_specification_says_and_its_binary_runs_in_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (image, again) = (directory.path().join("a.tar"), directory.path().join("b.tar"));
    make("image", &[("IMAGE", &image)]);
    make("image", &[("IMAGE", &again)]);
    let bytes = |path: &Path| fs::read(path).expect("it was made");
    assert_eq!(Sha256::digest(bytes(&image)), Sha256::digest(bytes(&again)), "it differs from itself");

    let layout = directory.path().join("layout");
    fs::create_dir(&layout).expect("the directory is ours");
    runs(Command::new("tar").arg("-xf").arg(&image).arg("-C").arg(&layout));
    let json = |path: &Path| -> Value {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    // Every descriptor has the size and the digest of its blob.
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let path = layout.join("blobs").join(digest.replace(':', "/"));
        let content = fs::read(&path).unwrap_or_else(|error| panic!("{digest}: {error}"));
        assert_eq!(descriptor["size"], content.len());
        assert_eq!(digest, format!("sha256:{}", hex(&Sha256::digest(&content))));
        path
    };
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    assert_eq!(config["config"]["User"], "65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/lockwarden");
    let ports: BTreeMap<String, Value> =
        serde_json::from_value(config["config"]["ExposedPorts"].clone()).expect("an object");
    assert_eq!(ports.keys().collect::<Vec<_>>(), ["6380/tcp", "9181/tcp"]);
    let layer = blob(&manifest["layers"][0]);

    let root = directory.path().join("root");
    fs::create_dir(&root).expect("the directory is ours");
    let tar = directory.path().join("layer");
    let unpacked = Command::new("gzip").arg("-dc").arg(&layer).output().expect("gzip is there");
    fs::write(&tar, unpacked.stdout).expect("the directory is ours");
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&Sha256::digest(bytes(&tar)))));
    runs(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&root));
    assert!(root.join("etc/passwd").exists());
    if may_change_roots("chroot") {
        let mut command = Command::new("chroot");
        command.arg("--userspec=65532:65532").arg(&root);
        let said = runs(command.args(["/usr/local/bin/lockwarden", "version"]));
        assert!(said.starts_with("lockwarden "), "{said}");
    }
}
