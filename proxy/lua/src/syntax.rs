//! The tree of a script, as `parser` makes it.

use bytes::Bytes;

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
    /// Whether they end in `...`.
    pub(super) takes_more: bool,
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

/// Returns the list in `in ipairs(list)`.
pub(super) fn list_of_ipairs(lists: &[Expression]) -> Option<&Expression> {
    let [Expression::Call(function, arguments)] = lists else {
        return None;
    };
    match (&**function, &arguments[..]) {
        (Expression::Name(name), [list]) if **name == *b"ipairs" => Some(list),
        _ => None,
    }
}
