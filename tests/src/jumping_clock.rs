//! A clock that a test sets while a server uses it: a library that is loaded before the C library, and adds a number from a
//! file to the system's time. It is compiled by `cc`, which Rust needs for linking anyway.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use tempfile::TempDir;

use crate::process::run_to_end;

/// Names the file to the library.
const NAMED_BY: &str = "LOCKWARDEN_TEST_CLOCK";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead_ms;

__attribute__((constructor)) static void find_the_number(void) {
    const char *path = getenv("LOCKWARDEN_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *at = mmap(0, sizeof *ahead_ms, PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) ahead_ms = at;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (failed || !ahead_ms || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    long long ms = *ahead_ms;
    long nanos = now->tv_nsec + ms % 1000 * 1000000;
    now->tv_sec += ms / 1000 + (nanos >= 1000000000) - (nanos < 0);
    now->tv_nsec = (nanos + 1000000000) % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (to) *to = precise.tv_sec;
    return precise.tv_sec;
}
"#;

/// The clock of one server.
pub(crate) struct JumpingClock {
    folder: TempDir,
    file: File,
    ahead_ms: AtomicI64,
}

impl JumpingClock {
    #[track_caller]
    pub(crate) fn new() -> JumpingClock {
        let folder = tempfile::tempdir().expect("a folder for a clock");
        let source = folder.path().join("clock.c");
        fs::write(&source, SOURCE).expect("the folder is ours");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]);
        compile.arg(folder.path().join("clock.so")).arg(&source);
        let compiled = run_to_end(&mut compile);
        assert_eq!(compiled.code, Some(0), "{}", compiled.stderr);
        let file = File::create_new(folder.path().join("ahead")).expect("the folder is ours");
        let clock = JumpingClock { folder, file, ahead_ms: AtomicI64::new(0) };
        clock.jumps(0);
        clock
    }

    /// Sets it forward, or back.
    pub(crate) fn jumps(&self, by_ms: i64) {
        let ahead = self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed) + by_ms;
        let written = self.file.write_all_at(&ahead.to_ne_bytes(), 0);
        written.expect("the file is ours");
    }

    /// The environment that makes a program use this clock.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let named = |name| self.folder.path().join(name).into_os_string();
        [("LD_PRELOAD", named("clock.so")), (NAMED_BY, named("ahead"))]
    }
}
