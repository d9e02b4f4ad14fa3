-- Notices that a lease ran out unreleased, once for all proxies.
-- KEYS  lock, companion
-- ARGV  1 grant
-- Answers 1 where that lease ran out and nobody had noticed yet, 2 where somebody had, 3 and more where there is another lease, or was,
-- since so many ms before, -1 where neither a lock nor a record is there, else 0: where it is held, was given back, or may have been.
local record = redis.call('GET', KEYS[2])
if not record then return redis.call('EXISTS', KEYS[1]) - 1 end
if later(record) or sub(record, GRANT) ~= ARGV[1] then return 3 + age(record) end
local state = sub(record, VERSION.STATE)
if state == '1E' then return 2 end
if state == '1L' and unreleased(record) and redis.call('EXISTS', KEYS[1]) == 0 then return amend(KEYS[2], BEFORE.STATE, 'E') or 1 end
return 0
