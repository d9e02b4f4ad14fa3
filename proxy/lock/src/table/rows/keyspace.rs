//! Keys whatever their type: removal, expiry, renaming, copies, and looking around.

use super::{ALL, FAMILY, MIGRATE, NONE, ONE, SECOND, SORT, SOURCE_DEST, TWO, listing, row, verb};
use crate::table::CommandSpec;
use crate::table::Effect::{Admin, Neutral, Read, Write};
use crate::table::Listing::{Keys, RandomKey, Scan};
use crate::table::Verb::{Del, Expire, ExpireAt, PExpire, PExpireAt, Persist, Unlink};

pub(super) const ROWS: &[CommandSpec] = &[
    row("copy", -3, SOURCE_DEST, Write),
    row("dbsize", 1, NONE, Neutral),
    row("del", -2, ALL, verb(Del)),
    row("dump", 2, ONE, Read),
    row("exists", -2, ALL, Read),
    row("expire", -3, ONE, verb(Expire)),
    row("expireat", -3, ONE, verb(ExpireAt)),
    row("expiretime", 2, ONE, Read),
    row("flushall", -1, NONE, Admin),
    row("flushdb", -1, NONE, Admin),
    row("keys", 2, NONE, listing(Keys)),
    row("lolwut", -1, NONE, Neutral),
    row("memory|usage", -3, SECOND, Read),
    row("migrate", -6, MIGRATE, Admin),
    row("move", 3, ONE, Write),
    row("object", -2, FAMILY, Neutral),
    row("object|encoding", 3, SECOND, Read),
    row("object|freq", 3, SECOND, Read),
    row("object|help", 2, NONE, Neutral),
    row("object|idletime", 3, SECOND, Read),
    row("object|refcount", 3, SECOND, Read),
    row("persist", 2, ONE, verb(Persist)),
    row("pexpire", -3, ONE, verb(PExpire)),
    row("pexpireat", -3, ONE, verb(PExpireAt)),
    row("pexpiretime", 2, ONE, Read),
    row("pttl", 2, ONE, Read),
    row("randomkey", 1, NONE, listing(RandomKey)),
    row("rename", 3, TWO, Write),
    row("renamenx", 3, TWO, Write),
    row("restore", -4, ONE, Write),
    row("restore-asking", -4, ONE, Write),
    row("scan", -2, NONE, listing(Scan)),
    row("sort", -2, SORT, Write),
    row("sort_ro", -2, ONE, Read),
    row("swapdb", 3, NONE, Admin),
    row("touch", -2, ALL, Read),
    row("ttl", 2, ONE, Read),
    row("type", 2, ONE, Read),
    row("unlink", -2, ALL, verb(Unlink)),
];
