-- Notices that a lease ran out unreleased, once for all proxies.
-- KEYS  lock, companion
-- ARGV  1 grant
-- Answers 1 where that lease ran out and nobody had noticed yet, else 0.
local record = redis.call('GET', KEYS[2])
if record and sub(record, VERSION.STATE) == '1L' and sub(record, GRANT) == ARGV[1] and redis.call('EXISTS', KEYS[1]) == 0 then
  return amend(KEYS[2], BEFORE.STATE, 'E') or 1
end
return 0
