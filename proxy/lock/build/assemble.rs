//! Puts a script together: before its own code the shared functions that it uses, directly or through another. Redis makes every
//! function anew on every call, so one that is not used still costs. For the same reason those that are used only behind a line
//! [`RARELY`] are made there.

mod names;
mod tokens;

use std::collections::HashSet;

use tokens::{Kind, Token, packed, tokens};

/// What follows this comment in its block is not on the usual way of a call.
const RARELY: &str = "-- Rarely:";

/// What scripts share: local functions and values, each of which may use those before it.
#[derive(Debug)]
pub(super) struct Shared<'s>(Vec<Piece<'s>>);

/// One statement, and the names that it defines.
#[derive(Debug)]
struct Piece<'s> {
    names: Vec<&'s str>,
    code: Vec<Token<'s>>,
}

impl<'s> Shared<'s> {
    /// Of a source that has nothing but `local` statements outside of functions.
    pub(super) fn new(source: &'s str) -> Result<Shared<'s>, String> {
        let (mut pieces, mut depth) = (Vec::<Piece<'_>>::new(), 0);
        let mut tokens = tokens(source)?;
        tokens.retain(|token| token.kind != Kind::Comment || token.text.trim_end() == RARELY);
        for (at, token) in tokens.iter().enumerate() {
            if depth == 0 && token.is("local") {
                pieces.push(Piece { names: defined(&tokens[at + 1..]), code: Vec::new() });
            }
            depth += opens(token);
            let piece = pieces.last_mut();
            let piece = piece.ok_or_else(|| format!("{} defines nothing", token.text))?;
            piece.code.push(*token);
        }
        Ok(Shared(pieces))
    }

    /// A whole script, packed. What is `known` is defined before it already.
    pub(super) fn script(&self, source: &str, known: &[&str]) -> Result<String, String> {
        packed(&self.with_functions(&tokens(source)?, known))
    }

    /// A shared function and those that it uses, packed.
    pub(super) fn function(&self, name: &str) -> Result<String, String> {
        packed(&self.functions(&tokens(name)?, &[]).0)
    }

    /// The code with the functions that it uses before it.
    fn with_functions<'c>(&self, code: &[Token<'c>], known: &[&'c str]) -> Vec<Token<'c>>
    where
        's: 'c,
    {
        let (mut all, known) = self.functions(code, known);
        all.extend(self.with_rare_parts(code, &known));
        all
    }

    /// The functions that the code uses, and all names that are known behind them.
    fn functions<'c>(&self, code: &[Token<'c>], known: &[&'c str]) -> (Vec<Token<'c>>, Vec<&'c str>)
    where
        's: 'c,
    {
        let mut wanted: HashSet<&str> = mentioned(code).collect();
        let mut used = Vec::new();
        for piece in self.0.iter().rev() {
            let defines = |name: &&str| !known.contains(name) && wanted.contains(name);
            if piece.names.iter().any(defines) {
                wanted.extend(mentioned(&piece.code));
                used.push(piece);
            }
        }
        let (mut functions, mut known) = (Vec::new(), known.to_vec());
        for piece in used.into_iter().rev() {
            known.extend(&piece.names);
            functions.extend(self.with_rare_parts(&piece.code, &known));
        }
        (functions, known)
    }

    /// The code with the functions that its rare parts use at the beginning of each.
    fn with_rare_parts<'c>(&self, code: &[Token<'c>], known: &[&'c str]) -> Vec<Token<'c>>
    where
        's: 'c,
    {
        let mut all = Vec::new();
        for (usual, rare) in parts(code) {
            all.extend(usual);
            all.extend(self.with_functions(rare, known));
        }
        all
    }
}

/// The names that the rest of a `local` statement defines.
fn defined<'s>(tokens: &[Token<'s>]) -> Vec<&'s str> {
    let is_function = usize::from(tokens.first().is_some_and(|token| token.is("function")));
    let names = tokens[is_function..].chunks(2);
    let mut more = true;
    names
        .take_while(|pair| std::mem::replace(&mut more, pair.get(1).is_some_and(|sign| sign.is(","))))
        .map(|pair| pair[0].text)
        .collect()
}

/// The names that stand in the usual parts of the code, fields apart.
fn mentioned<'c>(code: &[Token<'c>]) -> impl Iterator<Item = &'c str> {
    parts(code).into_iter().flat_map(|(usual, _)| {
        let is_field = |at: usize| at > 0 && usual[at - 1].is(".");
        let names = usual.iter().enumerate();
        let names = names.filter(move |(at, token)| token.kind == Kind::Name && !is_field(*at));
        names.map(|(_, token)| token.text)
    })
}

/// The code as pairs of a usual part and a rare one, which goes from behind [`RARELY`] to the end of its block.
fn parts<'t, 'c>(mut code: &'t [Token<'c>]) -> Vec<(&'t [Token<'c>], &'t [Token<'c>])> {
    let is_mark = |token: &Token<'_>| token.kind == Kind::Comment && token.text.trim_end() == RARELY;
    let mut parts = Vec::new();
    while !code.is_empty() {
        let mark = code.iter().position(is_mark).unwrap_or(code.len());
        let (usual, rest) = code.split_at(mark);
        let (rare, rest) = rest.split_at(block_length(rest));
        parts.push((usual, rare.get(1..).unwrap_or_default()));
        code = rest;
    }
    parts
}

/// How much of the code stands before the end of the block that it is in.
fn block_length(code: &[Token<'_>]) -> usize {
    let mut depth = 0;
    let ends = |token: &Token<'_>| {
        depth += opens(token);
        depth < 0 || (depth == 0 && (token.is("else") || token.is("elseif")))
    };
    code.iter().position(ends).unwrap_or(code.len())
}

/// 1 where a block begins, -1 where it ends.
fn opens(token: &Token<'_>) -> i32 {
    match token.text {
        "if" | "do" | "function" | "repeat" if token.kind == Kind::Name => 1,
        "end" | "until" if token.kind == Kind::Name => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &str = "-- What is shared.\nlocal a, b = 1, 2\nlocal function has(x)\n  if x then return a end\n  \
        -- Rarely:\n  return form(x)\nend\nlocal function form(x) return has(x) end\n";

    fn script(code: &str) -> String {
        let shared = Shared::new(SHARED).expect("it is Lua");
        shared.script(code, &[]).expect("it is Lua")
    }

    #[test]
    fn a_rare_part_ends_with_its_block() {
        let code = "if a then\n  -- Rarely:\n  has(1)\n\n  if b then has(2) else has(3) end\nelse c() end\nlocal x = form(1)\n";
        let text = script(&code.replace("form", "b"));
        let (before, rest) = text.split_once("if a then").expect("it is there");
        assert_eq!(before, "local a,b=1,2 ");
        let (rare, rest) = rest.split_once("else c()").expect("it is there");
        assert!(rare.trim_start().starts_with("local function has(x)"), "{rare}");
        assert!(rare.ends_with("else has(3)end\n"), "{rare}");
        assert!(!rest.contains("function"), "{rest}");
    }

    #[test]
    fn a_function_that_is_used_everywhere_is_made_once() {
        let text = script("-- Rarely:\nhas(1) form(2)");
        assert_eq!(text.matches("local function has(").count(), 1, "{text}");
        assert!(!script("x.has = y.form").contains("function"));
    }

    #[test]
    fn a_function_comes_with_those_that_it_uses() {
        let shared = Shared::new(SHARED).expect("it is Lua");
        assert_eq!(shared.function("b").expect("Lua"), "local a,b=1,2\n");
        assert!(shared.function("form").expect("Lua").contains("local function has("));
        assert_eq!(shared.function("none").expect("Lua"), "\n");
    }

    #[test]
    fn what_defines_nothing_is_not_shared() {
        assert!(Shared::new("print(1)").is_err());
    }
}
