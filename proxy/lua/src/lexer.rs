//! Cuts a script into tokens as Lua 5.1 does, the Lua inside Redis. A text that Lua refuses is not read at all. Lock
//! scripts use a part of the language; whether a text keeps to it is noted here and in `parser`, which puts the tokens
//! together.

use bytes::Bytes;

/// Longest text that is read, in bytes. The longest lock script of a known library has 3 KiB.
pub const MAX_TEXT_LEN: usize = 64 * 1024;

/// Most tokens of a script that is read. The longest scripts of queue libraries have some 8,000.
const MAX_TOKENS: usize = 32 * 1024;

/// Most tokens of a script that may be a recipe. Lock scripts have 20 to 150.
const MAX_PLAIN_TOKENS: usize = 2048;

/// Most digits of a number whose value is read. No TTL or reply of a lock script has more, and a double holds them
/// exactly.
const MAX_DIGITS: usize = 15;

/// One word, sign or constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Name(&'t [u8]),
    Number(i64),
    /// A number that is no short decimal integer.
    OtherNumber,
    Text(Bytes),
    And,
    Break,
    Do,
    Else,
    ElseIf,
    End,
    False,
    For,
    Function,
    If,
    In,
    Local,
    Nil,
    Not,
    Or,
    Repeat,
    Return,
    Then,
    True,
    Until,
    While,
    Open,
    Close,
    OpenIndex,
    CloseIndex,
    OpenTable,
    CloseTable,
    Assign,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Minus,
    Plus,
    Star,
    Slash,
    Percent,
    Power,
    Length,
    Varargs,
    Concat,
    Dot,
    Colon,
    Comma,
    Semicolon,
}

/// A token and whether a line began between it and the token before. Lua 5.1 refuses a call whose
/// `(` stands on a new line.
#[derive(Clone, Debug)]
pub(super) struct Spanned<'t> {
    pub(super) token: Token<'t>,
    pub(super) on_new_line: bool,
}

/// All tokens of a text.
#[derive(Debug)]
pub(super) struct Tokens<'t> {
    pub(super) tokens: Vec<Spanned<'t>>,
    /// Whether the tokens keep to the part of Lua that recipes are written in.
    pub(super) plain: bool,
}

/// Returns the tokens of a text, or `None` if Lua refuses the text or its versions read it differently.
pub(super) fn tokens(text: &[u8]) -> Option<Tokens<'_>> {
    // Lua's lexer treats NUL differently in its several versions, and no script has one.
    if text.contains(&0) {
        return None;
    }
    let mut lexer = Lexer { rest: text, plain: true };
    let mut tokens = Vec::new();
    loop {
        let on_new_line = lexer.skip_blanks()?;
        if lexer.rest.is_empty() {
            return Some(Tokens { plain: lexer.plain && tokens.len() <= MAX_PLAIN_TOKENS, tokens });
        }
        if tokens.len() == MAX_TOKENS {
            return None;
        }
        let token = lexer.token()?;
        tokens.push(Spanned { token, on_new_line });
    }
}

struct Lexer<'t> {
    rest: &'t [u8],
    plain: bool,
}

impl<'t> Lexer<'t> {
    /// Skips blanks and comments; returns whether a line began among them.
    fn skip_blanks(&mut self) -> Option<bool> {
        let mut on_new_line = false;
        loop {
            match self.rest {
                [b'\n' | b'\r', rest @ ..] => {
                    on_new_line = true;
                    self.rest = rest;
                }
                [b' ' | b'\t' | 0x0b | 0x0c, rest @ ..] => self.rest = rest,
                [b'-', b'-', rest @ ..] => {
                    self.rest = rest;
                    on_new_line |= self.skip_comment()?;
                }
                _ => return Some(on_new_line),
            }
        }
    }

    /// Skips a comment after its `--`; returns whether it spans lines.
    fn skip_comment(&mut self) -> Option<bool> {
        if let Some(level) = self.long_bracket() {
            let comment = self.long_text(level)?;
            return Some(comment.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
        }
        // A carriage return alone ends a comment too: what follows it is code.
        let end = self.rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
        Some(false)
    }

    fn token(&mut self) -> Option<Token<'t>> {
        let token = self.any_token()?;
        self.plain &= !matches!(
            token,
            Token::Break
                | Token::Function
                | Token::Repeat
                | Token::Until
                | Token::While
                | Token::OtherNumber
                | Token::Varargs
                | Token::Slash
                | Token::Percent
                | Token::Power
                | Token::Colon
        );
        Some(token)
    }

    fn any_token(&mut self) -> Option<Token<'t>> {
        let (token, length) = match *self.rest {
            [b'=', b'=', ..] => (Token::Equal, 2),
            [b'~', b'=', ..] => (Token::Unequal, 2),
            [b'<', b'=', ..] => (Token::LessEqual, 2),
            [b'>', b'=', ..] => (Token::GreaterEqual, 2),
            [b'=', ..] => (Token::Assign, 1),
            [b'<', ..] => (Token::Less, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b'[', b'[' | b'=', ..] => return self.long_string(),
            [b'[', ..] => (Token::OpenIndex, 1),
            [b']', ..] => (Token::CloseIndex, 1),
            [b'{', ..] => (Token::OpenTable, 1),
            [b'}', ..] => (Token::CloseTable, 1),
            [b'-', ..] => (Token::Minus, 1),
            [b'+', ..] => (Token::Plus, 1),
            [b'*', ..] => (Token::Star, 1),
            [b'#', ..] => (Token::Length, 1),
            [b'/', ..] => (Token::Slash, 1),
            [b'%', ..] => (Token::Percent, 1),
            [b'^', ..] => (Token::Power, 1),
            [b'.', b'.', b'.', ..] => (Token::Varargs, 3),
            [b'.', b'.', ..] => (Token::Concat, 2),
            [b'.', b'0'..=b'9', ..] => return self.number(),
            [b'.', ..] => (Token::Dot, 1),
            [b':', ..] => (Token::Colon, 1),
            [b',', ..] => (Token::Comma, 1),
            [b';', ..] => (Token::Semicolon, 1),
            [quote @ (b'"' | b'\''), ..] => return self.quoted(quote).map(Token::Text),
            [b'0'..=b'9', ..] => return self.number(),
            [b'a'..=b'z' | b'A'..=b'Z' | b'_', ..] => return self.word(),
            _ => return None,
        };
        self.rest = &self.rest[length..];
        Some(token)
    }

    fn word(&mut self) -> Option<Token<'t>> {
        let word = self.take_while(is_word_byte);
        Some(match word {
            b"and" => Token::And,
            b"break" => Token::Break,
            b"do" => Token::Do,
            b"else" => Token::Else,
            b"elseif" => Token::ElseIf,
            b"end" => Token::End,
            b"false" => Token::False,
            b"for" => Token::For,
            b"function" => Token::Function,
            b"if" => Token::If,
            b"in" => Token::In,
            b"local" => Token::Local,
            b"nil" => Token::Nil,
            b"not" => Token::Not,
            b"or" => Token::Or,
            b"repeat" => Token::Repeat,
            b"return" => Token::Return,
            b"then" => Token::Then,
            b"true" => Token::True,
            b"until" => Token::Until,
            b"while" => Token::While,
            name => Token::Name(name),
        })
    }

    /// To Lua, letters and points after digits belong to the number, and so does a sign after an `e`.
    fn number(&mut self) -> Option<Token<'t>> {
        let mut number = self.take_while(|byte| byte.is_ascii_digit() || byte == b'.').to_vec();
        if let [b'e' | b'E', rest @ ..] = self.rest {
            number.push(b'e');
            self.rest = rest;
            if let [sign @ (b'+' | b'-'), rest @ ..] = self.rest {
                number.push(*sign);
                self.rest = rest;
            }
        }
        number.extend_from_slice(self.take_while(is_word_byte));
        if number.len() <= MAX_DIGITS && number.iter().all(u8::is_ascii_digit) {
            let value = number.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
            return Some(Token::Number(value));
        }
        let number = std::str::from_utf8(&number).ok()?;
        let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fine = match number.strip_prefix("0x").or(number.strip_prefix("0X")) {
            Some(digits) => !digits.is_empty() && is_hex(digits),
            None => number.parse::<f64>().is_ok(),
        };
        fine.then_some(Token::OtherNumber)
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t [u8] {
        let end = self.rest.iter().position(|byte| !wanted(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// A string in quotes, unescaped by the rules of Lua 5.1 (no `\x`, no `\z`).
    fn quoted(&mut self, quote: u8) -> Option<Bytes> {
        let mut string = Vec::new();
        let mut rest = self.rest.get(1..)?;
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            match *byte {
                byte if byte == quote => break,
                b'\n' | b'\r' => return None,
                b'\\' if matches!(rest, [b'\n' | b'\r', ..]) => {
                    self.plain = false;
                    rest = after_line_end(rest);
                    string.push(b'\n');
                }
                b'\\' => rest = unescape(rest, &mut string)?,
                byte => string.push(byte),
            }
        }
        self.rest = rest;
        Some(Bytes::from(string))
    }

    /// If a long bracket opens here, skips it and returns its level.
    fn long_bracket(&mut self) -> Option<usize> {
        let after = self.rest.strip_prefix(b"[")?;
        let level = after.iter().take_while(|byte| **byte == b'=').count();
        self.rest = after[level..].strip_prefix(b"[")?;
        Some(level)
    }

    /// Returns the text before the closing long bracket of this level, and skips both.
    fn long_text(&mut self, level: usize) -> Option<&'t [u8]> {
        let mut at = 0;
        loop {
            match self.rest.get(at..)? {
                // Whether Lua 5.1 counts, refuses or ignores `[[` inside `[[ … ]]` depends on how it was built.
                [b'[', b'[', ..] if level == 0 => return None,
                [b']', after @ ..] => {
                    let signs = after.iter().take_while(|byte| **byte == b'=').count();
                    if signs == level && after.get(level) == Some(&b']') {
                        let text = &self.rest[..at];
                        self.rest = &after[level + 1..];
                        return Some(text);
                    }
                    // Skipping the signs with the bracket means that a row of them is read once.
                    at += 1 + signs;
                }
                [_, ..] => at += 1,
                [] => return None,
            }
        }
    }

    fn long_string(&mut self) -> Option<Token<'t>> {
        let level = self.long_bracket()?;
        let mut text = self.long_text(level)?;
        if !text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            return Some(Token::Text(Bytes::copy_from_slice(text)));
        }
        self.plain = false;
        // Lua drops a line end at the beginning, and turns each other one into a line feed.
        if let [b'\n' | b'\r', ..] = text {
            text = after_line_end(text);
        }
        let mut string = Vec::with_capacity(text.len());
        while let [first, rest @ ..] = text {
            if matches!(first, b'\n' | b'\r') {
                string.push(b'\n');
                text = after_line_end(text);
            } else {
                string.push(*first);
                text = rest;
            }
        }
        Some(Token::Text(Bytes::from(string)))
    }
}

/// Skips a line end: `\n`, `\r`, or both in any order.
fn after_line_end(text: &[u8]) -> &[u8] {
    match text {
        [b'\n', b'\r', rest @ ..] | [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
        [] => text,
    }
}

/// One escape after its backslash; returns what follows it.
fn unescape<'t>(rest: &'t [u8], string: &mut Vec<u8>) -> Option<&'t [u8]> {
    let (first, after) = rest.split_first()?;
    let plain = match *first {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'0'..=b'9' => {
            let length = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
            let (digits, after) = rest.split_at(length);
            let code = digits.iter().fold(0, |code: u16, digit| code * 10 + u16::from(digit - b'0'));
            string.push(u8::try_from(code).ok()?);
            return Some(after);
        }
        // Lua 5.1 takes any other byte for itself, so `\x41` is the text "x41".
        other => other,
    };
    string.push(plain);
    Some(after)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
