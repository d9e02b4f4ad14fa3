-- Takes a lock if it is free, and extends it if it is the caller's: scripts of applications that do both.
-- KEYS  lock, companion
-- ARGV  1 to 11 as in store.lua  12 flags (of proof, and m monitor, E the caller's own is extended by PEXPIRE,
--       else stored anew, Q a free lock is not granted, w P S what is shown of a lock that is somebody else's)
--       13 own grant  14 observed grant  15 observed value  16 session+identity+the rules  17 longest hold (0: no limit)
--       18 how many bytes of the value make it the caller's ('' all)
-- The value is read first: where Redis is out of memory, PEXPIRE still passes and SET does not.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[12]
local monitor = has(flags, 'm')
local owner = ARGV[10]
if owner == '' then owner = ARGV[1] end
local m = read('MGET', lock, companion) or {}
local value, record = m[1], m[2]
local ttl, asked, bits = terms(ARGV[5], ARGV[6], ARGV[7], ARGV[8])
local strange = later(record)
if unread then return { '?', unread, '' } end
-- What Redis is told: in monitor mode the application's own number, as it wrote it.
local px = ttl
if monitor or strange then ttl, bits, px = asked, 0, ARGV[5] end

if not value then
  if has(flags, 'Q') then return quarantined() end
  local native = run('SET', lock, ARGV[1], 'NX', 'PX', px)
  if declined then return { '?', native, '' } end
  if not native then return { 'A', redis.pcall('GET', lock), '', '', '0' } end
  if strange then return { 'V', native, strange } end
  local number, now, state, since, shared = grant_of(companion, ARGV[2], bits + tonumber(ARGV[3]), ARGV[4], asked, owner, lifetime(ttl, ARGV[9]))
  if not number then return unrecorded(monitor, native, lock, now) end
  return { 'G', native, '', number, now, ttl, state, since, bits > 0 and 1 or 0, false, false, shared, asked }
end

local own
if ARGV[18] == '' then own = form(value) == owner
else
  local bytes = tonumber(ARGV[18])
  own = sub(value, 1, bytes) == sub(ARGV[1], 1, bytes)
end
if not own then
  local native, held, adopted = shown(flags, lock, value), governed(value, record), 0
  if unread then return { '?', unread, '' } end
  if held then refused_try(companion, record, ARGV[16]) end
  if ARGV[11] ~= '0' and not held and not strange and redis.pcall('PTTL', lock) == -1 then
    adopted = redis.pcall('PEXPIRE', lock, ARGV[11]) == 1 and 1 or 0
  end
  return { 'B', native, strange or '', held and 1 or 0, adopted, 0, held and same_session(record, ARGV[16]) and 1 or 0 }
end
local function again(ms)
  if has(flags, 'E') then return run('PEXPIRE', lock, ms) end
  return run('SET', lock, ARGV[1], 'PX', ms)
end
if not governed(value, record) then
  local native = again(ARGV[5])
  return { ran and 'U' or '?', native, strange or '' }
end

local since, now = sub(record, SINCE), clock()
-- The value was compared just now: what the caller names is what is stored.
local held, late, reason, more = proof(flags, record, ARGV[13], form(value), ARGV[14] .. ARGV[15], ARGV[16], companion)
if unread then return { '?', unread, '' } end
if not held and more then return asks(record, 0) end
if held then reason = '' end
if not held and not monitor then return refusal(companion, flags, record, reason, late, ARGV[16]) end
if tonumber(ARGV[17]) > 0 and now - tonumber(since) > tonumber(ARGV[17]) then
  if not monitor then return refusal(companion, flags, record, 'limited', late, ARGV[16]) end
  if reason == '' then reason = 'limited' end
end
local new, lives, native = rewrite(record, bits, now, asked, owner), lifetime(ttl, ARGV[9]), nil
if monitor then
  native = again(px)
  if declined then return { '?', native, '' } end
  replace(companion, new, lives)
else
  -- First the record: what cannot be recorded is not done.
  local unwritten
  if has(flags, 'E') then unwritten = replace(companion, new, lives)
  else
    unwritten = redis.pcall('SET', companion, new, 'PX', lives)
    if not unwritten.err then unwritten = nil end
  end
  if unwritten then return { '?', unwritten, '' } end
  native = again(px)
  if declined then
    replace(companion, record, lives)
    return { '?', native, '' }
  end
end
return { 'X', native, trouble or reason, ttl, sub(record, FENCE), since, now, bits > 0 and 1 or 0, false, held or '', asked }
