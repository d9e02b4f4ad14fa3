-- Looks at locks that a sweep has found, and gives those without TTL one where that is asked for.
-- KEYS  lock, companion, lock, companion …
-- ARGV  four a lock, for one that has no TTL: 1 the TTL where it has no record, ms ('0': leave it)  2 where it has one
--       ('0': leave it)  3 k where that is kept alive from now on  4 how long its record lives from now on, ms
-- Answers one entry a lock: { G governed | U without a record | - gone, its TTL in ms (0 none), whether it was
-- given one, flags, grant, session, identity, fencing token and for how many ms it is held in one string, what stands
-- for its value ('' for none that could be an owner token) }.
-- All locks are read before anything is written: what cannot be read leaves all as they are. What cannot be written leaves its lock
-- as it is, and the record is written first: nobody would keep alive what it does not say. Beside a lock that stays
-- without TTL the record lives on, so that the lock is governed when it is enforced one day.
local function token(value) return value and not deadline_of(value) and redis.sha1hex(value) or '' end
local found, now = {}, clock()
for i = 1, #KEYS / 2 do
  local lock, companion = KEYS[i * 2 - 1], KEYS[i * 2]
  local left, m = redis.call('PTTL', lock), redis.call('MGET', lock, companion)
  local live = left ~= -2 and governed(m[1] or share(lock, m[2]), m[2])
  if unread then return unread end
  found[i] = { left, m[1], live and m[2], later(m[2]) }
end
local answer = {}
for i = 1, #found do
  local lock, companion, at = KEYS[i * 2 - 1], KEYS[i * 2], i * 4 - 3
  local left, value, record, strange = unpack(found[i], 1, 4)
  local ttl, given, lease = ARGV[record and at + 1 or at], 0, ''
  local flags = record and string.byte(record, AT.FLAGS)
  local kept = record and ttl ~= '0' and ARGV[at + 2] == 'k' and bit.band(flags, KEPT) == 0
  if record then lease = sub(record, FLAGS.FENCE) .. digits(math.max(0, now - tonumber(sub(record, SINCE)))) end
  if left == -1 and not strange and not (kept and amend(companion, BEFORE.FLAGS, string.char(flags + KEPT))) then
    if ttl ~= '0' and redis.pcall('PEXPIRE', lock, ttl) == 1 then given, left = 1, tonumber(ttl)
    elseif kept then amend(companion, BEFORE.FLAGS, string.char(flags)) end
    if record and (given == 1 or redis.call('PTTL', companion) < ARGV[at + 3] / 2) then redis.pcall('PEXPIRE', companion, ARGV[at + 3]) end
  end
  answer[i] = { left == -2 and '-' or record and 'G' or 'U', math.max(left, 0), given, lease, token(value) }
end
return answer
