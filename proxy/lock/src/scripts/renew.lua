-- Keeps leases alive: of each lock only that grant, only while nothing ended its keep-alive.
-- KEYS  lock, companion, lock, companion, …
-- ARGV  five a lock: 1 grant  2 TTL with its grace, ms  3 age up to which it is renewed, ms, behind a letter: `a`
--       whatever TTL was asked for, `i` if it was invented; else up to the end of what was asked for  4 grace, ms
--       5 the record's TTL, ms, or '' where the record lives long enough without
-- Answers an array with one number a lock: its new TTL in ms; 0 where there is nothing to keep alive any more; -1 where
-- the lock is gone although its record says that it is held and kept alive; -2 where there is no record.
-- Lock by lock; what is true of one says nothing about the next.
local found, t, answers = redis.call('MGET', unpack(KEYS)), redis.call('TIME'), {}
local now = t[1] * 1000 + t[2] / 1000
for at = 1, #KEYS, 2 do
  local value, record, arg, answer = found[at], found[at + 1], (at - 1) / 2 * 5 + 1, 0
  if not record then answer = -2
  elseif sub(record, VERSION.STATE) == '1L' and sub(record, GRANT) == ARGV[arg] and bit.band(string.byte(record, AT.FLAGS), UNDELIVERED + KEPT) == KEPT then
    if not value or #value > MAX_STORED_TOKEN then
      -- Rarely:
      value = value and form(value) or share(KEYS[at], record)
      if unread then return unread end
      if not value then answer = -1 end
    end
    local owner = sub(record, OWNER)
    if string.byte(record, AT.FLAGS) >= ADDED then
      -- Rarely:
      owner = owner_in(record)
    end
    if value == owner then
      local left = sub(record, DEADLINE) - now
      local age = ARGV[arg + 2]
      if sub(age, 1, 1) == 'a' or sub(record, ASKED) == '0000000000000' then left = sub(record, SINCE) + sub(age, 2) - now end
      -- What was asked for ends, or the age is reached: behind that comes the grace, as behind every TTL.
      if left > 0 then left = left + ARGV[arg + 3] end
      answer = ARGV[arg + 1]
      if left < answer + 0 then answer = string.format('%.0f', math.max(0, math.floor(left))) end
      if answer ~= '0' then
        redis.call('PEXPIRE', KEYS[at], answer)
        if ARGV[arg + 4] ~= '' then redis.call('PEXPIRE', KEYS[at + 1], ARGV[arg + 4]) end
      end
      answer = tonumber(answer)
    end
  end
  answers[#answers + 1] = answer
end
return answers
