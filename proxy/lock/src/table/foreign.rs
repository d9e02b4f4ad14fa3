//! Commands that are not in the table: those of modules and of newer servers, as the server's own `COMMAND` describes
//! them. Owns what was learned and where such a command's keys may be; the caller asks the server and reads its reply.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::keys::range_end;
use super::{Access, Arguments};

/// What the server reports about one of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignSpec {
    /// The number of arguments with the name; a negative one is a minimum.
    pub arity: i64,
    /// Flagged `write`.
    pub write: bool,
    /// Flagged `readonly`.
    pub readonly: bool,
    /// Flagged `movablekeys`: the three numbers below do not give all keys.
    pub movable_keys: bool,
    /// The first key; 0 if there is none.
    pub first: i64,
    /// The last key; a negative one counts from the end.
    pub last: i64,
    /// The distance between keys.
    pub step: i64,
    /// Its ACL categories, if the server reports them.
    pub categories: Option<Categories>,
}

/// The ACL categories that show what a command may do to keys which it does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories(u8);

impl Categories {
    const WRITE: u8 = 1;
    const KEYSPACE: u8 = 2;
    const SCRIPTING: u8 = 4;
    const ADMIN: u8 = 8;

    /// Those of these words that are such categories, in the server's spelling: `@write`.
    pub fn of<'a>(words: impl Iterator<Item = &'a [u8]>) -> Categories {
        let bit = |word: &[u8]| match word {
            b"@write" => Categories::WRITE,
            b"@keyspace" => Categories::KEYSPACE,
            b"@scripting" => Categories::SCRIPTING,
            b"@admin" => Categories::ADMIN,
            _ => 0,
        };
        Categories(words.map(bit).fold(0, |all, bit| all | bit))
    }

    fn has(self, categories: u8) -> bool {
        self.0 & categories == categories
    }
}

/// What a command may reach besides the keys that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing that matters to a lock.
    Nothing,
    /// The server as a whole, without its keys.
    Server,
    /// Any key.
    AnyKey,
}

impl ForeignSpec {
    /// What it may reach besides the keys that it names. It is any key if the command runs scripts, or writes the key
    /// space and names no key, like a renamed `FLUSHALL`. A module's command that writes and names no key has its own
    /// index or graph; this is not assumed for a server that reports no categories.
    pub fn reach(&self) -> Reach {
        let names_none = self.first == 0 && !self.movable_keys;
        let Some(categories) = self.categories else {
            return match names_none && self.write {
                true => Reach::AnyKey,
                false => Reach::Nothing,
            };
        };
        let empties = names_none && categories.has(Categories::WRITE | Categories::KEYSPACE);
        if empties || categories.has(Categories::SCRIPTING) {
            Reach::AnyKey
        } else if categories.has(Categories::ADMIN) {
            Reach::Server
        } else {
            Reach::Nothing
        }
    }

    /// What it may do to its keys. Only a command that is flagged as reading, and not as writing, counts as a read:
    /// commands that run scripts have neither flag.
    pub const fn access(&self) -> Access {
        if self.readonly && !self.write { Access::Read } else { Access::Write }
    }
}

/// The server's commands by name. Bounded: beyond the limit a server's claims are ignored.
#[derive(Clone, Debug, Default)]
pub struct ForeignTable {
    specs: HashMap<Box<[u8]>, ForeignSpec>,
    other_names: bool,
    /// What the server reported when asked for a name that it does not list; `None` if it has no such command.
    asked: HashMap<Box<[u8]>, Option<ForeignSpec>>,
    set_conditions: Vec<&'static str>,
}

/// What is known of a name that is not in our own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The server has this command.
    Has(ForeignSpec),
    /// The server has no such command.
    HasNot,
    /// It may have a command by this name and was not yet asked.
    NotAsked,
    /// So many names were already asked for that no further one is.
    TooMany,
    /// The server does not report which commands it has.
    Untold,
}

/// The conditions on the stored value that some servers support in `SET`.
pub const SET_CONDITIONS: [&str; 4] = ["IFEQ", "IFNE", "IFDEQ", "IFDNE"];

impl ForeignTable {
    /// The most commands that are kept; Redis 7.0 has 366, each module adds some dozens.
    pub const MAX_COMMANDS: usize = 8_192;
    /// The longest name that is kept, in bytes, a subcommand's with its family.
    pub const MAX_NAME_BYTES: usize = 128;
    /// The most names for which the server is asked because it does not list them.
    pub const MAX_ASKED: usize = 1_024;

    /// Adds a command, or a subcommand as `family|subcommand`. Returns whether there was room; a command that was not
    /// stored counts as unknown, which is the stricter choice.
    pub fn insert(&mut self, name: &[u8], spec: ForeignSpec) -> bool {
        let fits = name.len() <= Self::MAX_NAME_BYTES && self.specs.len() < Self::MAX_COMMANDS;
        if fits {
            self.specs.insert(name.to_ascii_lowercase().into(), spec);
        }
        fits
    }

    /// What the server reported about a request's subcommand, otherwise about its command.
    pub fn find(&self, args: &(impl Arguments + ?Sized)) -> Option<&ForeignSpec> {
        if args.is_empty() || args.arg(0).contains(&b'|') {
            return None;
        }
        let subcommand = if args.len() > 1 { self.get(&[args.arg(0), b"|", args.arg(1)]) } else { None };
        subcommand.or_else(|| self.get(&[args.arg(0)]))
    }

    /// Records that the server uses other names than it lists: `rename-command`, after which `COMMAND` still reports
    /// the old name.
    pub fn note_other_names(&mut self) {
        self.other_names = true;
    }

    /// Adds what the server reports about a name that it does not list, or about a subcommand as `name|subcommand`.
    pub fn learn(&mut self, name: &[u8], found: Option<ForeignSpec>) {
        if self.asked.len() < Self::MAX_ASKED && name.len() <= Self::MAX_NAME_BYTES {
            self.asked.insert(name.to_ascii_lowercase().into(), found);
        }
    }

    /// What is known of a request's command.
    pub fn says(&self, args: &(impl Arguments + ?Sized)) -> Said {
        if let Some(spec) = self.find(args) {
            return Said::Has(*spec);
        }
        if self.is_empty() || args.is_empty() {
            return Said::Untold;
        }
        if !self.other_names {
            return Said::HasNot;
        }
        let subcommand = match args.len() {
            1 => None,
            _ => find_in(&self.asked, &[args.arg(0), b"|", args.arg(1)]),
        };
        match subcommand.or_else(|| find_in(&self.asked, &[args.arg(0)])) {
            Some(Some(spec)) => Said::Has(*spec),
            Some(None) => Said::HasNot,
            // A client that invents names must not make the proxy ask for each of them.
            None if self.asked.len() == Self::MAX_ASKED => Said::TooMany,
            None => Said::NotAsked,
        }
    }

    /// Whether the server lists a command of this name, in lower case.
    pub fn lists(&self, name: &str) -> bool {
        self.specs.contains_key(name.as_bytes())
    }

    /// Records which conditions `SET` supports, from the server's `COMMAND DOCS`.
    pub fn note_set_conditions(&mut self, takes: impl Fn(&str) -> bool) {
        self.set_conditions = SET_CONDITIONS.into_iter().filter(|word| takes(word)).collect();
    }

    /// Whether `SET` supports this condition, in capitals.
    pub fn takes_in_set(&self, condition: &str) -> bool {
        self.set_conditions.contains(&condition)
    }

    /// The names of the commands, without subcommands.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let names = self.specs.keys().map(|name| &name[..]);
        names.filter(|name| !name.contains(&b'|'))
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
        find_in(&self.specs, parts)
    }
}

/// The map's entry for the concatenated parts of a name.
fn find_in<'a, T>(map: &'a HashMap<Box<[u8]>, T>, parts: &[&[u8]]) -> Option<&'a T> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length > ForeignTable::MAX_NAME_BYTES {
        return None;
    }
    let mut name = [0; ForeignTable::MAX_NAME_BYTES];
    let mut end = 0;
    for part in parts {
        name[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    name[..end].make_ascii_lowercase();
    map.get(&name[..end])
}

/// The name of a command that the server has, for error lines and the log, which use the spelling of our own table. It
/// is kept for the life of the process, so their number is limited.
pub fn lasting_name(name: &[u8]) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    keep(&mut kept, name).unwrap_or("unknown")
}

/// The most names that are kept.
const MAX_KEPT: usize = 1_024;

fn keep(kept: &mut BTreeSet<&'static str>, name: &[u8]) -> Option<&'static str> {
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    if let Some(known) = kept.get(&name[..]) {
        return Some(known);
    }
    if kept.len() == MAX_KEPT || name.len() > ForeignTable::MAX_NAME_BYTES {
        return None;
    }
    let lasting: &'static str = name.leak();
    kept.insert(lasting);
    Some(lasting)
}

/// Calls `each` with everything that may be a key. If the server does not know the command either, or reports that its
/// keys move, that is every argument after the name.
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

/// The range as positions; invalid numbers make every argument a key.
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
    use std::collections::BTreeSet;

    use super::{Access, Categories, ForeignSpec, ForeignTable, MAX_KEPT, Reach, Said, for_each_foreign_key, keep};

    const WRITE: ForeignSpec = ForeignSpec {
        arity: -2,
        write: true,
        readonly: false,
        movable_keys: false,
        first: 1,
        last: 1,
        step: 1,
        categories: None,
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
        let at = |first, last, step| ForeignSpec { first, last, step, ..WRITE };
        let positions = |spec| keys(Some(&spec), args).iter().map(|key| key.0).collect::<Vec<_>>();
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
        let moving = ForeignSpec { movable_keys: true, write: false, ..WRITE };
        assert_eq!(keys(Some(&moving), args), [(1, Access::Write), (2, Access::Write)]);
        let reading = ForeignSpec { readonly: true, write: false, ..WRITE };
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

    #[test]
    fn categories_say_what_a_command_reaches_that_names_no_key() {
        let none = ForeignSpec { first: 0, ..WRITE };
        let told = |words: &[&str], spec: ForeignSpec| {
            let words = words.iter().map(|word| word.as_bytes());
            let categories = Some(Categories::of(words));
            ForeignSpec { categories, ..spec }.reach()
        };
        // FLUSHALL, FT.CREATE, FT.DROPINDEX, CONFIG, FCALL with keys, RENAME.
        let flush = ["@keyspace", "@write", "@slow", "@dangerous"];
        assert_eq!(told(&flush, none), Reach::AnyKey);
        assert_eq!(told(&["@write", "@slow"], none), Reach::Nothing);
        let drop = ["@write", "@slow", "@dangerous"];
        assert_eq!(told(&drop, none), Reach::Nothing);
        let config = ["@admin", "@slow", "@dangerous"];
        assert_eq!(told(&config, none), Reach::Server);
        assert_eq!(told(&["@slow", "@scripting"], WRITE), Reach::AnyKey);
        assert_eq!(told(&flush, WRITE), Reach::Nothing);
        // A server that reports none.
        assert_eq!((none.reach(), WRITE.reach()), (Reach::AnyKey, Reach::Nothing));
        let reading = ForeignSpec { write: false, ..none };
        assert_eq!(reading.reach(), Reach::Nothing);
    }

    #[test]
    fn names_that_a_server_does_not_list_are_asked_for_where_it_has_other_names() {
        let mut table = ForeignTable::default();
        let says = |table: &ForeignTable, name: &[u8]| table.says(&[name][..]);
        assert_eq!(says(&table, b"wipe"), Said::Untold);
        assert!(table.insert(b"flushall", WRITE));
        assert_eq!(says(&table, b"wipe"), Said::HasNot);
        assert_eq!(says(&table, b"FlushAll"), Said::Has(WRITE));
        table.note_other_names();
        assert_eq!(says(&table, b"wipe"), Said::NotAsked);
        table.learn(b"WIPE", Some(WRITE));
        table.learn(b"nosuch", None);
        assert_eq!(says(&table, b"Wipe"), Said::Has(WRITE));
        assert_eq!(says(&table, b"NoSuch"), Said::HasNot);
        table.learn(b"settings", Some(WRITE));
        let set = ForeignSpec { first: 0, ..WRITE };
        table.learn(b"settings|set", Some(set));
        let says_of = |words: &[&[u8]]| table.says(words);
        assert_eq!(says_of(&[b"SETTINGS", b"SET", b"a"]), Said::Has(set));
        assert_eq!(says_of(&[b"SETTINGS", b"other"]), Said::Has(WRITE));
        assert_eq!(says_of(&[b"WIPE", &[b'x'; 4096]]), Said::Has(WRITE));
        for number in 0..ForeignTable::MAX_ASKED {
            table.learn(number.to_string().as_bytes(), None);
        }
        assert_eq!(says(&table, b"another"), Said::TooMany);
    }

    #[test]
    fn names_that_are_kept_have_a_bound() {
        let mut kept = BTreeSet::new();
        let first = keep(&mut kept, b"Foreign.Test").expect("it is short");
        assert_eq!(first, "foreign.test");
        assert_eq!(keep(&mut kept, b"\xff"), None);
        assert_eq!(keep(&mut kept, &[b'x'; 129]), None);
        for number in 0..MAX_KEPT {
            keep(&mut kept, format!("made-up-{number}").as_bytes());
        }
        assert_eq!(kept.len(), MAX_KEPT);
        assert_eq!(keep(&mut kept, b"one-too-many"), None);
        assert_eq!(keep(&mut kept, b"FOREIGN.TEST"), Some(first));
    }
}
