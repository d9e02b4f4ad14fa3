//! Scripts that give a lock back: the texts of libraries, with the SHA-1 where it is known from
//! their traffic, and spellings met in applications.

use super::*;

type Published = (&'static str, Option<&'static str>, &'static str, Recipe);

pub(super) fn published() -> Vec<Published> {
    vec![
        (
            "redis-py",
            Some("c3f8721cbb97f72bc19e972846bd7aaf91901658"),
            "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    ",
            deletes(ONE_OR_ZERO),
        ),
        (
            "bsm/redislock",
            Some("cf0e94b2e9ffc7e04395cf88f7583fc309985910"),
            r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end"#,
            deletes(DONE_OR_ZERO),
        ),
        (
            "redsync",
            Some("e950836ed1e694540c503ef9972b8de518044d3b"),
            "
	local val = redis.call(\"GET\", KEYS[1])
	if val == ARGV[1] then
		return redis.call(\"DEL\", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
",
            deletes(replies(Reply::CommandResult, Reply::Integer(0), Reply::Integer(-1))),
        ),
        (
            "redlock-py",
            Some("4e92fdc63815b3a0a2dd1c1df3694de73607c88d"),
            "
    if redis.call(\"get\",KEYS[1]) == ARGV[1] then
        return redis.call(\"del\",KEYS[1])
    else
        return 0
    end",
            deletes(DONE_OR_ZERO),
        ),
        (
            "pottery",
            Some("a4aada0b36710970eedaaaeec4a6b7d8c78c4f80"),
            "
                if redis.call('get', KEYS[1]) == ARGV[1] then
                    return redis.call('del', KEYS[1])
                else
                    return 0
                end
            ",
            deletes(DONE_OR_ZERO),
        ),
        (
            "Laravel",
            Some("647c65a442733a1aa440f99908d249d13b4d6c4a"),
            "if redis.call(\"get\",KEYS[1]) == ARGV[1] then
    return redis.call(\"del\",KEYS[1])
else
    return 0
end",
            deletes(DONE_OR_ZERO),
        ),
        (
            "redis-semaphore",
            Some("7157921a7cc7cfba979acf6d63f073151df17d12"),
            "
  local key = KEYS[1]
  local identifier = ARGV[1]

  if redis.call('get', key) == identifier then
    return redis.call('del', key)
  end

  return 0
  ",
            deletes(DONE_OR_ZERO),
        ),
        (
            "ioredis-lock",
            Some("4dbb87cd80182f627d42cf6042188ecf00a1ff12"),
            "if redis.call(\"GET\", KEYS[1]) == ARGV[1] then\n  return redis.call(\"DEL\", KEYS[1])\nend\nreturn 0",
            deletes(DONE_OR_ZERO),
        ),
        (
            "rslock",
            Some("daf86bbf8740dd3ca86733367a016364b2110627"),
            r#"
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
else
  return 0
end
"#,
            deletes(DONE_OR_ZERO),
        ),
        (
            "redlock (crate)",
            Some("544c68b7ffd46e5d7ccc58a27204557efba43310"),
            "if redis.call('get',KEYS[1]) == ARGV[1] then
                                return redis.call('del',KEYS[1])
                              else
                                return 0
                              end",
            deletes(DONE_OR_ZERO),
        ),
        (
            "DistributedLock",
            Some("d14e08ee28ab03afee89c59033287d160847d22c"),
            "
            if redis.call('get', KEYS[1]) == ARGV[1] then
                return redis.call('del', KEYS[1])
            end
            return 0",
            deletes(DONE_OR_ZERO),
        ),
        (
            "Spring Integration, spin lock",
            Some("f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2"),
            "local lockClientId = redis.call('GET', KEYS[1])
if lockClientId == ARGV[1] then
	redis.call('UNLINK', KEYS[1])
	return true
end
return false
",
            unlinks(ONE_OR_NIL),
        ),
        (
            "redlock-rb",
            Some("8e4905cee18e7c3188d10f2b8b170e403baed34f"),
            "      if redis.call(\"get\",KEYS[1]) == ARGV[1] then
        return redis.call(\"del\",KEYS[1])
      else
        return 0
      end
",
            deletes(DONE_OR_ZERO),
        ),
        (
            "aioredlock",
            None,
            "local identifier = redis.call('get', KEYS[1])
if not identifier then
return redis.status_reply('OK')
elseif identifier == ARGV[1] then
return redis.call(\"del\", KEYS[1])
else
return redis.error_reply('ERROR')
end",
            deletes(replies(
                Reply::CommandResult,
                Reply::Error(Bytes::from_static(b"ERR ERROR")),
                Reply::Status(Bytes::from_static(b"OK")),
            )),
        ),
    ]
}

pub(super) fn hand_written() -> Vec<(&'static str, Recipe)> {
    vec![
        (
            "if ARGV[1] == redis.call('GET', KEYS[1]) then redis.call('DEL', KEYS[1]) return 1 end return 0",
            deletes(ONE_OR_ZERO),
        ),
        (
            "if (redis.call('get', KEYS[1]) == ARGV[1]) then return redis.call('del', KEYS[1]); end; return 0;",
            deletes(DONE_OR_ZERO),
        ),
        (
            "if redis.call('get',KEYS[1])==ARGV[1]then return redis.call('del',KEYS[1])else return 0 end",
            deletes(DONE_OR_ZERO),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end",
            deletes(SILENT),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end",
            deletes(DONE_OR_NIL),
        ),
        (
            "-- 比较线程标识与锁中的标识是否一致\n--[[ long\n comment ]] --[==[ ]] ]==]\r\nlocal id = redis.call('get', KEYS[1])\r\n\
             if(id == ARGV[1]) then\r\n  return redis.call('del', KEYS[1]) -- 释放锁\r\nend\r\nreturn 0 -- end",
            deletes(DONE_OR_ZERO),
        ),
        (
            "if redis.call([[get]], KEYS[1]) == ARGV[1] then return redis.call([=[del]=], KEYS[1]) else return 0 end",
            deletes(DONE_OR_ZERO),
        ),
        (
            r#"if redis.call("\71et", KEYS[1]) == ARGV[1] then return redis.call('d\e\108', KEYS[1]) else return 0 end"#,
            deletes(DONE_OR_ZERO),
        ),
        (
            "local rcall = redis.call local key, token = KEYS[1], ARGV[1]
             if rcall('get', key) == token then return rcall('del', key) else return 0 end",
            deletes(DONE_OR_ZERO),
        ),
        (
            "local r, res = redis; local id = r.pcall('Get', KEYS[1])
             if id and id == ARGV[1] then res = r['pcall']('Unlink', KEYS[1]) end return res or 0",
            // The complaint about another type is caught, and is not the owner token.
            catching(unlinks(DONE_OR_ZERO), Reply::Integer(0)),
        ),
        (
            "local v = redis.call('get', KEYS[1])
             if v == nil or v == false then return -1 elseif v ~= ARGV[1] then return -2 else do redis.call('del', KEYS[1]) end end
             return 1",
            deletes(replies(Reply::Integer(1), Reply::Integer(-2), Reply::Integer(-1))),
        ),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) == 1 end return false",
            deletes(ONE_OR_NIL),
        ),
        (
            "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0",
            deletes(DONE_OR_ZERO),
        ),
        (
            "return (redis.call('get', KEYS[1]) == ARGV[1]) and (redis.call('del', KEYS[1]) > 0)",
            deletes(ONE_OR_NIL),
        ),
        (
            "if redis.call('exists', KEYS[1]) == 0 then return 2 end
             if not (redis.call('get', KEYS[1]) == ARGV[1]) then return 0 end
             if redis.call('del', KEYS[1]) >= 1 then return 'gone' else return 'odd' end",
            deletes(replies(Reply::Bulk(Bytes::from_static(b"gone")), Reply::Integer(0), Reply::Integer(2))),
        ),
        (
            "local v = redis.call('get', KEYS[1])
             if not v then return {ok='FREE'} end
             if v == ARGV[1] then redis.call('del', KEYS[1]) return {['ok'] = \"RELEASED\"} end
             return {err = 'NOTOWNER held by another'}",
            deletes(replies(Reply::Status(Bytes::from_static(b"RELEASED")), Reply::Error(Bytes::from_static(b"NOTOWNER held by another")), Reply::Status(Bytes::from_static(b"FREE")))),
        ),
        (
            "local v = redis.call('get', KEYS[1])
             if v == ARGV[1] then redis.call('del', KEYS[1]) return ARGV[1] end return v",
            deletes(replies(Reply::Bulk(TOKEN), Reply::Stored, Reply::Nil)),
        ),
        (
            "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return 0 end",
            (deletes(DONE_OR_ZERO)),
        ),
        (
            "if tostring(redis.call('get', KEYS[1])) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
            (deletes(DONE_OR_MINUS_ONE)),
        ),
        (
            "if tostring(redis.call('get', KEYS[1])) == ARGV[1] then redis.call('del', KEYS[1]) return 1 end return 0",
            (deletes(ONE_OR_ZERO)),
        ),
        (
            "local v = tostring(redis.call('get', KEYS[1])); if tostring(ARGV[1]) ~= v then return v; end; return redis.call('unlink', KEYS[1]);",
            (unlinks(replies(Reply::CommandResult, Reply::Stored, Reply::Bulk(Bytes::from_static(b"false"))))),
        ),
        (
            "if redis.call('get', KEYS[1]) == tostring(ARGV[1]) then return redis.call('del', KEYS[1]) else return -1 end",
            deletes(DONE_OR_MINUS_ONE),
        ),
        (
            "local v = redis.call('get', KEYS[1])
             if v and tostring(v) == ARGV[1] then redis.call('del', tostring(KEYS[1])) return true end return false",
            deletes(ONE_OR_NIL),
        ),
        (
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.error_reply('NOTOWNER not yours') end
             return redis.call('del', KEYS[1])",
            deletes(replies(Reply::CommandResult, Reply::Error(Bytes::from_static(b"NOTOWNER not yours")), Reply::Error(Bytes::from_static(b"NOTOWNER not yours")))),
        ),
        (
            "local a, a = ARGV[2], ARGV[1] local d = 0 local x, y = 5 x, x = 1, 2
             if redis.call('get', KEYS[1]) == a then local d = redis.call('del', KEYS[1]) return (((x))) end return d",
            deletes(ONE_OR_ZERO),
        ),
    ]
}
