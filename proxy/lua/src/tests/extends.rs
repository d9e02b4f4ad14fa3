//! Scripts that extend a lock: the texts of libraries, with the SHA-1 where it is known from their
//! traffic, and spellings met in applications.

use super::*;

type Published = (&'static str, Option<&'static str>, &'static str, Recipe);

pub(super) fn published() -> Vec<Published> {
    vec![
        (
            "redis-py, reacquire",
            Some("1cac51482acf5858da00f6d685d68f886cd6b6b2"),
            "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('pexpire', KEYS[1], ARGV[2])
        return 1
    ",
            pexpires(ONE_OR_ZERO),
        ),
        (
            "bsm/redislock",
            Some("a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf"),
            r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end"#,
            pexpires(DONE_OR_ZERO),
        ),
        (
            "redsync",
            Some("d75bb8b5bd13532ddedd17762e772346e39b321e"),
            "
	if redis.call(\"GET\", KEYS[1]) == ARGV[1] then
		return redis.call(\"PEXPIRE\", KEYS[1], ARGV[2])
	else
		return 0
	end
",
            pexpires(DONE_OR_ZERO),
        ),
        (
            "pottery",
            Some("ba015a80261b616e7a62d35df0b8e3edbe6c9414"),
            "
                if redis.call('get', KEYS[1]) == ARGV[1] then
                    return redis.call('pexpire', KEYS[1], ARGV[2])
                else
                    return 0
                end
            ",
            pexpires(DONE_OR_ZERO),
        ),
        (
            "redis-semaphore",
            Some("594683e49a64ebaf975caf5f8079a1d097c438f1"),
            "
  local key = KEYS[1]
  local identifier = ARGV[1]
  local lockTimeout = ARGV[2]

  local value = redis.call('get', key)

  if value == identifier then
    redis.call('pexpire', key, lockTimeout)
    return 1
  end

  return 0
  ",
            pexpires(ONE_OR_ZERO),
        ),
        (
            "ioredis-lock",
            None,
            "if redis.call(\"GET\", KEYS[1]) == ARGV[1] then\n  return redis.call(\"PEXPIRE\", KEYS[1], ARGV[2])\nend\nreturn 0",
            pexpires(DONE_OR_ZERO),
        ),
        (
            "Spring Integration",
            Some("879e0f7b8d83c3266d4e996627438c05dbda0b89"),
            "if (redis.call('GET', KEYS[1]) == ARGV[1]) then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return true
end
return false
",
            pexpires(ONE_OR_NIL),
        ),
        (
            "DistributedLock",
            None,
            "
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0",
            pexpires(DONE_OR_ZERO),
        ),
    ]
}

pub(super) fn hand_written() -> Vec<(&'static str, Recipe)> {
    let seconds = |ttl, replies| extends(Extension::Expire(TtlUnit::Seconds, ttl), replies);
    let second_argument = 30_000;
    vec![
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end",
            seconds(second_argument, DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], 30) else return 0 end",
            seconds(30, DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('Expire', KEYS[1], '30') else return 0 end",
            seconds(30, DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) return 1 end return 0",
            pexpires(ONE_OR_ZERO),
        ),
        (
            "local ttl = tonumber(ARGV[2]); local v = redis.call('get', KEYS[1]);
             if v ~= ARGV[1] then return 0; end;
             return redis.call('pexpire', KEYS[1], ttl);",
            pexpires(DONE_OR_ZERO),
        ),
        (
            "local ms = 60000 if ARGV[1] == redis.call('get', KEYS[1]) then redis.call('pexpire', KEYS[1], ms) return 'OK' end return nil",
            extends(
                Extension::Expire(TtlUnit::Milliseconds, 60_000),
                replies(Reply::Bulk(Bytes::from_static(b"OK")), Reply::Nil, Reply::Nil),
            ),
        ),
        (
            "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end",
            pexpires(SILENT),
        ),
        (
            "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) == 1",
            pexpires(ONE_OR_NIL),
        ),
        (
            "local v = redis.call('get', KEYS[1])
             if v then if v == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return -1 end end
             return -2",
            pexpires(replies(Reply::CommandResult, Reply::Integer(-1), Reply::Integer(-2))),
        ),
        (
            "if tostring(redis.call('get', KEYS[1])) == ARGV[1] then return redis.call('expire', KEYS[1], tostring(ARGV[2])) end return 0",
            (seconds(second_argument, DONE_OR_ZERO)),
        ),
        (
            "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) else return -1 end",
            (pexpires(DONE_OR_MINUS_ONE)),
        ),
        (
            "if tostring(ARGV[1]) == tostring(redis.call('get', KEYS[1])) then redis.call('expire', KEYS[1], tonumber(tostring(ARGV[2]))) return 1 end return 0",
            (seconds(second_argument, ONE_OR_ZERO)),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], -1) end return 0",
            seconds(-1, DONE_OR_ZERO),
        ),
        (
            "local ok = false if redis.call('get', KEYS[1]) == ARGV[1] then ok = redis.call('pexpire', KEYS[1], ARGV[2]) == 1 end
             if ok then return redis.status_reply('EXTENDED') end return redis.error_reply('LOST')",
            pexpires(replies(Reply::Status(Bytes::from_static(b"EXTENDED")), Reply::Error(Bytes::from_static(b"ERR LOST")), Reply::Error(Bytes::from_static(b"ERR LOST")))),
        ),
        (
            "local f, n = redis.call, tonumber if f('get', KEYS[1]) == ARGV[1] then return f('expire', KEYS[1], n(ARGV[2])) end return 0",
            seconds(second_argument, DONE_OR_ZERO),
        ),
    ]
}
