//! Lua cut into tokens, as far as our own scripts need it, and joined again with nothing between them that Lua can do
//! without: inside a block a script's text goes along, and Redis hashes all of it.

use super::names;

/// What a token is. Keywords are names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Number,
    Text,
    Sign,
    Comment,
}

/// One token, as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    pub(super) text: &'s str,
    on_new_line: bool,
}

impl Token<'_> {
    /// Whether it is this name, keyword or sign.
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Name | Kind::Sign) && self.text == text
    }
}

/// The tokens of a source, or the line that Lua would not read.
pub(super) fn tokens(source: &str) -> Result<Vec<Token<'_>>, String> {
    let (mut tokens, mut rest) = (Vec::new(), source);
    loop {
        let code = rest.trim_ascii_start();
        if code.is_empty() {
            return Ok(tokens);
        }
        let on_new_line = rest[..rest.len() - code.len()].contains('\n');
        let (kind, length) = first(code).ok_or_else(|| {
            let line = code.lines().next().unwrap_or_default();
            format!("no token of Lua begins at: {line}")
        })?;
        let text;
        (text, rest) = code.split_at(length);
        tokens.push(Token { kind, text, on_new_line });
    }
}

/// The kind and the length of the first token.
fn first(code: &str) -> Option<(Kind, usize)> {
    let taken = |wanted: &dyn Fn(u8) -> bool| code.bytes().take_while(|byte| wanted(*byte)).count();
    Some(match *code.as_bytes() {
        [b'-', b'-', ..] => (Kind::Comment, comment(code)?),
        [b'[', b'[' | b'=', ..] => (Kind::Text, long_bracket(code)?),
        [quote @ (b'\'' | b'"'), ..] => (Kind::Text, quoted(code, quote)?),
        [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => (Kind::Number, number(code)),
        [byte, ..] if is_word(byte) => (Kind::Name, taken(&is_word)),
        _ => {
            let signs = [
                "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")", "{",
                "}", "[", "]", ";", ":", ",", ".",
            ];
            let sign = signs.into_iter().find(|sign| code.starts_with(sign))?;
            (Kind::Sign, sign.len())
        }
    })
}

fn comment(code: &str) -> Option<usize> {
    let behind = &code[2..];
    if level(behind).is_some() {
        return Some(2 + long_bracket(behind)?);
    }
    Some(code.find('\n').unwrap_or(code.len()))
}

/// How many `=` stand in the long bracket that opens here.
fn level(code: &str) -> Option<usize> {
    let inside = code.strip_prefix('[')?;
    let level = inside.bytes().take_while(|byte| *byte == b'=').count();
    inside[level..].starts_with('[').then_some(level)
}

fn long_bracket(code: &str) -> Option<usize> {
    let close = format!("]{}]", "=".repeat(level(code)?));
    Some(code.find(&close)? + close.len())
}

fn quoted(code: &str, quote: u8) -> Option<usize> {
    let mut bytes = code.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next()?;
            }
            b'\n' => return None,
            byte if byte == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Lua takes letters and points behind digits as part of the number, and a sign behind an exponent.
fn number(code: &str) -> usize {
    let is_hex = code.starts_with("0x") || code.starts_with("0X");
    let mut before = b' ';
    let more = |byte: u8| {
        let goes_on = match byte {
            b'+' | b'-' => !is_hex && matches!(before, b'e' | b'E'),
            byte => is_word(byte) || byte == b'.',
        };
        before = byte;
        goes_on
    };
    code.bytes().map(more).take_while(|goes_on| *goes_on).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The same code in as few bytes as Lua reads alike: without comments, and with numbers for the names of fields.
pub(super) fn packed(tokens: &[Token<'_>]) -> Result<String, String> {
    let code = tokens.iter().filter(|token| token.kind != Kind::Comment);
    let code: Vec<Token<'_>> = code.copied().collect();
    let (mut packed, mut rest, mut before) = (String::new(), &code[..], Kind::Sign);
    while let Some(token) = rest.first() {
        let is_field = packed.ends_with('.') && !packed.ends_with("..");
        let numbers = if is_field { None } else { names::numbers(rest)? };
        let (kind, text, length) = match &numbers {
            Some((numbers, length)) => (Kind::Number, &numbers[..], *length),
            None => (token.kind, token.text, 1),
        };
        if must_part(before, &packed, kind, text) {
            packed.push(if token.on_new_line { '\n' } else { ' ' });
        }
        packed.push_str(text);
        before = kind;
        rest = &rest[length..];
    }
    packed.push('\n');
    Ok(packed)
}

/// Whether code that ends with one kind of token and another token would be read as something else without a blank between them.
fn must_part(before: Kind, code: &str, kind: Kind, text: &str) -> bool {
    let ends = code.bytes().next_back().unwrap_or_default();
    let begins = text.bytes().next().unwrap_or_default();
    let joins_signs =
        matches!((ends, begins), (b'-', b'-') | (b'.', b'.') | (b'[', b'[' | b'=') | (b'=' | b'~' | b'<' | b'>', b'='));
    match (before, kind) {
        (Kind::Text, _) | (_, Kind::Comment) => false,
        (Kind::Number, _) => is_word(begins) || begins == b'.',
        _ => (is_word(ends) && is_word(begins)) || joins_signs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(code: &str) -> String {
        packed(&tokens(code).expect("it is Lua")).expect("known names")
    }

    #[test]
    fn blanks_stay_where_they_mean_something() {
        let code = "  local a, b = x .. ' = ', { 'a b', -1 } -- why\n\nif not (a) then return - 1 end\n";
        assert_eq!(pack(code), "local a,b=x..' = ',{'a b',-1}if not(a)then return-1 end\n");
    }

    #[test]
    fn tokens_are_joined_only_where_they_stay_two() {
        for (code, short) in [
            ("a - -1", "a- -1"),
            ("1 .. 2", "1 ..2"),
            ("a .. b", "a..b"),
            ("a[ [[x]] ]", "a[ [[x]]]"),
            ("f'a' 'b' \"c\"", "f'a''b'\"c\""),
            ("local a = 1e-5 - 0xe - 1", "local a=1e-5-0xe-1"),
            ("a --[[ b\nc ]] d --e\nf", "a d\nf"),
            ("return 'x--y' -- z", "return'x--y'"),
            ("'it\\'s' == [=[a]]b]=]", "'it\\'s'==[=[a]]b]=]"),
            ("f(...) g()", "f(...)g()"),
            ("x = 1 or y", "x=1 or y"),
        ] {
            assert_eq!(pack(code).trim_end(), short, "{code}");
            assert_eq!(pack(short).trim_end(), short, "packed once is packed");
        }
    }

    #[test]
    fn what_is_no_lua_is_refused() {
        for code in ["'open", "a = \"b\nc\"", "[[ x", "--[==[ x ]=]", "a ? b", "a = [= 1", "ü"] {
            assert!(tokens(code).is_err(), "{code}");
        }
    }
}
