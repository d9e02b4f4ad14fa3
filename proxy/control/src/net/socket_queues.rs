//! The bytes of a connection that the kernel holds: received but not read, and sent but not acknowledged by the other
//! end.

use std::os::fd::AsRawFd;

/// How many bytes written to a connection the other end has not acknowledged, also after a reset; 0 if the system does
/// not say. For a unix socket: 0 once the other end has read or closed it. Before that at least as many as it has not
/// read, since the kernel counts the memory that holds them.
pub(super) fn unacknowledged(stream: &impl AsRawFd) -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open for as long as `stream` is borrowed, and the kernel writes one
        // `int` to `bytes`, which outlives the call.
        let failed = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if failed == 0 {
            return u64::try_from(bytes).unwrap_or(0);
        }
    }
    0
}

/// How many received bytes of a connection were not read yet; 0 if the system does not say.
pub(super) fn unread(stream: &impl AsRawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `stream` is borrowed, and the kernel writes one `int` to
    // `bytes`, which outlives the call.
    let failed = unsafe { libc::ioctl(stream.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    match failed {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}
