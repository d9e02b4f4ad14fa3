//! Understands the scripts of applications by their text: what a call of one does to a lock, and which keys it may
//! write. Nothing here runs a script or guesses.
//!
//! [`Analysis::of`] reads a text once: `lexer` cuts it into words, `parser` puts them together to a tree.
//! [`Analysis::meaning`] tells what one call means. The `interpreter` follows the tree once for each state that the lock
//! can be in, with the keys and arguments of the call, and leaves a `trace` of each path; `recognise` finds the one
//! [`Recipe`] that does the same in all states, or none. So a script counts by what it does and not by how it is spelled;
//! a text that is not understood to the last token is no recipe. `release` does this once for all calls where no text
//! is looked at. `deeds` are what the text of any other script says of taking keys and giving them back. [`Names`] are the keys that a script may write, whichever call it is.

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
