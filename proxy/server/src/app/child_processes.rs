//! Child processes that must not outlive this process: the kernel tells them when it ends, in any way. Only Linux can do that;
//! on other systems they stay until they are ended by hand.

use std::process::Command;

/// Makes the command end by SIGTERM when this process is gone; it is not started at all if this process is gone already.
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
        // A parent other than the process that forks it, as if that one had died meanwhile.
        end_with(&mut orphan, 1);
        let error = orphan.status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
