-- Ends a lease by order of an operator, and wakes those who wait for it as the library of its shape would.
-- KEYS  lock, companion
-- ARGV  1 the fencing token of the lease that is meant, 16 digits
-- Answers { code, fencing token, since, now, grant }: B broken, N another lease holds the lock, A nobody does,
-- U what holds it has no record.
-- What wakes waiters is not declared in KEYS: a lock has it in a channel or key of its own, in the same server.
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
local failed = amend(companion, BEFORE.STATE, 'B')
if failed then return failed end
local gone = redis.pcall('DEL', lock)
if is_error(gone) then
  amend(companion, BEFORE.STATE, 'L')
  return gone
end
wake(lock, kind, mode, owner)
about[1] = 'B'
return about
