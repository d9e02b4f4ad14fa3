//! `lockwarden version`: the build and its policies; also those of a configuration. `check --fleet` prints the same for a
//! running proxy.

use std::fs;

use lockwarden_tests::{Finished, Proxy, Redis, binary, lockwarden, run_to_end};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn version(arguments: &[&str]) -> Finished {
    let mut command = lockwarden(&["version"]);
    run_to_end(command.args(arguments))
}

#[track_caller]
fn told(arguments: &[&str]) -> Value {
    let end = version(arguments);
    assert_eq!(end.code, Some(0), "{end:?}");
    serde_json::from_str(&end.stdout).expect("JSON")
}

fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name and the digest of each policy.
fn policies(list: &Value) -> Vec<(String, String)> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list}"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    list.iter().map(|one| (text(&one["name"]), text(&one["sha256"]))).collect()
}

#[test]
fn the_policies_that_are_built_in_are_told_with_their_digests() {
    let told = told(&["-o", "json"]);
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert!(told["revision"].is_string(), "{told}");
    assert!(told.get("configured").is_none(), "{told}");
    let built_in = policies(&told["built_in"]);
    let names: Vec<&str> = built_in.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["owner-token", "fencing", "ttl-ceiling", "rules"]);
    // The modules are in the binary as they are, and nothing else in there has their digests.
    let bytes = fs::read(binary()).expect("the binary");
    let starts = bytes.windows(8).enumerate();
    let starts: Vec<usize> = starts.filter(|(_, eight)| *eight == b"\0asm\x01\0\0\0").map(|(at, _)| at).collect();
    for (name, sha256) in &built_in {
        let found = starts.iter().any(|&start| {
            let rest = &bytes[start..];
            ends(rest).any(|end| digest(&rest[..end]) == *sha256)
        });
        assert!(found, "{name} {sha256}");
    }
    let text = version(&[]).stdout;
    for (name, sha256) in built_in {
        let line = format!("built-in policy {name} sha256 {sha256}\n");
        assert!(text.contains(&line), "{text}");
    }
}

/// The places where the module at the beginning of these bytes may end: after its header and after each section, which
/// states its length. The bytes after a module in the binary may look like one more section.
fn ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(8), |&at| section_end(bytes, at))
}

fn section_end(bytes: &[u8], at: usize) -> Option<usize> {
    // A custom section, and the twelve kinds of others.
    bytes.get(at).filter(|kind| **kind <= 12)?;
    let (mut size, mut shift, mut digit) = (0_usize, 0, at + 1);
    loop {
        let byte = bytes.get(digit)?;
        size |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        digit += 1;
        if byte & 0x80 == 0 {
            break;
        }
        if shift > 28 {
            return None;
        }
    }
    let end = digit.checked_add(size)?;
    (size > 0 && end <= bytes.len()).then_some(end)
}

#[test]
fn a_configuration_and_a_proxy_tell_which_policies_they_have() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let config = proxy.config().display().to_string();
    let address = proxy.admin_address().to_string();
    let told = told(&["-o", "json", "--config", &config]);
    let built_in = policies(&told["built_in"]);
    // No rule is configured, so nothing is asked of the fourth.
    let built_in = built_in[..3].to_vec();
    assert_eq!(policies(&told["configured"]), built_in, "{told}");
    let compared = run_to_end(&mut lockwarden(&["check", "--fleet", &address, "-o", "json"]));
    let compared: Value = serde_json::from_str(&compared.stdout).expect("JSON");
    let of_proxy = &compared["proxies"][0];
    assert_eq!(of_proxy["proxy"], address);
    let running = &of_proxy["answer"]["version"];
    assert_eq!(running["revision"], told["revision"]);
    assert_eq!(policies(&running["in_force"]), built_in, "{told}");
    let (status, page) = proxy.get("/api/v1/version");
    assert_eq!(status, 200);
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(page["in_force"], running["in_force"]);
    // The digest of metrics and records is the beginning of this one.
    let (_, short) = proxy.get("/api/v1/policies");
    let short: Value = serde_json::from_str(&short).expect("JSON");
    let (_, sha256) = &built_in[0];
    assert_eq!(short[0]["digest"], sha256[..12], "{short}");
}

#[test]
fn what_cannot_be_asked_is_one_line_and_a_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("bad.toml");
    fs::write(&config, "colour = \"red\"\n").expect("the directory is ours");
    let config = config.display().to_string();
    let end = version(&["--config", &config]);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.stderr.contains("colour"), "{end:?}");
    // `version` was not asked about them, so they do not matter.
    let end =
        run_to_end(lockwarden(&["version"]).env("LOCKWARDEN_CONFIG", &config).env("LOCKWARDEN_ADMIN", "127.0.0.1:1"));
    assert_eq!(end.code, Some(0), "{end:?}");
}
