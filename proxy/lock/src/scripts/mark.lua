-- Enters the prefix that is in use, and that a proxy serves under it. One prefix at a time is in use.
-- KEYS  the prefix mark, the proxies that serve under the prefix of this one
-- ARGV  1 that prefix  2 what this proxy says of itself  3 what it said before, '' nothing  4 for how long that counts, ms  5 for how long it is
--       remembered that proxies have served under the prefix, ms  6 the prefix that this proxy gives up by an order, '' none
--       7 how the name of the second key goes on behind the prefix
-- Answers { the mark as it is now, the mark that was replaced or '', Redis's error where this proxy could not be entered or '', then what each proxy
-- under the prefix says of itself }; of another prefix only that. Or Redis's error.
-- A mark counts where a proxy has entered itself under it: anything else is no word of a proxy's, and is replaced.
local mark, own, prefix = KEYS[1], KEYS[2], ARGV[1]
local found, replaced = redis.pcall('GET', mark), ''
if is_error(found) and not string.find(found.err, 'WRONGTYPE', 1, true) then return found end
if found ~= prefix then
  if type(found) == 'string' and found ~= ARGV[6] and #found <= 32 and string.find(found, '^[!-z|~]+$') then
    local used = redis.pcall('EXISTS', found .. ARGV[7])
    if used ~= 0 then return { found } end
  end
  local done = redis.pcall('SET', mark, prefix)
  if is_error(done) then return done end
  if found then replaced = type(found) == 'string' and found ~= '' and sub(found, 1, 64) or '?' end
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[3] ~= '' and ARGV[3] ~= ARGV[2] then redis.pcall('ZREM', own, ARGV[3]) end
local done = redis.pcall('ZADD', own, string.format('%.0f', now + ARGV[4]), ARGV[2])
if is_error(done) and string.find(done.err, 'WRONGTYPE', 1, true) then
  redis.pcall('DEL', own)
  done = redis.pcall('ZADD', own, string.format('%.0f', now + ARGV[4]), ARGV[2])
end
if is_error(done) then return { prefix, replaced, done.err } end
redis.pcall('PEXPIRE', own, ARGV[5])
local over = redis.pcall('ZRANGEBYSCORE', own, '-inf', string.format('(%.0f', now), 'LIMIT', 0, 64)
for i = 1, #over do redis.pcall('ZREM', own, over[i]) end
local said = redis.pcall('ZRANGEBYSCORE', own, string.format('%.0f', now), '+inf', 'LIMIT', 0, 256)
if is_error(said) then return { prefix, replaced, said.err } end
return { prefix, replaced, '', unpack(said) }
