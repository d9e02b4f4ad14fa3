-- Ends a lease by order of an operator, and wakes those who wait for it as the library of its shape would.
-- KEYS  lock, companion
-- ARGV  1 the fencing token of the lease that is meant, 16 digits
-- Answers { code, fencing token, since, now, grant }: B broken, N another lease holds the lock, A nobody does,
-- U what holds it has no record.
-- What wakes waiters is not declared in KEYS: a lock has it in a channel or key of its own, in the same server.
-- Wakes those who wait for a lock that is free now, where its shape tells which library they use. None of it can
-- fail the step: who is not woken tries again when the TTL that it was told has passed.
--   Redisson: a hash with the fields <uuid>:<thread>. One channel a lock; the fair lock has one a waiter, which stand in a
--   queue; the read-write lock has a channel of its own, on which 1 wakes all.
--   Spring's RedisLockRegistry: <registry>:<path> holds a UUID. Where the registry ends is not known, so each colon is tried.
--   python-redis-lock: lock:<name> holds 18 bytes as base64; waiters pop an element off a list that lives for a second.
local function wake(lock, kind, mode, owner)
  local four = '%x%x%x%x'
  local uuid = '^' .. four .. four .. '%-' .. four .. '%-' .. four .. '%-' .. four .. '%-' .. four .. four .. four
  if kind == 'hash' and string.find(owner, uuid .. ':') then
    local name = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
    if mode then redis.pcall('PUBLISH', 'redisson_rwlock:' .. name, '1') return end
    local channel, queue = 'redisson_lock__channel:' .. name, redis.pcall('LRANGE', 'redisson_lock_queue:' .. name, 0, 15)
    redis.pcall('PUBLISH', channel, '0')
    for i = 1, #queue do redis.pcall('PUBLISH', channel .. ':' .. queue[i], '0') end
  elseif kind == 'string' and string.find(owner, uuid .. '$') then
    local at = string.find(lock, ':', 1, true)
    for _ = 1, 8 do
      if not at then return end
      redis.pcall('PUBLISH', sub(lock, 1, at - 1) .. '-channel:' .. lock, lock)
      at = string.find(lock, ':', at + 1, true)
    end
  elseif kind == 'string' and sub(lock, 1, 5) == 'lock:' and #owner == 24 and string.find(owner, '^[%w+/]+$') then
    local signal = 'lock-signal:' .. sub(lock, 6)
    local there = redis.call('TYPE', signal).ok
    if there ~= 'none' and there ~= 'list' then return end
    redis.pcall('DEL', signal)
    redis.pcall('LPUSH', signal, 1)
    redis.pcall('PEXPIRE', signal, 1000)
  end
end

local lock, companion = KEYS[1], KEYS[2]
local m = redis.call('MGET', lock, companion)
local record = m[2]
local owner = m[1] or share(lock, record)
if unread then return unread end
if not governed(owner, record) then return { redis.call('EXISTS', lock) == 1 and 'U' or 'A', '0', '0', 0, '' } end
local fence = sub(record, FENCE)
local about = { 'N', fence, sub(record, SINCE), clock(), sub(record, GRANT) }
if fence ~= ARGV[1] then return about end
local kind = redis.call('TYPE', lock).ok
local mode = kind == 'hash' and redis.call('HGET', lock, 'mode')
local failed = end_lease(lock, companion, 'B')
if failed then return failed end
wake(lock, kind, mode, owner)
about[1] = 'B'
return about
