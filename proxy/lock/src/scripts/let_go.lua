-- Ends keep-alive of a lease that its holder wanted to be rid of, where its release was refused without a look at Redis.
-- KEYS  lock, companion
-- ARGV  1 session+identity+the rules of whoever wanted it gone
-- Answers 1 where the lease is, or may be, that client's and was kept alive, else 0.
local record = redis.call('GET', KEYS[2])
if not record or sub(record, VERSION.STATE) ~= '1L' or (not same_session(record, ARGV[1]) and not kin(record, ARGV[1])) then return 0 end
local bits = string.byte(record, AT.FLAGS)
redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[2])) -- a write that passes when out of memory
redis.call('SETRANGE', KEYS[2], BEFORE.FLAGS, string.char(bit.bor(bits, KEPT + WANTED) - KEPT))
return bit.band(bits, KEPT) / KEPT
