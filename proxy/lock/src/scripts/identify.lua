-- Adds the process to the identity of whoever was granted a lease, once it was looked up.
-- KEYS  lock, companion
-- ARGV  1 grant  2 process
-- Answers 1 where that lease was waiting for it, else 0.
local record = redis.call('GET', KEYS[2])
if not record or later(record) or sub(record, GRANT) ~= ARGV[1] or sub(record, PROCESS) ~= pending then return 0 end
return amend(KEYS[2], BEFORE.PROCESS, ARGV[2]) or 1
