//! Policy modules that are downloaded: from a web server and a registry, through the checks of digest and
//! signature, into a cache.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use lockwarden_tests::{
    Authority, Finished, Issued, Process, Proxy, Redis, Subject, free_port, installed, lockwarden, run_to_end, wait_for,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// `me:secret`, as `htpasswd` keeps it.
const LOGIN: &str = "me:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

fn runs(program: &str, arguments: &[&str]) -> Finished {
    let end = run_to_end(Command::new(program).args(arguments));
    assert_eq!(end.code, Some(0), "{program} {arguments:?}: {end:?}");
    end
}

/// The policy `team-naming` in these versions, as `policy build` leaves it.
fn module(version: &str) -> &'static [u8] {
    static MODULES: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    let built = || {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("team-naming");
        let folder_name = folder.display().to_string();
        let new = lockwarden(&["policy", "new", &folder_name, "--lang", "c"]).output().expect("it runs");
        assert!(new.status.success(), "{new:?}");
        let project = fs::read_to_string(folder.join("policy.toml")).expect("it was written");
        fs::write(folder.join("policy.toml"), project.replace("0.1.0", version)).expect("it is ours");
        let build = lockwarden(&["policy", "build", &folder_name]).output().expect("it runs");
        assert!(build.status.success(), "{build:?}");
        fs::read(folder.join("team-naming.wasm")).expect("it was built")
    };
    let place = usize::from(version != "0.1.0");
    MODULES[place].get_or_init(built)
}

/// Whether a C policy can be built here.
fn has_clang() -> bool {
    installed(&["clang", "wasm-ld"])
}

/// A folder with a configuration.
struct Desk {
    directory: TempDir,
    certificates: PathBuf,
}

impl Desk {
    fn new() -> Desk {
        let directory = tempfile::tempdir().expect("a directory");
        let certificates = directory.path().join("ca.pem");
        fs::write(&certificates, Authority::of_harness().pem()).expect("it is ours");
        Desk { directory, certificates }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The output of `check` for a policy with these keys, below these keys on top of the file.
    fn checks(&self, top: &str, policy: &str) -> Finished {
        let text = format!(
            "{top}\n[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\npolicies = [\"team-naming\"]\n\
             [namespace.settings.team-naming]\nteams = [\"billing\"]\n[[policy]]\nname = \"team-naming\"\n{policy}\n"
        );
        fs::write(self.path("lockwarden.toml"), text).expect("the directory is ours");
        let mut check = lockwarden(&["check", "--config"]);
        run_to_end(check.arg(self.path("lockwarden.toml")).env("SSL_CERT_FILE", &self.certificates))
    }

    #[track_caller]
    fn is_taken(&self, top: &str, policy: &str) {
        let end = self.checks(top, policy);
        assert_eq!(end.code, Some(0), "{policy}: {end:?}");
    }

    /// It is refused in one line with these words.
    #[track_caller]
    fn is_refused(&self, top: &str, policy: &str, words: &str) {
        let end = self.checks(top, policy);
        let said = format!("{}{}", end.stdout, end.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("error: ")).collect();
        assert!(
            end.code == Some(2) && lines.len() == 1 && lines[0].contains(words),
            "{policy}\nsaid\n{said}\nand not\n{words}"
        );
    }

    fn cached(&self) -> usize {
        let entries = fs::read_dir(self.path("cache")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "wasm")).count()
    }
}

/// A key pair of minisign.
struct Signer {
    directory: TempDir,
    public: String,
}

impl Signer {
    fn new() -> Signer {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        runs("minisign", &["-G", "-W", "-p", &path("public"), "-s", &path("secret")]);
        let public = fs::read_to_string(path("public")).expect("it was written");
        Signer { public: public.lines().nth(1).expect("the key").to_owned(), directory }
    }

    /// Writes the signature of a file beside it, and returns it.
    fn signs(&self, file: &Path, comment: &str) -> String {
        let beside = PathBuf::from(format!("{}.minisig", file.display()));
        let _ = fs::remove_file(&beside);
        let secret = self.directory.path().join("secret").display().to_string();
        runs("minisign", &["-S", "-s", &secret, "-m", &file.display().to_string(), "-t", comment]);
        fs::read_to_string(beside).expect("it was written")
    }
}

#[test]
fn a_signature_counts_for_the_policy_and_version_that_it_names() {
    if !has_clang() || !installed(&["minisign"]) {
        return;
    }
    let (desk, ours, theirs) = (Desk::new(), Signer::new(), Signer::new());
    let file = desk.path("mine.wasm");
    fs::write(&file, module("0.1.0")).expect("the directory is ours");
    let keys = format!("module = \"mine.wasm\"\nkeys = [\"{}\"]", ours.public);
    let both = format!("module = \"mine.wasm\"\nkeys = [\"{}\", \"{}\"]", theirs.public, ours.public);
    desk.is_taken("", "module = \"mine.wasm\"");
    desk.is_refused("", &keys, "mine.wasm: it is not signed, and keys asks for it: minisign -Sm FILE");

    ours.signs(&file, "team-naming 0.1.0");
    desk.is_taken("", &keys);
    desk.is_taken("require_signed = true", &both);
    theirs.signs(&file, "team-naming 0.1.0");
    desk.is_refused("", &keys, "it is not what was signed, or none of keys has signed it");
    desk.is_taken("", &both);
    for comment in ["team-naming 0.2.0", "other 0.1.0", "timestamp:1795700000"] {
        ours.signs(&file, comment);
        desk.is_refused(
            "",
            &keys,
            &format!("it is signed as \"{comment}\" and says of itself that it is \"team-naming 0.1.0\""),
        );
    }
    ours.signs(&file, "team-naming 0.1.0");
    desk.is_refused("", &format!("{keys}\nmin_version = \"0.1.1\""), "it is version 0.1.0, and min_version is 0.1.1");
    desk.is_taken("", &format!("{keys}\nmin_version = \"0.1.0\""));
    // Another policy of the same author, with all that is right for that one.
    let other = desk.checks("", &keys.replace("\"mine.wasm\"", "\"mine.wasm\"\nmin_version = \"0.0.1\""));
    assert_eq!(other.code, Some(0), "{other:?}");
    let text = fs::read_to_string(desk.path("lockwarden.toml")).expect("it is there").replace("team-naming", "naming");
    fs::write(desk.path("renamed.toml"), text).expect("the directory is ours");
    let end = run_to_end(lockwarden(&["check", "--config"]).arg(desk.path("renamed.toml")));
    assert!(end.stdout.contains("it is \"team-naming\", which is another policy"), "{end:?}");

    let mut changed = module("0.1.0").to_vec();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    fs::write(&file, changed).expect("the directory is ours");
    desk.is_refused("", &keys, "it is not what was signed");
    fs::write(&file, module("0.1.0")).expect("the directory is ours");
    for (signature, words) in
        [("", "its signature is none of minisign"), ("a\nb\nc\nd\n", "its signature is none of minisign")]
    {
        fs::write(desk.path("mine.wasm.minisig"), signature).expect("the directory is ours");
        desk.is_refused("", &keys, words);
    }

    desk.is_refused(
        "require_signed = true",
        "module = \"mine.wasm\"",
        "with require_signed = true a module is pinned by sha256",
    );
    desk.is_taken(
        "require_signed = true",
        &format!("module = \"mine.wasm\"\nsha256 = \"{}\"", sha256(module("0.1.0"))),
    );
    desk.is_refused("", "module = \"mine.wasm\"\nkeys = [\"RWQnonsense\"]", "is no public key of minisign");
    desk.is_refused("", "module = \"mine.wasm\"\nmin_version = \"2\"", "is no version; write three numbers");
}

/// A web server over TLS that serves a folder.
struct Web {
    process: Process,
    address: SocketAddr,
}

impl Web {
    fn serves(folder: &Path, at: &Desk) -> Web {
        let issued: Issued = Authority::of_harness().issue(&Subject::server().address(Ipv4Addr::LOCALHOST));
        let (certificate, key) = issued.write(at.directory.path(), "web");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let program = "import http.server, ssl, sys\n\
             server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)\n\
             context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
             context.load_cert_chain(sys.argv[2], sys.argv[3])\n\
             server.socket = context.wrap_socket(server.socket, server_side=True)\n\
             server.serve_forever()\n";
        let mut python = Command::new("python3");
        python.args(["-c", program, &address.port().to_string()]).arg(certificate).arg(key);
        python.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut python).expect("Python is there");
        wait_for("the web server", || std::net::TcpStream::connect(address).is_ok());
        Web { process, address }
    }

    fn url(&self, name: &str) -> String {
        format!("https://127.0.0.1:{}/{name}", self.address.port())
    }
}

#[test]
fn a_module_comes_from_a_web_server_and_a_pinned_one_stays_when_that_is_gone() {
    if !has_clang() || !installed(&["python3", "minisign"]) {
        return;
    }
    let (desk, signer) = (Desk::new(), Signer::new());
    let folder = desk.path("www");
    fs::create_dir(&folder).expect("the directory is ours");
    let file = folder.join("mine.wasm");
    fs::write(&file, module("0.1.0")).expect("it is ours");
    let web = Web::serves(&folder, &desk);
    let top = "policy_cache = \"cache\"";
    let pin = format!("sha256 = \"{}\"", sha256(module("0.1.0")));
    let from = format!("module = \"{}\"", web.url("mine.wasm"));
    let signed = format!("{from}\nkeys = [\"{}\"]", signer.public);

    desk.is_taken("", &from);
    assert_eq!(desk.cached(), 0);
    desk.is_refused("", &signed, "/mine.wasm.minisig answers 404");
    signer.signs(&file, "team-naming 0.1.0");
    desk.is_taken(top, &format!("{signed}\n{pin}"));
    assert_eq!(desk.cached(), 1);
    let gone = format!("module = \"{}\"", web.url("gone.wasm"));
    desk.is_refused(top, &gone, "/gone.wasm answers 404");
    let other = format!("{from}\nsha256 = \"{}\"", sha256(module("0.2.0")));
    desk.is_refused(top, &other, "sha256");
    assert_eq!(desk.cached(), 1, "what is not what it should be is not kept");

    // A key that was replaced: the signature in the cache is of the one before.
    let successor = Signer::new();
    let renewed = format!("{from}\nkeys = [\"{}\"]\n{pin}", successor.public);
    desk.is_refused(top, &renewed, "none of keys has signed it");
    for (signer, taken) in [(&successor, &renewed), (&signer, &format!("{signed}\n{pin}"))] {
        signer.signs(&file, "team-naming 0.1.0");
        desk.is_taken(top, taken);
    }

    let url = web.url("mine.wasm");
    let inspect = || {
        let mut command = lockwarden(&["policy", "inspect"]);
        run_to_end(command.arg(&url).env("SSL_CERT_FILE", &desk.certificates))
    };
    let told = inspect();
    assert!(told.code == Some(0) && told.stdout.contains(&sha256(module("0.1.0"))), "{told:?}");

    // A certificate that this system does not trust.
    fs::write(&desk.certificates, Authority::new("another").pem()).expect("it is ours");
    desk.is_refused("", &from, "mine.wasm: ");
    fs::write(&desk.certificates, Authority::of_harness().pem()).expect("it is ours");

    drop(web.process);
    desk.is_taken(top, &format!("{signed}\n{pin}"));
    desk.is_taken(top, &format!("{from}\n{pin}"));
    desk.is_refused(top, &from, "mine.wasm: ");
    let told = inspect();
    assert!(told.code == Some(2) && told.stderr.contains("mine.wasm: "), "{told:?}");
    // A file in the cache is trusted only if its digest is right.
    let kept = desk.path("cache").join(format!("{}.wasm", sha256(module("0.1.0"))));
    fs::write(&kept, module("0.2.0")).expect("it is ours");
    desk.is_refused(top, &format!("{from}\n{pin}"), "mine.wasm: ");
    for text in ["http://127.0.0.1/mine.wasm", "https://me:pw@127.0.0.1/mine.wasm", "oci://127.0.0.1"] {
        desk.is_refused("", &format!("module = \"{text}\""), &format!("module: \"{text}\" "));
    }
}

/// A registry of Docker.
struct Registry {
    process: Process,
    host: String,
    directory: TempDir,
}

impl Registry {
    fn starts(has_login: bool) -> Registry {
        let directory = tempfile::tempdir().expect("a directory");
        let host = format!("127.0.0.1:{}", free_port());
        let storage = directory.path().join("storage");
        let mut config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n",
            storage.display()
        );
        if has_login {
            let file = directory.path().join("htpasswd");
            fs::write(&file, format!("{LOGIN}\n")).expect("the directory is ours");
            write!(config, "auth:\n  htpasswd:\n    realm: locks\n    path: {}\n", file.display()).expect("a string");
        }
        let file = directory.path().join("config.yml");
        fs::write(&file, config).expect("the directory is ours");
        let mut registry = Command::new("docker-registry");
        registry.arg("serve").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut registry).expect("it is installed");
        wait_for("the registry", || std::net::TcpStream::connect(&host).is_ok());
        Registry { process, host, directory }
    }

    /// Puts a file there and returns its address.
    fn push_blob(&self, repository: &str, bytes: &[u8]) -> String {
        let file = self.directory.path().join("blob");
        fs::write(&file, bytes).expect("the directory is ours");
        let begin = format!("http://{}/v2/{repository}/blobs/uploads/", self.host);
        let begun = runs(
            "curl",
            &["-sS", "-u", "me:secret", "-X", "POST", "-o", "/dev/null", "-w", "%header{location}", &begin],
        );
        let (digest, file) = (format!("sha256:{}", sha256(bytes)), format!("@{}", file.display()));
        let end = format!("{}&digest={digest}", begun.stdout);
        runs(
            "curl",
            &[
                "-sSf",
                "-u",
                "me:secret",
                "-X",
                "PUT",
                "-H",
                "content-type: application/octet-stream",
                "--data-binary",
                &file,
                &end,
            ],
        );
        digest
    }

    /// Pushes a module, as `oras push` does; returns the digest of its manifest.
    fn push(&self, repository: &str, tag: &str, module: &[u8], signature: Option<&str>) -> String {
        let config = self.push_blob(repository, b"{}");
        let layer = self.push_blob(repository, module);
        let mut annotations = BTreeMap::new();
        annotations.extend(signature.map(|text| ("dev.lockwarden.minisig", text)));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": 2 },
            "layers": [{ "mediaType": "application/wasm", "digest": layer, "size": module.len(), "annotations": annotations }]
        });
        let manifest = manifest.to_string();
        let url = format!("http://{}/v2/{repository}/manifests/{tag}", self.host);
        let kind = "content-type: application/vnd.oci.image.manifest.v1+json";
        runs("curl", &["-sSf", "-u", "me:secret", "-X", "PUT", "-H", kind, "-d", &manifest, &url]);
        sha256(manifest.as_bytes())
    }
}

#[test]
fn a_module_comes_from_a_registry_and_serves_while_that_is_down() {
    if !has_clang() || !installed(&["docker-registry", "curl", "minisign"]) {
        return;
    }
    let (desk, signer, registry) = (Desk::new(), Signer::new(), Registry::starts(false));
    let file = desk.path("signed.wasm");
    fs::write(&file, module("0.1.0")).expect("the directory is ours");
    let signature = signer.signs(&file, "team-naming 0.1.0");
    let manifest = registry.push("locks/team-naming", "0.1", module("0.1.0"), Some(&signature));
    registry.push("locks/team-naming", "0.2", module("0.2.0"), None);
    let at = |tag: &str| format!("module = \"oci://{}/locks/team-naming{tag}\"", registry.host);
    let top = "policy_cache = \"cache\"";
    let keys = format!("keys = [\"{}\"]", signer.public);
    let pin = format!("sha256 = \"{}\"", sha256(module("0.1.0")));

    desk.is_taken(top, &format!("{}\n{keys}", at(":0.1")));
    desk.is_refused(top, &format!("{}\n{keys}", at(":0.2")), "it is not signed, and keys asks for it");
    desk.is_taken(&format!("{top}\nrequire_signed = true"), &at(&format!(":0.1@sha256:{manifest}")));
    desk.is_refused(top, &at(":0.3"), "manifest: the registry answers 404");
    desk.is_refused(top, &at(&format!(":0.1@sha256:{}", "0".repeat(64))), "manifest: the registry answers 404");

    // A proxy that goes on with it, and starts again while the registry is down.
    let redis = Redis::start();
    let policy = format!("[[policy]]\nname = \"team-naming\"\n{}\n{pin}\n", at(":0.1"));
    let cache = format!("{:?}", desk.path("cache"));
    let starts = || {
        Proxy::builder(&redis)
            .top("policy_cache", &cache)
            .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"team-naming\"]")
            .setting("team-naming", "teams", "[\"billing\"]")
            .more(&policy)
            .start()
    };
    let governs = |proxy: &Proxy| {
        let client = proxy.client();
        client.sends("SET lock:billing:1 a NX PX 1000").gets("+OK");
        client.sends("DEL lock:billing:1").gets(":1");
        client.sends("SET lock:1 a NX PX 1000").gets_error("LOCKDENIED limited");
    };
    let proxy = starts();
    governs(&proxy);
    let host = registry.host.clone();
    drop(registry.process);
    let text = fs::read_to_string(proxy.config()).expect("it is there");
    assert_eq!(proxy.reloads(text.as_bytes(), "/reload").0, 200);
    governs(&proxy);
    let (status, answer) = proxy.reloads(text.replace(&pin, "").as_bytes(), "/reload");
    assert!(
        status == 422 && answer.contains(&format!("policy team-naming: oci://{host}/locks/team-naming:0.1: ")),
        "{answer}"
    );
    governs(&proxy);
    drop(proxy);
    governs(&starts());
}

#[test]
fn a_registry_that_wants_a_login_gets_the_one_of_the_file() {
    if !has_clang() || !installed(&["docker-registry", "curl"]) {
        return;
    }
    let (desk, registry) = (Desk::new(), Registry::starts(true));
    registry.push("locks/team-naming", "0.1", module("0.1.0"), None);
    let at = format!("module = \"oci://{}/locks/team-naming:0.1\"", registry.host);
    let top = "registry_auth_file = \"auth.json\"";
    desk.is_refused("", &at, "the registry wants a login, and");
    desk.is_refused(top, &at, "auth.json");
    // `me:secret` and `me:wrong` in base64.
    for (login, words) in [("bWU6d3Jvbmc=", Some("does not let in")), ("bWU6c2VjcmV0", None)] {
        let file = json!({ "auths": { &registry.host: { "auth": login } } });
        fs::write(desk.path("auth.json"), file.to_string()).expect("the directory is ours");
        match words {
            Some(words) => desk.is_refused(top, &at, words),
            None => desk.is_taken(top, &at),
        }
    }
    fs::write(desk.path("auth.json"), "{\"auths\": 1}").expect("the directory is ours");
    desk.is_refused(top, &at, "registry_auth_file is not what it should be");
}

/// A server that sends given replies, by path.
struct Liar {
    host: String,
    asked: Arc<AtomicUsize>,
}

impl Liar {
    fn says(answers: Vec<(&'static str, Vec<u8>)>) -> Liar {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let host = listener.local_addr().expect("it has one").to_string();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let (mut stream, mut request) = (stream, [0; 8 << 10]);
                let length = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let said = answers.iter().find(|(end, _)| path.contains(end));
                let nothing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
                // A client that has received enough closes.
                let _ = stream.write_all(said.map_or(&nothing, |(_, said)| said));
            }
        });
        Liar { host, asked }
    }
}

fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn manifest(layers: &str) -> Vec<u8> {
    ok(format!("{{\"schemaVersion\":2,\"layers\":[{layers}]}}").as_bytes())
}

#[test]
fn a_registry_that_lies_is_found_out_within_its_bounds() {
    if !has_clang() {
        return;
    }
    let (desk, good) = (Desk::new(), module("0.1.0"));
    let layer = |digest: &str, size: usize| {
        format!("{{\"mediaType\":\"application/wasm\",\"digest\":\"sha256:{digest}\",\"size\":{size}}}")
    };
    let (right, long) = (layer(&sha256(good), good.len()), 64 << 20);
    let endless = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".iter().copied().chain(vec![b' '; 3 << 20]).collect();
    let blob = |bytes: &[u8]| ("/blobs/", ok(bytes));
    for (answers, words) in [
        (vec![("/manifests/", manifest(&right)), blob(module("0.2.0"))], "is not what its digest says"),
        (vec![("/manifests/", manifest(&layer(&sha256(good), good.len() - 1))), blob(good)], "has more than"),
        (
            vec![("/manifests/", manifest(&layer(&sha256(good), good.len() + 1))), blob(good)],
            "is not what its digest says",
        ),
        (vec![("/manifests/", manifest(&layer(&sha256(good), long + 1))), blob(good)], "67108864 are the most"),
        (vec![("/manifests/", manifest(&layer("../../etc/passwd", 9))), blob(good)], "is no SHA-256"),
        (vec![("/manifests/", manifest(&right)), blob(&good[..9])], "is not what its digest says"),
        (vec![("/manifests/", manifest(""))], "of its 0 layers none"),
        (vec![("/manifests/", manifest(&format!("{right},{right}")))], "of its 2 layers none, or more than one"),
        (vec![("/manifests/", ok(b"{\"manifests\":[]}"))], "it is an index of several"),
        (vec![("/manifests/", ok(b"<html>"))], "the registry's manifest is not what it should be"),
        (vec![("/manifests/", endless)], "has more than 1048576 bytes"),
        (vec![("/manifests/", manifest(&right))], "module: the registry answers 404"),
        (
            vec![(
                "/manifests/",
                b"HTTP/1.1 307 Away\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n".to_vec(),
            )],
            "manifest: the registry answers 307",
        ),
        (
            vec![(
                "/manifests/",
                b"HTTP/1.1 401 No\r\nwww-authenticate: Bearer realm=\"ftp://a\"\r\ncontent-length: 0\r\n\r\n".to_vec(),
            )],
            "at an address without TLS",
        ),
        (
            vec![("/manifests/", b"HTTP/1.1 401 No\r\nwww-authenticate: Riddle\r\ncontent-length: 0\r\n\r\n".to_vec())],
            "of a kind that lockwarden does not know",
        ),
        (vec![("/manifests/", b"no HTTP at all\r\n\r\n".to_vec())], "/manifests/1: "),
    ] {
        let liar = Liar::says(answers);
        desk.is_refused("", &format!("module = \"oci://{}/mine:1\"", liar.host), words);
    }
    // One that has trouble is asked again, and not for ever.
    let busy = b"HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec();
    let liar = Liar::says(vec![("/manifests/", busy)]);
    desk.is_refused("", &format!("module = \"oci://{}/mine:1\"", liar.host), "manifest: the registry answers 503");
    assert_eq!(liar.asked.load(Ordering::Relaxed), 3);
    let liar = Liar::says(vec![("/manifests/", manifest(&right)), blob(good)]);
    desk.is_taken("", &format!("module = \"oci://{}/mine:1\"", liar.host));
}
