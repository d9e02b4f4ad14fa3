//! Makes the random script: groups of steps, each with the bytes that a client writes and the number of
//! replies that must come. A group always ends outside of MULTI and of every subscription, with the same
//! protocol on both sides. It knows what a client may send, not what the replies must be.

use lockwarden_tests::{encode, split_words};

use lockwarden_tests::random::Random;

/// One command a line, with placeholders.
const COMMANDS: &str = include_str!("commands.txt");

/// Keys that look like a lock or a record of one, and are neither.
const STRANGE_KEYS: &[&str] =
    &["lock", "lock;1", "Lock:1", " lock:1", "locks:1", "job:mutex:1", "lw:mine", "lw:{s}:1", "s:{1}", ""];

/// Keys begin with one of these: strings, counters, bitmaps, lists, sets of numbers and of texts, hashes
/// small and big, sorted sets, places, HyperLogLogs, streams.
const FAMILIES: &[&str] = &["s", "c", "b", "l", "i", "t", "h", "H", "z", "g", "p", "x"];

/// Most bytes of a value that is big, in a run of seconds.
const BIG: usize = 256 * 1024;

/// Bytes to write and how many replies they get.
pub(super) struct Step {
    pub(super) bytes: Vec<u8>,
    pub(super) replies: usize,
}

/// The state that a client's next words depend on.
pub(super) struct Generator {
    pub(super) random: Random,
    commands: Vec<Vec<Vec<u8>>>,
    resp3: bool,
}

impl Generator {
    pub(super) fn from_seed(seed: u64) -> Generator {
        let commands = COMMANDS.lines().filter(|line| !line.starts_with('#')).map(split_words).collect();
        Generator { random: Random::from_seed(seed), commands, resp3: false }
    }

    /// A new connection begins as every connection does.
    pub(super) fn reconnected(&mut self) {
        self.resp3 = false;
    }

    /// What a client sends before it waits: from one command to several hundred.
    pub(super) fn group(&mut self) -> Vec<Step> {
        let length = match self.random.below(20) {
            0..6 => 1,
            6..14 => self.random.between(2, 10),
            14..19 => self.random.between(11, 100),
            _ => self.random.between(101, 500),
        };
        let mut steps = Vec::new();
        while steps.len() < length {
            match self.random.below(200) {
                0..8 => self.block(&mut steps),
                8..10 => self.silence(&mut steps),
                10..12 => self.subscription(&mut steps),
                12..14 => self.protocol(&mut steps),
                14..18 => self.nothing(&mut steps),
                _ => {
                    let command = self.command();
                    steps.push(self.step(&command, 1));
                }
            }
        }
        steps
    }

    /// MULTI and what belongs to it; now and then with a WATCH before it, a mistake in it, or in vain.
    fn block(&mut self, steps: &mut Vec<Step>) {
        if self.random.one_in(3) {
            let key = self.key(b"s");
            self.say(steps, &[b"WATCH".as_slice(), &key], 1);
            if self.random.one_in(3) {
                self.say(steps, &[b"SET".as_slice(), &key, b"changed"], 1);
            }
        }
        self.say(steps, &["MULTI"], 1);
        for _ in 0..self.random.below(8) {
            let command = self.command();
            // These end or leave the block, which is what the last step here does.
            let ends = ["EXEC", "DISCARD"].map(|end| command[0].eq_ignore_ascii_case(end.as_bytes()));
            if ends == [false, false] {
                steps.push(self.step(&command, 1));
            }
        }
        let end = if self.random.one_in(6) { "DISCARD" } else { "EXEC" };
        self.say(steps, &[end], 1);
    }

    /// CLIENT REPLY in its forms.
    fn silence(&mut self, steps: &mut Vec<Step>) {
        if self.random.one_in(2) {
            self.say(steps, &["CLIENT", "REPLY", "SKIP"], 0);
            let command = self.command();
            steps.push(self.step(&command, 0));
            return;
        }
        self.say(steps, &["CLIENT", "REPLY", "OFF"], 0);
        for _ in 0..self.random.below(5) {
            let command = self.command();
            steps.push(self.step(&command, 0));
        }
        self.say(steps, &["CLIENT", "REPLY", "ON"], 1);
    }

    /// Subscribing, perhaps receiving a message of its own, and leaving.
    fn subscription(&mut self, steps: &mut Vec<Step>) {
        self.say(steps, &["SUBSCRIBE", "news", "sport"], 2);
        self.say(steps, &["PSUBSCRIBE", "n*"], 1);
        if self.resp3 {
            let text = self.value();
            // Two messages, and the number of receivers.
            self.say(steps, &[b"PUBLISH".as_slice(), b"news", &text], 3);
            let command = self.command();
            steps.push(self.step(&command, 1));
        } else {
            self.say(steps, &["PING", "hello"], 1);
            self.say(steps, &["GET", "s:1"], 1);
        }
        // By name: without names the order is that of a hash table.
        self.say(steps, &["UNSUBSCRIBE", "sport", "news"], 2);
        self.say(steps, &["PUNSUBSCRIBE"], 1);
    }

    fn protocol(&mut self, steps: &mut Vec<Step>) {
        match self.random.below(12) {
            0 => {
                self.resp3 = false;
                self.say(steps, &["RESET"], 1);
            }
            1 => self.say(steps, &["HELLO", "9"], 1),
            2 => self.say(steps, &["FLUSHDB"], 1),
            3..7 => {
                self.resp3 = false;
                self.say(steps, &["HELLO", "2"], 1);
            }
            _ => {
                self.resp3 = true;
                self.say(steps, &["HELLO", "3"], 1);
            }
        }
    }

    /// What Redis reads and does not answer.
    fn nothing(&mut self, steps: &mut Vec<Step>) {
        let bytes = self.random.among(&["\r\n", "\n", "*0\r\n", "*-1\r\n", "   \r\n"]);
        steps.push(Step { bytes: bytes.as_bytes().to_vec(), replies: 0 });
    }

    fn say<T: AsRef<[u8]>>(&mut self, steps: &mut Vec<Step>, words: &[T], replies: usize) {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_ref().to_vec()).collect();
        let step = self.step(&words, replies);
        steps.push(step);
    }

    /// A command as a frame, or as a person types it.
    fn step(&mut self, words: &[Vec<u8>], replies: usize) -> Step {
        let length: usize = words.iter().map(Vec::len).sum();
        // A line that begins like a frame is a mistake to the proxy, on purpose, and to Redis a command.
        let begins = words[0].first().is_some_and(u8::is_ascii_alphanumeric);
        let bytes = if begins && length < 2_000 && self.random.one_in(12) { self.inline(words) } else { encode(words) };
        Step { bytes, replies }
    }

    /// One line, quoted in one of the ways that Redis understands.
    fn inline(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let mut line = Vec::new();
        for word in words {
            if !line.is_empty() {
                line.push(b' ');
            }
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b":;{}.-_*#+".contains(byte);
            if !word.is_empty() && word.iter().all(plain) && !self.random.one_in(4) {
                line.extend_from_slice(word);
            } else if self.random.one_in(2) && word.iter().all(|byte| plain(byte) || *byte == b' ') {
                line.extend([b"'".as_slice(), word, b"'"].concat());
            } else {
                line.push(b'"');
                for byte in word {
                    line.extend(format!("\\x{byte:02x}").into_bytes());
                }
                line.push(b'"');
            }
        }
        line.extend_from_slice(if self.random.one_in(2) { b"\n" } else { b"\r\n" });
        line
    }

    /// A line of the table with its placeholders filled.
    fn command(&mut self) -> Vec<Vec<u8>> {
        let at = self.random.below(self.commands.len());
        let template = self.commands[at].clone();
        let mut words: Vec<Vec<u8>> = template.iter().map(|word| self.filled(word)).collect();
        if self.random.one_in(4) {
            for byte in &mut words[0] {
                *byte = if self.random.one_in(2) { byte.to_ascii_lowercase() } else { *byte };
            }
        }
        words
    }

    fn filled(&mut self, word: &[u8]) -> Vec<u8> {
        let Some(placeholder) = word.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")) else {
            return word.to_vec();
        };
        match placeholder {
            b"v" => self.value(),
            b"w" => self.short_value(),
            b"n" => self.number(),
            b"u" => self.random.below(40).to_string().into_bytes(),
            b"d" => self.decimal(),
            b"e" => self
                .random
                .among(&["nosuch", "12x", "", "-", "1e400", "99999999999999999999", "\r\n", "lock"])
                .as_bytes()
                .to_vec(),
            b"f" => format!("field{}", self.random.below(20)).into_bytes(),
            b"m" => format!("member {}", self.random.below(20)).into_bytes(),
            b"id" => format!("{}-{}", self.random.between(1, 2_000), self.random.below(3)).into_bytes(),
            b"db" => self.random.below(3).to_string().into_bytes(),
            b"far" => (99_999_999_999_u64 - self.random.number() % 1_000).to_string().into_bytes(),
            // Any key, for what does not look into it.
            b"k" => {
                let family = *self.random.among(FAMILIES);
                self.key(family.as_bytes())
            }
            // A key that is likely of another type. Not of one whose members are listed in some order.
            b"o" => {
                let family = *self.random.among(&["s", "l", "z", "x", "t"]);
                self.key(family.as_bytes())
            }
            family if FAMILIES.iter().any(|known| known.as_bytes() == family) => self.key(family),
            other => panic!("no placeholder: {{{}}}", other.escape_ascii()),
        }
    }

    fn key(&mut self, family: &[u8]) -> Vec<u8> {
        if family == b"s" && self.random.one_in(5) {
            return self.random.among(STRANGE_KEYS).as_bytes().to_vec();
        }
        let mut key = family.to_vec();
        key.extend(format!(":{}", self.random.below(8)).into_bytes());
        key
    }

    fn number(&mut self) -> Vec<u8> {
        (self.random.below(50) as i64 - 20).to_string().into_bytes()
    }

    fn decimal(&mut self) -> Vec<u8> {
        format!("{}.{}", self.random.below(80), self.random.below(100)).into_bytes()
    }

    fn short_value(&mut self) -> Vec<u8> {
        match self.random.below(5) {
            0 => self.number(),
            1 => Vec::new(),
            2 => b"hello\r\nworld".to_vec(),
            3 => format!("word{}", self.random.below(10)).into_bytes(),
            _ => {
                let length = self.random.below(40);
                self.random.bytes(length)
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(150) {
            0 => {
                let length = self.random.below(BIG);
                self.random.bytes(length)
            }
            1..8 => {
                let length = self.random.below(5_000);
                self.random.bytes(length)
            }
            _ => self.short_value(),
        }
    }
}
