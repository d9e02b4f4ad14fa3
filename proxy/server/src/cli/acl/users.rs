//! The users of a server, as `ACL LIST` returns them, in the syntax of `ACL SETUSER`. Unknown words are kept unchanged.

use std::collections::BTreeSet;

use bytes::Bytes;

/// One user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: Bytes,
    /// It may log in.
    pub(crate) is_on: bool,
    /// It needs no password.
    pub(crate) no_password: bool,
    /// `sanitize-payload` and similar words.
    pub(crate) flags: Vec<Bytes>,
    pub(crate) root: Rights,
    /// From Redis 7.0 on: further rights, each with keys of its own.
    pub(crate) selectors: Vec<Rights>,
}

/// The commands and keys that a user may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) keys: Vec<Keys>,
    /// Channels, and on Valkey databases.
    pub(crate) others: Vec<Bytes>,
    /// Rules about commands, in their order.
    pub(crate) commands: Vec<Bytes>,
}

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Keys {
    /// `~` for both, `%R~` for reading only, `%W~` for writing only.
    pub(crate) access: &'static [u8],
    pub(crate) glob: Bytes,
}

impl Keys {
    /// For reading and writing.
    pub(crate) fn all(glob: &[u8]) -> Keys {
        Keys { access: b"~", glob: Bytes::copy_from_slice(glob) }
    }

    /// The rule that grants them.
    pub(crate) fn rule(&self) -> Bytes {
        [self.access, &self.glob].concat().into()
    }
}

impl User {
    /// Parses one line of `ACL LIST`; `None` if it is not one.
    pub(crate) fn read(line: &Bytes) -> Option<User> {
        let mut words = line.split(|&byte| byte == b' ').map(|word| line.slice_ref(word));
        if words.next()?.as_ref() != b"user" {
            return None;
        }
        let mut user = User {
            name: words.next().filter(|name| !name.is_empty())?,
            is_on: false,
            no_password: false,
            flags: Vec::new(),
            root: Rights::default(),
            selectors: Vec::new(),
        };
        let mut selector: Option<Rights> = None;
        for word in words {
            let (word, begins) = match word.strip_prefix(b"(") {
                Some(rest) if selector.is_none() => (word.slice_ref(rest), true),
                Some(_) | None => (word, false),
            };
            if begins {
                selector = Some(Rights::default());
            }
            let Some(mut rights) = selector.take() else {
                user.take(word);
                continue;
            };
            match word.strip_suffix(b")") {
                Some(last) => {
                    rights.take(word.slice_ref(last));
                    user.selectors.push(rights);
                }
                None => {
                    rights.take(word);
                    selector = Some(rights);
                }
            }
        }
        Some(user)
    }

    fn take(&mut self, word: Bytes) {
        match &word[..] {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => self.no_password = true,
            // Passwords are ignored here: the user keeps its own.
            [b'#', ..] => {}
            b"sanitize-payload" | b"skip-sanitize-payload" => self.flags.push(word),
            _ => self.root.take(word),
        }
    }

    /// The rights of the user itself and of its selectors.
    pub(crate) fn all_rights(&self) -> impl Iterator<Item = &Rights> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Its name, for people.
    pub(crate) fn shown(&self) -> String {
        lockwarden_control::text::escape::spell(&self.name)
    }
}

impl Rights {
    fn take(&mut self, word: Bytes) {
        let access: &'static [u8] = match &word[..] {
            b"" | b"resetkeys" => return,
            b"allkeys" => {
                self.keys.push(Keys::all(b"*"));
                return;
            }
            [b'~', ..] => b"~",
            word if word.starts_with(b"%R~") => b"%R~",
            word if word.starts_with(b"%W~") => b"%W~",
            word if word.starts_with(b"%RW~") => b"%RW~",
            [b'+' | b'-', ..] => {
                self.commands.push(word);
                return;
            }
            b"allcommands" => {
                self.commands.push(Bytes::from_static(b"+@all"));
                return;
            }
            b"nocommands" => {
                self.commands.push(Bytes::from_static(b"-@all"));
                return;
            }
            _ => {
                self.others.push(word);
                return;
            }
        };
        self.keys
            .push(Keys { access: if access == b"%RW~" { b"~" } else { access }, glob: word.slice(access.len()..) });
    }

    /// The keys as a set, for comparison.
    pub(crate) fn key_set(&self) -> BTreeSet<&Keys> {
        self.keys.iter().collect()
    }

    /// The words that grant these rights.
    pub(crate) fn words(&self) -> Vec<Bytes> {
        let keys = self.keys.iter().map(Keys::rule);
        keys.chain(self.others.iter().cloned()).chain(self.commands.iter().cloned()).collect()
    }

    /// The same as one word, for a selector.
    pub(crate) fn selector(&self) -> Bytes {
        let words = self.words();
        let mut text = vec![b'('];
        text.extend_from_slice(&words.join(&b' '));
        text.push(b')');
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &'static str) -> User {
        User::read(&Bytes::from_static(line.as_bytes())).expect("a user")
    }

    #[test]
    fn a_line_is_read_with_its_selectors() {
        let user = read(
            "user u on nopass sanitize-payload #0123 ~a* %R~b* %RW~c &x -@all +get (~d resetchannels -@all +set) (%W~e +@all)",
        );
        assert_eq!(user.shown(), "u");
        assert!(user.is_on && user.no_password);
        let keys: Vec<Bytes> = user.root.keys.iter().map(Keys::rule).collect();
        assert_eq!(keys, ["~a*", "%R~b*", "~c"]);
        assert_eq!(user.root.others, ["&x"]);
        assert_eq!(user.root.commands, ["-@all", "+get"]);
        assert_eq!(user.selectors.len(), 2);
        assert_eq!(user.selectors[0].selector(), "(~d resetchannels -@all +set)");
        assert_eq!(user.selectors[1].selector(), "(%W~e +@all)");
        assert_eq!(User::read(&Bytes::from_static(b"nonsense u on")), None);
        assert_eq!(User::read(&Bytes::from_static(b"user")), None);
    }

    #[test]
    fn the_empty_pattern_is_one() {
        let user = read("user u on ~ ~[^l]* &* +@all");
        let keys: Vec<Bytes> = user.root.keys.iter().map(Keys::rule).collect();
        assert_eq!(keys, ["~", "~[^l]*"]);
    }
}
