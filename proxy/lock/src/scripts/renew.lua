-- Keeps a lease alive whose TTL the proxy chose. Only that grant, only while nothing ended its keep-alive.
-- KEYS  lock, companion
-- ARGV  1 grant  2 TTL  3 age up to which an invented TTL is renewed  4 outlive
-- Answers the new TTL in ms, or 0 where there is nothing to keep alive any more.
local m = redis.call('MGET', KEYS[1], KEYS[2])
local value, record = m[1] or share(KEYS[1], m[2]), m[2]
if not governed(value, record) or sub(record, 4, 19) ~= ARGV[1] or bit.band(string.byte(record, 3), 3) ~= 2 then return 0 end
local now, asked, until_ms = clock(), tonumber(sub(record, 81, 93)), 0
if asked > 0 then until_ms = tonumber(sub(record, 94, 106)) else until_ms = tonumber(sub(record, 68, 80)) + tonumber(ARGV[3]) end
local ttl = math.min(tonumber(ARGV[2]), until_ms - now)
if ttl <= 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('PEXPIRE', KEYS[2], ttl + tonumber(ARGV[4]))
return ttl
