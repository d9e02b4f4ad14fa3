//! Every command that may change a key, in every form that moves its keys, as lines with a hole for a lock.
//! This module has the lines and the ways to spell a request; the tests decide which client sends the cases,
//! and what must not happen then. The same cases are sent to a running proxy and classified in process, so a
//! line that is missing here is missing in both.

use crate::client::encode;
use crate::words;

mod lines;

pub use lines::{EVAL_SHA, EVAL_TEXT, FUNCTION, TEMPLATES};

/// What a key holds, named as the furnished key that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A decimal number in a string.
    String,
    /// A hash.
    Hash,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    Zset,
    /// A sorted set of places.
    Geo,
    /// A stream with groups.
    Stream,
    /// A HyperLogLog.
    Hll,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] =
        [Kind::String, Kind::Hash, Kind::List, Kind::Set, Kind::Zset, Kind::Geo, Kind::Stream, Kind::Hll];

    /// The plain key that holds such a value.
    pub fn plain(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Zset => "zset",
            Kind::Geo => "geo",
            Kind::Stream => "stream",
            Kind::Hll => "hll",
        }
    }

    /// The lock that holds such a value.
    pub fn lock(self) -> String {
        format!("lock:{}", self.plain())
    }

    /// The commands that fill `key` so that every case of this kind finds what it needs. A lock
    /// and a plain key differ in one member, so that members can be moved between them.
    pub fn furnishing(self, key: &str, own: &str) -> Vec<String> {
        match self {
            // Long enough for an owner token that cannot be guessed, and still a number.
            Kind::String => vec![format!("SET {key} 7301946528173640")],
            Kind::Hash => vec![format!("HSET {key} f v g w n 1 {own} 1")],
            Kind::List => vec![format!("RPUSH {key} a b c {own}")],
            Kind::Set => vec![format!("SADD {key} a b {own}")],
            Kind::Zset => vec![format!("ZADD {key} 1 a 2 b 3 {own}")],
            Kind::Geo => vec![format!("GEOADD {key} 13 38 here 13.1 38.1 {own}")],
            Kind::Stream => vec![
                format!("XADD {key} 1-1 f v"),
                format!("XADD {key} 2-1 f v"),
                format!("XADD {key} 3-1 f v"),
                format!("XGROUP CREATE {key} g 0"),
                format!("XGROUP CREATE {key} STREAMS 0"),
                format!("XREADGROUP GROUP g c COUNT 1 STREAMS {key} >"),
            ],
            Kind::Hll => vec![format!("PFADD {key} a b {own}")],
        }
    }
}

/// What a command means for a free lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing: it may not make one.
    Write,
    /// It may be an acquire, so only a held lock says something.
    Verb,
}

/// One request with a lock among its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The line that it came from.
    pub line: &'static str,
    /// What the command works on.
    pub kind: Kind,
    /// What the command means for a free lock.
    pub meaning: Meaning,
    /// Which argument is the lock.
    pub at: usize,
    /// The request.
    pub args: Vec<Vec<u8>>,
}

/// The values for words in lines that only a running server knows.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `DUMP` of a string, for `PAYLOAD`.
    pub payload: Vec<u8>,
    /// Another server, for `PORT`.
    pub port: u16,
}

/// A case for every hole of every line, with plain keys in the other holes.
pub fn cases(facts: &Facts) -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, meaning, lines) in TEMPLATES {
        for line in *lines {
            let words = words::split(line);
            let holes = (0..words.len()).filter(|&at| words[at] == b"@");
            cases.extend(holes.map(|at| Case {
                line,
                kind: *kind,
                meaning: *meaning,
                at,
                args: filled(&words, at, *kind, facts),
            }));
        }
    }
    cases
}

fn filled(words: &[Vec<u8>], lock: usize, kind: Kind, facts: &Facts) -> Vec<Vec<u8>> {
    let fill = |(at, word): (usize, &Vec<u8>)| match word.as_slice() {
        b"@" if at == lock => kind.lock().into_bytes(),
        b"@" => kind.plain().into(),
        b"PAYLOAD" => facts.payload.clone(),
        b"PORT" => facts.port.to_string().into_bytes(),
        _ => word.clone(),
    };
    words.iter().enumerate().map(fill).collect()
}

/// A way to send the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is written.
    Plain,
    /// Names and options in mixed case.
    MixedCase,
    /// A line of text whose every byte is escaped.
    InlineEscaped,
    /// A line of text in single quotes.
    InlineQuoted,
    /// In a transaction.
    Block,
    /// By a script that gets the keys as keys.
    ScriptKeys,
    /// By a script that has the lock's name in its text.
    ScriptText,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 7] = [
        Form::Plain,
        Form::MixedCase,
        Form::InlineEscaped,
        Form::InlineQuoted,
        Form::Block,
        Form::ScriptKeys,
        Form::ScriptText,
    ];
}

impl Case {
    /// The same request about another lock.
    #[must_use]
    pub fn aimed_at(&self, lock: &str) -> Case {
        let mut case = self.clone();
        case.args[self.at] = lock.as_bytes().to_vec();
        case
    }

    /// The name of the command, with its subcommand where it names keys only behind one.
    pub fn command(&self) -> String {
        let word = |at: usize| String::from_utf8_lossy(&self.args[at]).to_ascii_lowercase();
        match word(0).as_str() {
            family @ "xgroup" => format!("{family}|{}", word(1)),
            name => name.to_owned(),
        }
    }

    /// The requests of this form, or `None` where there is no such form: scripts run no scripts,
    /// and text in quotes cannot hold every byte.
    pub fn requests(&self, form: Form) -> Option<Vec<Vec<u8>>> {
        Some(match form {
            Form::Plain => vec![encode(&self.args)],
            Form::MixedCase => vec![encode(&self.mixed_case())],
            Form::InlineEscaped => vec![inline(&self.args, escaped)],
            Form::InlineQuoted if self.args.iter().all(|arg| is_quotable(arg)) => {
                vec![inline(&self.args, |arg| [b"'", arg, b"'".as_slice()].concat())]
            }
            Form::InlineQuoted => return None,
            Form::Block => vec![encode(&["MULTI"]), encode(&self.args), encode(&["EXEC"])],
            Form::ScriptKeys => vec![encode(&self.script(true)?)],
            Form::ScriptText => vec![encode(&self.script(false)?)],
        })
    }

    /// Every word that looks like a name or an option, and is no key, in mixed case.
    #[must_use]
    pub fn mixed_case(&self) -> Vec<Vec<u8>> {
        let is_word =
            |arg: &[u8]| arg.len() > 1 && arg.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        let mixed = |(at, arg): (usize, &Vec<u8>)| {
            if at == self.at || !is_word(arg) || self.args[0] == b"FCALL" && at > 0 {
                return arg.clone();
            }
            let mut arg = arg.clone();
            arg.iter_mut().step_by(2).for_each(u8::make_ascii_lowercase);
            arg
        };
        self.args.iter().enumerate().map(mixed).collect()
    }

    /// `EVAL` of a text that calls the command. Names of locks and of furnished keys go along as
    /// keys, or the locks are named in the text and the others are arguments.
    fn script(&self, declared: bool) -> Option<Vec<Vec<u8>>> {
        if self.args[0].starts_with(b"EVAL") || self.args[0] == b"FCALL" {
            return None;
        }
        let is_lock = |arg: &[u8]| arg.starts_with(b"lock:") || arg.starts_with(b"lw:");
        let is_key = |arg: &[u8]| is_lock(arg) || Kind::ALL.iter().any(|kind| kind.plain().as_bytes() == arg);
        let (mut calls, mut keys, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for (at, arg) in self.args.iter().enumerate() {
            calls.push(if at == 0 || is_lock(arg) && !declared {
                format!("'{}'", String::from_utf8_lossy(arg))
            } else if is_key(arg) && declared {
                keys.push(arg.clone());
                format!("KEYS[{}]", keys.len())
            } else {
                rest.push(arg.clone());
                format!("ARGV[{}]", rest.len())
            });
        }
        let text = format!("return redis.call({})", calls.join(", "));
        let mut args = vec![b"EVAL".to_vec(), text.into_bytes()];
        args.push(keys.len().to_string().into_bytes());
        args.extend(keys);
        args.extend(rest);
        Some(args)
    }
}

fn inline(args: &[Vec<u8>], quoted: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut line = args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(&b' ');
    line.extend_from_slice(b"\r\n");
    line
}

fn escaped(arg: &[u8]) -> Vec<u8> {
    let bytes: String = arg.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{bytes}\"").into_bytes()
}

fn is_quotable(arg: &[u8]) -> bool {
    arg.iter().all(|byte| byte.is_ascii_graphic() && !b"'\\\"".contains(byte) || *byte == b' ')
}
