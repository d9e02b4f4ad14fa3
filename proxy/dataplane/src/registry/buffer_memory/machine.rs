//! How much memory this process may have: the machine's, or less if its control group limits it.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes, if nothing is known of the machine.
const UNKNOWN: u64 = 2 << 30;

/// One part in this many of the memory is for the buffers of clients. Memory that is given back is not free at once,
/// and read buffers grow by doubling.
const SHARE: u64 = 4;

/// What the buffers of clients may take by default.
pub(crate) fn usual_limit() -> usize {
    let groups = groups(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let limits = groups.iter().filter_map(|file| limit_in(file));
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let memory = limits.chain(machine).min().unwrap_or(UNKNOWN);
    usize::try_from(memory / SHARE).unwrap_or(usize::MAX)
}

fn limit_in(file: &Path) -> Option<u64> {
    // "max" if there is no limit.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// `MemTotal` in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The files that may contain a limit: of the group of this process and of those around it, in both versions of
/// control groups. Inside a container the process's own group is often the root of what can be seen.
fn groups(cgroup: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        for group in path.ancestors() {
            files.push(Path::new(root).join(group).join(name));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_around_are_asked_as_well() {
        let two = groups("0::/system.slice/lockwarden.service\n");
        let names: Vec<_> = two.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/system.slice/lockwarden.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        let one = groups("12:cpu,cpuacct:/a\n9:memory:/docker/b\n0::/\n");
        let names: Vec<_> = one.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert!(groups("nonsense").is_empty());
    }

    #[test]
    fn the_machine_says_what_it_has() {
        assert_eq!(total("MemTotal:  1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(usual_limit() > 1 << 20);
    }
}
