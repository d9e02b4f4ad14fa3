//! Texts that look like a recipe and do something else, or that Redis would not even compile.

pub(super) fn texts() -> Vec<(&'static str, &'static str)> {
    let mut texts = other_meanings();
    texts.extend(outside_the_language());
    texts.extend(texts_that_do_not_compile());
    texts
}

fn other_meanings() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "deletes another key",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[2]) else return 0 end",
        ),
        (
            "reads another key",
            "if redis.call('get', KEYS[2]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        ),
        (
            "deletes two keys",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1], KEYS[2]) end return 0",
        ),
        (
            "deletes the key twice over",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1], KEYS[1]) end return 0",
        ),
        (
            "deletes what is different",
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        ),
        (
            "deletes in the else branch",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return 0 else return redis.call('del', KEYS[1]) end",
        ),
        (
            "deletes in both branches",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return redis.call('del', KEYS[1]) end",
        ),
        (
            "deletes after the branch",
            "if redis.call('get', KEYS[1]) == ARGV[1] then local x = 1 end return redis.call('del', KEYS[1])",
        ),
        (
            "deletes where there is any value",
            "if redis.call('get', KEYS[1]) then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "deletes only where nothing is",
            "if not redis.call('get', KEYS[1]) then return redis.call('del', KEYS[1]) end return 0",
        ),
        ("compares nothing", "return redis.call('del', KEYS[1])"),
        ("does nothing", "if redis.call('get', KEYS[1]) == ARGV[1] then return 1 else return 0 end"),
        (
            "`not` binds tighter than `==`",
            "if not redis.call('get', KEYS[1]) == ARGV[1] then return 0 end return redis.call('del', KEYS[1])",
        ),
        (
            "compares an argument with a literal",
            "if ARGV[2] == '1' and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "compares two arguments",
            "if ARGV[1] == ARGV[2] and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "an argument may be nil",
            "if ARGV[2] == nil and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "two tokens",
            "local v = redis.call('get', KEYS[1]) if v == ARGV[1] or v == ARGV[2] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "compares numbers",
            "if tonumber(redis.call('get', KEYS[1])) == tonumber(ARGV[1]) then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "compares by order",
            "if redis.call('get', KEYS[1]) <= ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "compares a length",
            "if #redis.call('get', KEYS[1]) == #ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "compares another spelling",
            "if string.lower(redis.call('get', KEYS[1])) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "compares the beginning",
            "if string.sub(redis.call('get', KEYS[1]), 1, 22) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "takes the stored text \"false\" for an absent key",
            "local v = tostring(redis.call('get', KEYS[1])) if v == 'false' then return -2 end if v == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) end return -1",
        ),
        (
            "deletes whatever has a text",
            "if tostring(redis.call('get', KEYS[1])) then return redis.call('del', KEYS[1]) end return -1",
        ),
        (
            "compares the text of a number",
            "if tostring(redis.call('get', KEYS[1])) == tostring(tonumber(ARGV[1])) then return redis.call('del', KEYS[1]) end return -1",
        ),
        (
            "deletes what has another text",
            "if tostring(redis.call('get', KEYS[1])) ~= tostring(ARGV[1]) then return redis.call('del', KEYS[1]) end return -1",
        ),
        (
            "compares the texts of two arguments",
            "local v = tostring(redis.call('get', KEYS[1])) if v == tostring(ARGV[1]) or v == tostring(ARGV[2]) then return redis.call('del', KEYS[1]) end return -1",
        ),
        (
            "publishes",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('publish', ARGV[2], 'x') return redis.call('del', KEYS[1]) end return 0",
        ),
        ("sets", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], '') end return 0"),
        (
            "writes twice",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], 1) return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "deletes twice",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "reads after the change",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return redis.call('get', KEYS[1]) end return 0",
        ),
        ("removes in another way", "if redis.call('getdel', KEYS[1]) == ARGV[1] then return 1 end return 0"),
        (
            "reads the TTL",
            "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pttl', KEYS[1]) > 0 then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "an option of EXPIRE",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2], 'GT') end return 0",
        ),
        (
            "a point in time",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpireat', KEYS[1], ARGV[2]) end return 0",
        ),
        (
            "no TTL at all",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1]) end return 0",
        ),
        (
            "a TTL that is no integer",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], '1e3') end return 0",
        ),
        (
            "a TTL of minus zero",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], -0) end return 0",
        ),
        (
            "the stored value as TTL",
            "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('expire', KEYS[1], v) end return 0",
        ),
        (
            "another database",
            "redis.call('select', 1) if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "the command's name is an argument",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call(ARGV[2], KEYS[1]) end return 0",
        ),
        (
            "the key's name is an argument",
            "if redis.call('get', ARGV[2]) == ARGV[1] then return redis.call('del', ARGV[2]) end return 0",
        ),
        (
            "the key's name is put together",
            "if redis.call('get', 'lock:' .. KEYS[1]) == ARGV[1] then return redis.call('del', 'lock:' .. KEYS[1]) end return 0",
        ),
        (
            "there is no KEYS[0]",
            "if redis.call('get', KEYS[0]) == ARGV[1] then return redis.call('del', KEYS[0]) end return 0",
        ),
        (
            "KEYS is not called",
            "if redis.call('get', KEYS(1)) == ARGV[1] then return redis.call('del', KEYS(1)) end return 0",
        ),
        (
            "answers with a list",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return {1, 2} end return 0",
        ),
        (
            "answers with a broken line",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return {ok='a\\r\\n+b'} end return 0",
        ),
        ("raises", "if redis.call('get', KEYS[1]) ~= ARGV[1] then error('no') end return redis.call('del', KEYS[1])"),
        (
            "stores another value than it compares",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[2]) end return 0",
        ),
        (
            "stores what is the caller's without a TTL",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1]) end return 0",
        ),
        ("stores over what somebody else holds", "return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])"),
        (
            "extends what anybody holds",
            "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return redis.call('pexpire', KEYS[1], ARGV[2])",
        ),
        (
            "takes and extends for different times",
            "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2]) end return 0",
        ),
        (
            "takes with one value and knows another",
            "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end if redis.call('get', KEYS[1]) == ARGV[3] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
        ),
        (
            "takes, then changes its mind",
            "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "takes for no time",
            "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return redis.call('pexpire', KEYS[1], 0) end return 0",
        ),
        (
            "takes and hides what Redis refuses",
            "if redis.pcall('setnx', KEYS[1], ARGV[1]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
        ),
        (
            "keeps the TTL",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'KEEPTTL') end return 0",
        ),
        ("two TTLs", "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2], 'EX', ARGV[2])"),
        (
            "signals over another key",
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end redis.call('del', KEYS[2]) redis.call('lpush', KEYS[2], 1) redis.call('pexpire', KEYS[2], ARGV[2]) redis.call('del', KEYS[1]) return 0",
        ),
        (
            "reads another key, which may be of a wrong type",
            "redis.call('get', KEYS[2]) if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "reads the lock as a list",
            "redis.call('llen', KEYS[1]) if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "halves the TTL",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) - 1000) end return 0",
        ),
        (
            "gives a TTL where there is none",
            "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('ttl', KEYS[1]) == -1 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
        ),
        (
            "deletes what has a TTL",
            "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('ttl', KEYS[1]) ~= -1 then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "deletes what is old",
            "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pttl', KEYS[1]) < 1000 then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a loop with a step",
            "for i = 1, 1, 1 do if redis.call('get', KEYS[i]) == ARGV[1] then return redis.call('del', KEYS[i]) end end return 0",
        ),
        (
            "a loop in another order",
            "for k in pairs(KEYS) do if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end end return 0",
        ),
        (
            "a global set by a loop",
            "for i = 1, 1 do x = i end if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a loop variable out of its loop",
            "for i = 1, 1 do end if redis.call('get', KEYS[i]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "ipairs replaced",
            "local ipairs = redis.call for i in ipairs('del', KEYS[1]) do end if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
    ]
}

fn outside_the_language() -> Vec<(&'static str, &'static str)> {
    vec![
        (
            "a loop over the keys",
            "for i, k in ipairs(KEYS) do if redis.call('get', k) == ARGV[1] then redis.call('del', k) end end return 1",
        ),
        (
            "a loop that waits",
            "while redis.call('get', KEYS[1]) == ARGV[1] do return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a loop to the end",
            "repeat if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end until true return 0",
        ),
        (
            "a function",
            "local function f() return redis.call('del', KEYS[1]) end if redis.call('get', KEYS[1]) == ARGV[1] then return f() end return 0",
        ),
        (
            "redis.call hidden by a function",
            "local call = function() return 1 end if redis.call('get', KEYS[1]) == ARGV[1] then return call('del', KEYS[1]) end return 0",
        ),
        (
            "breaks out of a wrap",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 1 end redis.call('flushall') local _ = function() return 0",
        ),
        (
            "KEYS renamed",
            "local KEYS = ARGV if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "KEYS hidden by itself",
            "local KEYS = KEYS if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "ARGV replaced",
            "local ARGV = {'x'} if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "ARGV assigned",
            "ARGV = KEYS if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "redis replaced",
            "local redis = nil if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "tostring replaced",
            "local tostring = tonumber if tostring(redis.call('get', KEYS[1])) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "an element is assigned",
            "KEYS[1] = KEYS[2] if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "redis.call assigned",
            "redis.call = nil if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a global is set",
            "v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a global is read",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return zero",
        ),
        (
            "a local out of its block",
            "if redis.call('get', KEYS[1]) == ARGV[1] then local n = redis.call('del', KEYS[1]) end return n",
        ),
        ("a method", "if redis:call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"),
        (
            "another function of redis",
            "redis.replicate_commands() if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "another protocol",
            "redis.setresp(3) if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "unpacks",
            "if redis.call('get', unpack(KEYS)) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "two results",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]), 2 end return 0",
        ),
        (
            "a shebang",
            "#!lua\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a fraction",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return 1.5 end return 0",
        ),
        (
            "a nested long comment",
            "--[[ [[ ]] if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a comment that a carriage return ends",
            "-- x\rredis.call('flushall') if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        ("NUL", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- \0"),
    ]
}

fn texts_that_do_not_compile() -> Vec<(&'static str, &'static str)> {
    vec![
        ("nothing", ""),
        ("only a comment", "-- nothing"),
        ("no end", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0"),
        (
            "one end too many",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end end",
        ),
        (
            "a parenthesis is open",
            "if (redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        ),
        (
            "a string is open",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del, KEYS[1]) else return 0 end",
        ),
        (
            "a comment is open",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end --[[",
        ),
        (
            "a statement after return",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return 1 redis.call('del', KEYS[1]) else return 0 end",
        ),
        (
            "two semicolons",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]);; end return 0",
        ),
        (
            "a semicolon first",
            "; if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a call on a new line",
            "if redis.call\n('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a call behind a long comment",
            "if redis.call --[[\n]] ('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a number runs into a word",
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return 1end return 0",
        ),
        ("`!=`", "if redis.call('get', KEYS[1]) != ARGV[1] then return 0 end return redis.call('del', KEYS[1])"),
        (
            "`else if` with one end",
            "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('del', KEYS[1]) else if v then return 0 end return -1",
        ),
        (
            "a byte order mark",
            "\u{feff}if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
        (
            "a parenthesis around a statement",
            "if redis.call('get', KEYS[1]) == ARGV[1] then (redis.call('del', KEYS[1])) end return 0",
        ),
        (
            "a local without a name",
            "local = 1 if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        ),
    ]
}
