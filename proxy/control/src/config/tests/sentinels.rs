//! Listeners that are sentinels: what is wrong with them, and where they send their clients.

use super::*;

#[test]
fn a_sentinel_is_checked_in_every_field() {
    expect_findings(&[
        (
            r#"[[listener]]
address = "127.0.0.1:26380"
present = "sentinels"
"#,
            &[
                r#"c.toml:3:11 error: listener #1: present: "sentinels" must be "standalone", "sentinel" or "cluster"; did you mean "sentinel"?"#,
            ],
        ),
        (
            r#"[[listener]]
address = "127.0.0.1:26380"
names = ["mymaster"]
advertise = "auto"
peers = []
"#,
            &[
                r#"c.toml:3:9 error: listener #1: names: only a listener with present = "sentinel" has this"#,
                r#"c.toml:4:13 error: listener #1: advertise: only a listener with present = "sentinel" or "cluster" has this"#,
                r#"c.toml:5:9 error: listener #1: peers: only a listener with present = "sentinel" has this"#,
            ],
        ),
        (
            r#"[[listener]]
address = "127.0.0.1:26380"
present = "sentinel"
names = []
advertise = "locks.corp"
peers = ["b.corp", "c.corp:0", "::1", "redis://d:1"]
"#,
            &[
                r#"c.toml:4:9 error: listener #1: names: nobody could ask for the primary; write names = ["mymaster"]"#,
                r#"c.toml:5:13 error: listener #1: advertise: "locks.corp" has no port; write one behind it, as in "b.corp:26380""#,
                r#"c.toml:6:10 error: listener #1: peers: "b.corp" has no port; write one behind it, as in "b.corp:26380""#,
                r#"c.toml:6:20 error: listener #1: peers: "c.corp:0" has no port from 1 to 65535"#,
                r#"c.toml:6:32 error: listener #1: peers: "::1" is an IPv6 address without brackets; write "[::1]:26380""#,
                r#"c.toml:6:39 error: listener #1: peers: "redis://d:1" does not begin with a host's name or IP address, as in "b.corp:26380""#,
            ],
        ),
        (
            r#"[[listener]]
address = "127.0.0.1:26380"
present = "sentinel"
names = ["my master", "a", "b", "a"]
"#,
            &[
                r#"c.toml:4:10 error: listener #1: names: "my master" is not a name; use 1 to 64 of A-Z a-z 0-9 _ . -"#,
                r#"c.toml:4:33 error: listener #1: names: "a" is there twice"#,
            ],
        ),
        (
            r#"[[listener]]
address = "unix:/run/lockwarden/sentinel.sock"
present = "sentinel"
"#,
            &[
                "c.toml:3:11 error: listener #1: present: clients look for a sentinel at an IP address and a port; a unix socket has none",
            ],
        ),
    ]);
}

#[test]
fn a_sentinel_needs_a_listener_that_it_can_name() {
    expect_findings(&[
        (
            r#"listen = "off"
[[listener]]
address = "0.0.0.0:26380"
present = "sentinel"
advertise = "locks.corp:6390"
"#,
            &[
                r#"c.toml:3:11 error: listener #1: a sentinel only says where to connect, and nobody could connect there; set listen, or add a [[listener]] with present = "standalone""#,
            ],
        ),
        (
            r#"listen = "unix:/run/lockwarden/redis.sock"
[[listener]]
address = "127.0.0.1:26380"
present = "sentinel"
[[listener]]
address = "127.0.0.1:26381"
present = "sentinel"
advertise = "locks.corp:6390"
"#,
            &[
                r#"c.toml:3:11 error: listener #1: advertise: "auto" finds no address: no listener with an IP address, tls = false and present = "standalone"; write the address that clients shall connect to, as in "locks.corp:6390""#,
            ],
        ),
        (
            r#"[[listener]]
address = "0.0.0.0:26380"
present = "sentinel"
"#,
            &[
                r#"c.toml:2:11 error: listener #1: advertise: "auto" would send clients to 127.0.0.1:6380, which other machines cannot reach; let that one listen on "0.0.0.0:6380", or write the address that clients shall connect to"#,
            ],
        ),
        // The next listener is one that can be named, and this machine reaches its own addresses.
        (
            r#"listen = "unix:/run/lockwarden/redis.sock"
[[listener]]
address = "127.0.0.1:26380"
present = "sentinel"
[[listener]]
address = "127.0.0.1:6390"
"#,
            &[],
        ),
        (
            r#"listen = "0.0.0.0:6380"
[[listener]]
address = "0.0.0.0:26380"
present = "sentinel"
names = ["mymaster", "orders"]
peers = ["b.corp:26380", "[fd00::7]:26380"]
"#,
            &[],
        ),
    ]);
}

#[test]
fn a_sentinel_with_tls_names_a_listener_with_tls() {
    let (config, findings) = loaded(
        r#"listen = "0.0.0.0:6380"
[[listener]]
address = "0.0.0.0:26380"
tls = true
present = "sentinel"
"#,
    );
    assert!(config.is_none());
    let why = "listener #1: advertise: \"auto\" finds no address: no listener with an IP address, tls = true";
    assert!(findings.iter().any(|line| line.contains(why)), "{findings:?}");
}
