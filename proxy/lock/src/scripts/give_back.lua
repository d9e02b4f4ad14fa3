-- Gives back a lock that was granted just now, and that nobody was told of: too few replicas had the grant in time.
-- KEYS  lock, companion
-- ARGV  1 grant
-- Answers 1 where that lease is over now, 0 where it was over before, 2 where others have a share in the lock, or may have:
-- then it goes by its TTL. The record says that it was released, so nobody owes a release; and in either case no longer whose it is: who was
-- told that it has no lock writes no guarded data as its last holder.
local lock, companion = KEYS[1], KEYS[2]
local function void(at, field) return amend(companion, at, string.rep('\0', #field)) end
local m = read('MGET', lock, companion) or {}
local value, record = m[1], m[2]
if not record or later(record) or sub(record, GRANT) ~= ARGV[1] then return unread or 0 end
local owner = value or share(lock, record)
if unread then return unread end
if not governed(owner, record) then return 0 end
if not value then
  local kind, others = redis.call('TYPE', lock).ok, 1
  if kind == 'hash' then
    -- Redisson's read-write lock has a field that is nobody's share.
    local found = read('HGETALL', lock) or {}
    others = -1
    for at = 1, #found, 2 do if found[at] ~= 'mode' then others = others + 1 end end
  elseif kind == 'zset' then others = #(read('ZRANGE', lock, 0, 1) or {}) - 1 end
  if unread or others ~= 0 then return void(BEFORE.SESSION, sub(record, SESSION.PROCESS)) or 2 end
end
local failed = end_lease(lock, companion, 'R') or void(BEFORE.SESSION, sub(record, SESSION.PROCESS)) or void(BEFORE.OWNER, owner_in(record))
if failed then return failed end
shorten(companion, record)
return 1
