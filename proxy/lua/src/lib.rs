//! Understands applications' scripts from their text: what a call of one does to a lock, and which keys it may write.
//! Nothing here runs a script or guesses.
//!
//! [`Analysis::of`] reads a text once: `lexer` splits it into words, `parser` makes a tree of them.
//! [`Analysis::meaning`] returns what one call means. The `interpreter` follows the tree once for each state that the
//! lock can be in, with the keys and arguments of the call, and makes a `trace` of each path; `recognise` finds the one
//! [`Recipe`] that does the same in all states, or none. So a script is judged by what it does and not by its spelling;
//! a text that is not understood to the last token is no recipe. `release` does this once for all calls if the texts of
//! keys and arguments do not matter. `deeds` are the keys that any other script's text shows as taken and released.
//! [`Names`] are the keys that a script may write, in any call.

mod analysis;
mod deeds;
mod interpreter;
mod lexer;
mod names;
mod parser;
mod places;
mod recipe;
mod recognise;
mod release;
mod shebang;
mod syntax;
#[cfg(test)]
mod tests;
mod trace;
mod value;

pub use analysis::{Analysis, may_say_varargs};
pub use deeds::Act;
pub use lexer::MAX_TEXT_LEN;
pub use names::{Name, Names, Pattern};
pub use places::{Commands, InScript, Places, is_option};
pub use recipe::{
    AcquireReplies, DeleteCommand, Extension, Meaning, Owner, Recipe, Replies, Reply, TakeReplies, TtlUnit,
};
pub use shebang::shebang_and_chunk;
