//! What numbers and addresses of this machine are unique in.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// What tells this machine's loopback addresses from every other's: its boot and its network
/// namespace. Empty where the system does not say.
pub static MACHINE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    [boot.trim_ascii(), namespace("net").as_bytes()].concat()
});

/// Numbers of processes are unique in here only.
pub(super) static PROCESS_NAMESPACE: LazyLock<String> = LazyLock::new(|| namespace("pid"));

fn namespace(kind: &str) -> String {
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap_or_default();
    link.to_string_lossy().into_owned()
}
