-- Enters since when this server is the primary, once for all proxies.
-- KEYS  era
-- ARGV  1 names this run of the server  2 how long the entry lives, ms
-- Answers two strings by Redis's clock, ms: since when, and now. What is entered is replicated, so on a server that took the
-- place of another it names that one; and where writes were lost, or all, it is missing or names another as well.
local entry, now = redis.call('GET', KEYS[1]), string.format('%.0f', clock())
local since = entry and string.match(entry, '^(%S+) (%d+)$') == ARGV[1] and string.match(entry, '%d+$') or now
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. since, 'PX', ARGV[2])
return { since, now }
