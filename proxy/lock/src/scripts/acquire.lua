-- Takes a lock if it is free: SETNX, SET … NX, INCR.
-- KEYS  lock, companion
-- ARGV  1 value  2 what the record begins with: '1L', flags, grant, session, identity  3 TTL, ms ('0' none)
--       4 the TTL that was asked for, 13 digits  5 how long the companion lives, ms  6 fence
--       7 flags (of repeated, and m monitor, A a lock found without a TTL is given one, g the old value is wanted,
--       i a counter, Q a free lock is not granted, V the record is looked at first, w P S what is shown of a held lock, W a lock that is no string is an error)
--       8 the rules and how long a debt lives, the TTL for flag A, ms; and for a point in time and with flags Q and V, where 3 is '@' and 4
--       and 5 are empty, what was asked for ('-' nothing), default, cap, keep, outlive  9… with flag m the application's own command
-- Answers a usual grant as one string: G, the record's flags, whether the value was another client's, fencing token
-- (16), now (13), TTL asked for (13), TTL, ':', what it ended and since when that was held. A usual refusal
-- likewise: B1000, and B1001 to the session that holds it.
-- Writes the lock key before the companion; where that cannot be written the lock is taken back, or monitored the answer's
-- reason is the error. A held lock is never touched, except that one without a TTL
-- gets one by flag A, and one that the client holds and asks for again may be told to it. Monitored, a
-- counter goes up in the holder's lock: the record then follows the value.
local lock, companion, value, front, ttl, asked, px = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local flags = ARGV[7]
local monitor, native, done, strange = string.find(flags, 'm', 1, true), false, nil, nil
if ttl == '@' then
  -- Rarely:
  local t = redis.pcall('TIME')
  if t.err then return { '?', t, '' } end
  if string.find(flags, 'Q', 1, true) and redis.pcall('EXISTS', lock) ~= 1 then return quarantined() end
  local ask, default, cap, keep, outlive = string.match(ARGV[8], '^%x+ %d+ (%S+) (%d+) (%d+) (%d+) (%d+)$')
  local bits
  if ask == '-' then ask = '' end
  ttl, asked, bits = terms(ask, default, cap, keep)
  if monitor then ttl, bits = asked, 0 end
  front = '1L' .. string.char(string.byte(front, AT.FLAGS) + bits) .. sub(front, AT.GRANT)
  px = lifetime(ttl, outlive)
  -- A record of a later version stays as it is, and the lock gets what was asked for. Where this is not known to happen, `grant` finds out.
  if string.find(flags, 'V', 1, true) then strange = later(redis.pcall('GET', companion)) end
  if strange then ttl = asked end
  ttl, asked = string.format('%.0f', ttl), digits(asked)
end
if monitor then
  native = redis.pcall(unpack(ARGV, 9))
  if type(native) == 'table' then done = native.ok else done = native == 1 or (not native and string.find(flags, 'g', 1, true)) end
  if type(native) == 'table' and native.err then return { '?', native, '' } end
else
  if ttl == '0' then done = redis.pcall('SET', lock, value, 'NX') else done = redis.pcall('SET', lock, value, 'NX', 'PX', ttl) end
  if done and done.err then return { '?', done, '' } end
end
local owner = value
if #value > MAX_STORED_TOKEN then owner = redis.sha1hex(value) end
if done then
  if strange then return { 'V', native, strange } end
  local number, now, ended, since, shared = grant(companion, front, ARGV[6], asked, owner, px, ARGV[8])
  if not number then
    -- Rarely:
    return unrecorded(monitor, native, lock, now, asked)
  end
  if monitor then return { 'G', native, '', number, now, ttl, ended, since, 0, false, false, shared, asked } end
  return 'G' .. sub(front, FLAGS) .. shared .. number .. now .. asked .. ttl .. ':' .. ended .. since
end
local held, record = redis.pcall('GET', lock), redis.pcall('GET', companion)
if held and type(record) == 'string' and (flags == 'u' or flags == '') and sub(record, OWNER) == held and #held <= MAX_STORED_TOKEN
  and held ~= owner and sub(record, VERSION.STATE) == '1L' and string.byte(record, AT.FLAGS) % (INDEBTED + INDEBTED) < INDEBTED then
  return sub(record, SESSION) == sub(front, SESSION) and 'B1001' or 'B1000'
end

-- Rarely:
held, record = both(held, record, lock, companion)
local live, adopted, soon = governed(held or share(lock, record), record), 0, 0
if unread then
  if monitor then return { 'B', native or false, unread, 0, 0, 0, 0 } end
  return { '?', unread, '' }
end
if not monitor then
  if live and held then
    -- Rarely:
    local again
    again, soon = repeated(flags, lock, companion, record, owner, front, tonumber(ttl), tonumber(asked), px)
    if again then return again end
  end
  if has(flags, 'g') then native = redis.pcall('GET', lock) end
end
if has(flags, 'i') and type(native) == 'number' and record
  and sub(record, VERSION.STATE) == '1L' and owner_in(record) == string.format('%.0f', native - 1) then
  -- Rarely:
  live = true
  if amend(companion, BEFORE.OWNER, held .. added(record)) then return { 'B', native, trouble, 0, 0, 0, 0 } end
end
strange = later(record)
if has(flags, 'A') and not live and not strange and redis.pcall('PTTL', lock) == -1 then
  adopted = redis.pcall('PEXPIRE', lock, string.match(ARGV[8], '^%x+ (%d+)')) == 1 and 1 or 0
end
if live then refused_try(companion, record, sub(front, AT.SESSION) .. ARGV[8]) end
if has(flags, 'W') and not held then native = redis.pcall('GET', lock) else native = shown(flags, lock, held) or native end
if unread then return { '?', unread, '' } end
return { 'B', native or false, strange or '', live and 1 or 0, adopted, soon, live and same_session(record, sub(front, AT.SESSION)) and 1 or 0 }
