//! From a name as sent to its row. Owns two indexes, which are built at compile time: nearly every command has a name
//! of at most eight bytes, which fits into one machine word and is compared as one; longer names and subcommands are
//! hashed byte by byte. The rows are in `rows`.

#[cfg(test)]
use super::replaced::row_of;
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

/// Finds the row of a command by its full name, and by its subcommand if it has one. Case does not matter for ASCII
/// letters; every byte counts, also after a NUL, where Redis may stop.
pub fn lookup(args: &(impl Arguments + ?Sized)) -> Lookup {
    if args.is_empty() {
        return Lookup::Unknown;
    }
    let name = args.arg(0);
    let found = match short(name) {
        Some(word) => find_short(word, name.len()),
        None => find(name, None),
    };
    let Some(spec) = found else {
        return Lookup::Unknown;
    };
    if spec.keys != KeySpec::Subcommands || args.len() == 1 {
        return Lookup::Known(spec);
    }
    find(name, Some(args.arg(1))).map_or(Lookup::UnknownSubcommand, Lookup::Known)
}

/// The row of a command, by its name without a subcommand.
pub fn row_named(name: &[u8]) -> Option<&'static CommandSpec> {
    match lookup([name].as_slice()) {
        Lookup::Known(row) => Some(row),
        Lookup::UnknownSubcommand | Lookup::Unknown => None,
    }
}

/// A name of one to eight bytes as one word, in lower case; missing bytes are zero.
#[inline]
fn short(name: &[u8]) -> Option<u64> {
    let word = match *name {
        [] => return None,
        // One to three bytes: with fewer than three, the middle one equals the first or the last.
        [first, ..] if name.len() < 4 => {
            let (middle, last) = (name.len() / 2, name.len() - 1);
            u64::from(first) | u64::from(name[middle]) << (8 * middle) | u64::from(name[last]) << (8 * last)
        }
        // Two halves, which overlap if there are fewer than eight bytes.
        _ if name.len() <= 8 => {
            let behind = name.len() - 4;
            let (_, last) = name.split_last_chunk::<4>()?;
            u64::from(u32::from_le_bytes(*name.first_chunk()?)) | u64::from(u32::from_le_bytes(*last)) << (8 * behind)
        }
        _ => return None,
    };
    Some(lower_case(word))
}

/// Converts the ASCII letters among eight bytes to lower case.
const fn lower_case(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let seven_bits = word & (0x7f * EACH);
    // The top bit of each byte shows: at least `A`; beyond `Z`; not ASCII.
    let from_a = seven_bits + (0x80 - b'A' as u64) * EACH;
    let beyond_z = seven_bits + (0x7f - b'Z' as u64) * EACH;
    let upper = from_a & !beyond_z & !word & (0x80 * EACH);
    word | upper >> 2
}

#[inline]
fn find_short(word: u64, length: usize) -> Option<&'static CommandSpec> {
    let mut place = short_place(word);
    // Ends at an empty place: most places are empty.
    while let Some(row) = usize::from(SHORT_INDEX[place]).checked_sub(1) {
        // Zero bytes may also have been sent.
        if SHORT_NAMES[row] == word && ROWS[row].name.len() == length {
            return row_of(&ROWS[row]);
        }
        place = (place + 1) % PLACES;
    }
    None
}

/// In a test another row may replace this one.
#[cfg(not(test))]
fn row_of(row: &'static CommandSpec) -> Option<&'static CommandSpec> {
    Some(row)
}

/// The upper bits of a product depend on all bits of the word. Any odd factor works; this one is 2⁶⁴ divided by the
/// golden ratio.
const fn short_place(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize
}

/// The short name of each row in the form of [`short`]; 0 if the name is longer or has a subcommand.
static SHORT_NAMES: [u64; ROWS.len()] = short_names();

/// Like [`INDEX`], for the rows with a short name.
static SHORT_INDEX: [u16; PLACES] = short_index();

const fn short_names() -> [u64; ROWS.len()] {
    let mut names = [0; ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        let name = ROWS[row].name.as_bytes();
        let mut at = 0;
        while at < name.len() && name.len() <= 8 && BARS[row] == 0 {
            names[row] |= (name[at] as u64) << (8 * at);
            at += 1;
        }
        row += 1;
    }
    names
}

const fn short_index() -> [u16; PLACES] {
    let mut index = [0; PLACES];
    let mut row = 0;
    while row < ROWS.len() {
        if SHORT_NAMES[row] != 0 {
            let mut place = short_place(SHORT_NAMES[row]);
            while index[place] != 0 {
                place = (place + 1) % PLACES;
            }
            index[place] = row as u16 + 1;
        }
        row += 1;
    }
    index
}

/// The position of the bar before the subcommand in the name of each row; 0 if there is none.
static BARS: [u8; ROWS.len()] = bars();

const fn bars() -> [u8; ROWS.len()] {
    let mut bars = [0; ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        let name = ROWS[row].name.as_bytes();
        let mut at = 0;
        while at < name.len() {
            if name[at] == b'|' {
                bars[row] = at as u8;
            }
            at += 1;
        }
        row += 1;
    }
    bars
}

/// More than twice the number of rows, so that a look-up seldom has to compare a second row.
const PLACES: usize = 1024;

/// For each hash, modulo [`PLACES`], the number of its row plus one; 0 is an empty place. A row whose place is taken is
/// in the next free one.
static INDEX: [u16; PLACES] = index();

fn find(name: &[u8], subcommand: Option<&[u8]>) -> Option<&'static CommandSpec> {
    let whole = name.len() + subcommand.map_or(0, |subcommand| 1 + subcommand.len());
    if whole > MAX_NAME_BYTES {
        return None;
    }
    let hash = hash_on(HASH_START, name);
    let hash = match subcommand {
        Some(subcommand) => hash_on(hash_on(hash, b"|"), subcommand),
        None => hash,
    };
    let mut place = hash as usize % PLACES;
    // Ends at an empty place: most places are empty.
    while let Some(row) = usize::from(INDEX[place]).checked_sub(1) {
        if is_named(row, name, subcommand) {
            return row_of(&ROWS[row]);
        }
        place = (place + 1) % PLACES;
    }
    None
}

/// The bar is part of our name, never of the client's: `config|get` sent as one word is no command.
fn is_named(row: usize, name: &[u8], subcommand: Option<&[u8]>) -> bool {
    let own = ROWS[row].name.as_bytes();
    match (usize::from(BARS[row]), subcommand) {
        (0, None) => own.eq_ignore_ascii_case(name),
        (0, Some(_)) | (_, None) => false,
        (bar, Some(subcommand)) => {
            own[..bar].eq_ignore_ascii_case(name) && own[bar + 1..].eq_ignore_ascii_case(subcommand)
        }
    }
}

const MAX_NAME_BYTES: usize = {
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
