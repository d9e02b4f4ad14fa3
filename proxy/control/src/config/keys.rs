//! The keys at the top of the file. They are in a separate file because the tables use them too: to say where a
//! misplaced key belongs.

use super::reader::key_table;

key_table! { pub(super) TOP_KEYS =
    listen: "\"127.0.0.1:6380\"" = "\"127.0.0.1:6380\"",
    backend: "\"redis://127.0.0.1:6379\"" = "\"redis://127.0.0.1:6379/0\"",
    backend_password_file: "\"redis-password\"" = "(none)",
    admin: "\"127.0.0.1:9180\"" = "\"127.0.0.1:9180\"",
    admin_token: "\"<a long random text>\"" = "(made up at the start)",
    admin_token_file: "\"admin-token\"" = "(none)",
    metrics: "\"127.0.0.1:9181\"" = "\"off\"",
    metrics_max_namespaces: "32" = "30",
    allow_open: "false" = "false",
    cluster_node: "true" = "false",
    companion_prefix: "\"lw:\"" = "\"lw:\"",
    proxy_protocol_from: "[\"10.0.0.0/8\"]" = "[]",
    sessions: "\"dedicated\"" = "\"dedicated\"",
    log_format: "\"auto\"" = "\"auto\"",
    drain: "\"5s\"" = "\"5s\"",
    sweep: "\"1m\"" = "\"1m\"",
    moving_patience: "\"1s\"" = "\"2s\"",
    max_clients: "10000" = "(as many as the limit of open files leaves room for)",
    max_memory: "\"256MiB\"" = "(a quarter of the memory)",
    max_connection_age: "\"1h\"" = "\"off\"",
    server_commands: "\"forward\"" = "\"forward\"",
    admin_identities: "[\"operator\"]" = "[]",
    computed_names: "\"watch\"" = "\"watch\"",
    trusted_functions: "[\"my_lock\"]" = "[]",
    unknown_commands: "[\"pass:FT.SEARCH\"]" = "[]",
    audit: "\"problems\"" = "\"problems\"",
    audit_file: "\"audit.jsonl\"" = "(none)",
    audit_max_size: "\"64MiB\"" = "\"64MiB\"",
    audit_keep: "5" = "5",
    audit_questions: "\"2%\"" = "\"100%\"",
    audit_required: "false" = "false",
    audit_key_file: "\"audit-key\"" = "(none)",
    require_signed: "true" = "false",
    policy_cache: "\"/var/cache/lockwarden\"" = "(none)",
    registry_auth_file: "\"registry-auth.json\"" = "(none)",
    backend_login: "{ user = \"warden\", password_file = \"redis-password\" }",
    backend_tls: "{ ca = \"/etc/lockwarden/redis-ca.pem\" }",
    sentinel: "{ password_file = \"/run/secrets/sentinel\" }",
    tls: "{ cert = \"tls.crt\", key = \"tls.key\" }",
    listener: "[{ address = \"unix:/run/lockwarden/redis.sock\" }]",
    namespace: "[{ name = \"orders\", keys = [\"lock:*\"] }]",
    guard: "[{ name = \"stock\", keys = [\"stock:{id}\"], lock = \"lock:{id}\" }]",
    user_map: "[{ user = \"shop\", twin = \"shop-lw\", twin_password_file = \"shop-lw.password\" }]",
    application: "[{ name = \"billing\", user = \"billing\" }]",
    certificate_login: "[{ name = \"shop.*\", user = \"shop\", password_file = \"shop\" }]",
    policy: "[{ name = \"mine\", module = \"mine.wasm\" }]",
}

/// The message for a key in a table that belongs at the top of the file.
pub(super) fn belongs_on_top(key: &str) -> Option<String> {
    let is_top_key = TOP_KEYS.iter().any(|known| known.name == key && !known.is_table());
    let advice = "it belongs on top of the file, before the first [[namespace]] or [[policy]]";
    is_top_key.then(|| advice.to_owned())
}
