//! Makes scripts: statements that move names, functions and tables about, and commands that write between them. It keeps
//! track of the kinds of values, so that most scripts do not end with an error; sometimes it takes a value of another kind.

use crate::cases::TEMPLATES;
use crate::random::Random;
use crate::words;

use super::carriers::{ANY, ANYTHING, CALLS, CONDITIONS, Carrier, NUMBERS, RARE, STATEMENTS, TEXTS};
use super::shortening;
use super::{LIBRARY, Script};

/// Names, and pieces of them.
const NAMES: &[&str] = &[
    "lock:a",
    "lock:b",
    "lock:",
    "lock:none",
    "a",
    "b",
    "k",
    "1",
    ":",
    "nil",
    "",
    "string",
    "list",
    "x:lock",
    "lock:a\0x",
    "a\0",
    "%s",
    "lock",
];

/// What a call may have as arguments.
const ARGUMENTS: &[&str] =
    &["a", "lock:a", "lock:b", "lock:", "2", "set", "del", "get", "nil", "a\0x", "", "lock:a\0", "5", "k"];

/// Not in a script, waits for others, or changes keys that it only reads.
const LEFT_OUT: &[&str] =
    &["EVAL", "EVALSHA", "FCALL", "MIGRATE", "PFCOUNT", "PFDEBUG", "RESTORE-ASKING", "RESTORE", "XREADGROUP"];

/// Commands that every script may have.
const SHORT: &[&str] = &["del @", "incr @", "append @ x", "mset @ v @ w", "rename string @", "rpush @ x"];

/// How deep expressions and blocks go.
const MAX_DEPTH: usize = 5;
/// Longest script, in bytes.
const MAX_TEXT: usize = 6_000;

/// The kind of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    /// This text, which names a command or an option.
    Word(String),
    Call,
}

/// What a name in scope holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    Value(Kind),
    Table,
    Function,
}

/// Makes scripts, one after the other.
pub struct Maker {
    random: Random,
    has_functions: bool,
    lines: Vec<Vec<Vec<u8>>>,
    scope: Vec<(String, Held)>,
    /// The statements before the current one, in each open block.
    before: Vec<String>,
    names: usize,
    /// How much text there is.
    length: usize,
    any: Vec<Carrier>,
    texts: Vec<Carrier>,
    calls: Vec<Carrier>,
    statements: Vec<Carrier>,
    anything: Vec<&'static str>,
    /// Whether functions that call commands are values like others.
    hands_calls_on: bool,
}

impl Maker {
    /// With these numbers it makes always the same scripts; libraries, too, where the server has functions.
    pub fn new(random: Random, has_functions: bool) -> Maker {
        let all = TEMPLATES.iter().flat_map(|(_, _, lines)| lines.iter());
        let is_left_out = |words: &Vec<Vec<u8>>| {
            let is_word = |word: &&str| word.as_bytes() == words[0];
            LEFT_OUT.iter().any(is_word)
        };
        Maker {
            random,
            has_functions,
            lines: all.map(|line| words::split(line)).filter(|line| !is_left_out(line)).collect(),
            scope: Vec::new(),
            before: Vec::new(),
            names: 0,
            length: 0,
            any: Vec::new(),
            texts: Vec::new(),
            calls: Vec::new(),
            statements: Vec::new(),
            anything: Vec::new(),
            hands_calls_on: false,
        }
    }

    /// The next one.
    pub fn script(&mut self) -> Script {
        self.scope.clear();
        (self.names, self.length) = (0, 0);
        self.choose_ways();
        let before = self.has_functions && self.random.one_in(6);
        let mut text = match before {
            true => self.library(),
            false => self.body(),
        };
        if self.random.one_in(25) {
            text = self.spoiled(&text);
        }
        let words = |random: &mut Random, most: usize, all: &[&str]| -> Vec<Vec<u8>> {
            let count = random.between(0, most);
            let word = |_| random.among(all).as_bytes().to_vec();
            (0..count).map(word).collect()
        };
        let random = &mut self.random;
        let mut call = || (words(random, 2, &["k", "string", "list", "a"]), words(random, 5, ARGUMENTS));
        let before = before.then(&mut call);
        let (keys, arguments) = call();
        Script { text, keys, arguments, before }
    }

    fn body(&mut self) -> String {
        let statements = self.random.between(0, 3);
        self.before.push(String::new());
        for _ in 0..statements {
            self.statement(0);
        }
        self.write(1);
        self.before.pop().unwrap_or_default()
    }

    /// Two functions, and variables that stay from the call of the first to that of the second.
    fn library(&mut self) -> String {
        let kept = [("kept", Held::Value(Kind::Text)), ("list", Held::Table), ("other", Held::Table)];
        let kept = kept.map(|(name, held)| (name.to_owned(), held));
        let mut text = format!("{LIBRARY}local kept, list, other = 'a', {{}}, {{}}\n");
        for name in ["f", "g"] {
            self.scope = kept.to_vec();
            let body = self.body();
            text += &format!("redis.register_function('{name}', function(KEYS, ARGV)\n{body}end)\n");
        }
        text
    }

    /// Some of the ways, so that each is often among few.
    fn choose_ways(&mut self) {
        fn some<T: Copy>(random: &mut Random, all: &[T], most: usize) -> Vec<T> {
            let count = random.between(1, most);
            (0..count).map(|_| *random.among(all)).collect()
        }
        let random = &mut self.random;
        self.hands_calls_on = random.one_in(3);
        self.any = some(random, ANY, 6);
        if random.one_in(40) {
            self.any.extend(some(random, RARE, 2));
        }
        self.texts = some(random, TEXTS, 4);
        self.calls = some(random, CALLS, 2);
        self.statements = some(random, STATEMENTS, 5);
        self.anything = some(random, ANYTHING, 8);
    }

    fn statement(&mut self, depth: usize) {
        if self.length > MAX_TEXT {
            return;
        }
        match self.random.below(5) {
            0..2 => self.write(depth),
            _ => {
                let (statement, _, names) = *self.random.among(&self.statements.clone());
                let kind = self.some_kind();
                self.fill_before(statement, "", names, &kind, depth);
            }
        }
    }

    /// A command that writes.
    fn write(&mut self, depth: usize) {
        let line = match self.random.below(3) {
            0 => self.random.among(&self.lines).clone(),
            1 => words::split("set @ v"),
            _ => {
                let text = *self.random.among(SHORT);
                words::split(text)
            }
        };
        let call = match self.random.below(2) {
            0 => "redis.call".to_owned(),
            _ => self.value(&Kind::Call, depth),
        };
        let words: Vec<String> = line
            .iter()
            .map(|word| match word.as_slice() {
                // A name about which nothing is known would prove nothing.
                b"@" if self.random.one_in(2) => {
                    let rest = self.value(&Kind::Text, depth);
                    format!("'lock:' .. {rest}")
                }
                b"@" => self.value(&Kind::Text, depth),
                word => {
                    let word = String::from_utf8_lossy(word).into_owned();
                    match self.random.below(6) {
                        0 => self.value(&Kind::Word(word), depth + 2),
                        _ => self.word(&word),
                    }
                }
            })
            .collect();
        let text = match self.random.below(12) {
            0 => format!("{call}(unpack({{{}}}))", words.join(", ")),
            1 => format!("pcall({call}, {})", words.join(", ")),
            2 => format!("({call})({})", words.join(", ")),
            _ => format!("{call}({})", words.join(", ")),
        };
        // A call that begins with a bracket would belong to what stands before.
        let text = if text.starts_with('(') { format!("local _ = {text}") } else { text };
        let text = if self.random.one_in(3) { format!("pcall(function() {text} end)") } else { text };
        self.say(&text);
    }

    fn some_kind(&mut self) -> Kind {
        match self.random.below(3) {
            0 if self.hands_calls_on => Kind::Call,
            _ => Kind::Text,
        }
    }

    fn say(&mut self, text: &str) {
        self.length += text.len();
        let block = self.before.last_mut().expect("a block is open");
        block.push_str(text);
        block.push('\n');
    }

    /// An expression of this kind.
    fn value(&mut self, kind: &Kind, depth: usize) -> String {
        if *kind == Kind::Call && !self.hands_calls_on {
            return self.leaf(kind);
        }
        if self.random.one_in(150) {
            return match self.random.below(4) {
                0 if self.hands_calls_on => self.value(&Kind::Call, depth + 1),
                0 | 1 => self.value(&Kind::Text, depth + 1),
                2 => self.table(),
                _ => self.anything(depth + 1),
            };
        }
        let in_scope = self.in_scope(&Held::Value(kind.clone()));
        if !in_scope.is_empty() && self.random.below(3) > 0 {
            return self.random.among(&in_scope).clone();
        }
        if depth >= MAX_DEPTH || self.length > MAX_TEXT || self.random.below(MAX_DEPTH) < depth {
            return self.leaf(kind);
        }
        let own = match kind {
            Kind::Text => self.texts.clone(),
            Kind::Call => self.calls.clone(),
            Kind::Word(_) => Vec::new(),
        };
        let (before, expression, names) = match self.random.below(2) {
            0 if !own.is_empty() => *self.random.among(&own),
            _ => *self.random.among(&self.any.clone()),
        };
        self.fill_before(before, expression, names, kind, depth)
    }

    fn leaf(&mut self, kind: &Kind) -> String {
        match kind {
            Kind::Call => "redis.call".to_owned(),
            Kind::Word(word) => self.word(&word.clone()),
            Kind::Text => match self.random.below(5) {
                0 => format!("ARGV[{}]", self.random.between(1, 4)),
                1 => format!("KEYS[{}]", self.random.between(1, 2)),
                _ => {
                    let name = *self.random.among(NAMES);
                    self.literal(name)
                }
            },
        }
    }

    /// A word of a command: a text, or a number as it is.
    fn word(&mut self, word: &str) -> String {
        let is_number = word.parse::<i64>().is_ok_and(|number| number < 1_000_000);
        if is_number && self.random.one_in(2) {
            return word.to_owned();
        }
        let lower = word.to_ascii_lowercase();
        // Redis compares options up to a NUL.
        let with_nul = format!("{lower}\0");
        let word = match self.random.below(8) {
            0 => &with_nul,
            1..4 => word,
            _ => &lower,
        };
        self.literal(word)
    }

    /// A text in one of the ways in which Lua writes it.
    fn literal(&mut self, text: &str) -> String {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        match self.random.below(14) {
            12 if is_plain => {
                // A letter that means nothing behind a backslash is itself.
                let escaped = |letter: char| match letter {
                    'c'..='e' | 'g'..='m' | 'o'..='q' | 's' | 'x' | ':' => format!("\\{letter}"),
                    _ => letter.to_string(),
                };
                let escaped: String = text.chars().map(escaped).collect();
                format!("'{escaped}'")
            }
            13 => format!("'{}' --[==[ ' ]] ]==] .. ''", text.replace('\0', "\\0")),
            0 if is_plain => format!("[[{text}]]"),
            1 if is_plain => format!("[==[\n{text}]==]"),
            2 => {
                let escaped: String = text.bytes().map(|byte| format!("\\{byte:03}")).collect();
                format!("\"{escaped}\"")
            }
            3 => {
                let escaped = text.escape_default().to_string().replace("\\u{0}", "\\0");
                format!("\"{escaped}\"")
            }
            _ => format!("'{}'", text.replace('\0', "\\0")),
        }
    }

    fn in_scope(&self, held: &Held) -> Vec<String> {
        let like = self.scope.iter().filter(|(_, one)| one == held);
        like.map(|(name, _)| name.clone()).collect()
    }

    fn table(&mut self) -> String {
        let tables = self.in_scope(&Held::Table);
        match tables.is_empty() {
            true => self.named("local $x = {}", Held::Table),
            false => self.random.among(&tables).clone(),
        }
    }

    fn function(&mut self) -> String {
        let functions = self.in_scope(&Held::Function);
        match functions.is_empty() {
            true => self.named("local $x = function(...) return ... end", Held::Function),
            false => self.random.among(&functions).clone(),
        }
    }

    /// Writes a line that declares one name.
    fn named(&mut self, line: &str, held: Held) -> String {
        let name = self.new_name();
        self.say(&line.replace("$x", &name));
        self.scope.push((name.clone(), held));
        name
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn anything(&mut self, depth: usize) -> String {
        if depth > MAX_DEPTH {
            return (*self.random.among(&["nil", "false", "'a'", "ARGV[9]"])).to_owned();
        }
        let way = *self.random.among(&self.anything.clone());
        self.filled(way, &Kind::Text, depth, &mut Vec::new(), "")
    }

    /// Writes the first line, and returns the second one, both filled.
    fn fill_before(&mut self, before: &str, expression: &str, names: &str, kind: &Kind, depth: usize) -> String {
        let mut own = Vec::new();
        if !before.is_empty() {
            let filled = self.filled(before, kind, depth, &mut own, names);
            self.say(&filled);
            // What a block inside declares is not in scope behind it.
            let is_block = before.contains("$S") && !before.starts_with("local");
            if !is_block {
                self.declare(&own, names, kind);
            }
        }
        self.filled(expression, kind, depth, &mut own, names)
    }

    /// Brings the new names of a line into scope.
    fn declare(&mut self, own: &[(char, String)], names: &str, kind: &Kind) {
        for one in names.split_whitespace() {
            let Some((letter, held)) = one.split_once(':') else {
                continue;
            };
            let Some((_, name)) = own.iter().find(|(own, _)| letter.starts_with(*own)) else {
                continue;
            };
            let held = match held {
                "L" => Held::Table,
                "F" => Held::Function,
                _ => Held::Value(kind.clone()),
            };
            if !self.scope.iter().any(|(known, _)| known == name) {
                self.scope.push((name.clone(), held));
            }
        }
    }

    fn filled(&mut self, line: &str, kind: &Kind, depth: usize, own: &mut Vec<(char, String)>, names: &str) -> String {
        let mut text = String::new();
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            if letter != '$' {
                text.push(letter);
                continue;
            }
            let hole = letters.next().unwrap_or('$');
            let filled = match hole {
                'T' => self.value(kind, depth + 1),
                't' => self.value(&Kind::Text, depth + 1),
                'c' => self.value(&Kind::Call, depth + 1),
                'm' => self.anything(depth + 1),
                'i' => (*self.random.among(&["1", "2", "3", "#ARGV", "#KEYS", "1"])).to_owned(),
                'n' if depth > MAX_DEPTH => "1".to_owned(),
                'n' => {
                    let number = *self.random.among(NUMBERS);
                    self.filled(number, kind, depth + 1, &mut Vec::new(), "")
                }
                'q' if depth > MAX_DEPTH => "true".to_owned(),
                'q' => {
                    let condition = *self.random.among(CONDITIONS);
                    self.filled(condition, kind, depth + 1, &mut Vec::new(), "")
                }
                'L' => self.table(),
                'F' => self.function(),
                'S' | 'R' => self.nested(hole == 'R', kind, depth, own, names),
                '_' => self.new_name(),
                hole @ ('x' | 'y' | 'z' | 'u' | 'v') => match own.iter().find(|(known, _)| *known == hole) {
                    Some((_, name)) => name.clone(),
                    None => {
                        let name = self.new_name();
                        own.push((hole, name.clone()));
                        name
                    }
                },
                // Part of a pattern.
                other => format!("${other}"),
            };
            text.push_str(&filled);
        }
        text
    }

    /// Statements in a block of their own, where the new names of the line around it are known.
    fn nested(&mut self, returns: bool, kind: &Kind, depth: usize, own: &[(char, String)], names: &str) -> String {
        let outer = self.scope.len();
        self.declare(own, names, kind);
        self.before.push(String::new());
        if depth < MAX_DEPTH {
            for _ in 0..self.random.between(0, 2) {
                self.statement(depth + 2);
            }
        }
        if returns {
            let value = self.value(kind, depth + 1);
            // A call in its place would be one that never ends where functions call each other.
            let value = if self.random.one_in(2) { format!("({value})") } else { format!("{value}, {value}") };
            self.say(&format!("return {value}"));
        }
        self.scope.truncate(outer);
        self.before.pop().unwrap_or_default()
    }

    /// The same text with a word that is missing, twice there, or in another's place.
    fn spoiled(&mut self, text: &str) -> String {
        let mut words = shortening::words(text.strip_prefix(LIBRARY).unwrap_or(text));
        for _ in 0..self.random.between(1, 2) {
            if words.len() < 4 {
                break;
            }
            let (at, other) = (self.random.below(words.len()), self.random.below(words.len()));
            match self.random.below(4) {
                0 => drop(words.remove(at)),
                1 => words.insert(at, words[other]),
                2 => words.swap(at, other),
                _ => words[at] = words[other],
            }
        }
        let shebang = if text.starts_with(LIBRARY) { LIBRARY } else { "" };
        format!("{shebang}{}", words.join(" "))
    }
}
