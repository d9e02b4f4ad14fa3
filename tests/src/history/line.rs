//! The file that a client writes while it works, one line for each event, so that it is complete up to the moment in
//! which the client is killed: `TIME NUMBER invoke …` before a request is sent, `TIME NUMBER yes` or `no` when its
//! reply has come, `TIME NUMBER fence 7`, `TIME NUMBER wrote …` behind a write of guarded data. A request without a
//! second line has an unknown outcome.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::deadline::wait_for;

use super::clock::At;
use super::operation::{Action, Answer, History, Operation, Write};

/// The time between two looks at the files of all clients, at least.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Writes the file of one client.
pub(super) struct Scribe {
    file: File,
    requests: u64,
}

impl Scribe {
    pub(super) fn new(path: &Path) -> Scribe {
        let file = File::create(path).expect("the folder of the run is ours");
        Scribe { file, requests: 0 }
    }

    /// A request is about to be sent; what it asks for counts from then on.
    pub(super) fn invokes(&mut self, from: At, lock: &str, action: Action, proves: bool, words: &str) {
        self.requests += 1;
        let (name, claims) = match action {
            Action::Acquire(time) => ("acquire", time),
            Action::Extend(time) => ("extend", time),
            Action::Release => ("release", Duration::ZERO),
        };
        let claims = claims.as_millis();
        let proves = u8::from(proves);
        let words = words.escape_default();
        self.says_at(from, &format!("invoke {lock} {name} {claims} {proves} {words}"));
    }

    /// It was answered.
    pub(super) fn hears(&mut self, answer: Answer) {
        self.says(match answer {
            Answer::Yes => "yes",
            Answer::No => "no",
        });
    }

    /// It was answered by an error, which says nothing.
    pub(super) fn hears_error(&mut self, error: &str) {
        let word = error.split(' ').next().unwrap_or_default();
        self.says(&format!("error {}", word.escape_default()));
    }

    /// The grant's fencing token.
    pub(super) fn learns_fence(&mut self, fence: u64) {
        self.says(&format!("fence {fence}"));
    }

    /// A write of what this lock guards, sent at this moment, was carried out.
    pub(super) fn wrote(&mut self, lock: &str, fence: u64, sent: At) {
        self.says(&format!("wrote {lock} {fence} {}", sent.0));
    }

    fn says(&mut self, what: &str) {
        self.says_at(At::now(), what);
    }

    fn says_at(&mut self, at: At, what: &str) {
        let line = format!("{} {} {what}\n", at.0, self.requests);
        // One write a line, so that a kill leaves whole lines.
        let written = self.file.write_all(line.as_bytes());
        written.expect("the disk has room for a line");
    }
}

/// Adds what a client has written to the history. A last line that was cut off is left out.
pub(super) fn read(path: &Path, client: u32, history: &mut History) {
    // A client that was killed at once has not even a file.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut last: Option<Operation> = None;
    for line in whole.lines() {
        let mut parts = line.splitn(4, ' ');
        let at = parts.next().and_then(|time| time.parse().ok()).map(At);
        let (Some(at), Some(_), Some(what)) = (at, parts.next(), parts.next()) else {
            panic!("a client wrote {line:?}");
        };
        let rest = parts.next().unwrap_or_default();
        match (what, last.as_mut()) {
            ("invoke", _) => {
                history.operations.extend(last.take());
                last = Some(invoked(client, at, rest));
            }
            ("yes", Some(last)) => last.answered = Some((at, Answer::Yes)),
            ("no", Some(last)) => last.answered = Some((at, Answer::No)),
            ("error", Some(_)) => *history.errors.entry(rest.to_owned()).or_default() += 1,
            ("wrote", _) => history.writes.push(written(at, rest)),
            ("fence", Some(last)) => last.fence = rest.parse().ok(),
            _ => panic!("a client wrote {line:?}"),
        }
    }
    history.operations.extend(last);
}

/// Waits until clients that write to these files have been granted a few locks that they asked for from now on.
#[track_caller]
pub(super) fn grants_go_on<'a>(files: impl Iterator<Item = &'a PathBuf> + Clone) {
    let from = At::now();
    wait_for("grants", || {
        // Each look reads all that was ever written.
        sleep(LOOK_EVERY);
        let mut history = History::default();
        for file in files.clone() {
            read(file, 0, &mut history);
        }
        let granted = |one: &&Operation| one.is_acquire() && one.done().is_some() && one.sent > from;
        history.operations.iter().filter(granted).count() > 3
    });
}

fn written(done: At, said: &str) -> Write {
    let parts: Vec<&str> = said.split(' ').collect();
    let [lock, fence, sent] = parts[..] else {
        panic!("a client wrote {said:?}");
    };
    let number = |text: &str| text.parse().expect("the scribe writes numbers");
    Write { lock: lock.to_owned(), fence: number(fence), sent: At(number(sent)), done }
}

fn invoked(client: u32, sent: At, said: &str) -> Operation {
    let parts: Vec<&str> = said.splitn(5, ' ').collect();
    let [lock, name, claims, proves, words] = parts[..] else {
        panic!("a client wrote {said:?}");
    };
    let claims = Duration::from_millis(claims.parse().expect("milliseconds"));
    Operation {
        client,
        lock: lock.to_owned(),
        action: match name {
            "acquire" => Action::Acquire(claims),
            "extend" => Action::Extend(claims),
            "release" => Action::Release,
            other => panic!("a client wrote {other:?}"),
        },
        words: words.to_owned(),
        proves: proves == "1",
        sent,
        answered: None,
        fence: None,
    }
}
