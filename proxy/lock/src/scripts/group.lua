-- Takes, gives back and extends locks of several clients, each by itself, and as the step of its kind would where nothing is unusual.
-- KEYS  lock, companion, … of those that are taken, then given back, then extended; no lock twice
-- ARGV  1 how many runs of locks are taken on the same terms  2 how many locks are given back  3 how many of which the record goes with
--       the lock  4 how many runs are extended  5 f where fencing tokens are remembered without a record
--       6… of each run: its count, TTL, ms, what was asked for (13 digits), how long the companion lives, ms; and the record's flags, or of an
--       extension the flag that the new TTL comes to
--       then of each that is taken: what the record begins with, and the value
--       then of each that is given back or extended: its grant, and the value that the command compares, if it does
-- Answers a list. For each lock it has what its own step would answer, or '-' where something is unusual: nothing was done there, and its own
-- step is to be sent. Answers 0 where nothing can be done at all. Raises nothing.
local byte, find, call = string.byte, string.find, redis.pcall
local found, t = call('MGET', unpack(KEYS)), redis.pcall('TIME')
if found.err or t.err then return 0 end
local clocked = t[1] .. sub('00000' .. t[2], -6)
if #clocked ~= 16 then return 0 end
local now, out, ended, i, runs, at = sub(clocked, 1, MS), {}, {}, 1, 6, 6 + 5 * (ARGV[1] + ARGV[4])
local number, floor, known = clocked, nil, nil
if ARGV[5] == 'f' then
  -- Rarely:
  floor = floor_of(KEYS[2])
  known = call('GET', floor)
  if is_error(known) then return 0 end
  number = above(known, clocked)
end

-- The next run: its count and its terms, and the ends of what it asks for as a record has them.
local function next_run()
  local count, ttl, asked, px, flags = unpack(ARGV, runs, runs + 4)
  runs = runs + 5
  if asked == '0000000000000' then return count, ttl, asked, px, flags, asked .. asked end
  local low = (now + asked) % 1000000
  return count, ttl, asked, px, flags, asked .. string.format('%07d%06d', (now + asked - low) / 1000000, low)
end

-- Whether the value of a lock is that of its record, whose lease is live.
local function is_live(held, record)
  return held and record and sub(record, OWNER) == held and #held <= MAX_STORED_TOKEN and sub(record, VERSION.STATE) == '1L'
end

for _ = 1, ARGV[1] do
  local count, ttl, asked, px, flags, span = next_run()
  local back, granted = number .. now .. span, 'G' .. flags .. '0' .. number .. now .. asked .. ttl
  local fresh, again = granted .. ':-0', granted .. ':0'
  for _ = 1, count do
    local held, old, front, value, answer = found[i], found[i + 1], ARGV[at], ARGV[at + 1], '-'
    if held then
      if held ~= value and is_live(held, old) and byte(old, AT.FLAGS) % (INDEBTED + INDEBTED) < INDEBTED then
        answer = sub(old, SESSION) == sub(front, SESSION) and 'B1001' or 'B1000'
      end
    elseif not old or find(old, '^1R[@A-CH-K]') and sub(old, FENCE) < number
      and (sub(old, OWNER) ~= value or sub(old, CLIENT.PROCESS) == sub(front, CLIENT.PROCESS)) then
      local done, wrote = call('SET', KEYS[i], value, 'NX', 'PX', ttl), nil
      if done and done.ok then
        -- What MGET does not show may be there all the same, and no record.
        if old then wrote = call('SET', KEYS[i + 1], front .. back .. value, 'PX', px).ok
        else wrote = not call('SET', KEYS[i + 1], front .. back .. value, 'PX', px, 'GET') end
        if wrote then answer = old and again or fresh
        elseif type(call('DEL', KEYS[i])) ~= 'number' then call('SET', KEYS[i], '', 'PX', 1) end
      end
    end
    out[#out + 1] = answer
    i, at = i + 2, at + 2
  end
end

-- Whether the lock at hand is this session's, and has the value that the command compares.
local function is_own(held, record)
  local compared = ARGV[at + 1]
  return is_live(held, record) and sub(record, GRANT) == ARGV[at] and (compared == '' or compared == held)
end

local given, keep = i, tonumber(ARGV[2])
local is_remembered = ARGV[3] ~= '0' and call('SET', floor, number == clocked and clocked or known, 'PX', '600000').ok
for n = 1, keep + ARGV[3] do
  local held, old, answer = found[i], found[i + 1], '-'
  if is_own(held, old) then
    local token, done = sub(old, FENCE), nil
    local is_short = byte(old, AT.FLAGS) % (INDEBTED + INDEBTED) < INDEBTED and (sub(token, 1, MS) == sub(old, SINCE) or token == '0000000000000000')
    if is_short and n > keep and is_remembered and token < clocked then
      ended[#ended + 1] = KEYS[i + 1]
      done = true
    elseif is_short then done = call('SET', KEYS[i + 1], '1R' .. sub(old, AT.FLAGS), 'PX', '600000').ok
    else done = type(call('SETRANGE', KEYS[i + 1], BEFORE.STATE, 'R')) == 'number' end
    if done then
      ended[#ended + 1] = KEYS[i]
      answer = 'R' .. sub(old, FENCE.SINCE)
    end
  end
  out[#out + 1] = answer
  i, at = i + 2, at + 2
end
if ended[1] and type(call('DEL', unpack(ended))) ~= 'number' then
  -- A week is longer than what is left of a lease, and than what its record had.
  for k = given, i - 1, 2 do
    if out[(k + 1) / 2] ~= '-' then
      call('SETRANGE', KEYS[k + 1], BEFORE.STATE, 'L')
      call('PEXPIRE', KEYS[k + 1], WITHOUT_TTL_MS)
      out[(k + 1) / 2] = '-'
    end
  end
end

for _ = 1, ARGV[4] do
  local count, ttl, asked, px, kept, span = next_run()
  for _ = 1, count do
    local held, old, answer = found[i], found[i + 1], '-'
    if is_own(held, old) then
      local bits = byte(old, AT.FLAGS)
      local flags = string.char(byte(kept) + bits % WANTED - bits % INDEBTED)
      -- First the record: what cannot be recorded is not done.
      if call('SET', KEYS[i + 1], '1L' .. flags .. sub(old, GRANT.SINCE) .. span .. held, 'PX', px).ok then
        if call('PEXPIRE', KEYS[i], ttl) == 1 then
          answer = 'X' .. flags .. sub(old, FENCE.SINCE) .. asked .. ttl .. ':' .. t[1] .. ':' .. t[2]
        else call('SET', KEYS[i + 1], old, 'PX', px) end
      end
    end
    out[#out + 1] = answer
    i, at = i + 2, at + 2
  end
end
return out
