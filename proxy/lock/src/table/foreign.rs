//! Commands that are not in the table: those of modules and of newer servers, as the server's own
//! `COMMAND` describes them. Owns what was learned and where such a command's keys may stand; asking
//! the server and reading its answer is the caller's.

use std::collections::HashMap;

use super::keys::range_end;
use super::{Access, Arguments};

/// What the server says of one of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignSpec {
    /// The number of arguments with the name; a negative one is a minimum.
    pub arity: i64,
    /// Flagged `write`.
    pub write: bool,
    /// Flagged `readonly`.
    pub readonly: bool,
    /// Flagged `movablekeys`: the three numbers below do not tell all keys.
    pub movable_keys: bool,
    /// The first key; 0 if there is none.
    pub first: i64,
    /// The last key; a negative one counts from the end.
    pub last: i64,
    /// The distance between keys.
    pub step: i64,
}

impl ForeignSpec {
    /// What it may do to its keys. Only a command that says it reads, and does not say it writes,
    /// is taken for a read: what runs scripts says neither.
    pub const fn access(&self) -> Access {
        if self.readonly && !self.write {
            Access::Read
        } else {
            Access::Write
        }
    }
}

/// The server's commands by name. Bounded: a server that claims more is not believed.
#[derive(Clone, Debug, Default)]
pub struct ForeignTable {
    specs: HashMap<Box<[u8]>, ForeignSpec>,
    other_names: bool,
    set_conditions: Vec<&'static str>,
}

/// The conditions on the stored value that some servers take in a `SET`.
pub const SET_CONDITIONS: [&str; 4] = ["IFEQ", "IFNE", "IFDEQ", "IFDNE"];

impl ForeignTable {
    /// The most commands that are kept; Redis 7.0 has 366, each module adds some dozens.
    pub const MAX_COMMANDS: usize = 8_192;
    /// The longest name that is kept, in bytes, a subcommand's with its family.
    pub const MAX_NAME_BYTES: usize = 128;

    /// Adds a command, or a subcommand as `family|subcommand`. Returns whether there was room; a
    /// command that was not kept counts as unknown, which is the stricter side.
    pub fn insert(&mut self, name: &[u8], spec: ForeignSpec) -> bool {
        let fits = name.len() <= Self::MAX_NAME_BYTES && self.specs.len() < Self::MAX_COMMANDS;
        if fits {
            self.specs.insert(name.to_ascii_lowercase().into(), spec);
        }
        fits
    }

    /// What the server said about a request's subcommand, else about its command.
    pub fn find(&self, args: &(impl Arguments + ?Sized)) -> Option<&ForeignSpec> {
        if args.is_empty() || args.arg(0).contains(&b'|') {
            return None;
        }
        let subcommand = if args.len() > 1 {
            self.get(&[args.arg(0), b"|", args.arg(1)])
        } else {
            None
        };
        subcommand.or_else(|| self.get(&[args.arg(0)]))
    }

    /// Notes that the server goes by other names than it lists: `rename-command`, after which
    /// `COMMAND` goes on to say the old name.
    pub fn note_other_names(&mut self) {
        self.other_names = true;
    }

    /// Whether a name that is not listed may be a command all the same.
    pub fn has_other_names(&self) -> bool {
        self.other_names
    }

    /// Whether the server lists a command of this name, in lower case.
    pub fn lists(&self, name: &str) -> bool {
        self.specs.contains_key(name.as_bytes())
    }

    /// Notes which conditions `SET` takes, from what the server says in `COMMAND DOCS`.
    pub fn note_set_conditions(&mut self, takes: impl Fn(&str) -> bool) {
        self.set_conditions = SET_CONDITIONS
            .into_iter()
            .filter(|word| takes(word))
            .collect();
    }

    /// Whether `SET` takes this condition, in capitals.
    pub fn takes_in_set(&self, condition: &str) -> bool {
        self.set_conditions.contains(&condition)
    }

    /// The names of the commands that write, without subcommands.
    pub fn writing(&self) -> impl Iterator<Item = &[u8]> {
        let writing = self
            .specs
            .iter()
            .filter(|(_, spec)| spec.access() == Access::Write);
        writing
            .map(|(name, _)| &name[..])
            .filter(|name| !name.contains(&b'|'))
    }

    /// The number of commands known.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether nothing has been learned.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    fn get(&self, parts: &[&[u8]]) -> Option<&ForeignSpec> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > Self::MAX_NAME_BYTES {
            return None;
        }
        let mut name = [0; Self::MAX_NAME_BYTES];
        let mut end = 0;
        for part in parts {
            name[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        name[..end].make_ascii_lowercase();
        self.specs.get(&name[..end])
    }
}

/// Calls `each` with everything that may be a key. Where the server does not know the command
/// either, or says that its keys move, that is every argument behind the name.
pub fn for_each_foreign_key<'a, A: Arguments + ?Sized>(
    spec: Option<&ForeignSpec>,
    args: &'a A,
    each: &mut impl FnMut(usize, &'a [u8], Access),
) {
    let access = spec.map_or(Access::Write, ForeignSpec::access);
    let (first, end, step) = match spec {
        Some(spec) if !spec.movable_keys => range_of(spec, args.len()),
        Some(_) | None => (1, args.len(), 1),
    };
    for position in (first..end.min(args.len())).step_by(step) {
        each(position, args.arg(position), access);
    }
}

/// The range as positions; numbers that make no sense make every argument a key.
fn range_of(spec: &ForeignSpec, argc: usize) -> (usize, usize, usize) {
    let everything = (1, argc, 1);
    if spec.first == 0 {
        return (argc, argc, 1);
    }
    let (Ok(first), Ok(step)) = (usize::try_from(spec.first), usize::try_from(spec.step)) else {
        return everything;
    };
    match i8::try_from(spec.last) {
        Ok(last) if step > 0 => (first, range_end(last, argc), step),
        Ok(_) | Err(_) => everything,
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, ForeignSpec, ForeignTable, for_each_foreign_key};

    const WRITE: ForeignSpec = ForeignSpec {
        arity: -2,
        write: true,
        readonly: false,
        movable_keys: false,
        first: 1,
        last: 1,
        step: 1,
    };

    fn keys(spec: Option<&ForeignSpec>, args: &[&[u8]]) -> Vec<(usize, Access)> {
        let mut found = Vec::new();
        for_each_foreign_key(spec, args, &mut |position, key, access| {
            assert_eq!(key, args[position]);
            found.push((position, access));
        });
        found
    }

    #[test]
    fn the_servers_own_numbers_say_where_keys_stand() {
        let args: &[&[u8]] = &[b"X.Y", b"a", b"b", b"c", b"d"];
        let at = |first, last, step| ForeignSpec {
            first,
            last,
            step,
            ..WRITE
        };
        let positions = |spec| {
            keys(Some(&spec), args)
                .iter()
                .map(|key| key.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(positions(at(0, 0, 0)), [0_usize; 0]);
        assert_eq!(positions(at(1, 1, 1)), [1]);
        assert_eq!(positions(at(2, -1, 2)), [2, 4]);
        assert_eq!(positions(at(1, -2, 1)), [1, 2, 3]);
        assert_eq!(positions(at(4, 9, 1)), [4]);
        assert_eq!(positions(at(9, -1, 1)), [0_usize; 0]);
        for senseless in [at(-1, 1, 1), at(1, 1, 0), at(1, 1, -1), at(1, 1 << 40, 1)] {
            assert_eq!(positions(senseless), [1, 2, 3, 4]);
        }
    }

    #[test]
    fn what_is_not_known_to_read_counts_as_a_write_of_everything() {
        let args: &[&[u8]] = &[b"X.Y", b"a", b"b"];
        assert_eq!(keys(None, args), [(1, Access::Write), (2, Access::Write)]);
        let moving = ForeignSpec {
            movable_keys: true,
            write: false,
            ..WRITE
        };
        assert_eq!(
            keys(Some(&moving), args),
            [(1, Access::Write), (2, Access::Write)]
        );
        let reading = ForeignSpec {
            readonly: true,
            write: false,
            ..WRITE
        };
        assert_eq!(keys(Some(&reading), args), [(1, Access::Read)]);
        assert_eq!(keys(None, &[b"X.Y"]), []);
    }

    #[test]
    fn a_subcommand_is_found_before_its_family_and_case_does_not_matter() {
        let mut table = ForeignTable::default();
        let family = ForeignSpec { first: 0, ..WRITE };
        assert!(table.insert(b"Fam", family) && table.insert(b"fam|sub", WRITE));
        let find = |args: &[&[u8]]| table.find(args).copied();
        assert_eq!(find(&[b"FAM", b"SUB", b"k"]), Some(WRITE));
        assert_eq!(find(&[b"fam", b"other"]), Some(family));
        assert_eq!(find(&[b"fam"]), Some(family));
        assert_eq!(find(&[b"fam", &[b'x'; 4096]]), Some(family));
        assert_eq!(find(&[b"fam|sub", b"k"]), None);
        assert_eq!(find(&[b"other"]), None);
        assert_eq!(find(&[]), None);
        assert!(!table.insert(&[b'x'; 129], WRITE));
        assert_eq!((table.len(), table.is_empty()), (2, false));
    }
}
