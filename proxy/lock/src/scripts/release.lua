-- Gives a lock back: DEL, UNLINK, GETDEL, compare-and-delete scripts, DELEX, DELIFEQ, CAD.
-- KEYS  lock, companion
-- ARGV  1 flags (of proof, and m monitor, c the command compares the value itself, u and goes on where it is
--       another, z and found another already, g the value is wanted, k tokenless, w P S what is shown where the
--       value is another)  2 own grant  3 claimed value  4 session+identity+the rules, and the observed grant and value
--       5 the application's own command without the key, or for one that compares the DEL that it comes to
--       6 f where the record goes with the lock, if this session's proof is all that is needed
-- Answers the usual release, proven by the session, as one string: R, fencing token (16), since when it was held (13);
-- and that of a stranger: N, fencing token, since, and what TIME answered: seconds, ':', microseconds.
-- A tokenless release may pay a debt instead.
-- The record goes first: what cannot be recorded is not done, unless it is only watched.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[1]
local value, record = redis.pcall('GET', lock), redis.pcall('GET', companion)
if value and type(record) == 'string' and sub(record, OWNER) == value and #value <= MAX_STORED_TOKEN and sub(record, VERSION.STATE) == '1L' then
  local settled = string.byte(record, AT.FLAGS) % (INDEBTED + INDEBTED) < INDEBTED -- nobody owes a release
  -- The flags begin with r and s where that proof is required, counts, and nothing is only watched.
  if ARGV[2] == sub(record, GRANT) and string.find(flags, '^rs[^guzB]*$')
    and (ARGV[3] == value or not string.find(flags, 'c', 1, true)) then
    -- As `shorten` does, in the same write.
    local number, marked = sub(record, FENCE), nil
    local short = settled and (sub(number, 1, MS) == sub(record, SINCE) or number == '0000000000000000')
    if short and ARGV[6] then
      -- Rarely:
      if remembers(companion, number) then
        local native = redis.pcall(ARGV[5], lock, companion)
        return is_error(native) and { '?', native, '' } or 'R' .. sub(record, FENCE.SINCE)
      end
    end
    if short then marked = redis.pcall('SET', companion, '1R' .. sub(record, AT.FLAGS), 'PX', '600000').ok
    else marked = type(redis.pcall('SETRANGE', companion, BEFORE.STATE, 'R')) == 'number' end
    if marked then
      local native = redis.pcall(ARGV[5], lock)
      if native ~= 1 and type(native) == 'table' and native.err then
        -- A week is longer than what is left of the lease, and than what its record had.
        redis.call('SETRANGE', companion, BEFORE.STATE, 'L')
        if short then redis.call('PEXPIRE', companion, WITHOUT_TTL_MS) end
        return { '?', native, '' }
      end
      return 'R' .. sub(record, FENCE.SINCE)
    end
  end
  -- Who brings nothing but an identity, and another one, proves nothing; without debts there is nothing to pay.
  if ARGV[2] == '' and string.find(flags, '^rs[iDpbk]*$') and sub(record, CLIENT) ~= sub(ARGV[4], WHO.CLIENT)
    and settled then
    local t = redis.pcall('TIME')
    if t.err then return { '?', t, '' } end
    return 'N' .. sub(record, FENCE.SINCE) .. t[1] .. ':' .. t[2]
  end
end

-- Rarely:
local monitor = has(flags, 'm')
local watched = monitor and not has(flags, 'c')
value, record = both(value, record, lock, companion)
if not value and not has(flags, 'c') and not has(flags, 'g') then value = share(lock, record) end
if unread then return unreadable(watched, ARGV[5], lock) end
if not value then
  if has(flags, 'c') then return { 'A', redis.pcall('GET', lock), '', record and '' or '-', '0' } end
  local native, mark, more = run(ARGV[5], lock), ''
  if declined then return { '?', native, '' } end
  if record and sub(record, VERSION) == '1' and native ~= 1 then mark, more = overdue(companion, flags, record, ARGV[2], ARGV[4]) end
  if more then return asks(record, 0) end
  return { 'A', native, trouble or '', record and mark or '-', record and sub(record, SINCE) or '0' }
end
if has(flags, 'c') and (has(flags, 'z') or (form(value) == ARGV[3]) == (has(flags, 'u') ~= nil)) then
  local late, native = governed(value, record) and over(flags, record, ARGV[2]), shown(flags, lock, value)
  if unread then return { '?', unread, '' } end
  return { 'D', native, late and 'expired' or '', late and 1 or 0 }
end
if not governed(value, record) then
  local native = run(ARGV[5], lock)
  return { declined and '?' or 'U', native, later(record) or '' }
end

local held, late, reason, more = proof(flags, record, ARGV[2], ARGV[3], sub(ARGV[4], WHO.SEEN), ARGV[4], companion)
if unread then return unreadable(watched, ARGV[5], lock) end
if not held and more then return asks(record, 0) end
local state, paid = held == 'o' and has(flags, 'x') and 'T' or 'R', 0
if not monitor then
  if not held then
    if not has(flags, 'c') then paid = repay(companion, flags, record, ARGV[4]) end
    return refusal(companion, flags, record, reason, late, ARGV[4], nil, paid)
  end
  local unmarked = amend(companion, BEFORE.STATE, state)
  if unmarked then return { '?', unmarked, '' } end
end
local native = run(ARGV[5], lock)
if declined then
  if not monitor then amend(companion, BEFORE.STATE, 'L') end
  return { '?', native, '' }
end
if monitor then
  if not held and not has(flags, 'c') then paid = repay(companion, flags, record, ARGV[4]) end
  if paid == 1 then reason = 'expired' end
  amend(companion, BEFORE.STATE, held and state or 'T')
end
if held and state == 'R' then shorten(companion, record) end
return { 'R', native, trouble or reason or '', sub(record, FENCE), sub(record, SINCE), held or '', has(flags, 'g') and value or false, state, late and 1 or 0, paid }
