//! Strings, the type that locks are: the lock verbs among them, and the compare-and-set commands
//! of newer servers and of Tair, which work on a lock whatever server stands behind.

use super::{ALL, BITFIELD, NONE, ONE, PAIRS, TWO, dest_sources, numkeys, row, verb};
use crate::table::CommandSpec;
use crate::table::CountRule::Pairs;
use crate::table::Effect::{Neutral, Read, Write};
use crate::table::Verb::{
    Cad, Cas, DelEx, DelIfEq, Get, GetDel, GetEx, GetSet, Incr, MGet, MSetEx, MSetNx, PSetEx, Set, SetEx, SetNx,
};

pub(super) const ROWS: &[CommandSpec] = &[
    row("append", 3, ONE, Write),
    row("bitcount", -2, ONE, Read),
    row("bitfield", -2, BITFIELD, Write),
    row("bitfield_ro", -2, ONE, Read),
    row("bitop", -4, dest_sources(2), Write),
    row("bitpos", -3, ONE, Read),
    row("cad", 3, ONE, verb(Cad)).rare(),
    row("cas", -4, ONE, verb(Cas)).rare(),
    row("decr", 2, ONE, Write),
    row("decrby", 3, ONE, Write),
    row("delex", -2, ONE, verb(DelEx)).rare(),
    row("delifeq", 3, ONE, verb(DelIfEq)).rare(),
    row("digest", 2, ONE, Read),
    row("get", 2, ONE, verb(Get)),
    row("getbit", 3, ONE, Read),
    row("getdel", 2, ONE, verb(GetDel)),
    row("getex", -2, ONE, verb(GetEx)),
    row("getrange", 4, ONE, Read),
    row("getset", 3, ONE, verb(GetSet)).value_at(2),
    row("incr", 2, ONE, verb(Incr)),
    row("incrby", 3, ONE, Write),
    row("incrbyfloat", 3, ONE, Write),
    row("increx", -2, ONE, Write),
    row("lcs", -3, TWO, Read),
    row("mget", -2, ALL, verb(MGet)),
    row("mset", -3, PAIRS, Write),
    row("msetex", -4, numkeys(1, 2, Pairs), verb(MSetEx)).rare(),
    row("msetnx", -3, PAIRS, verb(MSetNx)),
    row("psetex", 4, ONE, verb(PSetEx)).value_at(3),
    row("set", -3, ONE, verb(Set)).value_at(2),
    row("setbit", 4, ONE, Write),
    row("setex", 4, ONE, verb(SetEx)).value_at(3),
    row("setnx", 3, ONE, verb(SetNx)).value_at(2),
    row("setrange", 4, ONE, Write),
    row("stralgo", -2, NONE, Neutral),
    row("strlen", 2, ONE, Read),
    row("substr", 4, ONE, Read),
];
