-- What every script shares; put in front of each. Contract in docs/lock-record.md.
--
-- A record is the companion's value. Its fields have names in capitals, for which the build writes numbers; all of
-- them, and the bits and limits that have names too, stand in proxy/lock/src/record.rs:
--   FENCE         the first and the last byte of a field, counted from 1, as `sub` takes them; of the last field only the first
--   FENCE.SINCE   the first byte of one field and the last of another
--   AT.FENCE      the first byte
--   BEFORE.FENCE  how many bytes stand before it, which is how SETRANGE counts
-- WHO.X, HEAD.X and DEBT.X are fields of session+identity, of what a new record is made of, and of a release debt.
-- States: L live, R released, T taken over, B broken, E expired and noticed.
--
-- Every answer is { code, native, reason, ... }: native is what Redis answered to the application's own
-- command where that was run, reason what was refused (with flag m: what would have been). The usual answers to
-- acquires, extensions and releases are one string instead, which costs Redis less: see docs/lock-record.md.
--
-- What a call costs Redis is, beside its commands, what it makes: functions, strings, tables. So the way that most
-- calls go is written plainly, with numbers as the digits in which they come and are stored, and the rest stands behind
-- a line `-- Rarely:`. Functions of this file that only the rest uses are made at that line, not before (scripts.rs).
--
-- Release debts stand in a key of their own ('}#' for '}:' in the companion's name), which only the bit INDEBTED makes a
-- script look at, the oldest first. Letters: o open, p paid under the lease that is current, which may hand it on, x
-- paid. The key lives as long as the record, so that a debt that has ended is not taken for one that never was.

local sub = string.sub

local function has(flags, letter) return string.find(flags, letter, 1, true) end

-- Whether Redis answered a command with an error.
local function is_error(answer) return type(answer) == 'table' and answer.err end

-- What a step has done so far: whether the application's own command was run, and what Redis answered to it; Redis's error
-- where it would not run it; its error where something that decides could not be read: then nothing may be done; and where what was
-- done could not be recorded: that takes the place of the answer's reason.
local ran, answered, declined, unread, trouble

-- Runs the application's own command.
local function run(...)
  local native = redis.pcall(...)
  if is_error(native) then declined = native else ran, answered = true, native end
  return native
end

-- Reads what decides something; nil where Redis does not let it.
local function read(...)
  local found = redis.pcall(...)
  if is_error(found) then unread = found return nil end
  return found
end

-- A step that cannot read what decides does nothing. Where it is only watched it runs the application's own command.
local function unreadable(watched, ...)
  if watched then run(...) end
  if ran then return { 'U', answered or false, unread } end
  return { '?', declined or unread, '' }
end

-- Changes a part of a record, behind a write that Redis lets pass when it is out of memory where it must be. Answers Redis's
-- error where it cannot be done.
local function amend(companion, at, text)
  local done = redis.pcall('SETRANGE', companion, at, text)
  if is_error(done) then
    local left = redis.pcall('PTTL', companion)
    redis.pcall('PEXPIRE', companion, type(left) == 'number' and left > 0 and left or WITHOUT_TTL_MS)
    done = redis.pcall('SETRANGE', companion, at, text)
  end
  if not is_error(done) then return nil end
  trouble = done
  return done
end

-- Replaces the record of a lock that is held, which Redis lets pass when it is out of memory. Answers Redis's error
-- where it cannot be done.
local function replace(companion, record, px)
  local done = redis.pcall('SET', companion, record, 'PX', px)
  if done.err and type(redis.pcall('PEXPIRE', companion, px)) == 'number' then done = redis.pcall('SET', companion, record, 'PX', px) end
  if not done.err then return nil end
  trouble = done
  return done
end

-- An owner token as a record holds it.
local function form(value) if #value > MAX_STORED_TOKEN then return redis.sha1hex(value) end return value end

-- A lock and its record, as GET has read them: for Redis two GETs cost less than an MGET. But of a key that is no string GET
-- makes an error, and MGET nothing. Any other error is `unread`.
local function both(value, record, lock, companion)
  if type(value) ~= 'table' and type(record) ~= 'table' then return value, record end
  for _, found in pairs({ value, record }) do
    if is_error(found) and not string.find(found.err, 'WRONGTYPE', 1, true) then unread = found return nil, nil end
  end
  return unpack(read('MGET', lock, companion) or {}, 1, 2)
end

-- Milliseconds on this server's clock; 0 where it cannot be read.
local function clock() local t = read('TIME') return t and t[1] * 1000 + math.floor(t[2] / 1000) or 0 end
-- How many of them ago a lease was granted.
local function age(record) return math.max(clock() - (tonumber(sub(record, SINCE)) or 0), 0) end

-- A lease is governed while the key holds what its live record says was granted.
local function governed(value, record)
  return value and record and sub(record, VERSION.STATE) == '1L' and sub(record, OWNER) == form(value)
end

-- The owner of a live lease whose lock is no string, while it has its share: a hash has it as a field, a sorted
-- set as a member, whose score ends it where that reads as ms; for any other type the owner is the type itself.
local function share(lock, record)
  if not record or sub(record, VERSION.STATE) ~= '1L' then return false end
  local kind, owner = read('TYPE', lock), sub(record, OWNER)
  kind = kind and kind.ok
  if not kind or kind == 'none' then return false end
  if kind == 'hash' then return read('HEXISTS', lock, owner) == 1 and owner end
  if kind ~= 'zset' then return kind == owner and owner end
  local score = tonumber(read('ZSCORE', lock, owner) or '')
  return score and (score < 1e12 or score > clock()) and owner
end

-- A value is a deadline when it reads as seconds (10 digits) or ms (13), with an optional fraction. Answers it in ms.
local function deadline_of(value)
  local whole, rest = string.match(value, '^(%d+)(.*)$')
  if not whole or (#whole ~= 10 and #whole ~= 13) or (rest ~= '' and not string.match(rest, '^%.%d+$')) then return nil end
  return tonumber(value) * (#whole == 10 and 1000 or 1)
end

-- A value that tells one client, or one try, from the others.
local function distinctive(value) return #value >= 16 and not deadline_of(value) end

-- Whether the lock's value is a deadline that has passed on this clock, by less than a year. One that did not lie ahead
-- when the lease was granted is none: it says when the lock was taken. A client's clock may be ahead by 100 ms.
local function passed(value, record)
  local at, now = deadline_of(value), clock()
  return at and at < now and now - at < 31536000000 and at > tonumber(sub(record, SINCE)) + 100
end

-- Whether the session's own lease of this lock is over. It may have several grants to its name: those queued
-- in a MULTI block count too, but with flag n (only such) a grant that is not current means nothing.
local function over(flags, record, mine)
  return has(flags, 'l') or (mine ~= '' and not has(flags, 'n') and not string.find(mine, sub(record, GRANT), 1, true))
end

-- The process of an identity where there is none to be told, and where it was not looked up yet.
local none, pending = '\0\0\0\0\0\0\0\0', '\255\255\255\255\255\255\255\255'

-- Whether a record's identity and a client's (who: session+identity) may be one: user, name and address are
-- equal, and their processes are not known to differ.
local function kin(record, who)
  local theirs, ours = sub(record, PROCESS), sub(who, WHO.PROCESS)
  return sub(record, CLIENT) == sub(who, WHO.CLIENT)
    and (theirs == ours or theirs == none or ours == none or theirs == pending or ours == pending)
end

-- Whether they are one as a whole, and one that can be told from others: by its process, or by the record's
-- bit and the client's flag D. Second 'p' where a process must be looked up first, and flag p lets a step ask.
local function identical(flags, record, who)
  if sub(record, CLIENT) ~= sub(who, WHO.CLIENT) then return false end
  local theirs, ours = sub(record, PROCESS), sub(who, WHO.PROCESS)
  if theirs == pending or ours == pending then return false, has(flags, 'p') and 'p' or nil end
  return theirs == ours and (ours ~= none or (has(flags, 'D') and bit.band(string.byte(record, AT.FLAGS), DISTINCTIVE) == DISTINCTIVE))
end

-- Whether this identity owes a release of this lock. With a letter, its oldest debt is paid so.
local function indebted(companion, record, who, letter)
  if bit.band(string.byte(record, AT.FLAGS), INDEBTED) == 0 then return false end
  local name = string.gsub(companion, '}:', '}#', 1)
  local list, now = redis.pcall('GET', name), clock()
  if type(list) ~= 'string' then return false end
  for at = 1, #list, DEBT_BYTES do
    local debt = sub(list, at, at + DEBT_BYTES - 1)
    local process = sub(debt, DEBT.PROCESS)
    if sub(debt, DEBT.LETTER.CLIENT) == 'o' .. sub(who, WHO.CLIENT) and (process == sub(who, WHO.PROCESS) or process == pending)
      and (tonumber(sub(debt, DEBT.ENDS)) or 0) > now then
      return not (letter and amend(name, at - 1, letter))
    end
  end
  return false
end

-- A tokenless release that proved nothing pays what its identity owes. Answers 1 where the lock is that
-- identity's, so that it paid instead of proving.
local function repay(companion, flags, record, who)
  if not has(flags, 'i') then return 0 end
  local own = identical(flags, record, who)
  return indebted(companion, record, who, own and 'p' or 'x') and own and 1 or 0
end

-- A tokenless release that met no lock: it is the late one of the lease that ended, where that was this
-- session's or this identity's, or pays a debt. Answers E where a lease ran out that nobody had noticed, or nil, 'p'.
local function overdue(companion, flags, record, mine, who)
  local state = sub(record, STATE)
  if state == 'R' or not string.find(mine, sub(record, GRANT), 1, true) then
    if not has(flags, 'i') or indebted(companion, record, who, 'x') or state == 'R' then return '' end
    local one, more = identical(flags, record, who)
    if not one then return not more and '' or nil, more end
  end
  amend(companion, BEFORE.STATE, 'R')
  return state == 'L' and 'E' or ''
end

-- Asks back for a process: nothing was done.
local function asks(record, at) return { 'I', sub(record, SESSION), sub(record, GRANT), at } end

-- Which proof holds, and whether the session's own lease of this lock is over. Flags:
--   r proofs are required, of which count: s session, t token, o observed, i identity
--   v the claimed value is void if the session's own lease is over   l the session's lease is known to be over
--   x what was observed counts only if it is a deadline that has passed
--   f only the holder of the newest fencing token may go on
--   D the client's connection tells it from others   p the step may ask back for a process
--   q the claimed value counts only where the holder may be the same client
-- seen: the grant that was read and the stored form of the value.
-- Answers the proof's letter (n none was required) or nil, whether the own lease is over, the reason, and 'p'
-- where a process must be looked up first.
local function proof(flags, record, mine, claim, seen, who, companion)
  local name, owner = sub(record, GRANT), sub(record, OWNER)
  local current, late = string.find(mine, name, 1, true), over(flags, record, mine)
  if has(flags, 'f') and not current then return nil, late, 'stale-fence' end
  if not has(flags, 'r') then return 'n', late end
  if current and has(flags, 's') then return 's', late end
  if has(flags, 't') and claim == owner and not (late and has(flags, 'v'))
    and (not has(flags, 'q') or kin(record, who)) then return 't', late end
  if has(flags, 'o') and not late and seen == name .. owner
    and (not has(flags, 'x') or passed(owner, record)) then return 'o', late end
  local one, more
  if has(flags, 'i') then one, more = identical(flags, record, who) end
  if one and not indebted(companion, record, who) then return 'i', late end
  return nil, late, late and 'expired' or 'not-owner', more
end

-- The flags with the proofs that count for storing another value over one. Having read a value (o) is no reason to replace
-- it: that is what a passed deadline is for. And two values that can be told from others' name two tries for a lock,
-- so who stores another one is not believed to be the holder: neither by session nor by identity where this
-- connection was refused the lock since (flag y), and by identity (flag h) only where it has read the stored value
-- under the current grant.
local function replacing(flags, record, stored, new, seen)
  local left = 'o'
  if stored and new and stored ~= new and distinctive(stored) and distinctive(new) then
    if has(flags, 'y') then left = '[osi]'
    elseif has(flags, 'h') and seen ~= sub(record, GRANT) .. sub(record, OWNER) then left = '[oi]' end
  end
  return (string.gsub(flags, left, ''))
end

-- What a script of the application shows of a lock that is somebody else's: w its value, P its PTTL, S its TTL.
local function shown(flags, lock, value)
  if has(flags, 'w') then return value end
  if has(flags, 'P') then return read('PTTL', lock) end
  return has(flags, 'S') and read('TTL', lock) or false
end

-- The TTL of a lease: what was asked ('' nothing, '@' a point in time), clipped, and the grace behind it. 0 means none.
-- keep: 0 where no TTL is kept alive, 1 where one is that was not asked for, 2 where any is; directly behind it the grace, ms.
local function terms(ask, default, cap, keep)
  local asked, ttl
  if ask == '' then asked, ttl = 0, tonumber(default)
  else
    if sub(ask, 1, 1) == '@' then asked = math.max(1, tonumber(sub(ask, 2)) - clock()) else asked = tonumber(ask) end
    asked = math.min(asked, MAX_TTL_MS)
    ttl = asked
  end
  cap = tonumber(cap)
  if cap > 0 and (ttl == 0 or ttl > cap) then ttl = cap end
  local kept = sub(keep, 1, 1)
  local bits = ttl > 0 and (kept == '2' or (kept == '1' and ttl ~= asked)) and KEPT or 0
  return ttl > 0 and math.min(ttl + sub(keep, 2), MAX_TTL_MS) or 0, asked, bits
end

-- How long a companion lives: as long as its lease and a while more; a week beside a lease without TTL.
local function lifetime(ttl, outlive)
  outlive = tonumber(outlive)
  return math.min(ttl > 0 and ttl + outlive or math.max(outlive, WITHOUT_TTL_MS), MAX_TTL_MS)
end

-- A time or span of ms as a record holds it: 13 digits. In two parts, because %d takes 32 bits on some machines, and
-- %.0f takes twice the time.
local function digits(ms)
  local low = ms % 1000000
  return string.format('%07d%06d', (ms - low) / 1000000, low)
end

-- What follows from the record before (old), where that is not simply one of a lease that was released. A lease
-- that ended unreleased leaves a debt of its identity, where that can be told from others'; or hands on the one that
-- was paid under it, with its age. Not where its holder goes on with it (own).
-- Answers as grant does. Where it cannot be written, the record before is put back.
local function succeed(companion, old, front, number, now, fence, back, owner, px, debt, own)
  local at_ms = tonumber(now)
  if type(old) == 'table' then
    if not string.find(old.err, 'WRONGTYPE', 1, true) then return nil, old end
    redis.pcall('DEL', companion) -- not a record: somebody used our name for something else
    local done = redis.pcall('SET', companion, front .. number .. back, 'PX', px)
    if done.err then return nil, done end
    return number, now, '', '0', '0'
  end
  local last, next, changed = tonumber(sub(old, FENCE)) or 0, tonumber(number), false
  if fence == 'n' then next = last elseif last >= next then next = last + 1 end
  if next ~= tonumber(number) then number, changed = string.format('%016.0f', next), true end
  local set, process = string.byte(old, AT.FLAGS) or NO_FLAGS, sub(old, PROCESS)
  local owed = not own and sub(old, STATE) ~= 'R' and (bit.band(set, DISTINCTIVE) == DISTINCTIVE or process ~= none)
  if owed or bit.band(set, INDEBTED) == INDEBTED then
    local name, debts, ends = string.gsub(companion, '}:', '}#', 1), {}, nil
    local list, done = bit.band(set, INDEBTED) == INDEBTED and redis.pcall('GET', name), nil
    if type(list) ~= 'string' then list = '' end
    for at = 1, #list, DEBT_BYTES do
      local entry = sub(list, at, at + DEBT_BYTES - 1)
      local letter, ending = sub(entry, DEBT.LETTER), sub(entry, DEBT.ENDS)
      if letter == 'p' then ends = ending
      elseif letter == 'o' and (tonumber(ending) or 0) > at_ms then debts[#debts + 1] = entry end
    end
    ends = ends or digits(at_ms + tonumber(string.match(debt, '^%d+')))
    if owed and tonumber(ends) > at_ms then debts[#debts + 1] = 'o' .. sub(old, CLIENT.PROCESS) .. ends end
    table.sort(debts, function(a, b) return sub(a, DEBT.ENDS) < sub(b, DEBT.ENDS) end)
    if #debts > MAX_DEBTS then table.remove(debts, 1) end
    if #debts > 0 then
      done = redis.pcall('SET', name, table.concat(debts), 'PX', px)
      front, changed = sub(front, VERSION.STATE) .. string.char(string.byte(front, AT.FLAGS) + INDEBTED) .. sub(front, AT.GRANT), true
    elseif list ~= '' then done = redis.pcall('DEL', name) end
    if is_error(done) then
      redis.call('SET', companion, old, 'PX', px)
      return nil, done
    end
  end
  if changed then redis.call('SET', companion, front .. number .. back, 'PX', px) end
  local since = sub(old, SINCE)
  local shared = sub(old, OWNER) == owner and at_ms - (tonumber(since) or 0) < 3600000 and not kin(old, sub(front, AT.SESSION)) and '1' or '0'
  if sub(old, STATE) == 'L' then return number, now, 'L', since, shared end
  return number, now, '', '0', shared
end

-- Numbers a new lease and writes its record. The lock key has been written before.
-- front: what the record begins with. fence: h hybrid, s sequential, n none. asked: 13 digits. debt begins with
-- how long one lives, ms.
-- Answers the fencing token (16 digits), the time (13 digits), what the lease ended ('' nothing, L a lease that ran out
-- unreleased) and since when that was held, and '1' where the lease before was another client's, with the same
-- owner token, and not an hour old, else '0'. Or nil and Redis's error where it cannot be written; then the record is as it was.
local function grant(companion, front, fence, asked, owner, px, debt, own)
  local t = redis.pcall('TIME')
  if t.err then return nil, t end
  local clocked = t[1] .. t[2]
  if #t[2] < 6 then clocked = t[1] .. sub('00000' .. t[2], -6) end
  if #clocked < 16 then clocked = string.rep('0', 16 - #clocked) .. clocked end
  local now, number = sub(clocked, 1, MS), clocked
  if fence ~= 'h' then number = fence == 's' and '0000000000000001' or '0000000000000000' end
  local deadline = asked
  if asked ~= '0000000000000' then
    local low = (now + asked) % 1000000
    deadline = string.format('%07d%06d', (now + asked - low) / 1000000, low)
  end
  local back = now .. asked .. deadline .. owner
  local old = redis.pcall('SET', companion, front .. number .. back, 'PX', px, 'GET')
  if not old or (type(old) == 'string' and string.find(old, '^1R[@A-CH-K]') and sub(old, FENCE) < number
    and (sub(old, OWNER) ~= owner or sub(old, CLIENT.PROCESS) == sub(front, CLIENT.PROCESS))) then return number, now, '', '0', '0' end
  -- Rarely:
  return succeed(companion, old, front, number, now, fence, back, owner, px, debt, own)
end

-- The same from what a step is told of a lease that may be granted. head: grant, session, identity, then how long a debt lives, ms.
local function grant_of(companion, head, bits, fence, asked, owner, px, own)
  local front = '1L' .. string.char(NO_FLAGS + bits) .. sub(head, HEAD.GRANT.PROCESS)
  return grant(companion, front, fence, digits(asked), owner, px, sub(head, HEAD.DEBT_MS), own)
end

-- Where a lock was taken whose record cannot be written: monitored it was, and nothing more can be told; else it is taken back, by a
-- command that has just passed where DEL may not be used.
local function unrecorded(monitor, native, lock, error)
  if monitor then return { 'G', native, error, '0', 0, 0, '', '0', 0 } end
  if is_error(redis.pcall('DEL', lock)) then redis.pcall('SET', lock, '', 'PX', 1) end
  return { '?', error, '' }
end

-- Whether a record is of a lease that was granted to this very session (who: session+identity).
local function same_session(record, who) return sub(record, SESSION) == sub(who, WHO.SESSION) end

-- A record whose lease was released is needed for ten more minutes, in which late clients come; as long as before where
-- somebody owes a release, and where its fencing token is not the time of the grant: then only the record knows it.
local function shorten(companion, record)
  local clocked = sub(record, AT.FENCE, BEFORE.FENCE + MS) == sub(record, SINCE) or sub(record, FENCE) == '0000000000000000'
  if clocked and bit.band(string.byte(record, AT.FLAGS), INDEBTED) == 0 then redis.pcall('PEXPIRE', companion, 600000) end
end

-- The record with a new TTL, and a new owner token where one is given.
local function rewrite(record, bits, now, asked, owner)
  local kept = bit.bor(bit.band(string.byte(record, AT.FLAGS), INDEBTED + DISTINCTIVE), NO_FLAGS, bits)
  return sub(record, VERSION.STATE) .. string.char(kept) .. sub(record, GRANT.SINCE)
    .. digits(asked) .. digits(asked > 0 and now + asked or 0) .. (owner or sub(record, OWNER))
end

-- An acquire that meets a lease (record) with its own distinctive value, granted to the same identity: its first
-- try may have succeeded without its hearing of it. Flags:
--   u the value is distinctive, and known of one client only   a also a lease whose grant was read is its own again,
--   where it is this very session's, or the identity can be told from others' (D and p as in proof)
-- Where that holds, or the grant is marked as never read, who asks has it from now on: the same lease,
-- the same fencing token, with the TTL that it asks for. front: what a new record would begin with. Answers that
-- grant, or asks back for a process; or nil, and then 1 where trying once more is worthwhile: granted to another session within ten seconds, whose end may be
-- about to be noticed.
local function repeated(flags, lock, companion, record, owner, front, ttl, asked, px)
  local who = sub(front, SESSION.PROCESS)
  if not has(flags, 'u') or sub(record, OWNER) ~= owner or not kin(record, who) then return nil, 0 end
  local now, mine, more = clock(), bit.band(string.byte(record, AT.FLAGS), UNDELIVERED) == UNDELIVERED, nil
  if not mine and has(flags, 'a') then
    mine = same_session(record, who)
    if not mine then mine, more = identical(flags, record, who) end
  end
  if more then return asks(record, 0) end
  if not mine then
    return nil, not same_session(record, who) and now - tonumber(sub(record, SINCE)) < 10000 and 1 or 0
  end
  local bits = bit.band(string.byte(front, AT.FLAGS), KEPT)
  local again = rewrite(record, bits, now, asked)
  if unread then return { '?', unread, '' } end
  -- First the record: what cannot be recorded is not done.
  local done = redis.pcall('SET', companion, sub(again, VERSION.GRANT) .. who .. sub(again, AT.FENCE), 'PX', px)
  if is_error(done) then return { '?', done, '' } end
  if ttl > 0 then done = redis.pcall('PEXPIRE', lock, ttl) else done = redis.pcall('PERSIST', lock) end
  if is_error(done) then
    redis.call('SET', companion, record, 'PX', px)
    return { '?', done, '' }
  end
  return { 'G', false, '', sub(record, FENCE), now, ttl, '', '0', bits > 0 and 1 or 0, false, sub(record, GRANT), 0, asked }
end

-- A refusal. A tokenless try (flag k) by what may be the grant's own identity ends keep-alive: somebody who
-- is likely the holder wanted the lock gone, so it goes by its TTL. paid: 1 where it paid a debt.
local function refusal(companion, flags, record, reason, late, who, current, paid)
  local now, ended = clock(), 0
  if paid == 1 then reason = 'expired' end
  if has(flags, 'k') and not has(flags, 'm') and kin(record, who)
    and bit.band(string.byte(record, AT.FLAGS), KEPT) == KEPT then
    ended = amend(companion, BEFORE.FLAGS, string.char(string.byte(record, AT.FLAGS) - KEPT)) and 0 or 1
  end
  return { 'N', false, reason, sub(record, SINCE), now, sub(record, FENCE), late and 1 or 0, ended, current or false, paid or 0 }
end

-- The answer where a free lock is not granted, because the server has become the primary so lately.
local function quarantined() return { 'N', false, 'quarantine', '0', clock(), '0', 0, 0, false, 0 } end

-- Ends a lease, its record first: what cannot be recorded is not done. Answers an error where that failed.
local function end_lease(lock, companion, state)
  local failed = amend(companion, BEFORE.STATE, state)
  if failed then return failed end
  local gone = redis.pcall('DEL', lock)
  if is_error(gone) then
    amend(companion, BEFORE.STATE, 'L')
    return gone
  end
end

-- How an error that ended a script of the application is told: its text, its source, its line.
local function ended_by(raised)
  if type(raised) ~= 'table' then return tostring(raised), 'text', 0 end
  local said = rawget(raised, 'err')
  return type(said) == 'string' and said or 'ERR unknown error', tostring(rawget(raised, 'source') or ''), tonumber(rawget(raised, 'line')) or 0
end

-- Whether that error is the one in place of the command that the guard refused first.
local function is_refusal(raised, refused)
  if type(raised) == 'table' then return raised == refused[3] end
  return string.find(tostring(raised), refused[3].err, 1, true) ~= nil
end

-- The globs of Redis, as glob.rs reads them: by bytes, signed where a class compares them.
local function signed(b) if b > 127 then return b - 256 end return b end
local function class_at(pattern, at, it)
  local negated, matched = string.byte(pattern, at) == 94, false
  if negated then at = at + 1 end
  while true do
    local first, second, third = string.byte(pattern, at, at + 2)
    if not first then break end
    if first == 92 and second then
      matched = matched or second == it
      at = at + 2
    elseif first == 93 then
      at = at + 1
      break
    elseif second == 45 and third then
      local low, high, b = signed(first), signed(third), signed(it)
      matched = matched or (b >= math.min(low, high) and b <= math.max(low, high))
      at = at + 3
    else
      matched = matched or first == it
      at = at + 1
    end
  end
  return matched ~= negated and at or nil
end
-- Where the pattern goes on behind its element at `at`, which is no star; nil if the byte does not match.
local function element_at(pattern, at, it)
  local first, second = string.byte(pattern, at, at + 1)
  if not first then return nil end
  if first == 63 then return at + 1 end
  if first == 91 then return class_at(pattern, at + 1, it) end
  if first == 92 and second then return second == it and at + 2 or nil end
  return first == it and at + 1 or nil
end
local function glob(pattern, key)
  if key == '' then return pattern == '' end
  local at, taken, star, start = 1, 1, nil, nil
  while true do
    if taken > #key then return not string.find(pattern, '[^*]', at) end
    if string.byte(pattern, at) == 42 then
      at = string.find(pattern, '[^*]', at)
      if not at then return true end
      star, start = at, taken
    else
      local on = element_at(pattern, at, string.byte(key, taken))
      if on then at, taken = on, taken + 1
      elseif star then
        start = start + 1
        at, taken = star, start
      else return false end
    end
  end
end
