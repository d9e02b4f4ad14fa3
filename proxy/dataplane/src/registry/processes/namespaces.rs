//! The namespaces in which process numbers and addresses of this machine are unique.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Distinguishes this machine's loopback addresses from every other's: its boot and its network namespace. Empty if
/// the system does not say.
pub static MACHINE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    [boot.trim_ascii(), namespace("net").as_bytes()].concat()
});

/// Process numbers are unique only within this namespace.
pub(super) static PROCESS_NAMESPACE: LazyLock<String> = LazyLock::new(|| namespace("pid"));

fn namespace(kind: &str) -> String {
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap_or_default();
    link.to_string_lossy().into_owned()
}
