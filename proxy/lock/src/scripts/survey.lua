-- Looks whether leases are there that another server had granted. It writes nothing.
-- KEYS  lock, companion, lock, companion, …
-- ARGV  one a lock: grant
-- Answers an array with one number a lock: -5 and less there is another lease, or was, since so many ms before; -4 there is none; -3 it
-- is over and was not given back; -2 it was given back, or may have been, or ended; -1 it is held without a TTL; else it is held, and the ms of its TTL.
local found, answers = redis.call('MGET', unpack(KEYS)), {}
for at = 1, #KEYS, 2 do
  local lock, record = KEYS[at], found[at + 1]
  local value, answer = found[at] or share(lock, record), -4
  if unread then return unread end
  if record and (later(record) or sub(record, GRANT) ~= ARGV[(at + 1) / 2]) then answer = -5 - age(record)
  elseif record then
    local state = sub(record, STATE)
    if governed(value, record) then answer = math.max(redis.call('PTTL', lock), -1)
    else answer = (unreleased(record) or state == 'E') and -3 or -2 end
  end
  answers[#answers + 1] = answer
end
return answers
