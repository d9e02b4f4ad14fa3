-- What is known of the lease of a lock. Writes nothing.
-- KEYS  lock, companion
-- ARGV  1 the session that asks
-- Answers { code, fencing token, since, now, TTL, whether that session was granted it }: H held, U held without a record of
-- that lease, A free. What is not known is an empty text. Of a free lock the fencing token is that of its last lease.
local lock, companion = KEYS[1], KEYS[2]
local m = read('MGET', lock, companion)
local record = m and m[2]
local value = m and (m[1] or share(lock, record))
local now, left = clock(), read('PTTL', lock)
if unread then return unread end
if governed(value, record) then
  return { 'H', sub(record, FENCE), sub(record, SINCE), now, left, sub(record, SESSION) == ARGV[1] and 1 or 0 }
end
if left ~= -2 then return { 'U', '', '', now, left, 0 } end
return { 'A', record and sub(record, VERSION) == '1' and sub(record, FENCE) or '', '', now, left, 0 }
