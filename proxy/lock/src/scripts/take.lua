-- Takes a lock if it is free, and extends it if it is the caller's: scripts of applications that do both.
-- KEYS  lock, companion
-- ARGV  1 to 11 as in store.lua  12 flags (of proof, and m monitor, E the caller's own is extended by PEXPIRE,
--       else stored anew, w P S what is shown of a lock that is somebody else's)
--       13 own grant  14 observed grant  15 observed value  16 session+identity  17 longest hold (0: no limit)
--       18 how many bytes of the value make it the caller's ('' all)
-- The value is read first: where Redis is out of memory, PEXPIRE still passes and SET does not.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[12]
local monitor = has(flags, 'm')
local m = redis.pcall('MGET', lock, companion)
if m.err then return { '?', m, '' } end
local value, record = m[1], m[2]
local owner = ARGV[10]
if owner == '' then owner = ARGV[1] end
local ttl, asked, bits = terms(ARGV[5], ARGV[6], ARGV[7], ARGV[8])
-- What Redis is told: in monitor mode the application's own number, as it wrote it.
local px = ttl
if monitor then ttl, bits, px = asked, 0, ARGV[5] end
local function failed(answer) return type(answer) == 'table' and answer.err end

if not value then
  local native = redis.pcall('SET', lock, ARGV[1], 'NX', 'PX', px)
  if not native then return { 'A', redis.pcall('GET', lock), '', '', '0' } end
  if failed(native) then return { '?', native, '' } end
  local front = front_of(ARGV[2], bits + tonumber(ARGV[3]))
  local number, now, state, since, shared = grant(companion, front, ARGV[4], digits(asked), owner, lifetime(ttl, ARGV[9]), sub(ARGV[2], 49))
  return { 'G', native, '', number, now, ttl, state, since, bits > 0 and 1 or 0, false, false, shared, asked }
end

local own
if ARGV[18] == '' then own = form(value) == owner
else
  local bytes = tonumber(ARGV[18])
  own = sub(value, 1, bytes) == sub(ARGV[1], 1, bytes)
end
if not own then
  local native, adopted = shown(flags, lock, value), 0
  if ARGV[11] ~= '0' and redis.call('PTTL', lock) == -1 then adopted = redis.call('PEXPIRE', lock, ARGV[11]) end
  local held = governed(value, record)
  return { 'B', native, '', held and 1 or 0, adopted, 0, held and same_session(record, ARGV[16]) and 1 or 0 }
end
local function again(ms)
  if has(flags, 'E') then return redis.pcall('PEXPIRE', lock, ms) end
  return redis.pcall('SET', lock, ARGV[1], 'PX', ms)
end
if not governed(value, record) then return { 'U', again(ARGV[5]), '' } end

local since, now = sub(record, 68, 80), clock()
-- The value was compared just now: what the caller names is what is stored.
local held, late, reason, more = proof(flags, record, ARGV[13], form(value), ARGV[14] .. ARGV[15], ARGV[16], companion)
if not held and more then return asks(record, 0) end
if held then reason = '' end
if not held and not monitor then return refusal(companion, flags, record, reason, late, ARGV[16]) end
if tonumber(ARGV[17]) > 0 and now - tonumber(since) > tonumber(ARGV[17]) then
  if not monitor then return refusal(companion, flags, record, 'limited', late, ARGV[16]) end
  if reason == '' then reason = 'limited' end
end
local native = again(px)
if failed(native) then return { '?', native, '' } end
redis.call('SET', companion, rewrite(record, bits, now, asked, owner), 'PX', lifetime(ttl, ARGV[9]))
return { 'X', native, reason, ttl, sub(record, 52, 67), since, now, bits > 0 and 1 or 0, false, held or '', asked }
