-- Gives the current lease a new TTL: the EXPIRE family, GETEX, PERSIST, compare-and-expire scripts.
-- A TTL that is over at once is a release.
-- KEYS  lock, companion
-- ARGV  1 flags (of proof, and m monitor, c the command compares the value itself, g the value is wanted,
--       e extensions of an equal identity pass while they do not shorten, k tokenless, w P S what is shown
--       where the value is another)
--       2 own grant  3 claimed value  4 observed grant  5 observed value  6 session+identity
--       7 ask ('' no TTL, '+' added to what is left)  8 cap  9 keep  10 outlive  11 condition (NX XX GT LT, XL for XX and LT, '' none)  12 longest hold
--       13… the application's own command
-- Conditions are judged against the TTL that the application knows: one that was invented for it is none.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[1]
local monitor = has(flags, 'm')
local function run()
  if sub(ARGV[7], 1, 1) == '+' then ARGV[15] = string.format('%.0f', redis.call('PTTL', lock) + tonumber(sub(ARGV[7], 2))) end
  return redis.pcall(unpack(ARGV, 13))
end
-- A comparing script that does nothing where there is no TTL (its condition is XX), and there is none.
local function idle() return has(flags, 'c') and ARGV[11] == 'XX' and redis.call('PTTL', lock) == -1 end
-- Whether the new TTL is over at once.
local function ending()
  if sub(ARGV[7], 1, 1) == '@' then return tonumber(sub(ARGV[7], 2)) <= clock() end
  return ARGV[7] ~= '' and tonumber(ARGV[7]) <= 0
end
local m = redis.pcall('MGET', lock, companion)
if m.err then return { '?', monitor and not has(flags, 'c') and run() or m, '' } end
local value, record = m[1], m[2]
if not value and not has(flags, 'c') and not has(flags, 'g') then value = share(lock, record) end
if not value then
  if has(flags, 'c') then return { 'A', redis.pcall('GET', lock), '', '', '0' } end
  local native, mark, more = run(), ''
  if record and sub(record, 1, 1) == '1' and redis.call('EXISTS', lock) == 0 then
    if ending() then mark, more = overdue(companion, flags, record, ARGV[2], ARGV[6])
    elseif sub(record, 2, 2) == 'L' and string.find(ARGV[2], sub(record, 4, 19), 1, true) then mark = 'E' end
  end
  if more then return asks(record, 0) end
  return { 'A', native, '', mark, record and sub(record, 68, 80) or '0' }
end
if has(flags, 'c') and form(value) ~= ARGV[3] then
  local late = governed(value, record) and over(flags, record, ARGV[2])
  return { 'D', shown(flags, lock, value), late and 'expired' or '', late and 1 or 0 }
end
if not governed(value, record) then
  if idle() then return { 'C', false, '' } end
  return { 'U', run(), '' }
end

local held, late, reason, more = proof(flags, record, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], companion)
local now, since = clock(), sub(record, 68, 80)
local ask, asked, ttl, bits = ARGV[7], 0, 0, 0
local cap = tonumber(ARGV[8])
if ask ~= '' then
  local mark, deadline = sub(ask, 1, 1), tonumber(sub(record, 94, 106))
  if mark == '@' then asked = tonumber(sub(ask, 2)) - now
  elseif mark == '+' then asked = (deadline > 0 and deadline - now or redis.call('PTTL', lock)) + tonumber(sub(ask, 2))
  else asked = tonumber(ask) end
  asked = math.min(asked, longest)
  ttl = asked
  if cap > 0 and ttl > cap then ttl = cap end
  if ARGV[9] == '1' and ttl ~= asked then bits = 2 end
end
local ends = ask ~= '' and asked <= 0
if not held and more then return asks(record, 0) end
if not held and has(flags, 'e') and not late and not ends and kin(record, ARGV[6])
  and (ask == '' or ttl >= redis.call('PTTL', lock)) then held = 'e' end
if held then reason = '' end
local paid = 0
if not held and ends and not has(flags, 'c') then paid = repay(companion, flags, record, ARGV[6]) end
if paid == 1 then reason = 'expired' end
if not held and not monitor then
  -- An extension that was refused says nothing about keep-alive; only a wish to be rid of the lock does.
  if not ends then flags = string.gsub(flags, 'k', '') end
  return refusal(companion, flags, record, reason, late, ARGV[6], nil, paid)
end
if not ends and tonumber(ARGV[12]) > 0 and now - tonumber(since) > tonumber(ARGV[12]) then
  if not monitor then return refusal(companion, flags, record, 'limited', false, ARGV[6]) end
  if reason == '' then reason = 'limited' end
end

local native = false
if monitor then
  if idle() then return { 'C', false, reason } end
  native = run()
  if type(native) == 'table' and native.err then return { '?', native, '' } end
  if native == 0 then return { 'C', native, reason } end
  ttl, bits = asked, 0
else
  local known, want = tonumber(sub(record, 94, 106)), ARGV[11]
  if want ~= '' then
    local left = known > 0 and known - now or nil
    if (want == 'NX' and left) or (want == 'XX' and not left) or (want == 'GT' and not (left and asked > left))
      or (want == 'LT' and left and asked >= left) or (want == 'XL' and not (left and asked < left)) then return { 'C', false, '' } end
  end
  if ends then redis.call('DEL', lock)
  elseif ttl > 0 then redis.call('PEXPIRE', lock, ttl)
  else redis.call('PERSIST', lock) end
end
local number = sub(record, 52, 67)
if ends then
  redis.call('SETRANGE', companion, 1, 'R')
  return { 'R', native, reason, number, since, held or '', value, '', late and 1 or 0, paid }
end
redis.call('SET', companion, rewrite(record, bits, now, asked), 'PX', lifetime(ttl, ARGV[10]))
return { 'X', native, reason, ttl, number, since, now, bits > 0 and 1 or 0, has(flags, 'g') and value or false, held or '', asked }
