-- Runs a script of the application as it is and judges afterwards what it did to the locks that it names. Where
-- that may not be, the locks are put back; so is all that it did to other keys, or nothing of that: it is
-- certain which keys it may write, and a copy of each was taken before, or what it did to them stands.
-- The application's text stands in front of this as the function `f`, on the script's first line, and sees nothing
-- of what follows. Between them stands the guard, where the text computes names of keys: then each key is copied before it
-- is written, and what the guard refuses ends the script as any error does. Else `placed` is nil.
-- KEYS  the application's own, then others that its text names, then one companion a lock
-- ARGV  the application's own, then ours: 1 flags (m monitor, x the text speaks of setresp, c the keys before the
--       companions are all that it may write)  2 session+identity  3 database  4 how many keys are the
--       application's own  5 number of locks, then 17 a lock:
--         1 its place in KEYS  2 flags of proof for a release, 3 for an extension (as in extend.lua)  4 own grants
--         5 observed grant  6 observed value  7 grant+session+identity+how long a debt lives  8 bits  9 fence  10 default  11 cap  12 keep
--         13 outlive  14 longest hold  15-17 reasons for which a policy refuses an acquire, an extension, a release
--       and last how many of ours there are
-- Answers { 'W', r it returned | e it raised an error | n refused, one answer a lock, reply | error, source, line };
-- refused, or ended by the guard, { 'W', n, one answer a lock, a number that it returned, '', 0, 1 what it did to other keys stands, 1 it had changed
-- nothing but TTLs of locks, keys that Redis would not have put back }. Behind the answers of the locks may stand what the
-- guard refused: { '!', false, '', key, command, 1 that ended the script }. Of a lock: G X R A U N as elsewhere, or H: as it was (is it governed?).
-- The text may change KEYS and ARGV, the database, and how replies are read: nothing of that is used after it.
local call, try, globals = redis.call, redis.pcall, _G
local mine, said, names, named, locks, others = {}, #ARGV, {}, {}, {}, {}
do
  local count = tonumber(ARGV[said])
  said = said - count
  for i = 1, count do mine[i] = ARGV[said + i] end
  for i = said + count, said + 1, -1 do ARGV[i] = nil end
  for i = 1, math.min(said, 256) do named[form(ARGV[i])] = true end
  local own, held, keys = tonumber(mine[4]), tonumber(mine[5]), #KEYS
  for i = 1, keys - held do names[i] = KEYS[i] end
  for i = 1, held do
    local at = 5 + (i - 1) * 17
    locks[i] = { at = at, key = KEYS[tonumber(mine[at + 1])], companion = KEYS[keys - held + i], proofs = {} }
  end
  for i = keys, own + 1, -1 do KEYS[i] = nil end
end
local flags, who = mine[1], mine[2]
local monitor = has(flags, 'm')
home = tonumber(mine[3])
local function argument(lock, at) return mine[lock.at + at] end

-- When a key ends on this server's clock, ms; -1 never. Before Redis 7 only to a millisecond or two.
local exact = true
local function ending(key)
  if exact then
    local at = try('PEXPIRETIME', key)
    if type(at) == 'number' then return at end
    exact = false
  end
  local left = call('PTTL', key)
  if left < 0 then return -1 end
  return clock() + left
end
local function moved(a, b) return a ~= b and (exact or a < 0 or b < 0 or math.abs(a - b) > 3) end

-- The members of a lock that holders have a share in, each with its score or its field's value.
local function members(kind, key)
  local found = {}
  if kind == 'hash' then
    local flat = call('HGETALL', key)
    for i = 1, #flat, 2 do found[#found + 1] = { name = flat[i], value = flat[i + 1] } end
  elseif kind == 'zset' then
    local flat = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #flat, 2 do found[#found + 1] = { name = flat[i], score = tonumber(flat[i + 1]) } end
  end
  return found
end
-- A lock as it is now, or nil and Redis's error.
local function look(lock)
  local m = try('MGET', lock.key, lock.companion)
  if m.err then return nil, m end
  local state = { value = m[1], record = m[2], kind = 'string', all = {} }
  if not state.value then
    state.kind = call('TYPE', lock.key).ok
    if state.kind == 'none' then state.kind = nil return state end
    state.dump = try('DUMP', lock.key)
    if type(state.dump) == 'table' then return nil, state.dump end
    state.share = share(lock.key, state.record)
    if unread then return nil, unread end
    state.all = members(state.kind, lock.key)
  end
  state.ends = ending(lock.key)
  state.governed = governed(state.value or state.share, state.record)
  return state
end
local function same(a, b) return a.kind == b.kind and a.value == b.value and a.dump == b.dump end

-- Whose a lock is that was just taken: the value, or the member that the script was given.
local function owner_of(state)
  if state.value then return form(state.value) end
  local first, given
  for i = 1, #state.all do
    local name = state.all[i].name
    if #name <= MAX_STORED_TOKEN then
      if named[name] and (not given or (distinctive(name) and not distinctive(given))) then given = name end
      if not first or (distinctive(name) and not distinctive(first)) then first = name end
    end
  end
  return given or first or state.kind
end
-- What the record's owner has of a lock that is no string.
local function part(state, key, owner)
  if state.kind == 'hash' then return call('HGET', key, owner) end
  if state.kind == 'zset' then return call('ZSCORE', key, owner) end
  return state.dump
end

-- Which proof a change of a governed lease has. The arguments of the script count as owner tokens where they
-- can be told from those of others.
local function prove(lock, letters)
  local known = lock.proofs[letters]
  if not known then
    local record = lock.before.record
    local owner = sub(record, OWNER)
    local claim = named[owner] and distinctive(owner) and owner or false
    known = { proof(letters, record, argument(lock, 4), claim, argument(lock, 5) .. argument(lock, 6), who, lock.companion) }
    lock.proofs[letters] = known
  end
  return known[1], known[2], known[3]
end
-- Whether something that the script may do to the lock could be refused.
local function refusable(lock)
  local before = lock.before
  if not before.governed then return argument(lock, 15) ~= '' end
  if before.dump or argument(lock, 14) ~= '0' or argument(lock, 16) ~= '' or argument(lock, 17) ~= '' then return true end
  local release, extend = prove(lock, argument(lock, 2)), prove(lock, argument(lock, 3))
  return not release or not extend or extend == 'o'
end

-- What was there before.
local failed
for i = 1, #locks do
  local lock = locks[i]
  lock.before, failed = look(lock)
  if failed then return { '?', failed, '' } end
  local before = lock.before
  if before.governed and before.dump then before.part = part(before, lock.key, sub(before.record, OWNER)) end
  others[lock.key], declared[lock.key] = true, true
end
-- Copies of the other keys, where something may have to be put back: of all that the script may write, or of none.
local copies, undo, sizes = {}, not monitor and (placed or has(flags, 'c')) and true, 0
local function measure(key)
  if not undo or others[key] then return end
  others[key] = true
  local size = try('MEMORY', 'USAGE', key)
  if type(size) == 'number' then sizes = sizes + size end
  undo = not (type(size) == 'table' or sizes > 1048576 or (size and size > 65536))
  copies[#copies + 1] = { key = key, dump = size }
end
local function copy(one)
  if not undo or not one.dump then return end
  one.dump = try('DUMP', one.key)
  undo = type(one.dump) ~= 'table'
  one.ends = undo and one.dump and ending(one.key)
end
if undo and (placed or #names > #locks) then
  undo = false
  for i = 1, #locks do undo = undo or refusable(locks[i]) end
  if placed then
    before = undo and function(key)
      if not key then undo = false end
      local known = #copies
      measure(key)
      if #copies > known then copy(copies[#copies]) end
    end
  else
    for i = 1, #names do measure(names[i]) end
    for i = 1, #copies do copy(copies[i]) end
  end
end

-- A point in time as Redis reads it, whatever its size.
local function written(ends) return string.format('%.0f', math.min(ends, 9223372036854774784)) end
local function put_back(key, dump, ends)
  if not dump then return try('DEL', key) end
  if ends < 0 then return try('RESTORE', key, 0, dump, 'REPLACE') end
  return try('RESTORE', key, written(ends), dump, 'REPLACE', 'ABSTTL')
end
-- Puts the locks back, and where copies were taken the other keys. Answers how many keys Redis would not have put
-- back, and whether the script had changed nothing but TTLs of locks.
local function restore()
  local lost, only_ttls = 0, undo
  local function noted(done) if type(done) == 'table' and done.err then lost = lost + 1 end end
  for i = 1, #locks do
    local lock = locks[i]
    local before, after, done = lock.before, lock.after, nil
    if not same(before, after) then
      only_ttls = false
      if not before.kind then done = try('DEL', lock.key)
      elseif not before.value then done = put_back(lock.key, before.dump, before.ends)
      elseif before.ends < 0 then done = try('SET', lock.key, before.value)
      else done = try('SET', lock.key, before.value, 'PXAT', written(before.ends)) end
    elseif before.kind and moved(before.ends, after.ends) then
      if before.ends < 0 then done = try('PERSIST', lock.key) else done = try('PEXPIREAT', lock.key, written(before.ends)) end
    end
    noted(done)
    if before.record ~= after.record then
      if before.record then noted(try('SET', lock.companion, before.record, 'PX', lifetime(0, argument(lock, 13))))
      else noted(try('DEL', lock.companion)) end
    end
  end
  for i = 1, undo and #copies or 0 do
    local copy = copies[i]
    local dump = try('DUMP', copy.key)
    local now = dump and type(dump) ~= 'table' and ending(copy.key)
    if dump ~= copy.dump or (dump and moved(now, copy.ends)) then
      only_ttls = false
      noted(put_back(copy.key, copy.dump, copy.ends))
    end
  end
  return lost, only_ttls
end

-- Whether a field is about a holder whom the script was given: its name has that of the holder in it, as in
-- `value:holder:lock_count` beside `value` = holder.
local function about_given(field, all)
  for i = 1, #all do
    local holder = all[i].value
    if holder and named[form(holder)] and distinctive(holder) and string.find(field, ':' .. holder .. ':', 1, true) then return true end
  end
  return false
end
-- Of a lock that several may hold: whether the script was given the name of one that holds, and whether
-- only those have left whose names it was given (or whose shares were over), and the one in the record where
-- the client has proven to be it.
local function shares(before, after, proven)
  local still, own, fair, now = {}, false, true, clock()
  for i = 1, #after.all do
    local name = after.all[i].name
    still[name] = true
    if named[form(name)] and distinctive(name) then own = true end
  end
  for i = 1, #before.all do
    local member = before.all[i]
    local given = named[form(member.name)]
    if given and distinctive(member.name) then own = true end
    local over = member.score and member.score >= 1e12 and member.score < now
    local known = given or over or form(member.name) == proven
    if not still[member.name] and not known and distinctive(member.name) then
      fair = fair and about_given(member.name, before.all)
    end
  end
  return own, fair
end

-- What the script did to one lock: lock.did, and lock.reason where that may not be.
local function judge(lock)
  local before, after = lock.before, lock.after
  local function refuse(reason, late) lock.reason, lock.late = reason, late end
  if before.record ~= after.record then refuse('unsafe-script') lock.did = 'forged' return end
  if not before.kind then
    if after.kind then lock.did = 'acquire' else lock.did = 'absent' end
  elseif not before.governed then
    -- A share that is over by its own score is free to be taken.
    local over = before.kind == 'zset' and before.record and sub(before.record, VERSION.STATE) == '1L'
    local change = not same(before, after) or moved(before.ends, after.ends)
    if not change then lock.did = 'as it was' elseif over and after.kind then lock.did = 'acquire' else lock.did = 'ungoverned' end
  elseif not after.kind then
    local held, late, why = prove(lock, argument(lock, 2))
    local own, fair = shares(before, after, held and sub(before.record, OWNER))
    if not fair then held, why = nil, why or 'not-owner' elseif own and not held and has(argument(lock, 2), 't') then held = 't' end
    lock.did, lock.held, lock.late = 'release', held, late
    if not held then refuse(why, late) elseif argument(lock, 17) ~= '' then refuse(argument(lock, 17), late) end
  elseif same(before, after) and not moved(before.ends, after.ends) then lock.did = 'as it was'
  else
    lock.did = 'extend'
    local record, letters = before.record, argument(lock, 3)
    local owner = sub(record, OWNER)
    if not same(before, after) then
      letters = replacing(letters, record, before.value, after.value, argument(lock, 5) .. argument(lock, 6))
    end
    local held, late, why = prove(lock, letters)
    local longer = after.ends < 0 or (before.ends >= 0 and after.ends >= before.ends)
    if not held and same(before, after) and has(letters, 'e') and not late and longer and kin(record, who) then held = 'e' end
    if before.dump and before.kind == after.kind then
      local own, fair = shares(before, after)
      local kept = part(after, lock.key, owner) == before.part
      -- Somebody joined or left a lock that several may hold, and did nothing to this holder.
      if not fair then held, why = nil, why or 'not-owner' elseif not held and own and kept then held = 'j' end
    end
    lock.held, lock.late = held, late
    if not held then refuse(before.value and not same(before, after) and 'overwrite' or why, late)
    elseif argument(lock, 16) ~= '' then refuse(argument(lock, 16), late)
    elseif held ~= 'j' and tonumber(argument(lock, 14)) > 0 and clock() - tonumber(sub(record, SINCE)) > tonumber(argument(lock, 14)) then
      refuse('limited', late)
    end
  end
  if lock.did == 'acquire' and argument(lock, 15) ~= '' then refuse(argument(lock, 15)) end
end

-- A release that nothing proved pays what its identity owes. Answers 1 where it paid instead of proving.
local function unproven(lock)
  if lock.did ~= 'release' or lock.held then return 0 end
  return repay(lock.companion, argument(lock, 2), lock.before.record, who)
end

-- Writes what follows from a change that may be; answers as the other scripts do.
local function settle(lock)
  local was, is, reason = lock.before, lock.after, lock.reason or ''
  local did, record, companion = lock.did, was.record, lock.companion
  if did == 'absent' then
    local mark = ''
    if record and sub(record, VERSION.STATE) == '1L' and string.find(argument(lock, 4), sub(record, GRANT), 1, true) then
      try('SETRANGE', companion, BEFORE.STATE, 'E')
      mark = 'E'
    end
    return { 'A', false, '', mark, record and sub(record, SINCE) or '0' }
  end
  if did == 'as it was' then return { 'H', false, '', was.governed and 1 or 0, was.governed and same_session(record, who) and 1 or 0 } end
  if did == 'ungoverned' or did == 'forged' then return { 'U', false, reason } end
  if did == 'release' then
    local paid = unproven(lock)
    if paid == 1 then reason = 'expired' end
    try('SETRANGE', companion, BEFORE.STATE, 'R')
    shorten(companion, record)
    return { 'R', false, reason, sub(record, FENCE), sub(record, SINCE), lock.held or '', false, 'R', lock.late and 1 or 0, paid }
  end
  -- Somebody else's value over it, where nothing is refused: another lease, whenever it ends.
  local taken = did == 'acquire' or (monitor and lock.reason and was.value and not same(was, is))
  if did == 'extend' and not taken and lock.held ~= 'j' and not moved(was.ends, is.ends) then
    local owner = sub(record, OWNER)
    if is.value or not part(is, lock.key, owner) then owner = owner_of(is) end
    local ttl = is.ends < 0 and 0 or math.max(1, is.ends - clock())
    try('SET', companion, sub(record, VERSION.DEADLINE) .. owner, 'PX', lifetime(ttl, argument(lock, 13)))
    local kept = bit.band(string.byte(record, AT.FLAGS), KEPT) == KEPT and 1 or 0
    return { 'X', false, reason, ttl, sub(record, FENCE), sub(record, SINCE), clock(), kept, false, lock.held or '' }
  end
  local now = clock()
  local left = is.ends < 0 and 0 or math.max(1, math.min(is.ends - now, MAX_TTL_MS))
  local ask = left > 0 and tostring(left) or ''
  local ttl, asked, bits = terms(ask, argument(lock, 10), argument(lock, 11), argument(lock, 12))
  if monitor then ttl, bits = left, 0
  elseif ttl ~= left and ttl > 0 then try('PEXPIRE', lock.key, ttl) end
  local outlive = argument(lock, 13)
  if taken then
    local owner, set = owner_of(is), bits + tonumber(argument(lock, 8))
    local number, at, state, since, shared = grant_of(companion, argument(lock, 7), set, argument(lock, 9), asked, owner, lifetime(ttl, outlive))
    if not number then return { 'G', false, at, '0', 0, 0, '', '0', 0, owner } end
    if did ~= 'acquire' then state = 'O' end
    return { 'G', false, reason, number, at, ttl, state, since, bits > 0 and 1 or 0, owner, false, shared, asked, lock.late and 1 or 0 }
  end
  local owner = sub(record, OWNER)
  if lock.held == 'j' then
    -- The lease of the one in the record goes on as it was; only the lock's TTL may have grown.
    try('PEXPIRE', companion, lifetime(ttl, outlive))
  else
    if was.kind ~= is.kind or is.value or not part(is, lock.key, owner) then owner = owner_of(is) end
    if same(was, is) or is.value then owner = is.value and form(is.value) or owner end
    try('SET', companion, rewrite(record, bits, now, asked, owner), 'PX', lifetime(ttl, outlive))
  end
  return { 'X', false, reason, ttl, sub(record, FENCE), sub(record, SINCE), now, bits > 0 and 1 or 0, false, lock.held or '', lock.held ~= 'j' and asked }
end

-- Everything behind the script's end, made before it runs: it can reach none of this.
local all, setresp, set_repl = redis.REPL_ALL, redis.setresp, redis.set_repl
local function finish(ended, result)
  set_repl(all)
  local third = false
  if has(flags, 'x') and setresp then
    -- Of an absent hash RESP3 makes a map.
    local probe = try('HGETALL', locks[1].companion .. '.')
    third = type(probe) == 'table' and probe.map ~= nil
  end
  if setresp then setresp(2) end
  try('SELECT', mine[3])
  if placed and not ended then result = placed(result) end
  local barred = false
  if refused and not ended then
    -- Rarely:
    barred = is_refusal(result, refused)
  end
  local stop, each = barred, {}
  for i = 1, #locks do
    local lock = locks[i]
    lock.after, failed = look(lock)
    if failed then error(failed) end
    judge(lock)
    if lock.reason then stop = true end
  end
  local how = ended and 'r' or 'e'
  if refused then each[#locks + 1] = { '!', false, '', refused[1], refused[2], barred and 1 or 0 } end
  if stop and not monitor then
    local lost, only_ttls = restore()
    for i = 1, #locks do
      local lock = locks[i]
      if lock.reason and lock.before.governed then
        local letters, paid = argument(lock, 2), unproven(lock)
        if lock.did ~= 'release' then letters = string.gsub(letters, 'k', '') end
        each[i] = refusal(lock.companion, letters, lock.before.record, lock.reason, lock.late, who, nil, paid)
      elseif lock.reason then each[i] = { 'N', false, lock.reason, '0', clock(), '0', 0, 0, false, 0 }
      else each[i] = { 'C', false, '' } end
      if lock.reason then each[i][11] = lock.did end
    end
    return { 'W', 'n', each, ended and type(result) == 'number' and result or '', '', 0, undo and 0 or 1, only_ttls and 1 or 0, lost }
  end
  for i = 1, #locks do each[i] = settle(locks[i]) end
  if barred then return { 'W', 'n', each, '', '', 0, 1, 0, 0 } end
  if not ended then
    -- Rarely:
    return { 'W', how, each, ended_by(result) }
  end
  if third then setresp(3) end
  return { 'W', how, each, result }
end
-- The same where that fails: the script has run, whatever it did stands, and none of it is recorded.
local function unfinished(ended, result, raised)
  local each = {}
  local error = { err = type(raised) == 'table' and raised.err or tostring(raised) }
  for i = 1, #locks do each[i] = { 'U', false, error } end
  if ended then return { 'W', 'r', each, result } end
  return { 'W', 'e', each, type(result) == 'table' and tostring(rawget(result, 'err')) or tostring(result), '', 0, 0 }
end
local handler = rawget(globals, '__redis__err__handler') or function(err) return err end
local ended, result = xpcall(f, handler)
local fine, answer = pcall(finish, ended, result)
return fine and answer or unfinished(ended, result, answer)
