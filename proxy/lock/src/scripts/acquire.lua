-- Takes a lock if it is free: SETNX, SET … NX, INCR.
-- KEYS  lock, companion
-- ARGV  1 value  2 grant+session+identity+how long a debt lives, ms  3 bits  4 fence  5 ask  6 default  7 cap  8 keep  9 outlive
--       10 stored form of the value ('' the value itself)  11 TTL for a lease found without one ('0' leave it)
--       12 flags (of repeated, and m monitor, g the old value is wanted, i a counter, w P S what is shown of a held
--       lock, W a lock that is no string is an error)  13… the application's own command
-- Writes the lock key before the companion. A held lock is never touched, except that one without a TTL
-- gets argument 11, and one that the client holds and asks for again may be told to it. Monitored, a
-- counter goes up in the holder's lock: the record then follows the value.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[12]
local ttl, asked, bits = terms(ARGV[5], ARGV[6], ARGV[7], ARGV[8])
local native, done
if has(flags, 'm') then
  native = redis.pcall(unpack(ARGV, 13))
  if type(native) == 'table' then done = native.ok else done = native == 1 or (has(flags, 'g') and not native) end
  if type(native) == 'table' and native.err then return { '?', native, '' } end
  ttl, bits = asked, 0
else
  if ttl > 0 then done = redis.pcall('SET', lock, ARGV[1], 'NX', 'PX', ttl) else done = redis.pcall('SET', lock, ARGV[1], 'NX') end
  if type(done) == 'table' and done.err then return { '?', done, '' } end
end
local owner = ARGV[10]
if owner == '' then owner = ARGV[1] end
if done then
  local number, now, old = grant(companion, ARGV[2], bits + tonumber(ARGV[3]), ARGV[4], asked, owner, lifetime(ttl, ARGV[9]))
  local state, since, shared = before(old, ARGV[2], owner, now)
  return { 'G', native or false, '', number, now, ttl, state, since, bits > 0 and 1 or 0, false, false, shared, asked }
end
local m = redis.pcall('MGET', lock, companion)
if m.err then return { '?', native or m, '' } end
local held, adopted, soon = governed(m[1] or share(lock, m[2]), m[2]), 0, 0
if not has(flags, 'm') then
  if held and m[1] then
    local again
    again, soon = repeated(flags, lock, companion, m[2], owner, ARGV[2], ttl, asked, bits, ARGV[9])
    if again then return again end
  end
  native = false
  if has(flags, 'g') then native = redis.pcall('GET', lock) end
end
if has(flags, 'i') and type(native) == 'number' and m[2]
  and sub(m[2], 1, 2) == '1L' and sub(m[2], 107) == string.format('%.0f', native - 1) then
  redis.call('SETRANGE', companion, 106, m[1])
  held = true
end
if ARGV[11] ~= '0' and redis.call('PTTL', lock) == -1 then adopted = redis.call('PEXPIRE', lock, ARGV[11]) end
if has(flags, 'W') and not m[1] then native = redis.pcall('GET', lock) else native = shown(flags, lock, m[1]) or native end
return { 'B', native or false, '', held and 1 or 0, adopted, soon, held and same_session(m[2], sub(ARGV[2], 17)) and 1 or 0 }
