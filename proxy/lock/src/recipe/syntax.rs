//! The part of Lua that lock scripts are written in: locals, assignments, calls, `if`, `do`, `for`
//! and `return`, and arithmetic on whole numbers; no other loops, functions or globals. The parser
//! owns the shape and its limits, and never decides what anything means; `meaning` follows the tree.

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
const RESERVED: [&[u8]; 7] = [
    b"KEYS",
    b"ARGV",
    b"redis",
    b"string",
    b"tostring",
    b"tonumber",
    b"ipairs",
];

/// Statements in order. A `return` can only be the last.
pub(super) type Block = Vec<Statement>;

/// A name of the text.
pub(super) type Name = Box<[u8]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// `local a, b = x, y`
    Local(Vec<Name>, Vec<Expression>),
    /// `a, b = x, y`
    Assign(Vec<Name>, Vec<Expression>),
    /// A call whose result is dropped.
    Call(Expression),
    /// `if … then … elseif … then … else … end`; no `else` is an empty one.
    If(Vec<(Expression, Block)>, Block),
    /// `do … end`
    Do(Block),
    /// `for index, value in ipairs(list) do … end`; the second name may be missing.
    ForEach(Name, Option<Name>, Expression, Block),
    /// `for index = first, last do … end`
    Count(Name, Expression, Expression, Block),
    /// `return` with at most one value.
    Return(Option<Expression>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Nil,
    Bool(bool),
    Number(i64),
    Text(Bytes),
    Name(Name),
    /// `a[b]`, and `a.b` as `a["b"]`.
    Index(Box<Expression>, Box<Expression>),
    Call(Box<Expression>, Vec<Expression>),
    /// `{name = value}`: the one-field table of a status or error reply.
    Table(Bytes, Box<Expression>),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    /// `#a`
    Length(Box<Expression>),
    /// `a .. b .. c`
    Concat(Vec<Expression>),
    /// `a + b - c`, and `a * b` likewise: from the left.
    Arithmetic(Box<Expression>, Vec<(Arithmetic, Expression)>),
    /// `a and b and c`
    All(Vec<Expression>),
    /// `a or b or c`
    Any(Vec<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// The tree of a whole text, or `None` if it is not in the understood part of Lua.
pub(super) fn parse(tokens: Vec<Spanned<'_>>) -> Option<Block> {
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

    fn name(&mut self) -> Option<Name> {
        match self.tokens.next()?.token {
            Token::Name(name) => Some(name.into()),
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

    fn block(&mut self) -> Option<Block> {
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
    fn statement(&mut self) -> Option<Option<Statement>> {
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
            Some(Token::For) => {
                self.tokens.next();
                self.repetition()?
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

    fn local(&mut self) -> Option<Statement> {
        let first = self.name()?;
        let names = self.names(first)?;
        if names.iter().any(|name| is_reserved(name)) {
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
    fn names(&mut self, first: Name) -> Option<Vec<Name>> {
        let mut names = vec![first];
        while self.accept(&Token::Comma) {
            names.push(self.name()?);
        }
        self.names += names.len();
        (self.names <= MAX_NAMES).then_some(names)
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

    /// A loop over a list or over numbers. What is looped over is not decided here.
    fn repetition(&mut self) -> Option<Statement> {
        let first = self.name()?;
        if self.accept(&Token::Assign) {
            let from = self.expression()?;
            self.expect(&Token::Comma)?;
            let to = self.expression()?;
            self.declared(&first)?;
            let body = self.body()?;
            return Some(Statement::Count(first, from, to, body));
        }
        let second = if self.accept(&Token::Comma) {
            Some(self.name()?)
        } else {
            None
        };
        self.declared(&first)?;
        if let Some(second) = &second {
            self.declared(second)?;
        }
        self.expect(&Token::In)?;
        let Expression::Call(function, mut lists) = self.expression()? else {
            return None;
        };
        let (Expression::Name(name), Some(list), true) = (*function, lists.pop(), lists.is_empty())
        else {
            return None;
        };
        if &name[..] != b"ipairs" {
            return None;
        }
        let body = self.body()?;
        Some(Statement::ForEach(first, second, list, body))
    }

    /// The name of a loop's variable.
    fn declared(&mut self, name: &[u8]) -> Option<()> {
        self.names += 1;
        (self.names <= MAX_NAMES && !is_reserved(name)).then_some(())
    }

    fn body(&mut self) -> Option<Block> {
        self.expect(&Token::Do)?;
        let body = self.block()?;
        self.expect(&Token::End)?;
        Some(body)
    }

    fn result(&mut self) -> Option<Statement> {
        let value = match self.peek() {
            None | Some(Token::End | Token::Else | Token::ElseIf | Token::Semicolon) => None,
            Some(_) => Some(self.expression()?),
        };
        Some(Statement::Return(value))
    }

    fn call_or_assignment(&mut self) -> Option<Statement> {
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

    fn expressions(&mut self) -> Option<Vec<Expression>> {
        let mut expressions = vec![self.expression()?];
        while self.accept(&Token::Comma) {
            expressions.push(self.expression()?);
        }
        Some(expressions)
    }

    fn expression(&mut self) -> Option<Expression> {
        self.nested(|parser| parser.chain(&Token::Or, Self::conjunction, Expression::Any))
    }

    fn conjunction(&mut self) -> Option<Expression> {
        self.chain(&Token::And, Self::comparison, Expression::All)
    }

    /// `part`, or `part operator part operator …` as one flat node.
    fn chain(
        &mut self,
        operator: &Token<'_>,
        part: fn(&mut Self) -> Option<Expression>,
        node: fn(Vec<Expression>) -> Expression,
    ) -> Option<Expression> {
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
    fn comparison(&mut self) -> Option<Expression> {
        let left = self.concatenation()?;
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
        let right = self.concatenation()?;
        Some(Expression::Compare(
            comparison,
            Box::new(left),
            Box::new(right),
        ))
    }

    fn concatenation(&mut self) -> Option<Expression> {
        self.chain(&Token::Concat, Self::sum, Expression::Concat)
    }

    fn sum(&mut self) -> Option<Expression> {
        self.arithmetic(Self::product, |token| match token {
            Token::Plus => Some(Arithmetic::Add),
            Token::Minus => Some(Arithmetic::Subtract),
            _ => None,
        })
    }

    fn product(&mut self) -> Option<Expression> {
        self.arithmetic(Self::unary, |token| match token {
            Token::Star => Some(Arithmetic::Multiply),
            _ => None,
        })
    }

    /// `part operator part operator …` as one flat node.
    fn arithmetic(
        &mut self,
        part: fn(&mut Self) -> Option<Expression>,
        operator: fn(&Token<'_>) -> Option<Arithmetic>,
    ) -> Option<Expression> {
        let first = part(self)?;
        let mut rest = Vec::new();
        while let Some(operator) = self.peek().and_then(operator) {
            self.tokens.next();
            rest.push((operator, part(self)?));
        }
        Some(if rest.is_empty() {
            first
        } else {
            Expression::Arithmetic(Box::new(first), rest)
        })
    }

    fn unary(&mut self) -> Option<Expression> {
        self.nested(|parser| match parser.peek()? {
            Token::Not => {
                parser.tokens.next();
                Some(Expression::Not(Box::new(parser.unary()?)))
            }
            Token::Minus => {
                parser.tokens.next();
                Some(Expression::Negative(Box::new(parser.unary()?)))
            }
            Token::Length => {
                parser.tokens.next();
                Some(Expression::Length(Box::new(parser.unary()?)))
            }
            Token::Name(_) | Token::Open => parser.suffixed(),
            Token::OpenTable => parser.table(),
            _ => parser.constant(),
        })
    }

    fn constant(&mut self) -> Option<Expression> {
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
    fn table(&mut self) -> Option<Expression> {
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
    fn suffixed(&mut self) -> Option<Expression> {
        let mut expression = match self.tokens.next()?.token {
            Token::Name(name) => Expression::Name(name.into()),
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
                    let field = Expression::Text(Bytes::from(self.name()?));
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

    fn arguments(&mut self) -> Option<Vec<Expression>> {
        if self.accept(&Token::Close) {
            return Some(Vec::new());
        }
        let arguments = self.expressions()?;
        self.expect(&Token::Close)?;
        Some(arguments)
    }
}

fn is_reserved(name: &[u8]) -> bool {
    RESERVED.contains(&name)
}
