//! The part of Lua that lock scripts are written in: locals, assignments, calls, `if`, `do` and
//! `return`; no loops, functions, globals or arithmetic. The parser owns the shape and its limits,
//! and never decides what anything means; `meaning` follows the tree.

use std::iter::Peekable;
use std::vec;

use bytes::Bytes;

use super::lexer::{Spanned, Token};

/// Deepest nesting of blocks, expressions and operands together; a parenthesis is two. Every recursion over a
/// tree is bounded by it, because chains of `and`, `or`, `elseif` and statements are kept flat.
const MAX_DEPTH: usize = 32;

/// Longest row of `.field`, `[index]` and call after a name. `redis.call(…)` has two.
const MAX_SUFFIXES: usize = 4;

/// Most locals and assignments of one text; Lua's own limit is 200 locals.
const MAX_NAMES: usize = 100;

/// Names that a script may not give to a local: where they mean something else, no reader of the
/// script sees what it does, and neither do we.
const RESERVED: [&[u8]; 5] = [b"KEYS", b"ARGV", b"redis", b"tostring", b"tonumber"];

/// Statements in order. A `return` can only be the last.
pub(super) type Block<'t> = Vec<Statement<'t>>;

#[derive(Debug)]
pub(super) enum Statement<'t> {
    /// `local a, b = x, y`
    Local(Vec<&'t [u8]>, Vec<Expression<'t>>),
    /// `a, b = x, y`
    Assign(Vec<&'t [u8]>, Vec<Expression<'t>>),
    /// A call whose result is dropped.
    Call(Expression<'t>),
    /// `if … then … elseif … then … else … end`; no `else` is an empty one.
    If(Vec<(Expression<'t>, Block<'t>)>, Block<'t>),
    /// `do … end`
    Do(Block<'t>),
    /// `return` with at most one value.
    Return(Option<Expression<'t>>),
}

#[derive(Debug)]
pub(super) enum Expression<'t> {
    Nil,
    Bool(bool),
    Number(i64),
    Text(Bytes),
    Name(&'t [u8]),
    /// `a[b]`, and `a.b` as `a["b"]`.
    Index(Box<Expression<'t>>, Box<Expression<'t>>),
    Call(Box<Expression<'t>>, Vec<Expression<'t>>),
    /// `{name = value}`: the one-field table of a status or error reply.
    Table(Bytes, Box<Expression<'t>>),
    Not(Box<Expression<'t>>),
    Negative(Box<Expression<'t>>),
    /// `a and b and c`
    All(Vec<Expression<'t>>),
    /// `a or b or c`
    Any(Vec<Expression<'t>>),
    Compare(Comparison, Box<Expression<'t>>, Box<Expression<'t>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// The tree of a whole text, or `None` if it is not in the understood part of Lua.
pub(super) fn parse(tokens: Vec<Spanned<'_>>) -> Option<Block<'_>> {
    let mut parser = Parser {
        tokens: tokens.into_iter().peekable(),
        depth: 0,
        names: 0,
    };
    let script = parser.block()?;
    match parser.tokens.next() {
        None => Some(script),
        Some(_) => None,
    }
}

struct Parser<'t> {
    tokens: Peekable<vec::IntoIter<Spanned<'t>>>,
    depth: usize,
    names: usize,
}

impl<'t> Parser<'t> {
    fn peek(&mut self) -> Option<&Token<'t>> {
        self.tokens.peek().map(|spanned| &spanned.token)
    }

    /// Passes the next token if it is this one.
    fn accept(&mut self, token: &Token<'_>) -> bool {
        self.tokens
            .next_if(|spanned| spanned.token == *token)
            .is_some()
    }

    fn expect(&mut self, token: &Token<'_>) -> Option<()> {
        self.accept(token).then_some(())
    }

    fn name(&mut self) -> Option<&'t [u8]> {
        match self.tokens.next()?.token {
            Token::Name(name) => Some(name),
            _ => None,
        }
    }

    /// Parses something nested, unless it is nested too deep.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn block(&mut self) -> Option<Block<'t>> {
        self.nested(|parser| {
            let mut block = Vec::new();
            while let Some(statement) = parser.statement()? {
                let last = matches!(statement, Statement::Return(_));
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
    fn statement(&mut self) -> Option<Option<Statement<'t>>> {
        let statement = match self.peek() {
            None | Some(Token::End | Token::Else | Token::ElseIf) => return Some(None),
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
            Some(Token::Return) => {
                self.tokens.next();
                self.result()?
            }
            Some(Token::Name(_)) => self.call_or_assignment()?,
            Some(_) => return None,
        };
        Some(Some(statement))
    }

    fn local(&mut self) -> Option<Statement<'t>> {
        let first = self.name()?;
        let names = self.names(first)?;
        if names.iter().any(|name| RESERVED.contains(name)) {
            return None;
        }
        let values = if self.accept(&Token::Assign) {
            self.expressions()?
        } else {
            Vec::new()
        };
        Some(Statement::Local(names, values))
    }

    /// The names after the first one, up to `=` or the end of the declaration.
    fn names(&mut self, first: &'t [u8]) -> Option<Vec<&'t [u8]>> {
        let mut names = vec![first];
        while self.accept(&Token::Comma) {
            names.push(self.name()?);
        }
        self.names += names.len();
        (self.names <= MAX_NAMES).then_some(names)
    }

    fn condition(&mut self) -> Option<Statement<'t>> {
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

    fn result(&mut self) -> Option<Statement<'t>> {
        let value = match self.peek() {
            None | Some(Token::End | Token::Else | Token::ElseIf | Token::Semicolon) => None,
            Some(_) => Some(self.expression()?),
        };
        Some(Statement::Return(value))
    }

    fn call_or_assignment(&mut self) -> Option<Statement<'t>> {
        let start = self.suffixed()?;
        match (start, self.peek()) {
            (Expression::Name(first), Some(Token::Assign | Token::Comma)) => {
                let names = self.names(first)?;
                self.expect(&Token::Assign)?;
                Some(Statement::Assign(names, self.expressions()?))
            }
            (call @ Expression::Call(..), _) => Some(Statement::Call(call)),
            _ => None,
        }
    }

    fn expressions(&mut self) -> Option<Vec<Expression<'t>>> {
        let mut expressions = vec![self.expression()?];
        while self.accept(&Token::Comma) {
            expressions.push(self.expression()?);
        }
        Some(expressions)
    }

    fn expression(&mut self) -> Option<Expression<'t>> {
        self.nested(|parser| parser.chain(&Token::Or, Self::conjunction, Expression::Any))
    }

    fn conjunction(&mut self) -> Option<Expression<'t>> {
        self.chain(&Token::And, Self::comparison, Expression::All)
    }

    /// `part`, or `part operator part operator …` as one flat node.
    fn chain(
        &mut self,
        operator: &Token<'_>,
        part: fn(&mut Self) -> Option<Expression<'t>>,
        node: fn(Vec<Expression<'t>>) -> Expression<'t>,
    ) -> Option<Expression<'t>> {
        let first = part(self)?;
        if self.peek() != Some(operator) {
            return Some(first);
        }
        let mut parts = vec![first];
        while self.accept(operator) {
            parts.push(part(self)?);
        }
        Some(node(parts))
    }

    /// One comparison; a chain like `a == b == c` finds no place for its second sign.
    fn comparison(&mut self) -> Option<Expression<'t>> {
        let left = self.unary()?;
        let comparison = match self.peek() {
            Some(Token::Equal) => Comparison::Equal,
            Some(Token::Unequal) => Comparison::Unequal,
            Some(Token::Less) => Comparison::Less,
            Some(Token::LessEqual) => Comparison::LessEqual,
            Some(Token::Greater) => Comparison::Greater,
            Some(Token::GreaterEqual) => Comparison::GreaterEqual,
            _ => return Some(left),
        };
        self.tokens.next();
        let right = self.unary()?;
        Some(Expression::Compare(
            comparison,
            Box::new(left),
            Box::new(right),
        ))
    }

    fn unary(&mut self) -> Option<Expression<'t>> {
        self.nested(|parser| match parser.peek()? {
            Token::Not => {
                parser.tokens.next();
                Some(Expression::Not(Box::new(parser.unary()?)))
            }
            Token::Minus => {
                parser.tokens.next();
                Some(Expression::Negative(Box::new(parser.unary()?)))
            }
            Token::Name(_) | Token::Open => parser.suffixed(),
            Token::OpenTable => parser.table(),
            _ => parser.constant(),
        })
    }

    fn constant(&mut self) -> Option<Expression<'t>> {
        match self.tokens.next()?.token {
            Token::Nil => Some(Expression::Nil),
            Token::True => Some(Expression::Bool(true)),
            Token::False => Some(Expression::Bool(false)),
            Token::Number(number) => Some(Expression::Number(number)),
            Token::Text(text) => Some(Expression::Text(text)),
            _ => None,
        }
    }

    /// `{name = value}` or `{["name"] = value}`, with one field.
    fn table(&mut self) -> Option<Expression<'t>> {
        self.expect(&Token::OpenTable)?;
        let field = match self.tokens.next()?.token {
            Token::Name(name) => Bytes::copy_from_slice(name),
            Token::OpenIndex => match (self.tokens.next()?.token, self.tokens.next()?.token) {
                (Token::Text(name), Token::CloseIndex) => name,
                _ => return None,
            },
            _ => return None,
        };
        self.expect(&Token::Assign)?;
        let value = self.expression()?;
        self.expect(&Token::CloseTable)?;
        Some(Expression::Table(field, Box::new(value)))
    }

    /// A name or a parenthesis, with what is indexed or called on it.
    fn suffixed(&mut self) -> Option<Expression<'t>> {
        let mut expression = match self.tokens.next()?.token {
            Token::Name(name) => Expression::Name(name),
            Token::Open => {
                let inner = self.expression()?;
                self.expect(&Token::Close)?;
                inner
            }
            _ => return None,
        };
        for _ in 0..MAX_SUFFIXES {
            expression = match self.tokens.peek() {
                Some(next) if next.token == Token::Open => {
                    // Lua 5.1 calls this ambiguous and refuses the text.
                    if next.on_new_line {
                        return None;
                    }
                    self.tokens.next();
                    Expression::Call(Box::new(expression), self.arguments()?)
                }
                Some(next) if next.token == Token::Dot => {
                    self.tokens.next();
                    let field = Expression::Text(Bytes::copy_from_slice(self.name()?));
                    Expression::Index(Box::new(expression), Box::new(field))
                }
                Some(next) if next.token == Token::OpenIndex => {
                    self.tokens.next();
                    let index = self.expression()?;
                    self.expect(&Token::CloseIndex)?;
                    Expression::Index(Box::new(expression), Box::new(index))
                }
                _ => return Some(expression),
            };
        }
        Some(expression)
    }

    fn arguments(&mut self) -> Option<Vec<Expression<'t>>> {
        if self.accept(&Token::Close) {
            return Some(Vec::new());
        }
        let arguments = self.expressions()?;
        self.expect(&Token::Close)?;
        Some(arguments)
    }
}
