//! The keys on top of the file. They have a file of their own because the tables know them too: to say where a key that
//! stands in one of them belongs.

use super::reader::Key;

pub(super) const TOP_KEYS: &[Key] = &[
    Key { name: "listen", example: "\"127.0.0.1:6380\"" },
    Key { name: "backend", example: "\"redis://127.0.0.1:6379\"" },
    Key { name: "backend_password_file", example: "\"redis-password\"" },
    Key { name: "admin", example: "\"127.0.0.1:9180\"" },
    Key { name: "admin_token", example: "\"<a long random text>\"" },
    Key { name: "admin_token_file", example: "\"admin-token\"" },
    Key { name: "metrics", example: "\"127.0.0.1:9181\"" },
    Key { name: "metrics_max_namespaces", example: "32" },
    Key { name: "allow_open", example: "false" },
    Key { name: "companion_prefix", example: "\"lw:\"" },
    Key { name: "proxy_protocol_from", example: "[\"10.0.0.0/8\"]" },
    Key { name: "sessions", example: "\"dedicated\"" },
    Key { name: "log_format", example: "\"auto\"" },
    Key { name: "drain", example: "\"5s\"" },
    Key { name: "sweep", example: "\"1m\"" },
    Key { name: "max_clients", example: "10000" },
    Key { name: "max_memory", example: "\"256MiB\"" },
    Key { name: "max_connection_age", example: "\"1h\"" },
    Key { name: "server_commands", example: "\"forward\"" },
    Key { name: "admin_identities", example: "[\"operator\"]" },
    Key { name: "computed_names", example: "\"watch\"" },
    Key { name: "trusted_functions", example: "[\"my_lock\"]" },
    Key { name: "unknown_commands", example: "[\"pass:FT.SEARCH\"]" },
    Key { name: "audit", example: "\"problems\"" },
    Key { name: "audit_file", example: "\"audit.jsonl\"" },
    Key { name: "audit_max_size", example: "\"64MiB\"" },
    Key { name: "audit_keep", example: "5" },
    Key { name: "audit_required", example: "false" },
    Key { name: "audit_key_file", example: "\"audit-key\"" },
    #[cfg(feature = "otel")]
    Key { name: "otel_endpoint", example: "\"http://127.0.0.1:4318\"" },
    #[cfg(feature = "otel")]
    Key { name: "otel_slow", example: "\"5ms\"" },
    Key { name: "backend_login", example: "{ user = \"warden\", password_file = \"redis-password\" }" },
    Key { name: "backend_tls", example: "{ ca = \"/etc/lockwarden/redis-ca.pem\" }" },
    Key { name: "sentinel", example: "{ password_file = \"/run/secrets/sentinel\" }" },
    Key { name: "tls", example: "{ cert = \"tls.crt\", key = \"tls.key\" }" },
    Key { name: "listener", example: "[{ address = \"unix:/run/lockwarden/redis.sock\" }]" },
    Key { name: "namespace", example: "[{ name = \"orders\", keys = [\"lock:*\"] }]" },
    Key { name: "guard", example: "[{ name = \"stock\", keys = [\"stock:{id}\"], lock = \"lock:{id}\" }]" },
    Key {
        name: "user_map",
        example: "[{ user = \"shop\", twin = \"shop-lw\", twin_password_file = \"shop-lw.password\" }]",
    },
    Key { name: "application", example: "[{ name = \"billing\", user = \"billing\" }]" },
    Key { name: "certificate_login", example: "[{ name = \"shop.*\", user = \"shop\", password_file = \"shop\" }]" },
    Key { name: "policy", example: "[{ name = \"mine\", module = \"mine.wasm\" }]" },
];

/// What to say about a key in a table that belongs on top of the file.
pub(super) fn belongs_on_top(key: &str) -> Option<String> {
    let is_top_key = TOP_KEYS.iter().any(|known| {
        known.name == key
            && ![
                "backend_login",
                "backend_tls",
                "sentinel",
                "tls",
                "listener",
                "namespace",
                "guard",
                "user_map",
                "application",
                "certificate_login",
                "policy",
            ]
            .contains(&key)
    });
    let advice = "it belongs on top of the file, before the first [[namespace]] or [[policy]]";
    is_top_key.then(|| advice.to_owned())
}
