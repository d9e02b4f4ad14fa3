-- Gives a lease whose holder is known to be gone an earlier end, at which it runs out unreleased. The record stays as it is.
-- KEYS  lock, companion
-- ARGV  1 session that was granted it  2 grant  3 the longest TTL that it has from now on, ms
--       4 since how many ms its holder is gone: extended after that, it has another one
--       5 the longest TTL that it may have as far as the proxy knows, ms: above that another proxy has renewed it for a holder
-- Answers { fencing token, for how many ms it is held } where its TTL was shortened; else 0: it is over, another session's by
-- now, goes on with another holder, or ends sooner anyway.
local m = redis.call('MGET', KEYS[1], KEYS[2])
local record = m[2]
local value = m[1] or share(KEYS[1], record)
if unread then return unread end
if not governed(value, record) then return 0 end
if sub(record, SESSION) ~= ARGV[1] or sub(record, GRANT) ~= ARGV[2] then return 0 end
local now, left = clock(), redis.call('PTTL', KEYS[1])
if unread then return unread end
local asked, deadline = tonumber(sub(record, ASKED)), tonumber(sub(record, DEADLINE))
if asked > 0 and deadline - asked > now - ARGV[4] then return 0 end
if left <= ARGV[3] + 0 or left > ARGV[5] + 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return { sub(record, FENCE), math.max(0, now - sub(record, SINCE)) }
