-- The index of the leases that are kept alive: for each, until when a proxy answers for it. An entry that is overdue
-- is of a lease that nobody renews any more, or of one whose connection has ended.
-- KEYS  index
-- ARGV  1 most overdue entries that are told  2 how many of them are passed over first  3 how many entries are written,
--       then two for each: ms from now when it is overdue, entry
--       then the entries that are removed
-- Answers an array: ms until the next entry is overdue, '' if there is none; then two for each overdue entry: entry, for
-- how many ms.
local index, written, t = KEYS[1], tonumber(ARGV[3]), redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for at = 4 + 2 * written, #ARGV do redis.call('ZREM', index, ARGV[at]) end
local entries, longest = {}, 0
for at = 4, 2 + 2 * written, 2 do
  local from_now = tonumber(ARGV[at])
  longest = math.max(longest, from_now)
  entries[#entries + 1] = string.format('%.0f', now + from_now)
  entries[#entries + 1] = ARGV[at + 1]
end
if written > 0 then
  redis.call('ZADD', index, unpack(entries))
  -- Should it be left behind, as by SWAPDB, it goes by itself.
  redis.call('PEXPIRE', index, string.format('%.0f', math.max(2592000000, 2 * longest)))
end
local told = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[2], ARGV[1])
for at = 2, #told, 2 do told[at] = string.format('%.0f', now - told[at]) end
local next = redis.call('ZRANGEBYSCORE', index, '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
table.insert(told, 1, next[2] and string.format('%.0f', next[2] - now) or '')
return told
