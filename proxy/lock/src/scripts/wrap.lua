-- Runs a script of the application as it is and judges afterwards what it did to the locks that it names. Where
-- that may not be, the locks are put back; so is all that it did to other keys, or nothing of that: it is
-- certain which keys it may write, and a copy of each was taken before, or what it did to them stands.
-- The application's text stands in front of this as the function `f`, on the script's first line, and sees nothing
-- of what follows. Between them stands the guard, where the text computes names of keys: then each key is copied before it
-- is written, and what the guard refuses ends the script as any error does. Else `placed` is nil.
-- KEYS  the application's own, then others that its text names, then one companion a lock
-- ARGV  the application's own, then ours: 1 flags (m monitor, x the text speaks of setresp, c the keys before the
--       companions are all that it may write)  2 session+identity+the rules  3 database  4 how many keys are the
--       application's own  5 number of locks, then 17 a lock:
--         1 its place in KEYS; n and the number of a namespace for what stands for any lock of that which the text may write without declaring it  2 flags of proof for a release, 3 for an extension (as in extend.lua)  4 own grants
--         5 observed grant  6 observed value  7 grant+session+identity+the rules+how long a debt lives  8 bits  9 fence  10 default  11 cap  12 keep
--         13 outlive  14 longest hold  15-17 reasons for which a policy refuses an acquire, an extension, a release
--       then how many keys of guarded data the text may write, and of each its name, letters of its guard (e refusals are carried out, u
--         who may write while nobody holds the lock, i the holder's identity counts), the number of its locks, and four a lock: its
--         record, own grant, session+identity, D where that is distinctive
--       and last how many of ours there are
-- Answers { 'W', r it returned | e it raised an error | n refused, one answer a lock, reply | error, source, line };
-- refused, or ended by the guard, { 'W', n, one answer a lock, a number that it returned, '', 0, 1 what it did to other keys stands, 1 it had changed
-- nothing but TTLs of locks, keys that Redis would not have put back }. Behind the answers of the locks may stand what the
-- guard refused: { '!', false, '', key, command, 1 that ended the script, 1 it was only noted }. Of a lock: G X R A U N as elsewhere, or H: as it was (is it governed?).
-- Before the guard's word stands for each lock that the text wrote so { '+', false, '', key, its place among the locks, how many of
-- that place it is, and its answer }; what stands for them itself is answered C. Where it may write guarded data, { '#', false, '', a letter a
-- key, the place of the one for which all was put back, or nothing was run, else 0 }: letters of may_write, - nothing was written and might not be.
-- The text may change KEYS and ARGV, the database, and how replies are read: nothing of that is used after it.
local call, try, globals = redis.call, redis.pcall, _G
local mine, said, names, named, locks, adopting, beside = {}, #ARGV, {}, {}, {}, {}, KEYS[#KEYS]
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
    local namespace = string.match(mine[at + 1], '^n(%d+)$')
    if namespace then adopting[tonumber(namespace)] = { at = at, place = i - 1, count = 0 }
    else locks[i] = { at = at, key = KEYS[tonumber(mine[at + 1])], companion = KEYS[keys - held + i], proofs = {} } end
  end
  for i = keys, own + 1, -1 do KEYS[i] = nil end
end
local flags, who = mine[1], mine[2]
local monitor = has(flags, 'm')
home = tonumber(mine[3])
local function argument(lock, at) return mine[lock.at + at] end
local data = {}
do
  local at = 6 + tonumber(mine[5]) * 17
  for i = 1, tonumber(mine[at]) do
    local one = { key = mine[at + 1], letters = mine[at + 2], locks = {} }
    for k = 1, tonumber(mine[at + 3]) do one.locks[k] = at + 4 * k end
    data[i], at = one, at + 3 + 4 * #one.locks
  end
end

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
  state.ends = ends_at(lock.key)
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
    local owner = owner_in(record)
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
  if before.governed and before.dump then before.part = part(before, lock.key, owner_in(before.record)) end
  uncopied[lock.key], declared[lock.key] = true, true
end
-- The name of a lock's record. The polynomial is that of Redis's slots.
local function companion_of(key)
  local hashed, crc = string.match(key, '^[^{]*{([^}]+)}') or key, 0
  for i = 1, #hashed do
    crc = bit.bxor(crc, string.byte(hashed, i) * 256)
    for _ = 1, 8 do
      crc = crc * 2
      if crc > 65535 then crc = bit.bxor(crc, 69665) end
    end
  end
  local at = crc % 16384 * 4
  return PREFIX .. '{' .. string.match(sub(TAGS, at + 1, at + 4), '^%w+') .. '}:' .. key
end
-- A lock that the text is about to write and does not declare becomes one of those that are judged, where its operator lets
-- it write such. What it does to them needs no proof: it was looked at.
local own = #locks
if next(adopting) then
  adopt = function(key, namespace)
    local one = adopting[namespace]
    if not one or #locks - own >= 4096 then return false end
    local lock = { at = one.at, key = key, companion = companion_of(key), proofs = {}, adopted = one }
    lock.before = look(lock)
    if not lock.before then return false end
    one.count = one.count + 1
    lock.count = one.count
    uncopied[key], declared[key] = true, true
    locks[#locks + 1] = lock
    return true
  end
end

-- What the record of one of its locks says of a write of guarded data, as data_guard/judge.rs does: h the holder's, l the last holder's, i its
-- identity's, u nobody holds the lock; S by who had the lock, N by somebody else. What cannot be read permits nothing.
local function by_record(one, at)
  local record, mine_once, writer = try('GET', mine[at]), mine[at + 1], mine[at + 2]
  if type(record) ~= 'string' or sub(record, VERSION) ~= '1' then
    if mine_once ~= '' then return 'S' end
    return not record and has(one.letters, 'u') and 'u' or 'N'
  end
  local state = sub(record, STATE)
  if same_session(record, writer) then return state == 'B' and 'S' or state == 'L' and 'h' or 'l' end
  if mine_once ~= '' and mine_once ~= sub(record, GRANT) then return 'S' end
  if has(one.letters, 'i') and state ~= 'B' and identical(mine[at + 3], record, writer) then
    return bit.band(string.byte(record, AT.FLAGS), INDEBTED) == INDEBTED and 'S' or 'i'
  end
  return state ~= 'L' and has(one.letters, 'u') and 'u' or 'N'
end
local function is_no(said) return said == 'S' or said == 'N' end
-- The same of all its locks, of which the best counts. Who took the lock in this very run, or carries its owner token, holds it.
local function may_write(one)
  local best = 'N'
  for k = 1, #one.locks do
    local said = by_record(one, one.locks[k])
    for i = 1, #locks do
      local lock = locks[i]
      if lock.companion == mine[one.locks[k]] then
        local record = lock.before.record
        local carries = lock.before.governed and has(argument(lock, 3), 't') and named[owner_in(record)] and distinctive(owner_in(record))
        if carries or (lock.did == 'acquire' and not lock.reason) then said = 'h' end
      end
    end
    if best == 'N' or (best == 'S' and not is_no(said)) then best = said end
  end
  return best
end
local function data_said(place)
  local letters = ''
  for i = 1, #data do letters = letters .. data[i].said end
  return { '#', false, '', letters, place }
end
-- Where the writer may not, what is there now is kept: only its run tells whether the text writes it. Where that cannot be kept, nothing is run.
local keeps = false
for i = 1, #data do
  local one = data[i]
  one.said = may_write(one)
  if is_no(one.said) and has(one.letters, 'e') then
    local size = not monitor and try('MEMORY', 'USAGE', one.key)
    local fits = not monitor and type(size) ~= 'table' and (size or 0) <= 65536
    one.dump = fits and try('DUMP', one.key)
    -- Who may not restore is told so of a TTL that is none.
    fits = fits and type(one.dump) ~= 'table' and string.find(try('RESTORE', one.key, '-1', '', 'REPLACE').err, 'TTL', 1, true)
    if not fits then
      local each = {}
      for k = 1, #locks do each[k] = { 'C', false, '' } end
      for _ in pairs(adopting) do each[#each + 1] = { 'C', false, '' } end
      each[#each + 1] = data_said(i)
      return { 'W', 'n', each, '', '', 0, 0, 0, 0 }
    end
    one.kept, keeps = true, true
    one.ends = one.dump and ends_at(one.key)
  end
end

-- Copies of the other keys, where something may be refused: what the guard is about may be at any time, unless its operator has
-- looked at the text.
undoable = not monitor and (placed or has(flags, 'c')) and not adopt and true
if undoable and placed then before = ENFORCES == 1 and keep_copy or nil
elseif undoable and #names > #locks then
  undoable = keeps
  for i = 1, #locks do undoable = undoable or refusable(locks[i]) end
  for i = 1, #names do measure(names[i]) end
  for i = 1, #copies do copy(copies[i]) end
end

-- Whether guarded data is not as it was kept.
local function written(one)
  if not one.kept then return false end
  local dump = try('DUMP', one.key)
  return dump ~= one.dump or (dump and moved(ends_at(one.key), one.ends))
end

-- Puts the locks back, and where copies were taken the other keys. Answers how many keys Redis would not have put
-- back, and whether the script had changed nothing but TTLs of locks.
local function restore()
  local lost, only_ttls = 0, undoable
  local function count(done) if type(done) == 'table' and done.err then lost = lost + 1 end end
  for i = 1, #locks do
    local lock = locks[i]
    local before, after, done = lock.before, lock.after, nil
    if not same(before, after) then
      only_ttls = false
      if not before.kind then done = try('DEL', lock.key)
      elseif not before.value then done = put_back(lock.key, before.dump, before.ends)
      elseif before.ends < 0 then done = try('SET', lock.key, before.value)
      else done = try('SET', lock.key, before.value, 'PXAT', as_time(before.ends)) end
    elseif before.kind and moved(before.ends, after.ends) then
      if before.ends < 0 then done = try('PERSIST', lock.key) else done = try('PEXPIREAT', lock.key, as_time(before.ends)) end
    end
    count(done)
    if before.record ~= after.record then
      if before.record then count(try('SET', lock.companion, before.record, 'PX', lifetime(0, argument(lock, 13))))
      else count(try('DEL', lock.companion)) end
    end
  end
  local gone, changed = put_copies_back()
  lost, only_ttls = lost + gone, only_ttls and not changed
  for i = 1, #data do
    if written(data[i]) then count(put_back(data[i].key, data[i].dump, data[i].ends)) end
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
  if lock.adopted then
    local stays, why = same(before, after), nil
    if not after.kind then lock.did = not before.kind and 'absent' or before.governed and 'release' or 'ungoverned'
    elseif not stays or not before.governed then lock.did = 'acquire'
    else lock.did = moved(before.ends, after.ends) and 'extend' or 'as it was' end
    if lock.did == 'acquire' then why = argument(lock, 15) elseif lock.did == 'extend' then why = argument(lock, 16)
    elseif lock.did == 'release' then why = argument(lock, 17) end
    lock.held = 'n'
    if why and why ~= '' then refuse(why) end
    return
  end
  if not before.kind then
    if after.kind then lock.did = 'acquire' else lock.did = 'absent' end
  elseif not before.governed then
    -- A share that is over by its own score is free to be taken.
    local over = before.kind == 'zset' and before.record and sub(before.record, VERSION.STATE) == '1L'
    local change = not same(before, after) or moved(before.ends, after.ends)
    if not change then lock.did = 'as it was' elseif over and after.kind then lock.did = 'acquire' else lock.did = 'ungoverned' end
  elseif not after.kind then
    local held, late, why = prove(lock, argument(lock, 2))
    local own, fair = shares(before, after, held and owner_in(before.record))
    if not fair then held, why = nil, why or 'not-owner' elseif own and not held and has(argument(lock, 2), 't') then held = 't' end
    lock.did, lock.held, lock.late = 'release', held, late
    if not held then refuse(why, late) elseif argument(lock, 17) ~= '' then refuse(argument(lock, 17), late) end
  elseif same(before, after) and not moved(before.ends, after.ends) then lock.did = 'as it was'
  else
    lock.did = 'extend'
    local record, letters = before.record, argument(lock, 3)
    local owner = owner_in(record)
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
    local mark = record and '' or '-'
    if record and sub(record, VERSION) == '1' and unreleased(record) and string.find(argument(lock, 4), sub(record, GRANT), 1, true) then
      try('SETRANGE', companion, BEFORE.STATE, 'E')
      mark = 'E'
    end
    return { 'A', false, '', mark, record and sub(record, SINCE) or '0' }
  end
  if did == 'as it was' then return { 'H', false, '', was.governed and 1 or 0, was.governed and same_session(record, who) and 1 or 0 } end
  if did == 'ungoverned' or did == 'forged' then return { 'U', false, reason ~= '' and reason or later(record) or '' } end
  if did == 'acquire' and later(record) then return { 'V', false, later(record) } end
  if did == 'release' then
    local paid = unproven(lock)
    if paid == 1 then reason = 'expired' end
    try('SETRANGE', companion, BEFORE.STATE, lock.held and 'R' or 'T')
    if lock.held then shorten(companion, record) end
    return { 'R', false, reason, sub(record, FENCE), sub(record, SINCE), lock.held or '', false, 'R', lock.late and 1 or 0, paid }
  end
  -- Somebody else's value over it, where nothing is refused: another lease, whenever it ends.
  local taken = did == 'acquire' or (monitor and lock.reason and was.value and not same(was, is))
  if did == 'extend' and not taken and lock.held ~= 'j' and not moved(was.ends, is.ends) then
    local owner = owner_in(record)
    if is.value or not part(is, lock.key, owner) then owner = owner_of(is) end
    local ttl = is.ends < 0 and 0 or math.max(1, is.ends - clock())
    try('SET', companion, sub(record, VERSION.DEADLINE) .. owner .. added(record), 'PX', lifetime(ttl, argument(lock, 13)))
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
    local head, over = argument(lock, 7), lock.adopted and was.governed
    if lock.adopted then
      -- Each has a grant of its own.
      head = sub(redis.sha1hex(sub(head, HEAD.GRANT) .. lock.count), HEAD.GRANT) .. sub(head, HEAD.SESSION.DEBT)
    end
    local number, at, state, since, shared = grant_of(companion, head, set, argument(lock, 9), asked, owner, lifetime(ttl, outlive), over)
    if not number then return { 'G', false, at, '0', 0, 0, '', '0', 0, owner } end
    if did ~= 'acquire' or over then state = 'O' end
    return { 'G', false, reason, number, at, ttl, state, since, bits > 0 and 1 or 0, owner, false, shared, asked, lock.late and 1 or 0 }
  end
  local owner = owner_in(record)
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
    local probe = try('HGETALL', beside .. '.')
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
  local theirs = 0
  for i = 1, #data do
    local one = data[i]
    if is_no(one.said) then one.said = may_write(one) end
    if one.kept and is_no(one.said) then
      if not written(one) then one.said = '-' elseif theirs == 0 and not stop then theirs = i end
    end
  end
  stop = stop or theirs > 0
  local how = ended and 'r' or 'e'
  local function told(answers)
    local all = {}
    for i = 1, own do all[i] = answers[i] end
    for _ in pairs(adopting) do all[#all + 1] = { 'C', false, '' } end
    if #data > 0 then all[#all + 1] = data_said(theirs) end
    for i = own + 1, #locks do all[#all + 1] = { '+', false, '', locks[i].key, locks[i].adopted.place, locks[i].count, answers[i] } end
    all[#all + 1] = answers[#locks + 1]
    return all
  end
  local no = refused or noted
  if no then each[#locks + 1] = { '!', false, '', no[1], no[2], barred and 1 or 0, refused and 0 or 1 } end
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
    return { 'W', 'n', told(each), ended and type(result) == 'number' and result or '', '', 0, undoable and 0 or 1, only_ttls and 1 or 0, lost }
  end
  for i = 1, #locks do each[i] = settle(locks[i]) end
  if barred then return { 'W', 'n', told(each), '', '', 0, 1, 0, 0 } end
  if not ended then
    -- Rarely:
    return { 'W', how, told(each), ended_by(result) }
  end
  if third then setresp(3) end
  return { 'W', how, told(each), result }
end
-- The same where that fails: the script has run, whatever it did stands, and none of it is recorded.
local function unfinished(ended, result, raised)
  local each = {}
  local error = { err = type(raised) == 'table' and raised.err or tostring(raised) }
  for i = 1, own do each[i] = { 'U', false, error } end
  for _ in pairs(adopting) do each[#each + 1] = { 'C', false, '' } end
  if ended then return { 'W', 'r', each, result } end
  return { 'W', 'e', each, type(result) == 'table' and tostring(rawget(result, 'err')) or tostring(result), '', 0, 0 }
end
local handler = rawget(globals, '__redis__err__handler') or function(err) return err end
local ended, result = xpcall(f, handler)
local fine, answer = pcall(finish, ended, result)
return fine and answer or unfinished(ended, result, answer)
