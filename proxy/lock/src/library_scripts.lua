-- What scripts of lock libraries do, in our own words. A digest of `library_scripts.tsv` names a section of this file: a call
-- of that script is understood as a call of the section. `tests/library-scripts/collect.py` has run each script and its section
-- side by side in every state of the lock, and found the same replies, the same writes and the same keys behind.
--
-- `--- name: role, arguments…` begins a section. A role is `take`, `extend`, `release`, `look` or `other`. Arguments are those
-- of ARGV in their order: `owner` is the value, `ms` and `s` are the TTL, the others are
-- anything else. `done=…` is the reply that says that
-- it was done. A section without a text tells only that: such scripts are found by discovery, and sent for when they are to be governed.

--- delete-or-zero: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
--- delete-or-nil: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
return redis.call('DEL', KEYS[1])
--- unlink-or-false: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
redis.call('UNLINK', KEYS[1])
return true
--- delete-or-why: release, owner, done=1
local stored = redis.call('GET', KEYS[1])
if stored == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if not stored then return -1 end
return 0
--- delete-or-error: release, owner, done=1
local stored = redis.call('GET', KEYS[1])
if stored == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if not stored then return redis.status_reply('OK') end
return redis.error_reply('ERROR')
--- delete-each: release, owner, done=1
local deleted = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    redis.call('DEL', key)
    deleted = deleted + 1
  end
end
return deleted
--- extend-or-zero: extend, owner, ms, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
--- extend-or-nil: extend, owner, ms, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
--- extend-where-ttl: extend, owner, ms, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
--- prolong: extend, owner, ms, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], left + ARGV[2])
return 1
--- prolong-or-replace: extend, owner, ms, flag, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 0 end
local ttl = ARGV[2]
if ARGV[3] == '0' then ttl = ARGV[2] + left end
redis.call('PEXPIRE', KEYS[1], ttl)
return 1
--- expire-or-persist: extend, owner, s, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if tonumber(ARGV[2]) > 0 then return redis.call('EXPIRE', KEYS[1], ARGV[2]) end
redis.call('PERSIST', KEYS[1])
return 1
--- expire-or-why: extend, owner, s, done=0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 1 end
if redis.call('TTL', KEYS[1]) < 0 then return 2 end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 0
--- expire-or-why-turned: extend, s, owner, done=0
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 1 end
if redis.call('TTL', KEYS[1]) < 0 then return 2 end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 0
--- expire-or-zero: extend, owner, s, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
--- store-again: extend, owner, ms, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
--- store-again-all: extend, owner, ms, done=1
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) ~= ARGV[1] then return 0 end
end
for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
return #KEYS
--- extend-or-take: take, owner, ms, done=1
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 end
return 0
--- extend-or-set: take, owner, ms
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
--- extend-or-true: take, owner, ms, done=1
local stored = redis.call('GET', KEYS[1])
if stored == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return true
end
if stored then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return true
--- extend-or-put: take, owner, ms, done=1
local stored = redis.call('GET', KEYS[1])
if stored and stored ~= ARGV[1] then return 0 end
if not stored then redis.call('SET', KEYS[1], ARGV[1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
--- take-or-store-again: take, owner, ms, done=OK
local stored = redis.call('GET', KEYS[1])
if stored and stored ~= ARGV[1] then return redis.error_reply('ERROR') end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
--- take-or-own-prefix: take, owner, length, ms, done=OK
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return redis.status_reply('OK') end
local length = tonumber(ARGV[2])
if redis.call('GETRANGE', KEYS[1], 0, length - 1) == string.sub(ARGV[1], 1, length) then
  return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
end
--- take-plainly: take, owner, ms, done=OK
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
--- take-by-setex: take, owner, s, done=OK
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
return redis.call('SETEX', KEYS[1], ARGV[2], ARGV[1])
--- take-then-expire: take, owner, ms, done=1
if redis.call('SETNX', KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
--- take-all: take, owner, ms, done=1
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then return 0 end
end
for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
return #KEYS
--- left-or-zero: look, owner
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 0 end
return left
--- left-or-three: look, owner
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -3 end
return redis.call('PTTL', KEYS[1])
--- left-or-error: look, owner
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('ERROR') end
return redis.call('TTL', KEYS[1])
--- signal-and-delete: release, owner, -, done=0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
return 0
--- signal-by-key-and-delete: release, owner, done=0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('PEXPIRE', KEYS[2], KEYS[3])
redis.call('DEL', KEYS[1])
return 0
--- signal-for-ever-and-delete: release, owner, done=0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('DEL', KEYS[1])
return 0
--- signal-for-a-second-and-delete: release, owner, done=0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 1 end
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('EXPIRE', KEYS[2], 1)
redis.call('DEL', KEYS[1])
return 0
--- signal-and-delete-or-zero: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
return redis.call('DEL', KEYS[1])
--- signal-again-and-delete: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('LPUSH', KEYS[2], 1)
return redis.call('DEL', KEYS[1])
--- reset-turned: other, -, -
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return redis.call('DEL', KEYS[1])
--- reset-by-key: other
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('PEXPIRE', KEYS[2], KEYS[3])
return redis.call('DEL', KEYS[1])
--- reset-for-ever: other
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
return redis.call('DEL', KEYS[1])
--- reset-for-a-second: other
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
redis.call('EXPIRE', KEYS[2], 1)
return redis.call('DEL', KEYS[1])
--- unlink-and-publish: release, owner, -, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
redis.call('UNLINK', KEYS[1])
redis.call('PUBLISH', ARGV[2], KEYS[1])
return true
--- delete-and-publish: release, owner, -, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], KEYS[1])
return true
--- unlink-and-publish-by-key: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
redis.call('UNLINK', KEYS[1])
redis.call('PUBLISH', KEYS[2], KEYS[1])
return true
--- delete-and-publish-by-key: release, owner, done=1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], KEYS[1])
return true
--- unlink-any-and-publish: release, -, done=1
if redis.call('UNLINK', KEYS[1]) ~= 1 then return false end
redis.call('PUBLISH', ARGV[1], KEYS[1])
return true
--- delete-any-and-publish: release, -, done=1
if redis.call('DEL', KEYS[1]) ~= 1 then return false end
redis.call('PUBLISH', ARGV[1], KEYS[1])
return true
--- redisson-take: take, ms, owner, done=nil
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false
--- redisson-take-by-hset: take, ms, owner, done=nil
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[2], 1)
elseif redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
else
  return redis.call('PTTL', KEYS[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false
--- redisson-take-once: take, ms, owner, -, done=nil
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then return redis.error_reply(ARGV[3]) end
  return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false
--- redisson-take-and-count: take, ms, owner, done=nil
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return redis.call('PTTL', KEYS[1])
end
redis.call('INCR', KEYS[2])
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false
--- redisson-take-and-tell-count: take, ms, owner
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return {redis.call('PTTL', KEYS[1]), -1}
end
local count = redis.call('INCR', KEYS[2])
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {-1, count}
--- redisson-unlock: release, message, ms, owner, publish, ms, done=1
local latch = KEYS[3]
if latch then
  local before = redis.call('GET', latch)
  if before then return tonumber(before) end
end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return false end
local done = 0
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  done = 1
  redis.call('DEL', KEYS[1])
  if ARGV[4] then
    redis.call(ARGV[4], KEYS[2], ARGV[1])
  else
    redis.call('PUBLISH', KEYS[2], ARGV[1])
  end
end
if latch then redis.call('SET', latch, done, 'PX', ARGV[5]) end
return done
--- redisson-unlock-or-tell: release, message, ms, owner, done=1
if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return false end
  if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 0
  end
  redis.call('DEL', KEYS[1])
end
redis.call('PUBLISH', KEYS[2], ARGV[1])
return 1
--- redisson-unlock-silently: release, ms, owner, ms, done=1
local latch = KEYS[2]
if latch then
  local before = redis.call('GET', latch)
  if before then return tonumber(before) end
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end
local done = 0
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
else
  done = 1
  redis.call('DEL', KEYS[1])
end
if latch then redis.call('SET', latch, done, 'PX', ARGV[3]) end
return done
--- redisson-force: release, message, publish, done=1
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
if ARGV[2] then
  redis.call(ARGV[2], KEYS[2], ARGV[1])
else
  redis.call('PUBLISH', KEYS[2], ARGV[1])
end
return 1
--- redisson-force-silently: release, done=1
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
return 1
--- redisson-force-readers: release, message, publish, done=1
if redis.call('HGET', KEYS[1], 'mode') ~= 'read' then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] then
  redis.call(ARGV[2], KEYS[2], ARGV[1])
else
  redis.call('PUBLISH', KEYS[2], ARGV[1])
end
return 1
--- redisson-force-writer: release, message, publish, done=1
if redis.call('HGET', KEYS[1], 'mode') ~= 'write' then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] then
  redis.call(ARGV[2], KEYS[2], ARGV[1])
else
  redis.call('PUBLISH', KEYS[2], ARGV[1])
end
return 1
--- redisson-renew: extend, ms, owner, done=1
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
--- redisson-renew-each: extend, ms, owner, owner, owner
local renewed = {}
for place, key in ipairs(KEYS) do
  renewed[place] = redis.call('HEXISTS', key, ARGV[place + 1])
  if renewed[place] == 1 then redis.call('PEXPIRE', key, ARGV[1]) end
end
return renewed
--- redisson-take-write: take, ms, owner, done=nil
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'write')
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return false
end
if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return redis.call('PTTL', KEYS[1]) end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]) + ARGV[1])
return false
--- redisson-unlock-write: release, message, ms, owner, publish, ms, done=1
local latch = KEYS[3]
if latch then
  local before = redis.call('GET', latch)
  if before then return tonumber(before) end
end
local mode, done, is_free = redis.call('HGET', KEYS[1], 'mode'), 1, false
if not mode then
  is_free = true
elseif mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
  return false
elseif redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  done = 0
else
  redis.call('HDEL', KEYS[1], ARGV[3])
  if redis.call('HLEN', KEYS[1]) == 1 then
    redis.call('DEL', KEYS[1])
    is_free = true
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
  end
end
if is_free and ARGV[4] then redis.call(ARGV[4], KEYS[2], ARGV[1]) end
if is_free and not ARGV[4] then redis.call('PUBLISH', KEYS[2], ARGV[1]) end
if latch then redis.call('SET', latch, done, 'PX', ARGV[5]) end
return done
--- redisson-unlock-write-or-nil: release, message, ms, owner, publish, ms, done=1
local before = redis.call('GET', KEYS[3])
if before then return tonumber(before) end
local mode, reply, is_free = redis.call('HGET', KEYS[1], 'mode'), 1, false
if not mode then
  reply, is_free = false, true
elseif mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
  return false
elseif redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  reply = 0
else
  redis.call('HDEL', KEYS[1], ARGV[3])
  if redis.call('HLEN', KEYS[1]) == 1 then
    redis.call('DEL', KEYS[1])
    is_free = true
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
  end
end
if is_free then redis.call(ARGV[4], KEYS[2], ARGV[1]) end
redis.call('SET', KEYS[3], reply or 1, 'PX', ARGV[5])
return reply
--- redisson-take-read: take, ms, owner, writer, done=nil
local mode = redis.call('HGET', KEYS[1], 'mode')
local may = not mode or mode == 'read' or mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1
if not may then return redis.call('PTTL', KEYS[1]) end
local ttl, count = ARGV[1], 1
if mode then
  count = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
  redis.call('HSET', KEYS[1], ARGV[2], 1)
end
redis.call('SET', KEYS[2] .. ':' .. count, 1)
redis.call('PEXPIRE', KEYS[2] .. ':' .. count, ttl)
if mode then ttl = math.max(redis.call('PTTL', KEYS[1]), ttl) end
redis.call('PEXPIRE', KEYS[1], ttl)
return false
--- redisson-take-read-anew: take, ms, owner, writer, done=nil
local mode = redis.call('HGET', KEYS[1], 'mode')
local may = not mode or mode == 'read' or mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1
if not may then return redis.call('PTTL', KEYS[1]) end
local count = 1
if mode then
  count = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
  redis.call('HSET', KEYS[1], ARGV[2], 1)
end
redis.call('SET', KEYS[2] .. ':' .. count, 1)
redis.call('PEXPIRE', KEYS[2] .. ':' .. count, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false
--- redisson-unlock-read: release, message, owner, publish, ms, done=1
local latch = KEYS[5]
if latch then
  local before = redis.call('GET', latch)
  if before then return tonumber(before) end
end
local mode, done, longest = redis.call('HGET', KEYS[1], 'mode'), 1, -3
if mode then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end
  local count = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
  if count == 0 then redis.call('HDEL', KEYS[1], ARGV[2]) end
  redis.call('DEL', KEYS[3] .. ':' .. (count + 1))
  if redis.call('HLEN', KEYS[1]) > 1 then
    for _, holder in ipairs(redis.call('HKEYS', KEYS[1])) do
      for place = tonumber(redis.call('HGET', KEYS[1], holder)) or 0, 1, -1 do
        longest = math.max(longest, redis.call('PTTL', KEYS[4] .. ':' .. holder .. ':rwlock_timeout:' .. place))
      end
    end
    if longest > 0 then redis.call('PEXPIRE', KEYS[1], longest) end
    if longest > 0 or mode == 'write' then done = 0 end
  end
  if done == 1 then redis.call('DEL', KEYS[1]) end
end
if done == 1 and ARGV[3] then redis.call(ARGV[3], KEYS[2], ARGV[1]) end
if done == 1 and not ARGV[3] then redis.call('PUBLISH', KEYS[2], ARGV[1]) end
if latch then redis.call('SET', latch, done, 'PX', ARGV[4]) end
return done
--- redisson-unlock-read-or-nil: release, message, owner, publish, ms, done=1
local before = redis.call('GET', KEYS[5])
if before then return tonumber(before) end
local mode, done, longest = redis.call('HGET', KEYS[1], 'mode'), 1, -3
if mode then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return false end
  local count = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
  if count == 0 then redis.call('HDEL', KEYS[1], ARGV[2]) end
  redis.call('DEL', KEYS[3] .. ':' .. (count + 1))
  if redis.call('HLEN', KEYS[1]) > 1 then
    for _, holder in ipairs(redis.call('HKEYS', KEYS[1])) do
      for place = tonumber(redis.call('HGET', KEYS[1], holder)) or 0, 1, -1 do
        longest = math.max(longest, redis.call('PTTL', KEYS[4] .. ':' .. holder .. ':rwlock_timeout:' .. place))
      end
    end
    if longest > 0 then redis.call('PEXPIRE', KEYS[1], longest) end
    if longest > 0 or mode == 'write' then done = 0 end
  end
  if done == 1 then redis.call('DEL', KEYS[1]) end
end
if done == 1 then redis.call(ARGV[3], KEYS[2], ARGV[1]) end
redis.call('SET', KEYS[5], done, 'PX', ARGV[4])
if not mode then return false end
return done
--- redisson-renew-read: extend, ms, owner, done=1
if not redis.call('HGET', KEYS[1], ARGV[2]) then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if redis.call('HLEN', KEYS[1]) > 1 then
  for _, holder in ipairs(redis.call('HKEYS', KEYS[1])) do
    for place = tonumber(redis.call('HGET', KEYS[1], holder)) or 0, 1, -1 do
      redis.call('PEXPIRE', KEYS[2] .. ':' .. holder .. ':rwlock_timeout:' .. place, ARGV[1])
    end
  end
end
return 1
--- redisson-renew-reads: extend, ms, owner, owner
local renewed = {}
for place = 1, #KEYS, 2 do
  local lock, holder = KEYS[place], ARGV[1 + (place + 1) / 2]
  local done = 0
  if redis.call('HGET', lock, holder) then
    done = 1
    redis.call('PEXPIRE', lock, ARGV[1])
    if redis.call('HLEN', lock) > 1 then
      for _, one in ipairs(redis.call('HKEYS', lock)) do
        for count = tonumber(redis.call('HGET', lock, one)) or 0, 1, -1 do
          redis.call('PEXPIRE', KEYS[place + 1] .. ':' .. one .. ':rwlock_timeout:' .. count, ARGV[1])
        end
      end
    end
  end
  renewed[#renewed + 1] = done
end
return renewed
--- redisson-renew-readers: extend, ms, number, owner, other, number, owner
local renewed, next_argument = {}, 2
for place = 1, #KEYS, 2 do
  local lock, done, last = KEYS[place], 0, next_argument + tonumber(ARGV[next_argument])
  while next_argument < last do
    next_argument = next_argument + 1
    local holder = ARGV[next_argument]
    local count = redis.call('HGET', lock, holder)
    if count then
      done = 1
      for one = count, 1, -1 do
        redis.call('PEXPIRE', KEYS[place + 1] .. ':' .. holder .. ':rwlock_timeout:' .. one, ARGV[1])
      end
    end
  end
  next_argument = next_argument + 1
  if done == 1 then redis.call('PEXPIRE', lock, ARGV[1]) end
  renewed[#renewed + 1] = done
end
return renewed
--- redisson-is-read: look
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode == 'read' or mode == 'write' and redis.call('HLEN', KEYS[1]) > 2 then return 1 end
return 0
--- members-take-alone: take, now, owner, ms, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local now = math.floor(ARGV[1] * 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local members = 1
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  if not redis.call('ZSCORE', KEYS[1], '__write__') then members = redis.call('ZCOUNT', KEYS[1], '-inf', '+inf') end
else
  members = 1 + redis.call('ZCOUNT', KEYS[1], '-inf', '+inf')
end
if members > 1 then return false end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), '__write__')
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return true
--- members-take-alone-by-server: take, now, owner, ms, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local members = 1
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  if not redis.call('ZSCORE', KEYS[1], '__write__') then members = redis.call('ZCOUNT', KEYS[1], '-inf', '+inf') end
else
  members = 1 + redis.call('ZCOUNT', KEYS[1], '-inf', '+inf')
end
if members > 1 then return false end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), '__write__')
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return true
--- members-take-beside: take, now, owner, ms, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local now = math.floor(ARGV[1] * 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) and redis.call('ZSCORE', KEYS[1], '__write__') then return false end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
redis.call('ZREM', KEYS[1], '__write__')
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return true
--- members-take-beside-by-server: take, now, owner, ms, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) and redis.call('ZSCORE', KEYS[1], '__write__') then return false end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
redis.call('ZREM', KEYS[1], '__write__')
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return true
--- members-extend: extend, now, owner, ms, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local now = math.floor(ARGV[1] * 1000)
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then return false end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
if redis.call('ZSCORE', KEYS[1], '__write__') then redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), '__write__') end
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return true
--- members-extend-by-server: extend, now, owner, ms, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then return false end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
if redis.call('ZSCORE', KEYS[1], '__write__') then redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), '__write__') end
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return true
--- members-look: look, now, owner
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local now = math.floor(ARGV[1] * 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return true end
return false
--- members-look-by-server: look, now, owner
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return true end
return false
--- members-release: release, owner, done=1
if redis.call('TYPE', KEYS[1]).ok == 'string' then return false end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return false end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[1], '__write__')
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if last then redis.call('PEXPIREAT', KEYS[1], last) end
return true
--- redisson-take-other: take, ms, owner, done=nil
--- redisson-unlock-other: release, -, -, owner
--- redisson-renew-other: extend, ms, owner
--- no-lock: other
--- job: other
