-- Looks at locks that a sweep has found, and gives those without TTL one where that is asked for.
-- KEYS  lock, companion, lock, companion …
-- ARGV  one a lock: the TTL for one that has none, ms ('0': leave it)
-- Answers one entry a lock: { G governed | U without a record | - gone, its TTL in ms (0 none), whether it was
-- given one, grant, fencing token, ms since it was granted, what stands for its value ('' for none that could be an
-- owner token) }.
local function token(value) return value and not deadline_of(value) and redis.sha1hex(value) or '' end
local answer = {}
for i = 1, #KEYS / 2 do
  local lock, companion = KEYS[i * 2 - 1], KEYS[i * 2]
  local left = redis.call('PTTL', lock)
  if left == -2 then answer[i] = { '-', 0, 0, '', '0', 0, '' }
  else
    local m = redis.call('MGET', lock, companion)
    local value, record = m[1] or share(lock, m[2]), m[2]
    if unread then return unread end
    local adopted = 0
    if left == -1 and ARGV[i] ~= '0' then
      adopted, left = redis.call('PEXPIRE', lock, ARGV[i]), tonumber(ARGV[i])
      if record then redis.call('PEXPIRE', companion, math.max(left, redis.call('PTTL', companion))) end
    end
    if governed(value, record) then
      answer[i] = { 'G', math.max(left, 0), adopted, sub(record, GRANT), sub(record, FENCE), math.max(0, clock() - tonumber(sub(record, SINCE))), token(m[1]) }
    else answer[i] = { 'U', math.max(left, 0), adopted, '', '0', 0, token(m[1]) } end
  end
end
return answer
