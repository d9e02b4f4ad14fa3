//! The limit of file descriptors of this process, and how they are divided. Clients do not get all of them: the last
//! ones are reserved for the admin addresses, the proxy's own connections and its files. So the proxy can still be
//! inspected, and keeps leases alive, while it is full.

use std::io;

/// Enough for every use, if the system has no limit.
const MAX_LIMIT: u64 = 1 << 20;

/// The most connections of one admin address, if there are enough descriptors.
const MAX_ADMIN_PLACES: u64 = 128;
const MIN_ADMIN_PLACES: u64 = 16;

/// The proxy's own connections to the backend, and files that are open for a short time: configuration and policies at
/// a reload, the audit trail, `/proc` while a process is looked up.
const OWN: u64 = 32;

/// How many descriptors this process may open; `MAX_LIMIT` if that is unknown.
pub fn limit() -> u64 {
    current().map_or(MAX_LIMIT, |limit| limit.rlim_cur.min(MAX_LIMIT))
}

/// Raises the limit as far as this process may: many systems start with 1,024 for the sake of programs that use
/// `select`, and let other programs raise it.
pub fn raise_limit() -> io::Result<u64> {
    let mut limit = current()?;
    let wanted = limit.rlim_max.min(MAX_LIMIT);
    if limit.rlim_cur < wanted {
        limit.rlim_cur = wanted;
        // SAFETY: the call reads one `rlimit` from where the pointer points, which is ours.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

fn current() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` to where the pointer points, which is ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

/// The number of open descriptors; `OWN` if the system does not say.
pub fn open() -> u64 {
    // The directory itself is counted too.
    std::fs::read_dir("/proc/self/fd").map_or(OWN, |open| open.count() as u64)
}

/// The most connections of one admin address.
pub fn admin_places() -> u64 {
    admin_places_of(limit())
}

fn admin_places_of(limit: u64) -> u64 {
    (limit / 16).clamp(MIN_ADMIN_PLACES, MAX_ADMIN_PLACES)
}

/// The descriptors for clients and their connections to the backend. `base` were open before the first client came.
pub fn for_clients(base: u64) -> u64 {
    for_clients_of(limit(), base)
}

fn for_clients_of(limit: u64, base: u64) -> u64 {
    // There are two admin addresses.
    limit.saturating_sub(base + 2 * admin_places_of(limit) + OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept_for_operators_however_few_there_are() {
        for (limit, admin, clients) in [(64, 16, 0), (256, 16, 162), (1_024, 64, 834), (65_536, 128, 65_218)] {
            assert_eq!(admin_places_of(limit), admin, "{limit}");
            assert_eq!(for_clients_of(limit, 30), clients, "{limit}");
        }
    }

    #[test]
    fn the_limit_is_raised_and_what_is_open_is_counted() {
        let raised = raise_limit().unwrap();
        assert_eq!(limit(), raised.min(MAX_LIMIT));
        let before = open();
        let _file = std::fs::File::open("/dev/null").unwrap();
        assert!(before > 2 && open() > 0);
    }
}
