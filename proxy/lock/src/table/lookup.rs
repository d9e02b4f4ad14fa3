//! From a name as sent to its row: one hash over the lower-cased bytes, one comparison. Owns the
//! index, which the compiler builds; the rows are in `rows`.

use super::rows::ROWS;
use super::{Arguments, CommandSpec, KeySpec};

/// What the table knows about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// A command, a subcommand, or the bare name of a family of subcommands.
    Known(&'static CommandSpec),
    /// The family is in the table, the subcommand is not.
    UnknownSubcommand,
    /// Not in the table.
    Unknown,
}

/// Finds the row of a command by its full name, and by its subcommand where it has one. Case does
/// not matter for ASCII letters; every byte counts.
pub fn lookup(args: &(impl Arguments + ?Sized)) -> Lookup {
    if args.is_empty() {
        return Lookup::Unknown;
    }
    let name = args.arg(0);
    let Some(spec) = find(name, None) else {
        return Lookup::Unknown;
    };
    if spec.keys != KeySpec::Subcommands || args.len() == 1 {
        return Lookup::Known(spec);
    }
    find(name, Some(args.arg(1))).map_or(Lookup::UnknownSubcommand, Lookup::Known)
}

/// More than twice the number of rows, so that a look-up seldom meets a second row.
const PLACES: usize = 1024;

/// For each hash, modulo [`PLACES`], the number of its row plus one; 0 is an empty place. A row
/// whose place is taken stands in the next that is free.
static INDEX: [u16; PLACES] = index();

fn find(name: &[u8], subcommand: Option<&[u8]>) -> Option<&'static CommandSpec> {
    let whole = name.len() + subcommand.map_or(0, |subcommand| 1 + subcommand.len());
    if whole > LONGEST_NAME {
        return None;
    }
    let hash = hash_on(HASH_START, name);
    let hash = match subcommand {
        Some(subcommand) => hash_on(hash_on(hash, b"|"), subcommand),
        None => hash,
    };
    let mut place = hash as usize % PLACES;
    // Ends at an empty place: most places are.
    while let Some(row) = usize::from(INDEX[place]).checked_sub(1) {
        if is_named(&ROWS[row], name, subcommand) {
            #[cfg(test)]
            return super::replaced::row_of(&ROWS[row]);
            #[cfg(not(test))]
            return Some(&ROWS[row]);
        }
        place = (place + 1) % PLACES;
    }
    None
}

/// The bar is compared as ours, never as the client's: `config|get` sent as one word is no command.
fn is_named(spec: &CommandSpec, name: &[u8], subcommand: Option<&[u8]>) -> bool {
    match (spec.name.split_once('|'), subcommand) {
        (None, None) => spec.name.as_bytes().eq_ignore_ascii_case(name),
        (Some((family, own)), Some(subcommand)) => {
            family.as_bytes().eq_ignore_ascii_case(name)
                && own.as_bytes().eq_ignore_ascii_case(subcommand)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

const LONGEST_NAME: usize = {
    let mut longest = 0;
    let mut row = 0;
    while row < ROWS.len() {
        if ROWS[row].name.len() > longest {
            longest = ROWS[row].name.len();
        }
        row += 1;
    }
    longest
};

const fn index() -> [u16; PLACES] {
    assert!(ROWS.len() * 2 < PLACES, "the index is too full");
    let mut index = [0; PLACES];
    let mut row = 0;
    while row < ROWS.len() {
        let mut place = hash_on(HASH_START, ROWS[row].name.as_bytes()) as usize % PLACES;
        while index[place] != 0 {
            place = (place + 1) % PLACES;
        }
        row += 1;
        index[place] = row as u16;
    }
    index
}

/// FNV-1a, over the bytes in lower case.
const HASH_START: u32 = 0x811c_9dc5;

const fn hash_on(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at].to_ascii_lowercase() as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}
