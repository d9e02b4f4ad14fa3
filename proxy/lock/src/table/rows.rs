//! The rows of the table, one command per line, in families by the data they work on. A row contains what Redis's own
//! `COMMAND` reports, and what that means for a lock. Nothing here computes.

mod collections;
mod connection;
mod keyspace;
mod scripts;
mod server;
mod strings;

use super::{CommandSpec, CountRule, Effect, KeySpec, Listing, ScriptVerb, SessionVerb, Verb};

pub(super) const FAMILIES: [&[CommandSpec]; 6] =
    [strings::ROWS, keyspace::ROWS, collections::ROWS, scripts::ROWS, connection::ROWS, server::ROWS];

/// All rows, family by family.
pub(super) static ROWS: [CommandSpec; COUNT] = all_rows();

const COUNT: usize = {
    let mut count = 0;
    let mut family = 0;
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

const fn all_rows() -> [CommandSpec; COUNT] {
    let mut rows = [FAMILIES[0][0]; COUNT];
    let (mut family, mut taken, mut at) = (0, 0, 0);
    while at < COUNT {
        if taken == FAMILIES[family].len() {
            family += 1;
            taken = 0;
            continue;
        }
        rows[at] = FAMILIES[family][taken];
        taken += 1;
        at += 1;
    }
    rows
}

const fn row(name: &'static str, arity: i16, keys: KeySpec, effect: Effect) -> CommandSpec {
    CommandSpec { name, arity, keys, effect, blocking: false, rare: false, value_at: None }
}

impl CommandSpec {
    /// The same row for a command that may block its client.
    const fn blocking(self) -> CommandSpec {
        CommandSpec { blocking: true, ..self }
    }

    /// The same row for a command that most servers lack.
    const fn rare(self) -> CommandSpec {
        CommandSpec { rare: true, ..self }
    }

    /// The same row for a command that stores the value at this position.
    const fn value_at(self, place: u8) -> CommandSpec {
        CommandSpec { value_at: Some(place), ..self }
    }
}

const fn verb(verb: Verb) -> Effect {
    Effect::Verb(verb)
}

const fn session(verb: SessionVerb) -> Effect {
    Effect::Session(verb)
}

const fn script(verb: ScriptVerb) -> Effect {
    Effect::Script(verb)
}

const fn listing(listing: Listing) -> Effect {
    Effect::Listing(listing)
}

const NONE: KeySpec = KeySpec::None;
/// The bare name of a family of subcommands.
const FAMILY: KeySpec = KeySpec::Subcommands;
const ONE: KeySpec = KeySpec::Range { first: 1, last: 1, step: 1 };
const SECOND: KeySpec = KeySpec::Range { first: 2, last: 2, step: 1 };
/// Keys at 1 and 2.
const TWO: KeySpec = KeySpec::Range { first: 1, last: 2, step: 1 };
const ALL: KeySpec = KeySpec::Range { first: 1, last: -1, step: 1 };
/// Keys, and a timeout at the end.
const ALL_BUT_LAST: KeySpec = KeySpec::Range { first: 1, last: -2, step: 1 };
const PAIRS: KeySpec = KeySpec::Pairs;
const SOURCE_DEST: KeySpec = KeySpec::SourceDest;
const DEST_SOURCE: KeySpec = KeySpec::DestSource;
const DEST_NUMKEYS: KeySpec = KeySpec::DestNumkeys { dest: 1, at: 2 };
const BITFIELD: KeySpec = KeySpec::Bitfield;
const SORT: KeySpec = KeySpec::Sort;
const MIGRATE: KeySpec = KeySpec::Migrate;

const fn dest_sources(dest: u8) -> KeySpec {
    KeySpec::DestSources { dest }
}

const fn numkeys(at: u8, step: u8, count: CountRule) -> KeySpec {
    KeySpec::Numkeys { at, step, count }
}

const fn georadius(options: u8) -> KeySpec {
    KeySpec::GeoRadius { options }
}

const fn streams(group: bool) -> KeySpec {
    KeySpec::Streams { group }
}
