use super::*;

#[test]
fn one_value_that_cannot_be_used_is_explained_with_one_that_can() {
    expect_findings(&[
        (
            r#"listen = "127.0.0.1""#,
            &[r#"c.toml:1:10 error: listen: "127.0.0.1" has no port; write one behind it, as in "127.0.0.1:6380""#],
        ),
        (r#"listen = "6380""#, &[r#"c.toml:1:10 error: listen: "6380" is only a port; write "127.0.0.1:6380""#]),
        (
            r#"listen = ":6380""#,
            &[
                r#"c.toml:1:10 error: listen: ":6380" has no IP address; write "127.0.0.1:6380", or "0.0.0.0:6380" for every interface"#,
            ],
        ),
        (
            r#"listen = "localhost:6380""#,
            &[r#"c.toml:1:10 error: listen: "localhost:6380" is a host name; write "127.0.0.1:6380""#],
        ),
        (
            r#"listen = "redis.internal:6380""#,
            &[
                r#"c.toml:1:10 error: listen: "redis.internal:6380" is not an IP address and a port; write e.g. "127.0.0.1:6380""#,
            ],
        ),
        (
            "listen = 6380",
            &[r#"c.toml:1:10 error: listen: must be a string, not an integer; write listen = "127.0.0.1:6380""#],
        ),
        (
            r#"admin = "on""#,
            &[
                r#"c.toml:1:9 error: admin: "on" is not an IP address and a port; write e.g. "127.0.0.1:6380", or "off""#,
            ],
        ),
        (
            "metrics = false",
            &[r#"c.toml:1:11 error: metrics: must be a string, not a boolean; write metrics = "127.0.0.1:9181""#],
        ),
        ("metrics_max_namespaces = 0", &["c.toml:1:26 error: metrics_max_namespaces: 0 is outside 1 to 1000"]),
        (
            r#"metrics_max_namespaces = "32""#,
            &[
                "c.toml:1:26 error: metrics_max_namespaces: must be an integer, not a string; write metrics_max_namespaces = 32",
            ],
        ),
        (
            r#"allow_open = "yes""#,
            &["c.toml:1:14 error: allow_open: must be true or false, not a string; write allow_open = false"],
        ),
        (
            r#"server_commands = "deny""#,
            &[r#"c.toml:1:19 error: server_commands: "deny" must be "forward" or "refuse""#],
        ),
        (
            r#"computed_names = "guard""#,
            &[r#"c.toml:1:18 error: computed_names: "guard" must be "watch", "forward" or "deny""#],
        ),
        (
            r#"admin_identities = "operator""#,
            &[
                r#"c.toml:1:20 error: admin_identities: must be a list of strings, not a string; write admin_identities = ["operator"]"#,
            ],
        ),
        (
            r#"admin_identities = ["", "ops", "default"]"#,
            &[
                r#"c.toml:1:21 error: admin_identities: "" cannot be a name; use 1 to 256 printable ASCII characters without spaces"#,
                r#"c.toml:1:32 warning: admin_identities: whoever does not log in is the user "default", so this lists everybody where Redis has no other users"#,
            ],
        ),
        (
            r#"admin_identities = ["user:ops", "certificate:a:b", "name:ops", "app:1", "user:"]"#,
            &[
                r#"c.toml:1:52 error: admin_identities: "name:ops" is what any client may call itself; write "user:…" for an ACL user, or "certificate:…""#,
                r#"c.toml:1:64 error: admin_identities: "app:1" does not say by what a client is told; write "user:…" for an ACL user, "certificate:…" or "name:…""#,
                r#"c.toml:1:73 error: admin_identities: "user:" does not say by what a client is told; write "user:…" for an ACL user, "certificate:…" or "name:…""#,
            ],
        ),
        (
            r#"unknown_commands = ["pass:ft.search", "FT.CREATE", "refuse:", "pass:DEL"]"#,
            &[
                r#"c.toml:1:39 error: unknown_commands: "FT.CREATE" does not say what becomes of a command; write "pass:NAME" or "refuse:NAME""#,
                r#"c.toml:1:52 error: unknown_commands: "refuse:" does not say what becomes of a command; write "pass:NAME" or "refuse:NAME""#,
                r#"c.toml:1:63 error: unknown_commands: "pass:DEL" is a command that lockwarden knows, and judges by its own table"#,
            ],
        ),
        (
            r#"trusted_functions = ["my lock"]"#,
            &[
                r#"c.toml:1:22 error: trusted_functions: "my lock" cannot be a name; use 1 to 256 printable ASCII characters without spaces"#,
            ],
        ),
        (
            r#"companion_prefix = "{lw}:""#,
            &[
                r#"c.toml:1:20 error: companion_prefix: "{lw}:" cannot be a prefix; use 1 to 32 printable ASCII characters without spaces and braces, as in "lw:""#,
            ],
        ),
        (
            r#"companion_prefix = """#,
            &[
                r#"c.toml:1:20 error: companion_prefix: "" cannot be a prefix; use 1 to 32 printable ASCII characters without spaces and braces, as in "lw:""#,
            ],
        ),
        ("drain = 5", &[r#"c.toml:1:9 error: drain: must be a string, not an integer; write drain = "5s""#]),
        (
            r#"drain = "5""#,
            &[
                r#"c.toml:1:9 error: drain: "5" is not a duration; write a whole number and ms, s, m, h or d, as in "60m""#,
            ],
        ),
        (
            r#"drain = "1.5s""#,
            &[
                r#"c.toml:1:9 error: drain: "1.5s" is not a duration; write a whole number and ms, s, m, h or d, as in "60m""#,
            ],
        ),
        (r#"drain = "2h""#, &[r#"c.toml:1:9 error: drain: "2h" is outside 0s to 60m"#]),
        (
            r#"drain = "99999999999999999999d""#,
            &[
                r#"c.toml:1:9 error: drain: "99999999999999999999d" is not a duration; write a whole number and ms, s, m, h or d, as in "60m""#,
            ],
        ),
        (
            r#"drain = "5s"
drain_ms = 5000"#,
            &[r#"c.toml:2:1 error: unknown key "drain_ms"; did you mean "drain"?"#],
        ),
    ]);
}

#[test]
fn a_backend_url_that_cannot_be_used_never_shows_its_password() {
    expect_findings(&[
        (
            r#"backend = "redis:6379""#,
            &[r#"c.toml:1:11 error: backend: "redis:6379" has no scheme; write "redis://redis:6379""#],
        ),
        (
            r#"backend = "somewhere""#,
            &[
                r#"c.toml:1:11 error: backend: neither "private" nor a URL; write redis://[user[:password]@]host[:port][/db]"#,
            ],
        ),
        (
            r#"backend = "valkeys://:s3cret@redis""#,
            &["c.toml:1:11 error: backend: write rediss:// for Valkey too; the protocol is the same"],
        ),
        (
            r#"backend = "redis-sentinel://:s3cret@redis:none/mymaster""#,
            &["c.toml:1:11 error: backend: the port must be a number from 1 to 65535"],
        ),
        (
            r#"backend = "rediss-sentinel://:s3cret@redis,other""#,
            &[
                "c.toml:1:11 error: backend: what sentinels call the primary stands behind the last /; write redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/name-of-the-primary[?db=number]",
            ],
        ),
        (
            r#"backend = "redis-sentinel://:s3cret@redis/my master""#,
            &[
                "c.toml:1:11 error: backend: what sentinels call the primary stands behind the last /; write redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/name-of-the-primary[?db=number]",
            ],
        ),
        (
            r#"backend = "redis-sentinel://:s3cret@redis/mymaster?quorum=2""#,
            &[
                "c.toml:1:11 error: backend: the only option behind the name of the primary is ?db=number; write redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/name-of-the-primary[?db=number]",
            ],
        ),
        (
            "backend = \"redis://redis\"\n[sentinel]\npassword_file = \"none\"",
            &[
                "c.toml:2:1 warning: sentinel: the backend's URL names no sentinels (redis-sentinel://), so this is not used",
            ],
        ),
        (
            "backend = \"redis-sentinel://redis/mymaster\"\n[sentinel]\nuser = \"warden\"",
            &["c.toml:2:1 error: sentinel: password_file is missing; write password_file = \"/run/secrets/sentinel\""],
        ),
        (
            r#"backend = "redis-cluster://u:s3cret@n1,n2:7000/1""#,
            &[
                "c.toml:1:11 error: backend: a cluster has no database but 0, and nothing stands behind its nodes; write redis-cluster://[user[:password]@]host[:port][,host[:port]…]",
            ],
        ),
        (
            r#"backend = "redis-cluster://n0,n1,n2,n3,n4,n5,n6,n7,n8,n9,n10,n11,n12,n13,n14,n15,n16""#,
            &["c.toml:1:11 error: backend: 16 nodes are the most in a URL: they name the others"],
        ),
        (
            "backend = \"rediss-cluster://n1\"\ncluster_node = true",
            &[
                "c.toml:2:16 error: cluster_node: the backend is a whole cluster (redis-cluster://), which goes without it; name the address of the node as the backend, as in redis://127.0.0.1:7000",
            ],
        ),
        (
            "[[listener]]\naddress = \"127.0.0.1:0\"\npresent = \"cluster\"",
            &[
                "c.toml:2:11 error: listener #1: present = \"cluster\" is for a backend that is one (redis-cluster://); take it away",
            ],
        ),
        (
            r#"backend = "unix://run/redis.sock""#,
            &[
                "c.toml:1:11 error: backend: the path of a unix socket has to be a whole one, as in redis+unix:///run/redis/redis.sock",
            ],
        ),
        (
            r#"backend = "redis+unix://u:s3cret@/run/redis.sock?timeout=1""#,
            &[
                "c.toml:1:11 error: backend: the only option of a unix socket is ?db=number; write redis+unix://[user[:password]@]/path[?db=number]",
            ],
        ),
        (
            r#"backend = "valkey://redis""#,
            &["c.toml:1:11 error: backend: write redis:// for Valkey too; the protocol is the same"],
        ),
        (
            r#"backend = "http://redis:80""#,
            &[
                "c.toml:1:11 error: backend: must begin with redis://, rediss:// (TLS), redis+unix://, redis-sentinel:// or redis-cluster://; write redis://[user[:password]@]host[:port][/db], redis+unix://[user[:password]@]/path[?db=number], redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/name-of-the-primary[?db=number] or redis-cluster://[user[:password]@]host[:port][,host[:port]…]",
            ],
        ),
        (
            r#"backend = "redis://:s3cret""#,
            &["c.toml:1:11 error: backend: there is no usable host; write redis://[user[:password]@]host[:port][/db]"],
        ),
        (
            r#"backend = "redis://u:s3/cret@redis:0""#,
            &["c.toml:1:11 error: backend: the port must be a number from 1 to 65535"],
        ),
        (
            r#"backend = "redis://redis:6379/s3cret""#,
            &["c.toml:1:11 error: backend: the part behind the last / must be a database number, as in /0"],
        ),
        (
            r#"backend = "redis://redis/0?timeout=1""#,
            &[
                "c.toml:1:11 error: backend: options behind ? or # are not understood; write redis://[user[:password]@]host[:port][/db]",
            ],
        ),
        (
            r#"backend = "redis://::1:6379""#,
            &["c.toml:1:11 error: backend: an IPv6 address needs brackets, as in redis://[::1]:6379"],
        ),
        (
            r#"backend = "redis://[::g]""#,
            &["c.toml:1:11 error: backend: the part in [ ] must be an IPv6 address, as in redis://[::1]:6379"],
        ),
        (
            r#"backend = "redis://""#,
            &["c.toml:1:11 error: backend: there is no usable host; write redis://[user[:password]@]host[:port][/db]"],
        ),
        (
            r#"backend = "redis://u:%zz@redis""#,
            &["c.toml:1:11 error: backend: the user or password has a % without two hex digits; write %25 for %"],
        ),
        (
            r#"backend = "redis://app@redis""#,
            &[
                r#"c.toml:1:11 error: backend: there is no password for user "app"; write it behind the user, as in redis://user:password@host, or set backend_password_file"#,
            ],
        ),
        (
            r#"backend = ["redis://:s3cret@redis"]"#,
            &[r#"c.toml:1:11 error: backend: must be a string, not a list; write backend = "redis://127.0.0.1:6379""#],
        ),
    ]);
}

#[test]
fn a_key_that_resembles_none_is_answered_with_all() {
    let all = r#"c.toml:1:1 error: unknown key "colour"; known here are "listen", "backend", "backend_password_file", "admin", "admin_token", "admin_token_file", "metrics", "metrics_max_namespaces", "allow_open", "cluster_node", "companion_prefix", "proxy_protocol_from", "sessions", "log_format", "drain", "sweep", "moving_patience", "max_clients", "max_memory", "max_connection_age", "server_commands", "admin_identities", "computed_names", "trusted_functions", "unknown_commands", "audit", "audit_file", "audit_max_size", "audit_keep", "audit_questions", "audit_required", "audit_key_file", "require_signed", "policy_cache", "registry_auth_file", "backend_login", "backend_tls", "sentinel", "tls", "listener", "namespace", "guard", "user_map", "application", "certificate_login" and "policy""#;
    expect_findings(&[(r#"colour = "red""#, &[all])]);
}

#[test]
fn a_backend_that_is_the_proxys_own_listener_is_refused() {
    let said = |text: &str| loaded(text).1.join("\n");
    for (text, address) in [
        ("backend = \"redis://127.0.0.1:6380\"", "127.0.0.1:6380"),
        ("backend = \"redis://LOCALHOST:6380\"", "127.0.0.1:6380"),
        ("backend = \"redis://localhost:7000\"\nlisten = \"0.0.0.0:7000\"\nallow_open = true", "0.0.0.0:7000"),
        (
            "backend = \"redis+unix:///run/own/redis.sock\"\n[[listener]]\naddress = \"unix:/run/own/redis.sock\"",
            "unix:/run/own/redis.sock",
        ),
    ] {
        let told = format!("error: backend: {address} is where this proxy listens itself; name the address of Redis");
        assert!(said(text).contains(&told), "{text}: {}", said(text));
    }
    for text in [
        "backend = \"redis://127.0.0.1:6379\"",
        "backend = \"redis://cache.corp:6380\"",
        "backend = \"redis://10.0.0.7:6380\"\nlisten = \"0.0.0.0:6380\"",
    ] {
        assert!(!said(text).contains("listens itself"), "{text}");
    }
}

#[test]
fn an_unknown_key_is_answered_with_the_one_that_was_meant() {
    expect_findings(&[
        (r#"lisetn = "127.0.0.1:6380""#, &[r#"c.toml:1:1 error: unknown key "lisetn"; did you mean "listen"?"#]),
        (r#"mode = "enforce""#, &[r#"c.toml:1:1 error: unknown key "mode"; it belongs under a [[namespace]]"#]),
        (r#"module = "x.wasm""#, &[r#"c.toml:1:1 error: unknown key "module"; it belongs under a [[policy]]"#]),
        (
            r#"[metrics]
max_namespaces = 3"#,
            &[r#"c.toml:1:1 error: metrics: must be a string, not a table; write metrics = "127.0.0.1:9181""#],
        ),
        (
            r#"[[namespace]]
name = "orders"
keys = ["lock:*"]
listen = "127.0.0.1:6380"
polices = []
ttl-ceiling = { ceiling = "60s" }
"#,
            &[
                r#"c.toml:4:1 error: namespace "orders": unknown key "listen"; it belongs on top of the file, before the first [[namespace]] or [[policy]]"#,
                r#"c.toml:5:1 error: namespace "orders": unknown key "polices"; did you mean "policies"?"#,
                r#"c.toml:6:1 error: namespace "orders": unknown key "ttl-ceiling"; a policy's settings stand under [namespace.settings.ttl-ceiling]"#,
            ],
        ),
        (
            r#"[namespace]
name = "orders"
keys = ["lock:*"]
"#,
            &[
                "c.toml:1:1 error: namespace: must be a list of tables; write [[namespace]] with two brackets, and its sub-tables behind it",
            ],
        ),
        (
            r#"[[policy]]
name = "mine"
module = "mine.wasm"
memroy = "8MiB"
admin = "off"
"#,
            &[
                r#"c.toml:3:10 warning: policy "mine" is in no namespace's chain, so it is never asked"#,
                r#"c.toml:4:1 error: policy "mine": unknown key "memroy"; did you mean "memory"?"#,
                r#"c.toml:5:1 error: policy "mine": unknown key "admin"; it belongs on top of the file, before the first [[namespace]] or [[policy]]"#,
            ],
        ),
    ]);
}

#[test]
fn addresses_and_secrets_fit_together() {
    expect_findings(&[
        (
            r#"admin = "0.0.0.0:9180""#,
            &[
                r#"c.toml:1:9 error: admin: 0.0.0.0:9180 can be reached from other machines and there is no admin token; set admin_token_file (or LOCKWARDEN_ADMIN_TOKEN), or use "127.0.0.1:9180""#,
            ],
        ),
        (r#"admin = "[::ffff:127.0.0.1]:9180""#, &[]),
        (
            r#"admin = "0.0.0.0:9180"
admin_token = "s3cret word""#,
            &[
                "c.toml:2:15 error: admin_token: may hold only printable ASCII characters and no spaces; `openssl rand -hex 32` prints a good one",
            ],
        ),
        (
            r#"admin = "127.0.0.1:6380""#,
            &["c.toml:1:9 error: admin: 127.0.0.1:6380 is the address of listen too; give each its own port"],
        ),
        (
            r#"listen = "127.0.0.1:9180"
metrics = "127.0.0.1:9180""#,
            &[
                "c.toml:1:10 error: admin: 127.0.0.1:9180 is the address of listen too; give each its own port",
                "c.toml:2:11 error: metrics: 127.0.0.1:9180 is the address of listen too; give each its own port",
                "c.toml:2:11 error: metrics: 127.0.0.1:9180 is the address of admin too; give each its own port",
            ],
        ),
        (
            "admin_token = 7",
            &[
                r#"c.toml:1:15 error: admin_token: must be a string, not an integer; write admin_token = "<a long random text>""#,
            ],
        ),
        (r#"admin_token = """#, &["c.toml:1:15 error: admin_token: is empty; leave it out if there is none"]),
        (
            r#"admin_token = "s3cret"
admin_token_file = "nowhere"
admin = "0.0.0.0:9180""#,
            &[
                "c.toml:2:20 error: admin_token_file: cannot read nowhere: No such file or directory (os error 2)",
                "c.toml:2:20 error: admin_token_file: admin_token is there too; keep one of them",
            ],
        ),
        (
            r#"backend_password_file = "nowhere""#,
            &["c.toml:1:25 error: backend_password_file: cannot read nowhere: No such file or directory (os error 2)"],
        ),
    ]);
}

#[test]
fn an_error_of_syntax_has_its_line_and_column() {
    expect_findings(&[
        (r#"listen = "127.0.0.1:6380"#, &[r#"c.toml:1:25 error: not valid TOML: invalid basic string, expected `"`"#]),
        (
            r#"listen = "127.0.0.1:6380"
listen = "127.0.0.1:6381"
"#,
            &["c.toml:2:1 error: not valid TOML: duplicate key"],
        ),
        (
            r#"drain = "5s"
  = 3
allow_open = maybe
"#,
            &[
                "c.toml:2:3 error: not valid TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`",
                "c.toml:3:14 error: not valid TOML: string values must be quoted, expected literal string",
            ],
        ),
        (
            r#"[[namespace]
name = "é" x
"#,
            &[
                "c.toml:1:13 error: not valid TOML: unclosed array table, expected `]`",
                "c.toml:2:12 error: not valid TOML: unexpected key or value, expected newline, `#`",
            ],
        ),
        (
            "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1",
            &["c.toml:1:64 error: a key has more than 32 parts"],
        ),
    ]);
}
