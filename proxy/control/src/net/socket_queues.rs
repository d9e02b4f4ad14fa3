//! What the kernel holds of a connection's bytes: those that were not read yet, and those that the other end has not acknowledged.

use std::os::fd::AsRawFd;

/// How many bytes that were written to a connection its other end has not acknowledged, also after a
/// reset; 0 where the system does not say. Of a unix socket: 0 once the other end has read or closed it, and before
/// that at least as many as it has not read, since the kernel counts the memory that they are in.
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

/// How many bytes have come by a connection that were not read yet; 0 where the system does not say.
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
