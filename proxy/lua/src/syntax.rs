//! The tree of a script, by the grammar of Lua 5.1. Lock scripts keep to a part of it: locals,
//! assignments, calls, `if`, `do`, `for` and `return`, and arithmetic on whole numbers; whether a text
//! does is noted here. The parser owns the shape and its limits, and never decides what anything means:
//! `meaning` follows the tree of a text that keeps to that part, `names` looks through any.

use std::iter::Peekable;
use std::vec;

use bytes::Bytes;

use super::lexer::{Spanned, Token, Tokens};

/// Deepest nesting of blocks, expressions and operands together; a parenthesis is two. Every recursion over a
/// tree is bounded by it, because chains of `and`, `or`, `elseif` and statements are kept flat.
const MAX_DEPTH: usize = 100;

/// The same of a recipe.
const MAX_PLAIN_DEPTH: usize = 32;

/// Longest row of `.field`, `[index]` and call after a name, in any text and in a recipe. `redis.call(…)` has two.
const MAX_SUFFIXES: usize = 32;
const MAX_PLAIN_SUFFIXES: usize = 4;

/// Most locals and assignments of a recipe; Lua's own limit is 200 locals.
const MAX_PLAIN_NAMES: usize = 100;

/// Names that a recipe may not give to a local: where they mean something else, no reader of the
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

/// Statements in order. A `return` or `break` can only be the last.
pub(super) type Block = Vec<Statement>;

/// A name of the text.
pub(super) type Name = Box<[u8]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// `local a, b = x, y`
    Local(Vec<Name>, Vec<Expression>),
    /// `local function f(…) … end`, which may call itself.
    LocalFunction(Name, Function),
    /// `a, b.c, d[e] = x, y, z`: names and indices. `function f(…) … end` is one, too.
    Assign(Vec<Expression>, Vec<Expression>),
    /// A call whose result is dropped.
    Call(Expression),
    /// `if … then … elseif … then … else … end`; no `else` is an empty one.
    If(Vec<(Expression, Block)>, Block),
    /// `do … end`
    Do(Block),
    /// `while … do … end`
    While(Expression, Block),
    /// `repeat … until …`: the condition sees the block's locals.
    Repeat(Block, Expression),
    /// `for a, b in x, y do … end`
    Iterate(Vec<Name>, Vec<Expression>, Block),
    /// `for index = first, last, step do … end`
    Count(Name, Expression, Expression, Option<Expression>, Block),
    /// `break`
    Break,
    /// `return`
    Return(Vec<Expression>),
}

/// `function(a, b, …) … end`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) parameters: Vec<Name>,
    pub(super) body: Block,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Nil,
    Bool(bool),
    Number(i64),
    /// A number that is no short decimal integer.
    OtherNumber,
    Text(Bytes),
    Name(Name),
    /// `...`
    Varargs,
    Function(Box<Function>),
    /// `a[b]`, and `a.b` as `a["b"]`.
    Index(Box<Expression>, Box<Expression>),
    Call(Box<Expression>, Vec<Expression>),
    /// `a:b(…)`
    Method(Box<Expression>, Bytes, Vec<Expression>),
    /// `{a, b = c, [d] = e}`: fields, with their keys where they have some.
    Table(Vec<(Option<Expression>, Expression)>),
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
    /// `/`, `%` or `^`.
    Other,
}

/// A whole text.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) block: Block,
    /// Whether it keeps to the part of Lua that recipes are written in.
    pub(super) plain: bool,
}

/// The tree of a whole text, or `None` where Lua finds none, or it is too deep.
pub(super) fn parse(text: Tokens<'_>) -> Option<Tree> {
    let mut parser = Parser {
        tokens: text.tokens.into_iter().peekable(),
        depth: 0,
        names: 0,
        plain: text.plain,
    };
    let block = parser.block()?;
    match parser.tokens.next() {
        None => Some(Tree {
            block,
            plain: parser.plain,
        }),
        Some(_) => None,
    }
}

struct Parser<'t> {
    tokens: Peekable<vec::IntoIter<Spanned<'t>>>,
    depth: usize,
    names: usize,
    plain: bool,
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
        let values = if self.accept(&Token::Assign) {
            self.expressions()?
        } else {
            Vec::new()
        };
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

    /// From the parameters on; `method` is the one that is not written.
    fn function(&mut self, method: Option<Name>) -> Option<Function> {
        self.plain = false;
        self.expect(&Token::Open)?;
        let mut parameters: Vec<Name> = method.into_iter().collect();
        if !self.accept(&Token::Close) {
            loop {
                if self.accept(&Token::Varargs) {
                    break;
                }
                parameters.push(self.name()?);
                if !self.accept(&Token::Comma) {
                    break;
                }
            }
            self.expect(&Token::Close)?;
        }
        let body = self.block()?;
        self.expect(&Token::End)?;
        Some(Function { parameters, body })
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
            None
            | Some(Token::End | Token::Else | Token::ElseIf | Token::Until | Token::Semicolon) => {
                Vec::new()
            }
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

    /// Comparisons, of which a second one is about what the first one says: a row of them is as deep as
    /// it is long.
    fn comparison(&mut self) -> Option<Expression> {
        let depth = self.depth;
        let mut left = self.concatenation()?;
        loop {
            let comparison = match self.peek() {
                Some(Token::Equal) => Comparison::Equal,
                Some(Token::Unequal) => Comparison::Unequal,
                Some(Token::Less) => Comparison::Less,
                Some(Token::LessEqual) => Comparison::LessEqual,
                Some(Token::Greater) => Comparison::Greater,
                Some(Token::GreaterEqual) => Comparison::GreaterEqual,
                _ => break,
            };
            self.tokens.next();
            self.plain &= self.depth == depth;
            let right = self.concatenation()?;
            left = Expression::Compare(comparison, Box::new(left), Box::new(right));
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return None;
            }
        }
        self.depth = depth;
        Some(left)
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
            Token::Slash | Token::Percent => Some(Arithmetic::Other),
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
            _ => parser.power(),
        })
    }

    /// `a ^ b`, which binds stronger than a sign before it, and weaker than one behind it.
    fn power(&mut self) -> Option<Expression> {
        let base = match self.peek()? {
            Token::Name(_) | Token::Open => self.suffixed()?,
            Token::OpenTable => self.table()?,
            _ => self.constant()?,
        };
        if !self.accept(&Token::Power) {
            return Some(base);
        }
        let exponent = self.unary()?;
        Some(Expression::Arithmetic(
            Box::new(base),
            vec![(Arithmetic::Other, exponent)],
        ))
    }

    fn constant(&mut self) -> Option<Expression> {
        match self.tokens.next()?.token {
            Token::Nil => Some(Expression::Nil),
            Token::True => Some(Expression::Bool(true)),
            Token::False => Some(Expression::Bool(false)),
            Token::Number(number) => Some(Expression::Number(number)),
            Token::OtherNumber => Some(Expression::OtherNumber),
            Token::Text(text) => Some(Expression::Text(text)),
            Token::Varargs => Some(Expression::Varargs),
            Token::Function => Some(Expression::Function(Box::new(self.function(None)?))),
            _ => None,
        }
    }

    /// `{a, name = b, [c] = d}`
    fn table(&mut self) -> Option<Expression> {
        self.expect(&Token::OpenTable)?;
        let mut fields = Vec::new();
        while !self.accept(&Token::CloseTable) {
            fields.push(self.field()?);
            if !self.accept(&Token::Comma) && !self.accept(&Token::Semicolon) {
                self.expect(&Token::CloseTable)?;
                self.plain &= matches!(&fields[..], [(Some(Expression::Text(_)), _)]);
                return Some(Expression::Table(fields));
            }
        }
        self.plain = false;
        Some(Expression::Table(fields))
    }

    fn field(&mut self) -> Option<(Option<Expression>, Expression)> {
        if self.accept(&Token::OpenIndex) {
            let key = self.expression()?;
            self.expect(&Token::CloseIndex)?;
            self.expect(&Token::Assign)?;
            return Some((Some(key), self.expression()?));
        }
        match self.expression()? {
            Expression::Name(name) if self.accept(&Token::Assign) => {
                let key = Expression::Text(Bytes::from(name));
                Some((Some(key), self.expression()?))
            }
            value => Some((None, value)),
        }
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
        for suffixes in 1..=MAX_SUFFIXES {
            expression = match self.tokens.peek() {
                Some(next) if next.token == Token::Open => {
                    // Lua 5.1 calls this ambiguous and refuses the text.
                    if next.on_new_line {
                        return None;
                    }
                    Expression::Call(Box::new(expression), self.arguments()?)
                }
                Some(next) if matches!(next.token, Token::Text(_) | Token::OpenTable) => {
                    self.plain = false;
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
                Some(next) if next.token == Token::Colon => {
                    self.tokens.next();
                    let method = Bytes::from(self.name()?);
                    Expression::Method(Box::new(expression), method, self.arguments()?)
                }
                _ => return Some(expression),
            };
            self.plain &= suffixes <= MAX_PLAIN_SUFFIXES;
        }
        match self.peek() {
            Some(Token::Open | Token::Dot | Token::OpenIndex | Token::Colon) => None,
            Some(Token::Text(_) | Token::OpenTable) => None,
            _ => Some(expression),
        }
    }

    /// `(a, b)`, or one text or table without parentheses.
    fn arguments(&mut self) -> Option<Vec<Expression>> {
        match self.tokens.peek()? {
            next if next.token == Token::Open && !next.on_new_line => {}
            next if matches!(next.token, Token::Text(_)) => return Some(vec![self.constant()?]),
            next if next.token == Token::OpenTable => return Some(vec![self.table()?]),
            _ => return None,
        }
        self.tokens.next();
        if self.accept(&Token::Close) {
            return Some(Vec::new());
        }
        let arguments = self.expressions()?;
        self.expect(&Token::Close)?;
        Some(arguments)
    }
}

/// What is looped over by `in ipairs(list)`.
pub(super) fn list_of_ipairs(lists: &[Expression]) -> Option<&Expression> {
    let [Expression::Call(function, arguments)] = lists else {
        return None;
    };
    match (&**function, &arguments[..]) {
        (Expression::Name(name), [list]) if **name == *b"ipairs" => Some(list),
        _ => None,
    }
}

fn is_reserved(name: &[u8]) -> bool {
    RESERVED.contains(&name)
}
