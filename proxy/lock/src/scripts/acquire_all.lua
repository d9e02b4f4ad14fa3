-- Takes several locks, all or none: MSETNX, MSETEX … NX.
-- KEYS  lock, companion, lock, companion …
-- ARGV  1 flags (m monitor, Q a free lock is not granted)  2 number of arguments that follow for locks, then ten a lock as in store.lua
--       (1 to 10), then the application's own command
local locks, flags, per = #KEYS / 2, ARGV[1], 10
local native
if has(flags, 'm') then
  native = run(unpack(ARGV, 3 + locks * per))
  if declined then return { '?', native, '' } end
end
for i = 1, native == 1 and 0 or locks do
  if read('EXISTS', KEYS[i * 2 - 1]) == 1 then
    local m = read('MGET', KEYS[i * 2 - 1], KEYS[i * 2]) or {}
    local held = governed(m[1] or share(KEYS[i * 2 - 1], m[2]), m[2])
    if held then refused_try(KEYS[i * 2], m[2], sub(ARGV[i * per - 6], AT.HEAD.SESSION)) end
    return { 'B', native or false, unread or '', held and 1 or 0, 0, 0, held and same_session(m[2], sub(ARGV[i * per - 6], AT.HEAD.SESSION)) and 1 or 0 }
  end
end
if unread then return native and { 'B', native, unread, 0, 0, 0, 0 } or { '?', unread, '' } end
if has(flags, 'Q') then return quarantined() end
local answer = { 'S', native or false, '' }
-- Gives back the locks up to this one: without all of them it has none.
local function undo(most, error)
  for i = 1, most do
    unrecorded(false, nil, KEYS[i * 2 - 1], error)
    if answer[3 + i] then amend(KEYS[i * 2], BEFORE.STATE, 'R') end
  end
  return { '?', error, '' }
end
local strange = {}
for i = 1, locks do strange[i] = later(redis.pcall('GET', KEYS[i * 2])) end
for i = 1, locks do
  local at, lock = 2 + (i - 1) * per, KEYS[i * 2 - 1]
  local ttl, asked, bits = terms(ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8])
  local done
  if has(flags, 'm') or strange[i] then ttl, bits = asked, 0 end
  if has(flags, 'm') then
  elseif ttl > 0 then done = redis.pcall('SET', lock, ARGV[at + 1], 'PX', ttl)
  else done = redis.pcall('SET', lock, ARGV[at + 1]) end
  if is_error(done) then return undo(i - 1, done) end
  local owner = ARGV[at + 10]
  if owner == '' then owner = ARGV[at + 1] end
  local px = lifetime(ttl, ARGV[at + 9])
  local number, now, state, since, shared = nil, strange[i], nil, nil, nil
  if not strange[i] then
    number, now, state, since, shared = grant_of(KEYS[i * 2], ARGV[at + 2], bits + tonumber(ARGV[at + 3]), ARGV[at + 4], asked, owner, px)
  end
  if not number and not strange[i] and not has(flags, 'm') then return undo(i, now) end
  answer[3 + i] = number and { 'G', false, '', number, now, ttl, state, since, bits > 0 and 1 or 0, false, false, shared, asked }
    or unrecorded(true, false, lock, now)
end
return answer
