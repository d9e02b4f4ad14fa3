//! CPU time, memory and interruption of a process. It reads `/proc` and makes a few system calls of Linux; it
//! starts nothing.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, process};

/// CPU time of all threads of a process, those that have ended as well.
#[derive(Clone, Copy)]
pub(crate) struct CpuTime {
    /// By the scheduler's clock, to the nanosecond.
    pub(crate) total: Duration,
    /// By what the clock tick met, in hundredths of a second: good for shares only.
    user: u64,
    system: u64,
}

/// The CPU time of a window.
pub(crate) struct Spent {
    pub(crate) total: Duration,
    /// Of `total`; 0 to 1, NaN where the window is too short to tell.
    pub(crate) user_share: f64,
}

impl CpuTime {
    pub(crate) fn of(id: u32) -> io::Result<CpuTime> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        // `PID (program) state …`; the program's name may hold blanks and brackets.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let field = |at| {
            let text: Option<&str> = fields.split_whitespace().nth(at);
            text.and_then(|text| text.parse().ok()).ok_or_else(|| io::Error::other("a stat line in an unknown form"))
        };
        Ok(CpuTime { total: cpu_clock(id)?, user: field(11)?, system: field(12)? })
    }

    /// Of several processes together.
    pub(crate) fn of_all(ids: &[u32]) -> io::Result<CpuTime> {
        ids.iter().try_fold(CpuTime { total: Duration::ZERO, user: 0, system: 0 }, |sum, id| {
            let one = CpuTime::of(*id)?;
            Ok(CpuTime { total: sum.total + one.total, user: sum.user + one.user, system: sum.system + one.system })
        })
    }

    pub(crate) fn of_this_process() -> io::Result<CpuTime> {
        CpuTime::of(process::id())
    }

    pub(crate) fn since(self, before: CpuTime) -> Spent {
        let (user, system) = (self.user - before.user, self.system - before.system);
        Spent { total: self.total.saturating_sub(before.total), user_share: user as f64 / (user + system) as f64 }
    }
}

fn cpu_clock(id: u32) -> io::Result<Duration> {
    let id = libc::pid_t::try_from(id).map_err(io::Error::other)?;
    let mut clock = 0;
    // SAFETY: the call writes one `clockid_t` to where the pointer points, which is ours.
    let failed = unsafe { libc::clock_getcpuclockid(id, &raw mut clock) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to where the pointer points, which is ours.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = u64::try_from(time.tv_sec).map_err(io::Error::other)?;
    let nanos = u32::try_from(time.tv_nsec).map_err(io::Error::other)?;
    Ok(Duration::new(seconds, nanos))
}

/// Resident memory, bytes.
pub(crate) fn resident(id: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let kib = status.lines().find_map(|line| {
        let text = line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?;
        text.trim().parse::<u64>().ok()
    });
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("a status without VmRSS"))
}

/// As many descriptors as the system allows, for this process and those that it starts.
pub(crate) fn allow_descriptors(wanted: u64) -> Result<(), Box<dyn Error>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` to where the pointer points, which is ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the call reads one `rlimit` from where the pointer points, which is ours.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    if limit.rlim_cur < wanted {
        return Err(format!(
            "{wanted} descriptors are needed, and this user may have {}: raise the hard limit (ulimit -Hn)",
            limit.rlim_cur
        )
        .into());
    }
    Ok(())
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the run was interrupted. From then on every function returns, and the started programs are
/// stopped.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Notices Ctrl-C and a polite kill from now on.
pub(crate) fn notice_interruption() {
    extern "C" fn note(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores an atomic, which is allowed in one.
        unsafe { libc::signal(signal, handler) };
    }
}
