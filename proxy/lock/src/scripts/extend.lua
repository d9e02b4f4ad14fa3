-- Gives the current lease a new TTL: the EXPIRE family, GETEX, PERSIST, compare-and-expire scripts.
-- A TTL that is over at once is a release.
-- KEYS  lock, companion
-- ARGV  1 flags (of proof, and m monitor, c the command compares the value itself, g the value is wanted,
--       e extensions of an equal identity pass while they do not shorten, k tokenless, w P S what is shown
--       where the value is another, A the new TTL is kept alive)
--       2 own grant  3 claimed value  4 session+identity+the rules, and the observed grant and value
--       5 TTL, ms ('0' none)  6 the TTL that was asked for, 13 digits  7 how long the companion lives, ms
--       where there is a TTL in ms or none at all, without a condition or a limit, not monitored. Else 6 and 7 are empty, and 5 is
--       what was asked ('-' no TTL, '@' a point in time, '+' added to what is left), cap, keep (as `terms` has it), outlive,
--       condition (NX XX GT LT, XL for XX and LT, '-' none), longest hold
--       8… the application's own command without the key
-- Answers the usual extension, proven by the session, as one string: X, the record's flags, fencing token (16), since
-- (13), TTL asked for (13), TTL, ':', and what TIME answered: seconds, ':', microseconds.
-- Conditions are judged against the TTL that the application knows: one that was invented for it is none.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[1]
local value, record = redis.pcall('GET', lock), redis.pcall('GET', companion)
-- The flags begin with r and s where that proof is required and counts.
if value and type(record) == 'string' and ARGV[6] ~= '' and ARGV[2] == sub(record, GRANT) and sub(record, OWNER) == value and #value <= MAX_STORED_TOKEN
  and sub(record, VERSION.STATE) == '1L' and string.find(flags, '^rs[^guzB]*$')
  and (ARGV[3] == value or not string.find(flags, 'c', 1, true)) then
  local ttl, asked, t = ARGV[5], ARGV[6], redis.pcall('TIME')
  if t.err then return { '?', t, '' } end
  local deadline, bits = asked, string.byte(record, AT.FLAGS)
  local after = NO_FLAGS + bits % WANTED - bits % INDEBTED
  if string.find(flags, 'A', 1, true) then after = after + KEPT end
  if asked ~= '0000000000000' then
    local at = t[1] * 1000 + (t[2] - t[2] % 1000) / 1000 + asked
    deadline = string.format('%07d%06d', (at - at % 1000000) / 1000000, at % 1000000)
  end
  -- First the record: what cannot be recorded is not done. And of that its TTL, which Redis lets pass when out of memory.
  local done = redis.pcall('PEXPIRE', companion, ARGV[7])
  if type(done) == 'number' then done = redis.pcall('SETRANGE', companion, BEFORE.ASKED, asked .. deadline) end
  if type(done) ~= 'number' then return { '?', done, '' } end
  -- Undelivered and kept alive are over, unless it is kept alive anew; debts and who the holder is go on.
  if after ~= bits then redis.call('SETRANGE', companion, BEFORE.FLAGS, string.char(after)) end
  if ttl == '0' then done = redis.pcall('PERSIST', lock) else done = redis.pcall('PEXPIRE', lock, ttl) end
  if type(done) ~= 'number' then
    redis.call('SETRANGE', companion, BEFORE.ASKED, sub(record, ASKED.DEADLINE))
    redis.call('SETRANGE', companion, BEFORE.FLAGS, sub(record, FLAGS))
    return { '?', done, '' }
  end
  return 'X' .. string.char(after) .. sub(record, FENCE.SINCE) .. asked .. ttl .. ':' .. t[1] .. ':' .. t[2]
end

-- Rarely:
local monitor, ask, cap, keep, outlive, want, hold = has(flags, 'm'), nil, nil, nil, nil, nil, 0
if ARGV[6] == '' then
  ask, cap, keep, outlive, want, hold = string.match(ARGV[5], '^(%S+) (%d+) (%d+) (%d+) (%S+) (%d+)$')
  hold = tonumber(hold)
end
local mark = ask and sub(ask, 1, 1)
local watched = monitor and not has(flags, 'c')
-- Runs the application's own command.
local function own()
  if mark == '+' then
    local left = read('PTTL', lock)
    if not left then return unread end
    ARGV[9] = string.format('%.0f', left + tonumber(sub(ask, 2)))
  end
  return run(ARGV[8], lock, unpack(ARGV, 9))
end
-- A comparing script that does nothing where there is no TTL (its condition is XX), and there is none.
local function idle() return has(flags, 'c') and want == 'XX' and read('PTTL', lock) == -1 end
-- Whether the new TTL is over at once.
local function ending()
  if mark == '@' then return tonumber(sub(ask, 2)) <= clock() end
  return ask and ask ~= '-' and tonumber(ask) <= 0
end
value, record = both(value, record, lock, companion)
if not value and not has(flags, 'c') and not has(flags, 'g') then value = share(lock, record) end
if unread then return unreadable(watched, ARGV[8], lock, unpack(ARGV, 9)) end
if not value then
  -- Rarely:
  if has(flags, 'c') then return { 'A', redis.pcall('GET', lock), '', record and '' or '-', '0' } end
  local native, found, more = own(), ''
  if declined then return { '?', native, '' } end
  if record and sub(record, VERSION) == '1' and redis.pcall('EXISTS', lock) == 0 then
    if ending() then found, more = overdue(companion, flags, record, ARGV[2], ARGV[4])
    elseif unreleased(record) and string.find(ARGV[2], sub(record, GRANT), 1, true) then
      found = 'E'
      amend(companion, BEFORE.STATE, 'E')
    end
  end
  if more then return asks(record, 0) end
  return { 'A', native, trouble or '', record and found or '-', record and sub(record, SINCE) or '0' }
end
if has(flags, 'c') and form(value) ~= ARGV[3] then
  local late, native = governed(value, record) and over(flags, record, ARGV[2]), shown(flags, lock, value)
  if unread then return { '?', unread, '' } end
  return { 'D', native, late and 'expired' or '', late and 1 or 0 }
end
if not governed(value, record) then
  if idle() then return { 'C', false, '' } end
  if unread then return unreadable(false) end
  local native = own()
  return { ran and 'U' or '?', native, later(record) or '' }
end

local held, late, reason, more = proof(flags, record, ARGV[2], ARGV[3], sub(ARGV[4], WHO.SEEN), ARGV[4], companion)
local now, since = clock(), sub(record, SINCE)
local ttl, asked, bits = tonumber(ARGV[5]), tonumber(ARGV[6]), has(flags, 'A') and KEPT or 0
if ask then
  ttl, asked = 0, 0
  if ask ~= '-' then
    local deadline, most = tonumber(sub(record, DEADLINE)), tonumber(cap)
    if mark == '@' then asked = tonumber(sub(ask, 2)) - now
    elseif mark == '+' then asked = (deadline > 0 and deadline - now or read('PTTL', lock) or 0) + tonumber(sub(ask, 2))
    else asked = tonumber(ask) end
    asked = math.min(asked, MAX_TTL_MS)
    ttl = asked
    if most > 0 and ttl > most then ttl = most end
    local kept = sub(keep, 1, 1)
    if kept == '2' or (kept == '1' and ttl ~= asked) then bits = KEPT end
    if ttl > 0 then ttl = math.min(ttl + sub(keep, 2), MAX_TTL_MS) end
  end
end
local persists = not ask and ttl == 0 or ask == '-'
local ends = not persists and asked <= 0
if not held and more and not unread then return asks(record, 0) end
if not held and has(flags, 'e') and not late and not ends and kin(record, ARGV[4])
  and (persists or ttl >= (read('PTTL', lock) or 0)) then held = 'e' end
if held then reason = '' end
local stays = monitor and idle()
if unread then return unreadable(watched, ARGV[8], lock, unpack(ARGV, 9)) end
-- A release that nothing proved pays what its identity owes.
local pays = not held and ends and not has(flags, 'c')
if not held and not monitor then
  -- Rarely:
  local paid = pays and repay(companion, flags, record, ARGV[4]) or 0
  -- An extension that was refused says nothing about keep-alive; only a wish to be rid of the lock does.
  if not ends then flags = string.gsub(flags, 'k', '') end
  return refusal(companion, flags, record, reason, late, ARGV[4], nil, paid)
end
if not ends and hold > 0 and now - tonumber(since) > hold then
  if not monitor then
    -- Rarely:
    return refusal(companion, flags, record, 'limited', false, ARGV[4])
  end
  if reason == '' then reason = 'limited' end
end

local native, paid = false, 0
if monitor then
  if stays then return { 'C', false, reason } end
  native = own()
  if not ran then return { '?', native, '' } end
  if pays then
    -- Rarely:
    paid = repay(companion, flags, record, ARGV[4])
    if paid == 1 then reason = 'expired' end
  end
  if native == 0 then return { 'C', native, trouble or reason } end
  ttl, bits = asked, 0
else
  local known = tonumber(sub(record, DEADLINE))
  if want and want ~= '-' then
    local left = known > 0 and known - now or nil
    if (want == 'NX' and left) or (want == 'XX' and not left) or (want == 'GT' and not (left and asked > left))
      or (want == 'LT' and left and asked >= left) or (want == 'XL' and not (left and asked < left)) then return { 'C', false, '' } end
  end
end
local px, unwritten = ask and lifetime(ttl, outlive) or ARGV[7], nil
if ends then
  -- Rarely:
  unwritten = amend(companion, BEFORE.STATE, held and 'R' or 'T')
else unwritten = replace(companion, rewrite(record, bits, now, asked), px) end
if not monitor then
  -- First the record: what cannot be recorded is not done.
  if unwritten then return { '?', unwritten, '' } end
  local done
  if ends then done = redis.pcall('DEL', lock)
  elseif ttl > 0 then done = redis.pcall('PEXPIRE', lock, ttl)
  else done = redis.pcall('PERSIST', lock) end
  if is_error(done) then
    -- Rarely:
    if ends then amend(companion, BEFORE.STATE, 'L') else replace(companion, record, px) end
    return { '?', done, '' }
  end
end
reason = trouble or reason
local number = sub(record, FENCE)
if ends then
  if held then shorten(companion, record) end
  return { 'R', native, reason, number, since, held or '', value, '', late and 1 or 0, paid }
end
return { 'X', native, reason, ttl, number, since, now, bits > 0 and 1 or 0, has(flags, 'g') and value or false, held or '', asked }
