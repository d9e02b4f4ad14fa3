//! Processes that are started here and must not outlive this one: however it ends, the kernel tells them. Linux
//! alone can do that; elsewhere they stay until somebody ends them.

use std::process::Command;

/// Has the command ended by SIGTERM when this process is gone, and not started at all where it is gone already.
pub(crate) fn end_with_us(command: &mut Command) {
    // SAFETY: getpid has no preconditions.
    let us = unsafe { libc::getpid() };
    end_with(command, us);
}

#[cfg(not(target_os = "linux"))]
fn end_with(_: &mut Command, _: libc::pid_t) {}

#[cfg(target_os = "linux")]
fn end_with(command: &mut Command, parent: libc::pid_t) {
    use std::io;
    use std::os::unix::process::CommandExt;

    // SAFETY: between fork and exec the closure only makes system calls that are async-signal-safe
    // (prctl, getppid) and builds an error without allocating.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the line above; then no signal will ever come.
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_has_lost_its_parent_before_it_begins_does_not_begin() {
        let mut command = Command::new("true");
        end_with_us(&mut command);
        assert!(command.status().unwrap().success());
        let mut orphan = Command::new("true");
        // Another process than the one that forks it, as where that one has died meanwhile.
        end_with(&mut orphan, 1);
        let error = orphan.status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
