-- Enters what is known of this server as the primary, unless another proxy has entered something since it was read.
-- KEYS  era
-- ARGV  1 the entry as it was read, '' where there was none  2 the new one  3 how long it lives, ms
-- Answers what stands there now. What is entered is replicated, so on a server that took the place of another it names that
-- one; and where writes were lost, or all, it is missing or names another as well.
local entry = redis.call('GET', KEYS[1]) or ''
if entry ~= ARGV[1] then return entry end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return ARGV[2]
