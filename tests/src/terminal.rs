//! A terminal in which a program is started: its output is drawn as on a real terminal, and it reads what the test types. It
//! knows only the escape sequences that a full-screen program needs, and keeps every byte, so that a test can look for
//! others.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::deadline::{PATIENCE, wait_for_value};

/// A program in a terminal of its own. Dropping it kills the program.
pub struct Terminal {
    child: Child,
    keys: File,
    /// The program's end, kept open to ask how it is set.
    inner: OwnedFd,
    at_first: libc::termios,
    drawn: Arc<Mutex<Drawn>>,
}

/// What was written, and what stands on the screen.
struct Drawn {
    columns: usize,
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// The sequence that is not complete yet; empty where none has begun.
    sequence: String,
    /// The beginning of a letter of several bytes.
    letter: Vec<u8>,
    is_alternate: bool,
    is_cursor_hidden: bool,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts the program in a terminal of so many columns and lines.
    #[track_caller]
    pub fn start(command: &mut Command, columns: u16, lines: u16) -> Terminal {
        let size = window(columns, lines);
        let (mut outer, mut inner) = (-1, -1);
        // SAFETY: both numbers outlive the call, the name and the settings may be null, and `size` is an initialised `winsize`.
        let failed = unsafe { libc::openpty(&mut outer, &mut inner, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(failed, 0, "the system has no terminal left");
        // SAFETY: `openpty` has just opened both, and they have no other owner.
        let (outer, inner) = unsafe { (OwnedFd::from_raw_fd(outer), OwnedFd::from_raw_fd(inner)) };
        let at_first = settings(&inner);
        let end = || Stdio::from(inner.try_clone().expect("a descriptor is left"));
        command.stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        // SAFETY: between fork and exec only calls that are async-signal-safe and take no pointers.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("the program is there");
        // Descriptors of the program's end that the command keeps would keep the terminal open.
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let keys = File::from(outer);
        let drawn = Arc::new(Mutex::new(Drawn::new(columns.into(), lines.into())));
        let mut reader = keys.try_clone().expect("a descriptor is left");
        let writes = drawn.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                if count == 0 {
                    break;
                }
                let mut drawn = writes.lock().unwrap_or_else(PoisonError::into_inner);
                for byte in &bytes[..count] {
                    drawn.take(*byte);
                }
            }
        });
        Terminal { child, keys, inner, at_first, drawn }
    }

    /// Types these bytes.
    #[track_caller]
    pub fn types(&self, keys: &str) {
        let mut to = &self.keys;
        to.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Another size, of which the program is told.
    pub fn resizes(&self, columns: u16, lines: u16) {
        *self.drawn() = Drawn {
            bytes: self.bytes(),
            is_alternate: self.is_full_screen(),
            ..Drawn::new(columns.into(), lines.into())
        };
        let size = window(columns, lines);
        // SAFETY: the descriptor is open, and `size` is an initialised `winsize` that outlives the call.
        let failed = unsafe { libc::ioctl(self.keys.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(failed, 0, "a terminal has a size");
    }

    /// The lines of the screen, without blanks at their ends.
    pub fn lines(&self) -> Vec<String> {
        let drawn = self.drawn();
        let lines = drawn.cells.iter();
        let lines = lines.map(|line| line.iter().collect::<String>().trim_end().to_owned());
        lines.collect()
    }

    /// The lines of the screen, as soon as this condition holds.
    #[track_caller]
    pub fn shows(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let lines = self.lines();
            if is_so(&lines) {
                return lines;
            }
            if std::time::Instant::now() > end {
                panic!("waited in vain for {what}:\n{}", lines.join("\n"));
            }
            thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// The lines of the screen, as soon as these words stand on it.
    #[track_caller]
    pub fn shows_words(&self, words: &str) -> Vec<String> {
        self.shows(words, |lines| lines.iter().any(|line| line.contains(words)))
    }

    /// Everything that the program has written.
    pub fn bytes(&self) -> Vec<u8> {
        self.drawn().bytes.clone()
    }

    /// Whether the program has the whole screen for itself.
    pub fn is_full_screen(&self) -> bool {
        self.drawn().is_alternate
    }

    /// Sends a signal to the program.
    pub fn signals(&self, signal: libc::c_int) {
        let id = libc::pid_t::try_from(self.child.id()).expect("process ids fit pid_t");
        // SAFETY: `kill` takes no pointers; the child has not been waited for, so the id is its.
        unsafe { libc::kill(id, signal) };
    }

    /// Waits for the end, returns the exit code, and asserts that the terminal is as it was before.
    #[track_caller]
    pub fn ends(mut self) -> Option<i32> {
        let status = wait_for_value("the program to end", || self.child.try_wait().expect("the child is ours"));
        let is_back = |drawn: &Drawn| !drawn.is_alternate && !drawn.is_cursor_hidden;
        wait_for_value("the screen to be put back", || is_back(&self.drawn()).then_some(()));
        let now = settings(&self.inner);
        assert_eq!(
            (now.c_lflag, now.c_iflag, now.c_oflag),
            (self.at_first.c_lflag, self.at_first.c_iflag, self.at_first.c_oflag),
            "keys are heard as before"
        );
        status.code()
    }

    fn drawn(&self) -> std::sync::MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn window(columns: u16, lines: u16) -> libc::winsize {
    libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn settings(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: an all-zero `termios` is valid, the descriptor is open, and the pointer is to one that outlives the call.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        let failed = libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings);
        assert_eq!(failed, 0, "it is a terminal");
        settings
    }
}

impl Drawn {
    fn new(columns: usize, lines: usize) -> Drawn {
        Drawn {
            columns,
            cells: vec![vec![' '; columns]; lines],
            row: 0,
            column: 0,
            sequence: String::new(),
            letter: Vec::new(),
            is_alternate: false,
            is_cursor_hidden: false,
            bytes: Vec::new(),
        }
    }

    fn take(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.letter.push(byte);
        let text = match std::str::from_utf8(&self.letter) {
            Ok(text) => text.to_owned(),
            Err(error) if error.error_len().is_none() => return,
            Err(_) => "\u{fffd}".to_owned(),
        };
        self.letter.clear();
        for letter in text.chars() {
            self.take_letter(letter);
        }
    }

    fn take_letter(&mut self, letter: char) {
        if !self.sequence.is_empty() {
            self.sequence.push(letter);
            let is_over = match self.sequence.as_bytes()[1..] {
                [b'['] => false,
                [b'[', ..] => ('@'..='~').contains(&letter),
                _ => true,
            };
            if is_over {
                let sequence = std::mem::take(&mut self.sequence);
                self.obey(&sequence);
            }
            return;
        }
        match letter {
            '\u{1b}' => self.sequence.push(letter),
            '\r' => self.column = 0,
            '\n' => self.row = (self.row + 1).min(self.cells.len() - 1),
            letter => {
                if let Some(cell) = self.cells.get_mut(self.row).and_then(|line| line.get_mut(self.column)) {
                    *cell = letter;
                }
                self.column = (self.column + 1).min(self.columns);
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        let Some(body) = sequence.strip_prefix("\u{1b}[") else {
            return;
        };
        let (parameters, end) = body.split_at(body.len() - 1);
        let number = |at: usize, otherwise: usize| {
            let given = parameters.split(';').nth(at);
            given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
        };
        match (end, parameters) {
            ("h", "?1049") => self.is_alternate = true,
            ("l", "?1049") => self.is_alternate = false,
            ("l", "?25") => self.is_cursor_hidden = true,
            ("h", "?25") => self.is_cursor_hidden = false,
            ("H", _) => {
                (self.row, self.column) = (number(0, 1) - 1, number(1, 1) - 1);
            }
            ("J", "2") => {
                for line in &mut self.cells {
                    line.fill(' ');
                }
            }
            _ => {}
        }
    }
}
