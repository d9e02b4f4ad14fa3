//! The layout of what the scripts store on Redis: the one place that knows widths, bits and limits. The build writes
//! these numbers into the scripts, which use field names (`build/names.rs`), and this crate reads and writes with the
//! same constants. `docs/lock-record.md` explains the fields, and a test compares its tables with these.

/// A field: its name in the scripts, and its width in bytes.
pub type Field = (&'static str, usize);

/// A field that continues to the end.
pub const REST: usize = 0;

const LETTER: usize = 1;
/// A grant and a session are random bytes.
const RANDOM: usize = 16;
/// A client and its process are hashes; together they are an identity.
const HASH: usize = 8;

/// The rules of a namespace about ownership are identified by this many hexadecimal digits.
pub const RULES: usize = 8;

/// The digits of a fencing token.
pub const FENCE: usize = 16;
/// The digits of a time or a span, ms.
pub const MS: usize = 13;

/// The value of a companion.
pub const RECORD: [Field; 12] = [
    ("VERSION", LETTER),
    ("STATE", LETTER),
    ("FLAGS", LETTER),
    ("GRANT", RANDOM),
    ("SESSION", RANDOM),
    ("CLIENT", HASH),
    ("PROCESS", HASH),
    ("FENCE", FENCE),
    ("SINCE", MS),
    ("ASKED", MS),
    ("DEADLINE", MS),
    ("OWNER", REST),
];

/// The client of a step, as an argument of scripts. The grant and the value that were observed may follow.
pub const WHO: [Field; 5] =
    [("SESSION", RANDOM), ("CLIENT", HASH), ("PROCESS", HASH), ("RULES", RULES), ("SEEN", REST)];

/// The start of a new record, then the rules and the lifetime of a debt.
pub const HEAD: [Field; 5] =
    [("GRANT", RANDOM), ("SESSION", RANDOM), ("CLIENT", HASH), ("PROCESS", HASH), ("DEBT", REST)];

/// One release debt.
pub const DEBT: [Field; 4] = [("LETTER", LETTER), ("CLIENT", HASH), ("PROCESS", HASH), ("ENDS", MS)];

/// The position of the time at which a debt ends.
pub const DEBT_ENDS: usize = LETTER + HASH + HASH;
/// The length of a debt.
pub const DEBT_BYTES: usize = DEBT_ENDS + MS;
/// The most release debts of one lock; beyond that the oldest is forgotten.
pub const MAX_DEBTS: u64 = 16;

/// The letter of a debt that is open.
pub const OPEN: u8 = b'o';
/// The letter of a debt that is paid.
pub const PAID: u8 = b'x';
/// In place of a letter: this number plus the number of an identity's refused acquires without a release yet.
pub const COUNTED: u8 = 128;
/// The letter of an identity whose refused acquires are counted once a lease has expired.
pub const WAITS: u8 = b'w';

/// The flags of a record are the character with this number plus their bits.
pub const NO_FLAGS: u8 = 64;
/// The bit for a grant whose reply was not read.
pub const UNDELIVERED: u8 = 1;
/// The bit for a TTL that is kept alive.
pub const KEPT: u8 = 2;
/// The bit for a lock with an open release debt.
pub const INDEBTED: u8 = 4;
/// The bit for an identity that is distinctive without its process.
pub const DISTINCTIVE: u8 = 8;
/// The bit for a lease whose holder, or a client that may be the holder, tried to release it and was refused: it leaves
/// no debt.
pub const WANTED: u8 = 16;
/// The bit for a lease that was named in a call which could not be judged, and which may have ended it.
pub const UNWITNESSED: u8 = 32;

/// The bit for a record to which a later version has added fields, which follow the owner token.
pub const ADDED: u8 = 128;
/// How long at least, and at most, an identity's doubtful releases are not believed after one too many, ms.
const MIN_DOUBT_MS: u64 = 10_000;
const MAX_DOUBT_MS: u64 = 600_000;

/// A longer owner token is stored as its SHA-1, bytes.
pub const MAX_STORED_TOKEN: usize = 64;
/// The longest TTL that is used in calculations: 158 years. A record has 13 digits for a time, and Redis does not read
/// the numbers that Lua writes from 1e17 on. What an application requests from Redis itself may be longer.
pub const MAX_TTL_MS: u64 = 5_000_000_000_000;
/// The shortest lifetime of the record of a lease without TTL: a week.
pub const WITHOUT_TTL_MS: u64 = 604_800_000;

/// The numbers that scripts use by name.
pub const NUMBERS: [(&str, u64); 20] = [
    ("MS", MS as u64),
    ("DEBT_BYTES", DEBT_BYTES as u64),
    ("MAX_DEBTS", MAX_DEBTS),
    ("OPEN", OPEN as u64),
    ("PAID", PAID as u64),
    ("COUNTED", COUNTED as u64),
    ("WAITS", WAITS as u64),
    ("NO_FLAGS", NO_FLAGS as u64),
    ("UNDELIVERED", UNDELIVERED as u64),
    ("KEPT", KEPT as u64),
    ("INDEBTED", INDEBTED as u64),
    ("DISTINCTIVE", DISTINCTIVE as u64),
    ("WANTED", WANTED as u64),
    ("ADDED", ADDED as u64),
    ("MIN_DOUBT_MS", MIN_DOUBT_MS),
    ("MAX_DOUBT_MS", MAX_DOUBT_MS),
    ("UNWITNESSED", UNWITNESSED as u64),
    ("MAX_STORED_TOKEN", MAX_STORED_TOKEN as u64),
    ("MAX_TTL_MS", MAX_TTL_MS),
    ("WITHOUT_TTL_MS", WITHOUT_TTL_MS),
];

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/lock-record.md");

    /// The positions and widths of the fields in a part of the documentation page.
    fn told(heading: &str) -> Vec<(usize, &'static str)> {
        let (_, part) = PAGE.split_once(heading).expect("a part of the page");
        let rows = part.lines().take_while(|line| !line.starts_with("## "));
        let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
        cells
            .filter_map(|cells| Some((cells[0].strip_prefix("| ")?.parse().ok()?, cells[1])))
            .filter(|(_, width)| *width == "rest" || width.parse::<usize>().is_ok())
            .collect()
    }

    fn laid_out(fields: &[Field]) -> Vec<(usize, String)> {
        let places = fields.iter().scan(0, |end, (_, width)| {
            *end += width;
            Some((*end - width, *width))
        });
        places
            .map(|(at, width)| match width {
                REST => (at, "rest".to_owned()),
                width => (at, width.to_string()),
            })
            .collect()
    }

    #[test]
    fn the_page_on_the_record_tells_its_layout() {
        for (heading, fields) in [("## Its layout", &RECORD[..]), ("## Release debts", &DEBT)] {
            let told = told(heading).into_iter();
            let told: Vec<_> = told.map(|(at, width)| (at, width.to_owned())).collect();
            assert_eq!(told, laid_out(fields), "{heading}");
        }
        for bit in [UNDELIVERED, KEPT, INDEBTED, DISTINCTIVE, WANTED] {
            let row = format!("\n| {bit} | `{}` | ", char::from(NO_FLAGS + bit));
            assert!(PAGE.contains(&row), "{row}");
        }
        assert!(PAGE.contains(&format!("\n| {ADDED} | ")));
        assert_eq!(NO_FLAGS + UNWITNESSED, b'`', "which a page quotes by two");
        assert!(PAGE.contains("\n| 32 | `` ` `` | "));
    }

    #[test]
    fn what_stands_in_a_record_has_the_width_of_its_field() {
        use crate::token::{Grant, Identity, SessionId};
        assert_eq!(size_of::<Grant>(), RANDOM);
        assert_eq!(size_of::<SessionId>(), RANDOM);
        assert_eq!(size_of::<Identity>(), HASH + HASH);
        assert_eq!(MAX_TTL_MS.to_string().len(), MS, "and no longer one fits");
        assert_eq!(RECORD[3..7], HEAD[..4]);
        assert_eq!(RECORD[4..7], WHO[..3]);
        assert_eq!(DEBT.iter().map(|(_, width)| width).sum::<usize>(), DEBT_BYTES);
    }
}
