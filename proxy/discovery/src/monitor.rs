//! Sightings from Redis's `MONITOR`: one line per command, in the order of execution, without replies. Commands that a
//! script calls follow the call, with `lua` as their source.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lock::library_scripts::facts_to_watch;
use lockwarden_lock::script_facts::ScriptFacts;
use lockwarden_lock::table::{Access, Effect, Lookup, ScriptVerb, for_each_key, lookup};
use lockwarden_resp::OwnedRequest;
use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::collector::Collector;
use crate::first_writes::FirstWrites;
use crate::libraries;
use crate::recognise::{Interest, Scripts, is_hsetnx, recognise, stores, writes_data};
use crate::sighting::{Compares, Did, Sighting, Spelling, doings, field_taken, watched};
use crate::writes::Wrote;

/// Words that are read of a line: a command on locks has few.
const MAX_WORDS: usize = 64;
/// How often expired leases are looked for, milliseconds.
const EXPIRE_EVERY_MS: u64 = 1_000;
/// Clients whose names are remembered.
const MAX_NAMES: usize = 10_000;

/// Identifies a connection by its source address.
fn session(from: &str) -> u64 {
    XxHash3_64::oneshot(from.as_bytes())
}

/// One line of `MONITOR`.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Unix time, ms.
    pub at_ms: u64,
    /// The logical database.
    pub db: u32,
    /// Its source: an address, `unix:` and a path, or `lua`.
    pub from: &'a str,
    /// The command.
    pub words: Vec<Vec<u8>>,
}

impl<'a> Line<'a> {
    /// Reads `1700000000.123456 [0 127.0.0.1:5000] "SET" "k" "v"`; `None` for anything else.
    pub fn read(line: &'a [u8]) -> Option<Line<'a>> {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"+").unwrap_or(line);
        let space = line.iter().position(|byte| *byte == b' ')?;
        let (time, rest) = line.split_at(space);
        let (seconds, micros) = std::str::from_utf8(time).ok()?.split_once('.')?;
        let seconds: u64 = seconds.parse().ok()?;
        let micros: u64 = micros.parse().ok()?;
        let rest = rest.strip_prefix(b" [")?;
        let bracket = rest.windows(2).position(|two| two == b"] ")?;
        let (place, rest) = rest.split_at(bracket);
        let (db, from) = std::str::from_utf8(place).ok()?.split_once(' ')?;
        Some(Line {
            at_ms: seconds.checked_mul(1_000)?.checked_add(micros / 1_000)?,
            db: db.parse().ok()?,
            from,
            words: words(rest.get(2..)?)?,
        })
    }
}

/// The words of a line, each in quotation marks, with `\x00` for bytes that cannot be printed.
fn words(mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    while !rest.is_empty() && words.len() < MAX_WORDS {
        rest = rest.strip_prefix(b"\"")?;
        let mut word = Vec::new();
        loop {
            let (&byte, behind) = rest.split_first()?;
            rest = behind;
            match byte {
                b'"' => break,
                b'\\' => {
                    let (&mark, behind) = rest.split_first()?;
                    rest = behind;
                    word.push(match mark {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'a' => 7,
                        b'b' => 8,
                        b'x' => {
                            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                            rest = &rest[2..];
                            u8::from_str_radix(digits, 16).ok()?
                        }
                        other => other,
                    });
                }
                other => word.push(other),
            }
        }
        words.push(word);
        rest = rest.strip_prefix(b" ").unwrap_or(rest);
    }
    (!words.is_empty()).then_some(words)
}

/// Collects what `MONITOR` reports.
#[derive(Default)]
pub struct Monitor {
    /// The results.
    pub collector: Collector,
    /// The names of clients, by their source address.
    names: HashMap<String, Arc<str>>,
    /// What connections wrote before they took a lock; only of connections that began after the start. `None` where it
    /// is unknown which connections are older.
    first: Option<HashMap<u64, FirstWrites>>,
    /// The client that called the script whose commands follow now.
    caller: Option<String>,
    /// What that script has written so far. If it takes or releases a lock, its writes are part of the lock's
    /// mechanism, and not data under the lock.
    of_script: Vec<Wrote>,
    script_handles_lock: bool,
    /// Keys that this script has read: what it does to them depends on the values.
    script_asked: Vec<Vec<u8>>,
    /// Connections that watch keys, and whether each is inside `MULTI`.
    watching: HashMap<u64, bool>,
    commands: u64,
    unreadable: u64,
    /// When expired leases were last looked for, Unix time, ms.
    expired_ms: u64,
}

impl Monitor {
    /// Sets the name of a client. Beyond the bound, clients are identified by their address.
    pub fn name(&mut self, from: &str, name: &str) {
        if !name.is_empty() && self.names.len() < MAX_NAMES {
            self.names.insert(from.to_owned(), name.into());
        }
    }

    /// These connections existed before the start: what they have done until now is unknown.
    pub fn were_there<'a>(&mut self, all: impl Iterator<Item = &'a str>) {
        let known = |from: &str| {
            let mut first = FirstWrites::default();
            first.end();
            (session(from), first)
        };
        let all: HashMap<u64, FirstWrites> = all.map(known).collect();
        self.first = Some(all).filter(|all| all.len() < MAX_NAMES);
    }

    /// What a connection wrote before it took a lock.
    fn first_writes(&mut self, session: u64) -> Option<&mut FirstWrites> {
        let all = self.first.as_mut()?;
        if all.len() >= MAX_NAMES {
            return all.get_mut(&session);
        }
        Some(all.entry(session).or_default())
    }

    /// Commands so far, those within scripts included.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Lines that are not in Redis's format.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Reads one line. Keys for which `is_claimed` returns true belong to a namespace: for these, only the holder is
    /// remembered.
    pub fn see(&mut self, line: &[u8], is_claimed: &dyn Fn(&[u8]) -> bool) {
        let Some(line) = Line::read(line) else {
            self.unreadable += 1;
            return;
        };
        self.commands += 1;
        let in_script = line.from == "lua";
        let from = match (in_script, &self.caller) {
            (true, Some(caller)) => caller.clone(),
            (true, None) => return,
            (false, _) => line.from.to_owned(),
        };
        let words: Vec<&[u8]> = line.words.iter().map(|word| &word[..]).collect();
        let Lookup::Known(spec) = lookup(&words[..]) else {
            return;
        };
        if spec.name == "client|setname" {
            let name = words.get(2).map(|name| String::from_utf8_lossy(name).into_owned());
            self.names.remove(&from);
            self.name(&from, &name.unwrap_or_default());
        }
        let is_script = matches!(spec.effect, Effect::Script(ScriptVerb::Eval | ScriptVerb::EvalSha));
        if !in_script {
            self.end_of_script();
        }
        if is_script {
            self.caller = Some(from.clone());
        }
        let session = session(&from);
        self.note_block(spec.name, session);
        if in_script
            && spec.effect.access() == Access::Read
            && self.script_asked.len() < MAX_WORDS
            && let Some(key) = words.get(1)
        {
            self.script_asked.push(key.to_vec());
        }
        let request = OwnedRequest::new(words.iter().copied());
        let request = request.request();
        let interest = Interest::of(spec.effect, &request);
        let writes = writes_data(spec.effect, interest);
        if interest == Interest::No && !writes {
            return;
        }
        let of_text = |text: &[u8]| Arc::new(ScriptFacts::of(text));
        let scripts = Scripts { by_name: &facts_to_watch, of_text: &of_text };
        let application = self.application(&from);
        if writes {
            let mut keys: SmallVec<[&[u8]; 4]> = SmallVec::new();
            // A command that cannot be read to its end was cut off, or Redis refused it.
            let _ = for_each_key(spec, &request, &mut |_, key, access| {
                if access == Access::Write {
                    keys.push(key);
                }
            });
            let holds = |key: &&[u8]| self.collector.holds(session, line.db, key, line.at_ms);
            let gives_back = keys.iter().any(holds);
            self.script_handles_lock |= in_script && gives_back;
            for key in keys.iter().filter(|key| !is_claimed(key)) {
                let first = self.first_writes(session);
                if let Some(first) = first.filter(|first| first.wants_more()) {
                    first.note(line.db, key);
                }
                let wrote = Wrote {
                    at_ms: line.at_ms,
                    db: line.db,
                    key: Bytes::copy_from_slice(key),
                    session,
                    application: application.clone(),
                    under: SmallVec::new(),
                    is_unfit: spec.blocking || (gives_back && keys.len() > 1),
                };
                match in_script {
                    true if self.of_script.len() < MAX_WORDS => self.of_script.push(wrote),
                    true => {}
                    false => self.collector.wrote(&wrote),
                }
            }
        }
        if interest == Interest::No {
            return;
        }
        let is_in_block = self.watching.get(&session) == Some(&true);
        // What a script does to a key that it has read depends on the value.
        let key = words.get(1).copied().unwrap_or_default();
        let has_asked = in_script && self.script_asked.iter().any(|asked| *asked == key);
        let is_free = !self.collector.is_held(line.db, key, line.at_ms);
        let takes = is_in_block || (has_asked && is_free);
        let mut handles_lock = false;
        let mut see = |key: Bytes, did: Did| {
            handles_lock |= in_script && matches!(did, Did::Acquire { .. });
            if let Did::Acquire { .. } | Did::Counted(_) = did
                && let Some(first) = self.first_writes(session)
            {
                let before = first.take(line.db);
                self.collector.began(session, before);
            }
            let is_governed = is_claimed(&key);
            let sighting = Sighting {
                at_ms: line.at_ms,
                db: line.db,
                key,
                session,
                application: application.clone(),
                process: None,
                did,
            };
            match is_governed {
                true => self.collector.see_governed(&sighting),
                false => self.collector.see(&sighting),
            }
        };
        if spec.name == "get" && !in_script {
            return see(Bytes::copy_from_slice(words[1]), Did::Read);
        }
        let command = recognise(request, &scripts);
        let is_hidden = command.as_ref().is_some_and(|command| libraries::is_hidden(command));
        let mut did_what = match &command {
            Some(command) => doings(command, line.at_ms),
            None if is_hsetnx(&request) => field_taken(words[1], words[3]),
            None => return,
        };
        if takes && stores(spec.effect) {
            did_what = watched(did_what);
        }
        for (key, did) in did_what {
            match (did, in_script, is_script) {
                (did, _, true) if is_hidden => see(key, did),
                // The script's own commands follow and show what it did. Only Redisson's acquire is not visible in
                // them.
                (Did::Acquire { spelling: Spelling::Redisson, .. }, _, true) => see(key, did),
                (_, _, true) => {}
                // A script that read a key and then deletes it has compared the value, and the key existed.
                (Did::Release { .. }, true, _) if has_asked => {
                    see(key, Did::Release { compares: Compares::Before, done: Some(true) })
                }
                (Did::Acquire { value, ttl_ms, granted, .. }, true, _) => {
                    see(key, Did::Acquire { spelling: Spelling::Script, value, ttl_ms, granted })
                }
                (_, _, false) => see(key, did),
            }
        }
        self.script_handles_lock |= handles_lock;
        if line.at_ms >= self.expired_ms + EXPIRE_EVERY_MS {
            self.expired_ms = line.at_ms;
            self.collector.expire(line.at_ms);
        }
    }

    /// The last command of the script was read.
    fn end_of_script(&mut self) {
        self.script_asked.clear();
        let wrote = std::mem::take(&mut self.of_script);
        if !std::mem::take(&mut self.script_handles_lock) {
            wrote.iter().for_each(|one| self.collector.wrote(one));
        }
    }

    /// Tracks which connections watch keys and are inside `MULTI`.
    fn note_block(&mut self, name: &str, session: u64) {
        match name {
            "watch" if self.watching.len() < MAX_NAMES => {
                self.watching.insert(session, false);
            }
            "multi" => {
                if let Some(in_block) = self.watching.get_mut(&session) {
                    *in_block = true;
                }
            }
            "exec" | "discard" | "unwatch" | "reset" => drop(self.watching.remove(&session)),
            _ => {}
        }
    }

    fn application(&mut self, from: &str) -> Arc<str> {
        if let Some(name) = self.names.get(from) {
            return name.clone();
        }
        // Without a name, the host identifies the application.
        let host = from.rsplit_once(':').map_or(from, |(host, _)| host);
        host.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Kind;

    #[test]
    fn a_line_is_read_as_redis_writes_it() {
        let line = br#"+1700000000.123456 [3 127.0.0.1:5000] "SET" "a \"b\"\x00\n" "" "NX""#;
        let read = Line::read(line).expect("it is a line");
        assert_eq!(read.at_ms, 1_700_000_000_123);
        assert_eq!((read.db, read.from), (3, "127.0.0.1:5000"));
        let expected: [&[u8]; 4] = [b"SET", b"a \"b\"\x00\n", b"", b"NX"];
        assert_eq!(read.words, expected);
        for wrong in [
            "",
            "+OK",
            "1.2",
            "1.2 [0 a]",
            "1.2 [0 a] ",
            "1.2 [0 a] SET",
            "1.2 [0 a] \"SET",
            "1.2 [0 a] \"SET\\",
            "1.2 [0 a] \"\\x9\"",
            "x.2 [0 a] \"GET\"",
            "99999999999999999999.1 [0 a] \"GET\"",
        ] {
            assert_eq!(Line::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn scripts_are_told_by_the_commands_that_they_run() {
        let mut monitor = Monitor::default();
        monitor.name("127.0.0.1:5000", "billing");
        for second in 0..30 {
            for (at, from, words) in [
                (100, "127.0.0.1:5000", r#""SET" "stock:7" "tok-1" "NX" "PX" "5000""#),
                (200, "127.0.0.1:5001", r#""SET" "stock:7" "tok-2" "NX" "PX" "5000""#),
                (
                    300,
                    "127.0.0.1:5000",
                    r#""EVALSHA" "0123456789012345678901234567890123456789" "1" "stock:7" "tok-1""#,
                ),
                (300, "lua", r#""get" "stock:7""#),
                (300, "lua", r#""del" "stock:7""#),
            ] {
                let line = format!("+17000000{second:02}.{at}000 [0 {from}] {words}\r\n");
                monitor.see(line.as_bytes(), &|_| false);
            }
        }
        let patterns = monitor.collector.patterns();
        assert_eq!(patterns.len(), 1);
        let usage = patterns[0].usage;
        assert_eq!((usage.granted, usage.contended, usage.compared), (30, 30, 30));
        assert_eq!(patterns[0].verdict.kind, Kind::Lock);
        assert!(usage.applications().contains_key("billing"));
        assert!(usage.applications().contains_key("127.0.0.1"));
    }

    #[test]
    fn keys_that_a_namespace_has_are_passed_over() {
        let mut monitor = Monitor::default();
        let line = br#"+1700000000.000001 [0 a:1] "SETNX" "lock:a" "1""#;
        monitor.see(line, &|key| key.starts_with(b"lock:"));
        assert!(monitor.collector.patterns().is_empty());
        assert_eq!(monitor.commands(), 1);
    }

    /// Feeds one turn of a worker: a lock, data, a block and a script under it, and what an importer writes beside it.
    fn turn(monitor: &mut Monitor, second: u64, is_claimed: &dyn Fn(&[u8]) -> bool) {
        let worker = "127.0.0.1:5000";
        let sale = 10 + second % 10;
        let mut lines = vec![
            (100, worker, format!(r#""SET" "lock:sale:{sale}" "tok" "NX" "PX" "5000""#)),
            (200, worker, format!(r#""decr" "stock:{sale}""#)),
            (200, worker, format!(r#""GET" "other:{sale}""#)),
            (210, worker, r#""MULTI""#.to_owned()),
            (210, worker, format!(r#""HSET" "order:{sale}:last" "by" "1""#)),
            (210, worker, r#""EXEC""#.to_owned()),
            (300, worker, format!(r#""EVAL" "redis.call('incr',KEYS[1])" "1" "sold:{sale}""#)),
            (300, "lua", format!(r#""incr" "sold:{sale}""#)),
            (400, worker, format!(r#""DEL" "lock:sale:{sale}""#)),
            (500, worker, "\"PING\"".to_owned()),
        ];
        if second == 7 {
            lines.push((600, "127.0.0.1:6000", r#""SET" "stock:17" "100""#.to_owned()));
        }
        for (ms, from, words) in lines {
            let line = format!("+17000000{second:02}.{ms}000 [0 {from}] {words}\r\n");
            monitor.see(line.as_bytes(), is_claimed);
        }
    }

    #[test]
    fn data_that_is_written_under_a_lock_is_found_in_the_order_of_commands() {
        for is_claimed in [false, true] {
            let mut monitor = Monitor::default();
            monitor.name("127.0.0.1:6000", "importer");
            for second in 0..30 {
                turn(&mut monitor, second, &|key| is_claimed && key.starts_with(b"lock:"));
            }
            let is_lock = |key: &[u8]| key.starts_with(b"lock:");
            let found = crate::guards::proposed(monitor.collector.guards(), &is_lock, &|_| false);
            let found: Vec<String> =
                found.iter().map(|one| format!("{} < {} {}/{}", one.keys, one.lock, one.under, one.without)).collect();
            assert_eq!(
                found,
                [
                    "order:{id}:last < lock:sale:{id} 30/0",
                    "sold:{id} < lock:sale:{id} 30/0",
                    "stock:{id} < lock:sale:{id} 30/1",
                ]
            );
            let mut patterns = monitor.collector.patterns().into_iter();
            let is_told = patterns.any(|pattern| pattern.glob.starts_with(b"lock:"));
            assert_eq!(is_told, !is_claimed);
        }
    }
}
