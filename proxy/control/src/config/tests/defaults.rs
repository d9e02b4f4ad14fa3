use super::super::effective::Setting;
use super::*;

/// Every default as it is. A change of one is made here, too, and told in CHANGELOG.md.
const DEFAULTS: &str = r#"
listen = "127.0.0.1:6380"
backend = "redis://127.0.0.1:6379/0"
backend_password_file = (none)
admin = "127.0.0.1:9180"
admin_token = (made up at the start)
admin_token_file = (none)
metrics = "off"
metrics_max_namespaces = 30
allow_open = false
cluster_node = false
companion_prefix = "lw:"
proxy_protocol_from = []
sessions = "dedicated"
log_format = "auto"
drain = "5s"
sweep = "1m"
moving_patience = "2s"
max_clients = (as many as the limit of open files leaves room for)
max_memory = (a quarter of the memory)
max_connection_age = "off"
server_commands = "forward"
admin_identities = []
computed_names = "watch"
trusted_functions = []
unknown_commands = []
audit = "problems"
audit_file = (none)
audit_max_size = "64MiB"
audit_keep = 5
audit_questions = "100%"
audit_required = false
audit_key_file = (none)
require_signed = false
policy_cache = (none)
registry_auth_file = (none)
namespace keys = ["lock:*"]
namespace mode = "monitor"
namespace enforce_for = (nobody)
namespace auto_back = false
namespace policies = ["owner-token", "fencing", "ttl-ceiling"]
namespace on_violation = "native"
namespace on_fault = "deny"
namespace adopt = "report"
namespace opaque_scripts = "wrap"
namespace trusted_scripts = []
namespace counter_locks = false
namespace on_repeat = "refuse"
namespace hand_over = false
namespace release = "record"
namespace quarantine = "off"
namespace durability = "none"
namespace holder_lost = "keep"
"#;

fn built_in() -> Vec<Setting> {
    let (config, _) = loaded_with(None, &Overrides::default(), &[]);
    config.expect("the built-in one is good").settings()
}

#[test]
fn no_default_changes_in_silence() {
    let all = built_in();
    let told = all.iter().map(|setting| match &setting.table {
        None => format!("{} = {}", setting.key, setting.value),
        Some(_) => format!("namespace {} = {}", setting.key, setting.value),
    });
    assert_eq!(
        told.collect::<Vec<_>>().join("\n"),
        DEFAULTS.trim(),
        "a default that changed is told in CHANGELOG.md, too"
    );
}
