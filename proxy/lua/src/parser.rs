//! Makes the tree of a text from its tokens, by the grammar of Lua 5.1. Lock scripts keep to a part of Lua: locals,
//! assignments, calls, `if`, `do`, `for`, `return`, and arithmetic on whole numbers. Whether a text does is noted here.
//! The parser owns the limits of a tree, and never decides what anything means: `interpreter` follows the tree of a text
//! that keeps to that part, `names` looks through any. This file has the statements, `expressions` the rest.

mod expressions;

use std::iter::Peekable;
use std::vec;

use bytes::Bytes;

use super::lexer::{Spanned, Token, Tokens};
use super::syntax::{Block, Expression, Function, Name, Statement, list_of_ipairs};

/// Deepest nesting of blocks, expressions and operands together; a parenthesis counts as two. It bounds every recursion
/// over a tree, because chains of `and`, `or`, `elseif` and statements are flat.
const MAX_DEPTH: usize = 100;

/// The same in a recipe.
const MAX_PLAIN_DEPTH: usize = 32;

/// Most locals and assignments of a recipe; Lua's own limit is 200 locals.
const MAX_PLAIN_NAMES: usize = 100;

/// Names that a recipe may not give to a local: where one of them means something else, the text does not show what
/// the script does.
const RESERVED: [&[u8]; 7] = [b"KEYS", b"ARGV", b"redis", b"string", b"tostring", b"tonumber", b"ipairs"];

/// Longest row of `.field`, `[index]` and call after a name, in any text and in a recipe; `redis.call(…)` is two.
const MAX_SUFFIXES: usize = 32;
const MAX_PLAIN_SUFFIXES: usize = 4;

/// A whole text.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) block: Block,
    /// Whether it keeps to the part of Lua that recipes are written in.
    pub(super) plain: bool,
    /// Whether it says `...` outside its functions.
    pub(super) takes_more: bool,
}

/// Returns the tree of a text, or `None` if Lua refuses the text or the tree would be too deep.
pub(super) fn parse(text: Tokens<'_>) -> Option<Tree> {
    let mut parser = Parser {
        tokens: text.tokens.into_iter().peekable(),
        depth: 0,
        names: 0,
        plain: text.plain,
        functions: 0,
        takes_more: false,
    };
    let block = parser.block()?;
    match parser.tokens.next() {
        None => Some(Tree { block, plain: parser.plain, takes_more: parser.takes_more }),
        Some(_) => None,
    }
}

struct Parser<'t> {
    tokens: Peekable<vec::IntoIter<Spanned<'t>>>,
    depth: usize,
    names: usize,
    plain: bool,
    /// How many functions are around the current place.
    functions: usize,
    takes_more: bool,
}

impl<'t> Parser<'t> {
    fn peek(&mut self) -> Option<&Token<'t>> {
        self.tokens.peek().map(|spanned| &spanned.token)
    }

    /// Skips the next token if it is this one; returns whether it was.
    fn accept(&mut self, token: &Token<'_>) -> bool {
        self.tokens.next_if(|spanned| spanned.token == *token).is_some()
    }

    fn expect(&mut self, token: &Token<'_>) -> Option<()> {
        self.accept(token).then_some(())
    }

    fn name(&mut self) -> Option<Name> {
        match self.tokens.next()?.token {
            Token::Name(name) => Some(name.into()),
            _ => None,
        }
    }

    /// Parses one level deeper, unless that is too deep.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        self.plain &= self.depth <= MAX_PLAIN_DEPTH;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn block(&mut self) -> Option<Block> {
        self.nested(|parser| {
            let mut block = Vec::new();
            while let Some(statement) = parser.statement()? {
                let last = matches!(statement, Statement::Return(_) | Statement::Break);
                block.push(statement);
                // Lua 5.1 takes one semicolon after a statement, and none elsewhere.
                parser.accept(&Token::Semicolon);
                if last {
                    break;
                }
            }
            Some(block)
        })
    }

    /// The next statement; `Some(None)` where the block ends.
    fn statement(&mut self) -> Option<Option<Statement>> {
        let statement = match self.peek() {
            None | Some(Token::End | Token::Else | Token::ElseIf | Token::Until) => {
                return Some(None);
            }
            Some(Token::Local) => {
                self.tokens.next();
                self.local()?
            }
            Some(Token::If) => {
                self.tokens.next();
                self.condition()?
            }
            Some(Token::Do) => {
                self.tokens.next();
                let block = self.block()?;
                self.expect(&Token::End)?;
                Statement::Do(block)
            }
            Some(Token::While) => {
                self.tokens.next();
                let condition = self.expression()?;
                Statement::While(condition, self.body()?)
            }
            Some(Token::Repeat) => {
                self.tokens.next();
                let block = self.block()?;
                self.expect(&Token::Until)?;
                Statement::Repeat(block, self.expression()?)
            }
            Some(Token::For) => {
                self.tokens.next();
                self.repetition()?
            }
            Some(Token::Function) => {
                self.tokens.next();
                self.named_function()?
            }
            Some(Token::Return) => {
                self.tokens.next();
                self.result()?
            }
            Some(Token::Break) => {
                self.tokens.next();
                Statement::Break
            }
            Some(Token::Name(_) | Token::Open) => self.call_or_assignment()?,
            Some(_) => return None,
        };
        Some(Some(statement))
    }

    fn local(&mut self) -> Option<Statement> {
        if self.accept(&Token::Function) {
            let name = self.name()?;
            return Some(Statement::LocalFunction(name, self.function(None)?));
        }
        let first = self.name()?;
        let names = self.names(first)?;
        self.plain &= !names.iter().any(|name| is_reserved(name));
        let values = if self.accept(&Token::Assign) { self.expressions()? } else { Vec::new() };
        Some(Statement::Local(names, values))
    }

    /// The names after the first one, up to `=`, `in` or the end of the declaration.
    fn names(&mut self, first: Name) -> Option<Vec<Name>> {
        let mut names = vec![first];
        while self.accept(&Token::Comma) {
            names.push(self.name()?);
        }
        self.counted(names.len());
        Some(names)
    }

    fn counted(&mut self, names: usize) {
        self.names += names;
        self.plain &= self.names <= MAX_PLAIN_NAMES;
    }

    /// `function a.b:c(…) … end`, as the assignment that it is.
    fn named_function(&mut self) -> Option<Statement> {
        let mut target = Expression::Name(self.name()?);
        let mut method = None;
        for _ in 0..MAX_SUFFIXES {
            let is_method = self.accept(&Token::Colon);
            if !is_method && !self.accept(&Token::Dot) {
                break;
            }
            let field = Expression::Text(Bytes::from(self.name()?));
            target = Expression::Index(Box::new(target), Box::new(field));
            if is_method {
                method = Some(Name::from(&b"self"[..]));
                break;
            }
        }
        let function = Expression::Function(Box::new(self.function(method)?));
        Some(Statement::Assign(vec![target], vec![function]))
    }

    /// A function from its parameters on; `method` is the parameter that a method does not write, `self`.
    fn function(&mut self, method: Option<Name>) -> Option<Function> {
        self.plain = false;
        self.expect(&Token::Open)?;
        let mut parameters: Vec<Name> = method.into_iter().collect();
        let mut takes_more = false;
        if !self.accept(&Token::Close) {
            loop {
                if self.accept(&Token::Varargs) {
                    takes_more = true;
                    break;
                }
                parameters.push(self.name()?);
                if !self.accept(&Token::Comma) {
                    break;
                }
            }
            self.expect(&Token::Close)?;
        }
        self.functions += 1;
        let body = self.block()?;
        self.functions -= 1;
        self.expect(&Token::End)?;
        Some(Function { parameters, takes_more, body })
    }

    fn condition(&mut self) -> Option<Statement> {
        let mut arms = Vec::new();
        loop {
            let condition = self.expression()?;
            self.expect(&Token::Then)?;
            arms.push((condition, self.block()?));
            match self.tokens.next()?.token {
                Token::ElseIf => {}
                Token::Else => {
                    let otherwise = self.block()?;
                    self.expect(&Token::End)?;
                    return Some(Statement::If(arms, otherwise));
                }
                Token::End => return Some(Statement::If(arms, Vec::new())),
                _ => return None,
            }
        }
    }

    /// A `for` loop, over a list or over numbers.
    fn repetition(&mut self) -> Option<Statement> {
        let first = self.name()?;
        if self.accept(&Token::Assign) {
            let from = self.expression()?;
            self.expect(&Token::Comma)?;
            let to = self.expression()?;
            let step = match self.accept(&Token::Comma) {
                true => Some(self.expression()?),
                false => None,
            };
            self.plain &= step.is_none() && !is_reserved(&first);
            self.counted(1);
            let body = self.body()?;
            return Some(Statement::Count(first, from, to, step, body));
        }
        let names = self.names(first)?;
        self.plain &= names.len() <= 2 && !names.iter().any(|name| is_reserved(name));
        self.expect(&Token::In)?;
        let lists = self.expressions()?;
        self.plain &= list_of_ipairs(&lists).is_some();
        let body = self.body()?;
        Some(Statement::Iterate(names, lists, body))
    }

    fn body(&mut self) -> Option<Block> {
        self.expect(&Token::Do)?;
        let body = self.block()?;
        self.expect(&Token::End)?;
        Some(body)
    }

    fn result(&mut self) -> Option<Statement> {
        let values = match self.peek() {
            None | Some(Token::End | Token::Else | Token::ElseIf | Token::Until | Token::Semicolon) => Vec::new(),
            Some(_) => self.expressions()?,
        };
        self.plain &= values.len() <= 1;
        Some(Statement::Return(values))
    }

    fn call_or_assignment(&mut self) -> Option<Statement> {
        self.plain &= self.peek() != Some(&Token::Open);
        let first = self.suffixed()?;
        if !matches!(self.peek(), Some(Token::Assign | Token::Comma)) {
            let is_call = matches!(first, Expression::Call(..) | Expression::Method(..));
            return is_call.then_some(Statement::Call(first));
        }
        let mut targets = vec![first];
        while self.accept(&Token::Comma) {
            targets.push(self.suffixed()?);
        }
        self.counted(targets.len());
        for target in &targets {
            match target {
                Expression::Name(_) => {}
                Expression::Index(..) => self.plain = false,
                _ => return None,
            }
        }
        self.expect(&Token::Assign)?;
        Some(Statement::Assign(targets, self.expressions()?))
    }
}

fn is_reserved(name: &[u8]) -> bool {
    RESERVED.contains(&name)
}
