-- Marks a lease as granted in a reply that was never read, so that the client may have it when it asks again
-- (see repeated) and keep-alive lets it go. Only a lease that is current and lives; nothing is undone.
-- KEYS  lock, companion
-- ARGV  1 the session that was granted it: a lease that another one has taken on since is left alone
--       2 grant ('' whichever that session was granted last)
-- Answers 1 where the lease is marked now, 0 where that lease is over or was marked before.
local m = redis.call('MGET', KEYS[1], KEYS[2])
local record = m[2]
local value = m[1] or share(KEYS[1], record)
if unread then return unread end
if not governed(value, record) or sub(record, SESSION) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' and sub(record, GRANT) ~= ARGV[2] then return 0 end
local bits = string.byte(record, AT.FLAGS)
if bit.band(bits, UNDELIVERED) == UNDELIVERED then return 0 end
return amend(KEYS[2], BEFORE.FLAGS, string.char(bits + UNDELIVERED)) or 1
