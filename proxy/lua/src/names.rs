//! The names of the keys that a script may write, for all its calls. The text is analysed once. What is known of each
//! name is stored as a sequence of parts, for example `KEYS[1]` and `:queue`. Nothing is run and no branch is left out:
//! each key that the script writes has one of these names, or the names count as computed. `walk` goes through the
//! tree, `value` is what a variable may hold, `name` what is known of a name and which keys it means in one call.

mod name;
#[cfg(test)]
mod tests;
mod value;
mod walk;

pub use name::{Name, Pattern};

use super::lexer::{self, MAX_TEXT_LEN};
use super::parser;
use super::places::Commands;
use super::shebang::shebang_and_chunk;
use super::syntax::Block;
use walk::Calls;

/// The names of the keys that a script may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Those of its `KEYS`, and these.
    Known {
        /// The others.
        names: Vec<Name>,
        /// Places, from 0, of arguments that name a command. Its keys are among these names only in a call where that
        /// command writes none.
        commands: Vec<u8>,
    },
    /// Any key: it is only known at run time.
    Computed,
}

impl Names {
    /// Returns the names that a script writes.
    pub(super) fn of(text: &Block, commands: Commands<'_>) -> Names {
        Names::found(walk::names(text, commands, Calls::One))
    }

    /// Returns the names that the functions of a library write, all together. If the text is longer than
    /// [`MAX_TEXT_LEN`] or is not in Lua, they are [`Names::Computed`].
    pub fn of_library(text: &[u8], commands: Commands<'_>) -> Names {
        let (_, chunk) = shebang_and_chunk(text);
        let tree = Some(chunk).filter(|chunk| chunk.len() <= MAX_TEXT_LEN);
        let tree = tree.and_then(lexer::tokens).and_then(parser::parse);
        Names::found(tree.and_then(|tree| walk::names(&tree.block, commands, Calls::Many)))
    }

    fn found(names: Option<Names>) -> Names {
        names.unwrap_or(Names::Computed)
    }

    /// No names besides `KEYS`.
    pub fn none() -> Names {
        Names::Known { names: Vec::new(), commands: Vec::new() }
    }

    /// Calls `each` with the keys that the names may be in a call, see [`Name::in_call`]. Does nothing for
    /// [`Names::Computed`].
    pub fn in_call(&self, keys: &[&[u8]], arguments: &[&[u8]], each: &mut impl FnMut(&Pattern)) {
        if let Names::Known { names, .. } = self {
            for name in names {
                name.in_call(keys, arguments, each);
            }
        }
    }

    /// The commands that arguments name in a call. If one of them may write, the script may write any key.
    pub fn commands_in_call<'c>(&self, arguments: &[&'c [u8]]) -> impl Iterator<Item = &'c [u8]> {
        let commands = match self {
            Names::Known { commands, .. } => &commands[..],
            Names::Computed => &[],
        };
        // Without the argument Redis raises an error.
        commands.iter().filter_map(|place| arguments.get(usize::from(*place)).copied())
    }

    /// Whether every name comes from `KEYS` alone, in every call.
    pub fn come_from_keys(&self) -> bool {
        matches!(self, Names::Known { names, commands } if names.is_empty() && commands.is_empty())
    }
}
