//! Expressions, from the weakest operator to names and constants.

use bytes::Bytes;

use super::{MAX_DEPTH, MAX_PLAIN_SUFFIXES, MAX_SUFFIXES, Parser};
use crate::lexer::Token;
use crate::syntax::{Arithmetic, Comparison, Expression};

impl Parser<'_> {
    pub(super) fn expressions(&mut self) -> Option<Vec<Expression>> {
        let mut expressions = vec![self.expression()?];
        while self.accept(&Token::Comma) {
            expressions.push(self.expression()?);
        }
        Some(expressions)
    }

    pub(super) fn expression(&mut self) -> Option<Expression> {
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

    /// `a == b`, and `a == b == c`, where the second comparison takes the result of the first: a row of comparisons is
    /// as deep as it is long.
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
        Some(if rest.is_empty() { first } else { Expression::Arithmetic(Box::new(first), rest) })
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

    /// `a ^ b`, which binds stronger than a sign before `a`, and weaker than one before `b`.
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
        Some(Expression::Arithmetic(Box::new(base), vec![(Arithmetic::Other, exponent)]))
    }

    fn constant(&mut self) -> Option<Expression> {
        match self.tokens.next()?.token {
            Token::Nil => Some(Expression::Nil),
            Token::True => Some(Expression::Bool(true)),
            Token::False => Some(Expression::Bool(false)),
            Token::Number(number) => Some(Expression::Number(number)),
            Token::OtherNumber => Some(Expression::OtherNumber),
            Token::Text(text) => Some(Expression::Text(text)),
            Token::Varargs => {
                self.takes_more |= self.functions == 0;
                Some(Expression::Varargs)
            }
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
    pub(super) fn suffixed(&mut self) -> Option<Expression> {
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
