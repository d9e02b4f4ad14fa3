//! The positions of a command's keys when a script calls it. There are few shapes, so that they can also be passed to a
//! script. The command table decides which command has which shape.

/// A command, as seen by a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InScript {
    /// It has these keys.
    Keys {
        /// Those that it may change.
        written: Places,
        /// The others.
        read: Places,
        /// Whether it may reach into another database, where the same name is another key.
        far: bool,
    },
    /// Names mean other keys after it, or it changes keys that it does not name.
    Sweeping,
}

/// The positions of keys; they count from the name, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// Nowhere.
    None,
    /// Every `step`-th argument from `first` to `last`; a negative `last` counts from the end.
    Range {
        /// The first.
        first: u8,
        /// The last.
        last: i8,
        /// The distance.
        step: u8,
    },
    /// A number at `at`, and that many keys after it, each followed by `step - 1` other arguments.
    Counted {
        /// Where the number stands.
        at: u8,
        /// The distance.
        step: u8,
    },
    /// Behind each `STORE` or `STOREDIST` from `from` on.
    Stored {
        /// The first argument that may be an option.
        from: u8,
    },
    /// Any argument may be one.
    Every,
}

/// Looks up where the command of this name has its keys; `None` if there is no such command.
pub type Commands<'c> = &'c dyn Fn(&[u8]) -> Option<InScript>;

/// Whether a word is this option to Redis, which compares options as C strings: without case, up to the first NUL.
pub fn is_option(word: &[u8], name: &str) -> bool {
    let text = word.split(|&byte| byte == 0).next().unwrap_or_default();
    text.eq_ignore_ascii_case(name.as_bytes())
}
