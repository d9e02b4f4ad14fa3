-- Takes, gives back and extends locks of several clients, each by itself, and as the step of its kind would where nothing is unusual.
-- KEYS  lock, companion, … of those that are taken, then given back, then extended; no lock twice
-- ARGV  1 how many are taken  2 how many are given back  3 how many terms there are
--       4… the terms: TTL, ms, what was asked for (13 digits), how long the companion lives, ms
--       then of each that is taken: what the record begins with and, in one byte, which terms, from 1 on; and the value
--       then of each that is given back or extended: its grant, A where the new TTL is kept alive or else '-', in one byte which terms (0 none),
--       and the value that the command compares, if it does
-- Answers a list. For each lock it has what its own step would answer, or '-' where something is unusual: nothing was done there, and its own
-- step is to be sent. Answers 0 where nothing can be done at all. Raises nothing.
local taken, given = ARGV[1] * 2, (ARGV[1] + ARGV[2]) * 2
local found, t = redis.pcall('MGET', unpack(KEYS)), redis.pcall('TIME')
if found.err or t.err then return 0 end
local clocked = t[1] .. sub('00000' .. t[2], -6)
if #clocked ~= 16 then return 0 end
local now, spans, out, ended, at = sub(clocked, 1, MS), {}, {}, {}, 4 + ARGV[3] * 3

for i = 1, #KEYS, 2 do
  local held, old, part, answer = found[i], found[i + 1], ARGV[at], '-'
  at = at + 1
  local term, live, bits, ttl, asked, span = string.byte(part, i <= taken and AT.FENCE or AT.PART.TERMS), nil, nil, nil, nil, nil
  if old then
    bits = string.byte(old, AT.FLAGS)
    live = held and sub(old, OWNER) == held and #held <= MAX_STORED_TOKEN and sub(old, VERSION.STATE) == '1L'
  end
  if term > 0 then
    ttl, asked, span = ARGV[1 + 3 * term], ARGV[2 + 3 * term], spans[term]
    if not span then
      span = asked .. asked
      if asked ~= '0000000000000' then
        local low = (now + asked) % 1000000
        span = asked .. string.format('%07d%06d', (now + asked - low) / 1000000, low)
      end
      spans[term] = span
    end
  end
  if i <= taken then
    local value = ARGV[at]
    at = at + 1
    if held then
      if live and held ~= value and bits % (INDEBTED + INDEBTED) < INDEBTED then
        answer = sub(old, SESSION) == sub(part, SESSION) and 'B1001' or 'B1000'
      end
    elseif not old or string.find(old, '^1R[@A-CH-K]') and sub(old, FENCE) < clocked
      and (sub(old, OWNER) ~= value or sub(old, CLIENT.PROCESS) == sub(part, CLIENT.PROCESS)) then
      local done, wrote = redis.pcall('SET', KEYS[i], value, 'NX', 'PX', ttl), nil
      if done and done.ok then
        local record, px = sub(part, VERSION.PROCESS) .. clocked .. now .. span .. value, ARGV[3 + 3 * term]
        -- What MGET does not show may be there all the same, and no record.
        if old then wrote = redis.pcall('SET', KEYS[i + 1], record, 'PX', px).ok
        else wrote = not redis.pcall('SET', KEYS[i + 1], record, 'PX', px, 'GET') end
        if wrote then answer = 'G' .. sub(part, FLAGS) .. '0' .. clocked .. now .. asked .. ttl .. (old and ':0' or ':-0')
        elseif type(redis.pcall('DEL', KEYS[i])) ~= 'number' then redis.pcall('SET', KEYS[i], '', 'PX', 1) end
      end
    end
  elseif live and sub(part, PART.GRANT) == sub(old, GRANT) then
    local compared = sub(part, PART.VALUE)
    if compared == '' or compared == held then
      if term > 0 then
        local after, px = NO_FLAGS + bits % WANTED - bits % INDEBTED, ARGV[3 + 3 * term]
        if sub(part, PART.KEPT) == 'A' then after = after + KEPT end
        local flags = string.char(after)
        -- First the record: what cannot be recorded is not done.
        if redis.pcall('SET', KEYS[i + 1], '1L' .. flags .. sub(old, GRANT.SINCE) .. span .. held, 'PX', px).ok then
          if redis.pcall('PEXPIRE', KEYS[i], ttl) == 1 then
            answer = 'X' .. flags .. sub(old, FENCE.SINCE) .. asked .. ttl .. ':' .. t[1] .. ':' .. t[2]
          else redis.pcall('SET', KEYS[i + 1], old, 'PX', px) end
        end
      else
        local number, marked = sub(old, FENCE), nil
        if bits % (INDEBTED + INDEBTED) < INDEBTED and (sub(number, 1, MS) == sub(old, SINCE) or number == '0000000000000000') then
          marked = redis.pcall('SET', KEYS[i + 1], '1R' .. sub(old, AT.FLAGS), 'PX', '600000').ok
        else marked = type(redis.pcall('SETRANGE', KEYS[i + 1], BEFORE.STATE, 'R')) == 'number' end
        if marked then
          ended[#ended + 1] = KEYS[i]
          answer = 'R' .. sub(old, FENCE.SINCE)
        end
      end
    end
  end
  out[#out + 1] = answer
end
if ended[1] and type(redis.pcall('DEL', unpack(ended))) ~= 'number' then
  -- A week is longer than what is left of a lease, and than what its record had.
  for i = taken + 1, given, 2 do
    if out[(i + 1) / 2] ~= '-' then
      redis.pcall('SETRANGE', KEYS[i + 1], BEFORE.STATE, 'L')
      redis.pcall('PEXPIRE', KEYS[i + 1], WITHOUT_TTL_MS)
      out[(i + 1) / 2] = '-'
    end
  end
end
return out
