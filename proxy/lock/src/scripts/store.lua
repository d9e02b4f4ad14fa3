-- Stores a value without NX: SET, SETEX, PSETEX, SET … XX, and with the old value as answer GETSET, SET … GET;
-- where a comparison holds SET … IFEQ and CAS.
-- Free: an acquire. The holder's own: an extension with a new value. Somebody else's: refused, unless its
-- value is a deadline that has passed and the old value is wanted or was compared (a take-over).
-- KEYS  lock, companion
-- ARGV  1 value  2 grant+session+identity+the rules+how long a debt lives, ms  3 bits  4 fence  5 TTL asked for ('' none, '@' a
--       point in time)  6 default  7 cap  8 keep  9 outlive  10 stored form of the value ('' the value itself)
--       11 TTL for a lease found without one ('0' leave it)  12 flags (of proof, and m monitor, X only if it exists, K keep the TTL,
--       y h of replacing, g the old value is wanted, d a passed deadline may be taken over, Q a free lock is not granted, c the command compares the value
--       itself, u and goes on where it is another, z and found another already)
--       13 own grant  14 claimed or compared value  15 observed grant  16 observed value  17 session+identity+the rules
--       18 longest hold (0: no limit)  19… the application's own command, or for one that compares the SET that
--       it comes to
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[12]
local monitor, wants = has(flags, 'm'), has(flags, 'g')
local owner = ARGV[10]
if owner == '' then owner = ARGV[1] end
local watched = monitor and not has(flags, 'c')
-- Stores the value, as the application would where nothing is enforced.
local function put(ms)
  if monitor then return run(unpack(ARGV, 19)) end
  if ms > 0 then return redis.pcall('SET', lock, ARGV[1], 'PX', ms) end
  return redis.pcall('SET', lock, ARGV[1])
end
local m = read('MGET', lock, companion) or {}
local value, record = m[1], m[2]
if not value and not wants and not has(flags, 'c') then value = share(lock, record) end
local ttl, asked, bits = terms(ARGV[5], ARGV[6], ARGV[7], ARGV[8])
if unread then return unreadable(watched, unpack(ARGV, 19)) end
if monitor then ttl, bits = asked, 0 end
local px = lifetime(ttl, ARGV[9])

-- Monitored the application's command goes first; else the record does, and what cannot be recorded is not done.
local function granted(reason, state, old_since, own, late)
  local native
  if monitor then
    native = put(ttl)
    if declined then return { '?', native, '' } end
  end
  local number, now, ended, since, shared = grant_of(companion, ARGV[2], bits + tonumber(ARGV[3]), ARGV[4], asked, owner, px, own)
  if not number then
    if not monitor then return { '?', now, '' } end
    return { 'G', native, now, '0', 0, 0, '', '0', 0, value }
  end
  if not monitor then
    native = put(ttl)
    if is_error(native) then
      -- Rarely:
      if record then replace(companion, record, px) else redis.pcall('DEL', companion) end
      return { '?', native, '' }
    end
    native = false
  end
  if state == '' then state, old_since = ended, since end
  return { 'G', native, reason, number, now, ttl, state, old_since, bits > 0 and 1 or 0, value, false, shared, asked, late and 1 or 0 }
end
local function ungoverned()
  local native = run(unpack(ARGV, 19))
  return { ran and 'U' or '?', native, later(record) or '' }
end

local compares, differs = has(flags, 'c'), has(flags, 'u')
if compares then
  local found = value or redis.pcall('GET', lock)
  if not value and (found or not differs) then return { 'A', found, '', '', '0' } end
  if value and (has(flags, 'z') or (form(value) == ARGV[14]) == (differs ~= nil)) then
    local late = governed(value, record) and over(flags, record, ARGV[13])
    return { 'D', wants and value or false, late and 'expired' or '', late and 1 or 0 }
  end
end
-- A comparison that names the value may prove, or take over; one that only names another may not.
local names = compares and not differs

if not value then
  if read('EXISTS', lock) == 1 then return ungoverned() end
  if unread then return unreadable(watched, unpack(ARGV, 19)) end
  if has(flags, 'X') then return { 'A', false, '', '', '0' } end
  if has(flags, 'Q') then return quarantined() end
  if later(record) then return ungoverned() end
  return granted('', '', '0')
end
if not governed(value, record) then return ungoverned() end

local since = sub(record, SINCE)
if (wants or names) and has(flags, 'd') and not has(flags, 'Q') and passed(value, record) then return granted('', 'T', since, sub(record, SESSION) == sub(ARGV[17], WHO.SESSION)) end
local claim = ARGV[14]
if differs then claim = owner end
local seen = ARGV[15] .. ARGV[16]
local held, late, why, more = proof(replacing(flags, record, value, ARGV[1], seen), record, ARGV[13], claim, seen, ARGV[17], companion)
local now = clock()
if unread then return unreadable(watched, unpack(ARGV, 19)) end
if not held and more then return asks(record, 0) end
local reason = ''
if not held then
  if names or (has(flags, 'X') and not wants) then reason = why or 'not-owner' else reason = wants and 'take-over' or 'overwrite' end
  if not monitor then
    local lost = wants and not names and ARGV[16] ~= '' and ARGV[16] ~= owner_in(record) and value
    return refusal(companion, flags, record, reason, late, ARGV[17], lost)
  end
  return granted(reason, 'O', since, nil, late)
end
if tonumber(ARGV[18]) > 0 and now - tonumber(since) > tonumber(ARGV[18]) then
  if not monitor then return refusal(companion, flags, record, 'limited', late, ARGV[17]) end
  reason = 'limited'
end
local new
if has(flags, 'K') then
  ttl = read('PTTL', lock)
  if unread then return unreadable(watched, unpack(ARGV, 19)) end
  ttl = math.max(0, math.min(ttl, MAX_TTL_MS))
  asked, bits = tonumber(sub(record, ASKED)), bit.band(string.byte(record, AT.FLAGS), KEPT)
  px, new = lifetime(ttl, ARGV[9]), sub(record, VERSION.DEADLINE) .. owner .. added(record)
else new = rewrite(record, bits, now, asked, owner) end
local native = false
if monitor then
  native = put(ttl)
  if declined then return { '?', native, '' } end
  replace(companion, new, px)
else
  local done = redis.pcall('SET', companion, new, 'PX', px)
  if not is_error(done) then
    done = put(ttl)
    if is_error(done) then redis.call('SET', companion, record, 'PX', px) end
  end
  if is_error(done) then return { '?', done, '' } end
end
return { 'X', native, trouble or reason, ttl, sub(record, FENCE), since, now, bits > 0 and 1 or 0, value, held or '', not has(flags, 'K') and asked }
