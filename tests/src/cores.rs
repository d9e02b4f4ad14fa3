//! The cores of the machine on which a thread, and the processes that it starts, may run.

use std::io;
use std::mem;

/// The cores that this thread, and processes started by it, may run on.
#[derive(Clone, Copy)]
pub struct Cores(libc::cpu_set_t);

impl Cores {
    /// Those of now.
    pub fn allowed() -> io::Result<Cores> {
        // SAFETY: a `cpu_set_t` is an array of numbers, for which all zero is a value.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: the call writes at most the given size to where the pointer points, which is ours.
        if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Cores(set))
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<usize> {
        let all = 0..libc::CPU_SETSIZE as usize;
        // SAFETY: the number is below the size of the set.
        all.filter(|&core| unsafe { libc::CPU_ISSET(core, &self.0) }).collect()
    }

    /// One of them alone.
    pub fn only(core: usize) -> Cores {
        assert!(core < libc::CPU_SETSIZE as usize, "a core of this machine");
        // SAFETY: a `cpu_set_t` is an array of numbers, for which all zero is a value.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: the line above proved that the number is below the size of the set.
        unsafe { libc::CPU_SET(core, &mut set) };
        Cores(set)
    }

    /// The one that this thread is on.
    pub fn of_this_thread() -> Cores {
        // SAFETY: the call takes nothing and changes nothing.
        let core = unsafe { libc::sched_getcpu() };
        Cores::only(usize::try_from(core).expect("the system says which core this is"))
    }

    /// From now on this thread runs there, and what it starts.
    pub fn take(&self) -> io::Result<()> {
        // SAFETY: the call reads the given size from where the pointer points, which is ours.
        if unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}
