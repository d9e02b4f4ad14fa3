//! Scripts that once changed a key which the reader of their text did not name. Each line is one such way, and is run as it
//! is, with the same keys and arguments.

use super::Script;

const TEXTS: &[&str] = &[
    // What is nil or false beside a text.
    "redis.call('set', 'lock:' .. tostring(ARGV[1] == 'none' and 'a'), 1)",
    "local x if ARGV[9] then x = 'a' end redis.call('set', 'lock:' .. tostring(x), 1)",
    "local t = {} t[1 == 2 and 'a'] = 'lock:a' redis.call('set', t[1 == 2], 1)",
    // A format ends a text at its NUL.
    "redis.call('set', string.format('%s', 'lock:a\\0b'), 1)",
    "redis.call('set', ('%s'):format(ARGV[4]), 1)",
    // One constant for 0 and -0.
    "local v = -0 redis.call('append', 0, 'x')",
    "local v = 1 / -0 redis.call('set', 'lock:' .. 0, 1)",
    // Functions as keys of tables.
    "local n, s = pairs({[redis.call] = 1}) local c = n(s) c('set', 'lock:a', 1)",
    "local ok, e = pcall(error, {[redis.call] = 1}) for f in pairs(e) do f('set', 'lock:a', 1) end",
    "local t = cjson.decode('{}') t[redis.call] = 1 for f in pairs(t) do f('set', 'lock:a', 1) end",
    "ARGV[redis.call] = 1 for f in pairs(ARGV) do pcall(f, 'set', 'lock:a', 1) end",
    "ARGV[redis.call] = 1 for f in pairs(ARGV) do if type(f) == 'function' then f('set', 'lock:a', 1) end end",
    // Tables as keys of what is not followed: of ARGV, and of tables that are thrown.
    "local t = {f = function(n) redis.call('set', n, 1) end} ARGV[t] = 1 for k in pairs(ARGV) do if type(k) == 'table' then k.f('lock:a') end end",
    "local t = {v = 'k'} ARGV[t] = 1 for k in pairs(ARGV) do if type(k) == 'table' then k.v = 'lock:a' end end redis.call('set', t.v, 1)",
    "local t = {f = function(n) redis.call('set', n, 1) end} local _, e = pcall(error, {[t] = 1}) for k in pairs(e) do k.f('lock:a') end",
    "local t = {v = 'k'} local _, e = pcall(error, {[t] = 1}) for k in pairs(e) do k.v = 'lock:a' end redis.call('set', t.v, 1)",
    "local t = {v = 'k'} local u = {} local _, e = pcall(error, u) u[t] = 1 for k in pairs(e) do k.v = 'lock:a' end redis.call('set', t.v, 1)",
];

/// All of them.
pub fn corpus() -> Vec<Script> {
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    let script = |text: &&str| Script {
        text: (*text).to_owned(),
        keys: words(&[b"k", b"string"]),
        before: None,
        arguments: words(&[b"a", b"lock:b", b"2", b"lock:a\0x", b"set"]),
    };
    TEXTS.iter().map(script).collect()
}
