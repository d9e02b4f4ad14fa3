//! Names in capitals for fields of records and for numbers, which `prelude.lua` explains. No script has an offset of its own.

use crate::record::{DEBT, Field, HEAD, NUMBERS, RECORD, REST, WHO};

use super::tokens::Token;

/// Names in capitals that are no fields: those of Redis, what the guard is told, and what the check of rights has filled in.
const OTHERS: [&str; 13] = [
    "KEYS",
    "ARGV",
    "COMMANDS",
    "BEGINNINGS",
    "MARK",
    "PREFIX",
    "OWN",
    "PREFIX_MARK",
    "OTHERS",
    "ONLY",
    "ENFORCES",
    "TAGS",
    "TRIALS",
];

/// The numbers for the name that the code begins with, and how many tokens it has.
pub(super) fn numbers(code: &[Token<'_>]) -> Result<Option<(String, usize)>, String> {
    let mut path = Vec::new();
    for part in code.chunks(2) {
        match part {
            [name, ..] if is_capital(name) => path.push(name.text),
            _ => break,
        }
        if !part.get(1).is_some_and(|sign| sign.is(".")) {
            break;
        }
    }
    if path.is_empty() || OTHERS.contains(&path[0]) {
        return Ok(None);
    }
    let numbers = numbers_of(&path).ok_or_else(|| format!("nothing is called {}", path.join(".")))?;
    Ok(Some((numbers, path.len() * 2 - 1)))
}

fn is_capital(token: &Token<'_>) -> bool {
    let of_name = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    let (text, begins) = (token.text, token.text.as_bytes()[0]);
    text.len() > 1 && begins.is_ascii_uppercase() && text.bytes().all(of_name)
}

fn numbers_of(path: &[&str]) -> Option<String> {
    let number = NUMBERS.iter().find(|(name, _)| path == [*name]);
    Some(match (number, path) {
        (Some((_, number)), _) => number.to_string(),
        (None, ["AT", field @ ..]) => (span(field)?.0 + 1).to_string(),
        (None, ["BEFORE", field @ ..]) => span(field)?.0.to_string(),
        (None, fields) => match span(fields)? {
            (before, Some(end)) => format!("{},{end}", before + 1),
            (before, None) => (before + 1).to_string(),
        },
    })
}

/// How many bytes stand before one or two fields, and up to their end if they have one.
fn span(path: &[&str]) -> Option<(usize, Option<usize>)> {
    let (layout, fields): (&[Field], _) = match path {
        ["WHO", fields @ ..] => (&WHO, fields),
        ["HEAD", fields @ ..] => (&HEAD, fields),
        ["DEBT", fields @ ..] => (&DEBT, fields),
        fields => (&RECORD, fields),
    };
    match fields {
        [field] => place(layout, field),
        [from, to] => Some((place(layout, from)?.0, place(layout, to)?.1)),
        _ => None,
    }
}

/// How many bytes stand before a field, and up to its end if it has one.
fn place(layout: &[Field], name: &str) -> Option<(usize, Option<usize>)> {
    let at = layout.iter().position(|(field, _)| *field == name)?;
    let before = layout[..at].iter().map(|(_, width)| width).sum();
    let end = (layout[at].1 != REST).then_some(before + layout[at].1);
    Some((before, end))
}

#[cfg(test)]
mod tests {
    use super::super::tokens::{Kind, tokens};
    use super::*;

    fn named(code: &str) -> Result<Option<(String, usize)>, String> {
        numbers(&tokens(code).expect("it is Lua"))
    }

    #[test]
    fn a_field_has_a_first_and_a_last_byte() {
        for (name, wanted) in [
            ("FENCE", "52,67"),
            ("OWNER", "107"),
            ("FENCE.SINCE", "52,80"),
            ("FLAGS.OWNER", "3"),
            ("AT.FLAGS", "3"),
            ("BEFORE.ASKED", "80"),
            ("WHO.PROCESS", "25,32"),
            ("AT.HEAD.SESSION", "17"),
            ("DEBT.LETTER.CLIENT", "1,9"),
            ("DEBT_BYTES", "30"),
        ] {
            let tokens = name.matches('.').count() * 2 + 1;
            assert_eq!(named(name), Ok(Some((wanted.to_owned(), tokens))), "{name}");
        }
    }

    #[test]
    fn a_name_that_nothing_has_is_found_by_the_build() {
        for name in ["FENSE", "AT", "WHO.OWNER", "FENCE.MS", "DEBT"] {
            assert!(named(name).is_err(), "{name}");
        }
        for other in ["KEYS[1]", "ARGV", "P.call", "x.FENCE", "_G", "G", "'FENCE'"] {
            assert_eq!(named(other), Ok(None), "{other}");
        }
    }

    /// Strings of a known layout, as the scripts call them.
    const LAID_OUT: [&str; 9] = ["record", "old", "front", "again", "head", "who", "debt", "entry", "part"];

    /// The numbers by which code says where in such a string something stands.
    fn offsets<'s>(code: &[Token<'s>]) -> Vec<&'s str> {
        let mut found = Vec::new();
        for (at, token) in code.iter().enumerate() {
            let arguments = &code[at + 1..];
            let end = arguments.iter().position(|sign| sign.is(")")).unwrap_or(0);
            let arguments: Vec<_> = arguments[..end].split(|sign| sign.is(",")).collect();
            let tells = match token.text {
                "sub" | "byte" => LAID_OUT.iter().any(|name| arguments[0].iter().any(|one| one.is(name))),
                "amend" | "'SETRANGE'" => true,
                _ => false,
            };
            let alone = arguments.iter().filter(|argument| argument.len() == 1);
            let numbers = alone.filter(|argument| argument[0].kind == Kind::Number);
            found.extend(numbers.filter(|_| tells).map(|argument| argument[0].text));
        }
        found
    }

    #[test]
    fn no_script_says_by_a_number_where_a_field_stands() {
        let code = "x = sub(record, 52, 67) amend(companion, 2, letter) redis.call('SETRANGE', key, 80, y)";
        assert_eq!(offsets(&tokens(code).expect("it is Lua")), ["52", "67", "2", "80"]);
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts"));
        let paths = files.expect("the scripts").map(|file| file.expect("a file").path());
        let sources: Vec<_> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "lua")).collect();
        assert!(sources.len() > 20);
        for path in sources {
            let source = std::fs::read_to_string(&path).expect("a script");
            let found = offsets(&tokens(&source).expect("it is Lua"));
            assert!(found.is_empty(), "{}: {found:?}", path.display());
        }
    }
}
