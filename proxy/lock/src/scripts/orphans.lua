-- Looks at leases that are kept alive and that nobody may renew any more. It writes nothing.
-- KEYS  lock, companion, lock, companion, …
-- ARGV  one a lock: the TTL from which on somebody renews it, ms; '' where nobody does
-- Answers an array with one entry a lock: 0 where there is nothing to keep alive; above 0 in how many ms it is to be
-- looked at again, because somebody renews it; else one string: flags, grant (16), session (16), identity (16), fencing
-- token (16), for how many ms it is held (13 digits), TTL.
local found, answers = redis.call('MGET', unpack(KEYS)), {}
local now = clock()
for at = 1, #KEYS, 2 do
  local lock, record, answer = KEYS[at], found[at + 1], 0
  local value = found[at] or share(lock, record)
  if governed(value, record) and bit.band(string.byte(record, AT.FLAGS), UNDELIVERED + KEPT) == KEPT then
    local left, renewed = redis.call('PTTL', lock), tonumber(ARGV[(at + 1) / 2])
    if renewed and left > renewed then answer = left - renewed
    elseif left > 0 then
      answer = sub(record, FLAGS.FENCE) .. digits(math.max(0, now - tonumber(sub(record, SINCE)))) .. string.format('%.0f', left)
    end
  end
  answers[#answers + 1] = answer
end
return answers
