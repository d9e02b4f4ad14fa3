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
-- acquires, extensions and releases are one string instead, which costs Redis less: see the head of each script.
--
-- What a call costs Redis is, beside its commands, what it makes: functions, strings, tables. So the way that most
-- calls go is written plainly, with numbers as the digits in which they come and are stored, and the rest stands behind
-- a line `-- Rarely:`. Functions of this file that only the rest uses are made at that line, not before (scripts.rs).
--
-- Release debts stand in a key of their own ('}#' for '}:' in the companion's name), which only the bit INDEBTED makes a
-- script look at, the oldest first. Letters: o open, x paid. The key lives as long as the record, so that a debt that has
-- ended is not taken for one that never was. There too stands, of an identity that gives back more than it is granted, how many
-- tries of it were refused and not given back yet: the letter is then COUNTED and that number. Or it is w, and the time is that at which
-- the lease runs out from which on they are counted: by then whatever nobody counted has come.

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

-- `v` and a digit where a record says that only readers of that version of the layout may judge it, which is above ours; else nil. Such a
-- record is somebody's: it is neither judged nor written, and the lock is Redis's own affair. The word stands in place of an answer's reason.
local function later(record)
  local version = type(record) == 'string' and string.match(record, '^([2-9])%u')
  return version and 'v' .. version
end

-- The owner token in a record. Where a later version has added fields (bit ADDED), they stand behind it, and the last four digits say how
-- many bytes they have with these.
local function owner_in(record)
  if (string.byte(record, AT.FLAGS) or 0) < ADDED then return sub(record, OWNER) end
  return sub(record, AT.OWNER, -1 - (tonumber(sub(record, -4)) or 0))
end
-- Those fields, which go on as long as the lease does.
local function added(record)
  if (string.byte(record, AT.FLAGS) or 0) < ADDED then return '' end
  return sub(record, AT.OWNER + #owner_in(record))
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
local function age(record) return later(record) and 0 or math.max(clock() - (tonumber(sub(record, SINCE)) or 0), 0) end

-- A time or span of ms as a record holds it: 13 digits. In two parts, because %d takes 32 bits on some machines, and
-- %.0f takes twice the time.
local function digits(ms)
  local low = ms % 1000000
  return string.format('%07d%06d', (ms - low) / 1000000, low)
end

-- A lease is governed while the key holds what its live record says was granted.
local function governed(value, record)
  return value and record and sub(record, VERSION.STATE) == '1L' and owner_in(record) == form(value)
end

-- The owner of a live lease whose lock is no string, while it has its share: a hash has it as a field, a sorted
-- set as a member, whose score ends it where that reads as ms; for any other type the owner is the type itself.
local function share(lock, record)
  if not record or sub(record, VERSION.STATE) ~= '1L' then return false end
  local kind, owner = read('TYPE', lock), owner_in(record)
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
-- when the lease was granted is none: it says when the lock was taken. A client's clock may be ahead by 100 ms; but whole seconds
-- are ahead where they begin with the end of the second in which it was granted, or later: the time of the grant does not read so.
local function passed(value, record)
  local at, now = deadline_of(value), clock()
  return at and at < now and now - at < 31536000000 and at > tonumber(sub(record, SINCE)) + (#value == 10 and 0 or 100)
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
-- bit and the client's flag D. Where the process of either cannot be known, flag b lets them be one: second 'b'. Second 'p'
-- where a process must be looked up first, and flag p lets a step ask.
local function identical(flags, record, who)
  if sub(record, CLIENT) ~= sub(who, WHO.CLIENT) then return false end
  local theirs, ours = sub(record, PROCESS), sub(who, WHO.PROCESS)
  if (theirs == pending or ours == pending) and has(flags, 'p') then return false, 'p' end
  if theirs == ours and ours ~= none and ours ~= pending then return true end
  if theirs == none and ours == none and has(flags, 'D') and bit.band(string.byte(record, AT.FLAGS), DISTINCTIVE) == DISTINCTIVE then return true end
  if has(flags, 'b') and kin(record, who) then return true, 'b' end
  return false
end

-- Whether a record is of a lease that was granted to this very session (who: session+identity).
local function same_session(record, who) return sub(record, SESSION) == sub(who, WHO.SESSION) end

-- Runs a command on the key that says when an identity gave back more than it was granted: its name ends with a digest of the rules and the
-- identity. A node of a cluster that does not have its slot has one for each slot of locks.
local function on_surplus(companion, who, command, ...)
  local process = sub(who, WHO.PROCESS)
  if process == pending then process = none end
  local prefix, tag = string.match(companion, '^(.-)({%w+}):')
  local name = ':lockwarden-surplus:' .. redis.sha1hex(sub(who, WHO.RULES) .. sub(who, WHO.CLIENT) .. process)
  local done = redis.pcall(command, prefix .. '{}' .. name, ...)
  return is_error(done) and redis.pcall(command, prefix .. tag .. name, ...) or done
end

-- A release by an identity that has no lease of this lock, and owes no release of it. It is one too many where this connection was
-- refused the lock, or was granted the last lease of it, which was given back already; else it may be a release that was sent
-- again over a new connection, because nobody heard its reply. Noted with the first and the last time.
local function surplus(companion, flags, record, who)
  if not has(flags, 'B') and not (has(flags, 'b') and sub(record, STATE) == 'R' and same_session(record, who)) then return end
  local now = digits(clock())
  local seen = on_surplus(companion, who, 'GET')
  on_surplus(companion, who, 'SET', (type(seen) == 'string' and sub(seen, 1, MS) or now) .. now, 'PX', 2 * MAX_DOUBT_MS)
end

-- Whether an identity has given back more than it was granted, so lately that its doubtful releases are not believed: for ten
-- times as long as it has been seen to do so.
local function doubted(companion, who)
  local seen = on_surplus(companion, who, 'GET')
  if type(seen) ~= 'string' then return false end
  local first, last = tonumber(sub(seen, 1, MS)) or 0, tonumber(sub(seen, MS + 1)) or 0
  return clock() < last + math.min(math.max(10 * (last - first), MIN_DOUBT_MS), MAX_DOUBT_MS)
end

-- How a debt names who owes it: with the rules under which it was made, so that it ends with them.
local function debtor(rules, client) return sub(redis.sha1hex(rules .. client), 1, #client) end

-- This identity's entry in the debts of a lock that has not ended: its oldest open debt, or what is counted of it. Answers the list's
-- name, how many bytes stand before the entry, and its letter.
local function entry_of(companion, record, who, is_count)
  if bit.band(string.byte(record, AT.FLAGS), INDEBTED) == 0 then return nil end
  local name = string.gsub(companion, '}:', '}#', 1)
  local list, now = redis.pcall('GET', name), clock()
  if type(list) ~= 'string' then return nil end
  local whose, ours = debtor(sub(who, WHO.RULES), sub(who, WHO.CLIENT)), sub(who, WHO.PROCESS)
  for at = 1, #list, DEBT_BYTES do
    local entry = sub(list, at, at + DEBT_BYTES - 1)
    local letter, process = string.byte(entry), sub(entry, DEBT.PROCESS)
    local is_it = is_count and (letter >= COUNTED or letter == WAITS) or not is_count and letter == OPEN
    if is_it and sub(entry, DEBT.CLIENT) == whose and (process == ours or process == pending or (is_count and ours == pending))
      and (letter == WAITS or (tonumber(sub(entry, DEBT.ENDS)) or 0) > now) then return name, at - 1, letter end
  end
end

-- Whether this identity owes a release of this lock. Where it pays, its oldest debt is paid.
local function indebted(companion, record, who, pays)
  local name, before = entry_of(companion, record, who)
  return name and not (pays and amend(name, before, 'x'))
end

-- Whether the refused tries of an identity are counted, and a release of each has come.
local function even(companion, record, who)
  local _, _, count = entry_of(companion, record, who, true)
  return count == COUNTED
end

-- Whether a doubtful release of the holder's identity proves: it gives back no more than it is granted, or all that it gives back
-- beside has come, so that this is the holder's own or comes in its place.
local function believed(companion, record, who)
  return not doubted(companion, who) or even(companion, record, who)
end

-- A try that was refused, where those of this identity are counted: it will give that back, too.
local function refused_try(companion, record, who)
  local name, before, count = entry_of(companion, record, who, true)
  if name and count >= COUNTED and count < 255 then amend(name, before, string.char(count + 1)) end
end

-- A release that proved nothing, and pays no debt, is that of a refused try, where those are counted. Where it means a lease of an
-- identity that gives back more than it is granted, counting begins. Answers 2 where it is that of a refused try, 4 where that is not
-- the last of them, 3 where counting has begun, else 0.
local function counts(companion, record, who, begins)
  local name, before, count = entry_of(companion, record, who, true)
  if name then
    if count <= COUNTED or amend(name, before, string.char(count - 1)) then return 0 end
    return count == COUNTED + 1 and 2 or 4
  end
  if not begins or not doubted(companion, who) then return 0 end
  name = string.gsub(companion, '}:', '}#', 1)
  local set, now, left = string.byte(record, AT.FLAGS), clock(), redis.pcall('PTTL', companion)
  -- Where nothing is enforced, it has been deleted just now.
  local runs = redis.pcall('PTTL', string.match(companion, '{%w*}:(.*)$'))
  if type(runs) ~= 'number' or runs <= 0 then runs = tonumber(sub(record, DEADLINE)) - now end
  if runs <= 0 then runs = MIN_DOUBT_MS end
  local list = bit.band(set, INDEBTED) == INDEBTED and redis.pcall('GET', name)
  local entry = string.char(WAITS) .. debtor(sub(who, WHO.RULES), sub(who, WHO.CLIENT)) .. sub(who, WHO.PROCESS)
    .. digits(now + runs)
  if type(list) ~= 'string' or #list >= MAX_DEBTS * DEBT_BYTES then list = '' end
  local done = redis.pcall('SET', name, list .. entry, 'PX', type(left) == 'number' and left > 0 and left or WITHOUT_TTL_MS)
  if is_error(done) or amend(companion, BEFORE.FLAGS, string.char(bit.bor(set, INDEBTED))) then return 0 end
  return 3
end

-- A tokenless release that proved nothing pays what its identity owes; where it owes nothing, and the lock is another
-- client's, it is one too many. Answers 1 where the lock is that identity's, so that it paid instead of proving; else as `counts`.
local function repay(companion, flags, record, who)
  if not has(flags, 'i') then return 0 end
  if indebted(companion, record, who, true) then
    if not identical(flags, record, who) then return 0 end
    -- Where nothing is enforced, the release of each refused try ends a lease whose holder owes one then.
    if has(flags, 'm') and doubted(companion, who) and even(companion, record, who) then return 2 end
    return 1
  end
  local own = kin(record, who)
  if not own then surplus(companion, flags, record, who) end
  return has(flags, 'b') and counts(companion, record, who, own) or 0
end

-- Whether the current lease of a record was not given back, and nothing is unjudged that may have given it back.
local function unreleased(record)
  return sub(record, STATE) == 'L' and bit.band(string.byte(record, AT.FLAGS), UNWITNESSED) == 0
end

-- A tokenless release that met no lock: it is the late one of the lease that ended, where that was this
-- session's or this identity's, or pays a debt, or is one too many. Answers E where a lease ran out that nobody had noticed, or nil, 'p'.
local function overdue(companion, flags, record, mine, who)
  local state = sub(record, STATE)
  if state == 'R' or not string.find(mine, sub(record, GRANT), 1, true) then
    if not has(flags, 'i') or indebted(companion, record, who, true) then return '' end
    local one, more = identical(flags, record, who)
    if more == 'p' then return nil, more end
    if state == 'R' or not one then
      surplus(companion, flags, record, who)
      counts(companion, record, who)
      return ''
    end
  end
  amend(companion, BEFORE.STATE, 'R')
  local name, before, count = entry_of(companion, record, who, true)
  if name and count > COUNTED then amend(name, before, string.char(COUNTED)) end
  return unreleased(record) and 'E' or ''
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
--   b what is doubtful is believed of a tokenless try: that an identity whose process cannot be known is the holder's, unless its
--     own lease is over; but of an identity that gives back more than it is granted only what is the last that is to come
--   B the same, and this connection was refused the lock since its last grant: then its session is doubtful, too
-- seen: the grant that was read and the stored form of the value.
-- Answers the proof's letter (n none was required) or nil, whether the own lease is over, the reason, and 'p'
-- where a process must be looked up first.
local function proof(flags, record, mine, claim, seen, who, companion)
  local name, owner = sub(record, GRANT), owner_in(record)
  local current, late = string.find(mine, name, 1, true), over(flags, record, mine)
  if has(flags, 'f') and not current then return nil, late, 'stale-fence' end
  if not has(flags, 'r') then return 'n', late end
  if current and has(flags, 's') and (not has(flags, 'B') or believed(companion, record, who)) then return 's', late end
  if has(flags, 't') and claim == owner and not (late and has(flags, 'v'))
    and (not has(flags, 'q') or kin(record, who)) then return 't', late end
  if has(flags, 'o') and not late and seen == name .. owner
    and (not has(flags, 'x') or passed(owner, record)) then return 'o', late end
  local one, more
  if has(flags, 'i') then one, more = identical(flags, record, who) end
  -- Who stores another value says that it is somebody else; who comes after its own lease is.
  if more == 'b' then one, more = has(flags, 'k') and not late, nil end
  if one and not indebted(companion, record, who) and (not has(flags, 'b') or not has(flags, 'k') or believed(companion, record, who)) then
    return 'i', late
  end
  -- What it has too many is noted of its process.
  if not one and has(flags, 'B') and has(flags, 'p') and sub(who, WHO.PROCESS) == pending then more = 'p' end
  return nil, late, late and 'expired' or 'not-owner', more
end

-- The flags with the proofs that count for storing another value over one. Having read a value (o) is no reason to replace
-- it: that is what a passed deadline is for. And two values that can be told from others' name two tries for a lock,
-- so who stores another one is not believed to be the holder: neither by session nor by identity where this
-- connection was refused the lock since (flag y), and by identity (flag h) only where it has read the stored value
-- under the current grant. Nor is it by identity where this connection was refused the lock, whatever the values: that doubt is not
-- believed, for who stores a value takes the lock.
local function replacing(flags, record, stored, new, seen)
  local left = has(flags, 'y') and has(flags, 'b') and '[oi]' or 'o'
  if stored and new and stored ~= new and distinctive(stored) and distinctive(new) then
    if has(flags, 'y') then left = '[osi]'
    elseif has(flags, 'h') and seen ~= sub(record, GRANT) .. owner_in(record) then left = '[oi]' end
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

-- What follows from the record before (old), where that is not simply one of a lease that was released. A lease
-- that ended unreleased leaves a debt of its identity, where that can be told from others'. Not where its holder goes on
-- with it (own), and not where a release of it came and was refused (bit WANTED).
-- Answers as grant does. Where it cannot be written, the record before is put back, and so is one of a later version, which stands for the error
-- then: the lock was free, and what is not ours is not written.
local function succeed(companion, old, front, number, now, fence, back, owner, px, debt, own)
  local at_ms = tonumber(now)
  if type(old) == 'table' then
    if not string.find(old.err, 'WRONGTYPE', 1, true) then return nil, old end
    redis.pcall('DEL', companion) -- not a record: somebody used our name for something else
    local done = redis.pcall('SET', companion, front .. number .. back, 'PX', px)
    if done.err then return nil, done end
    return number, now, '', '0', '0'
  end
  if later(old) then
    redis.call('SET', companion, old, 'PX', px)
    return nil, later(old)
  end
  -- Nor does this say anything: somebody wrote over it.
  if not string.find(sub(old, FENCE.DEADLINE), '^%d+$') then return number, now, '', '0', '0' end
  local last, next, changed = tonumber(sub(old, FENCE)) or 0, tonumber(number), false
  if fence == 'n' then next = last elseif last >= next then next = last + 1 end
  if next ~= tonumber(number) then number, changed = string.format('%016.0f', next), true end
  local set, process = string.byte(old, AT.FLAGS) or NO_FLAGS, sub(old, PROCESS)
  local owed = not own and sub(old, STATE) ~= 'R' and bit.band(set, WANTED + UNWITNESSED) == 0
    and (bit.band(set, DISTINCTIVE) == DISTINCTIVE or process ~= none)
  if owed or bit.band(set, INDEBTED) == INDEBTED then
    local name, debts = string.gsub(companion, '}:', '}#', 1), {}
    local list, done = bit.band(set, INDEBTED) == INDEBTED and redis.pcall('GET', name), nil
    if type(list) ~= 'string' then list = '' end
    for at = 1, #list, DEBT_BYTES do
      local entry = sub(list, at, at + DEBT_BYTES - 1)
      local letter = string.byte(entry)
      local goes_on = letter ~= PAID and (tonumber(sub(entry, DEBT.ENDS)) or 0) > at_ms
      -- What has not come before a lease runs out is waited for no more.
      if (letter == WAITS and not goes_on) or (letter >= COUNTED and goes_on or letter == WAITS) and string.find(old, '^.[LE]') then
        entry, goes_on = string.char(COUNTED) .. sub(entry, DEBT.CLIENT.PROCESS) .. digits(at_ms + 2 * MAX_DOUBT_MS), true
      end
      if goes_on then debts[#debts + 1] = entry end
    end
    local rules, lives = string.match(debt, '^(%x%x%x%x%x%x%x%x)(%d+)')
    if owed and tonumber(lives) > 0 then
      debts[#debts + 1] = 'o' .. debtor(rules, sub(old, CLIENT)) .. process .. digits(at_ms + tonumber(lives))
    end
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
  local shared = owner_in(old) == owner and at_ms - (tonumber(since) or 0) < 3600000 and not kin(old, sub(front, AT.SESSION)) and '1' or '0'
  if unreleased(old) then return number, now, 'L', since, shared end
  return number, now, '', '0', shared
end

-- The key with the highest fencing token among those whose records went with their locks, in this database.
local function floor_of(companion) return string.match(companion, '^(.-){%w+}:') .. '{}:lockwarden-floor' end

-- Sees to it that no later fencing token is as low as this one, whose record is to go: the key has the present time. Answers whether
-- that is sure: where the token is ahead of the clock it is not.
local function remembers(companion, number)
  if number == '0000000000000000' then return true end
  local t, floor = redis.pcall('TIME'), floor_of(companion)
  local clocked = not t.err and t[1] .. sub('00000' .. t[2], -6) or ''
  if #clocked ~= 16 or clocked <= number then return false end
  local known = redis.pcall('SET', floor, clocked, 'PX', '600000', 'GET')
  if type(known) == 'string' and known > clocked then known = redis.pcall('SET', floor, known, 'PX', '600000') end
  return not is_error(known)
end

-- The next fencing token: this one, or where one of this size may have been remembered, a higher one.
local function above(known, number)
  if type(known) ~= 'string' or #known ~= 16 or known < number or not tonumber(known) then return number end
  return string.format('%016.0f', known + 1)
end

-- Numbers a new lease and writes its record. The lock key has been written before.
-- front: what the record begins with. fence: h hybrid, with digits so many microseconds ahead of the clock, with f above all that are remembered without
-- a record; s sequential, n none. asked: 13 digits. debt begins with
-- the rules, and how long one lives, ms.
-- Answers the fencing token (16 digits), the time (13 digits), what the lease ended ('' nothing, - there was no record, L a lease that ran
-- out unreleased) and since when that was held, and '1' where the lease before was another client's, with the same
-- owner token, and not an hour old, else '0'. Or nil and Redis's error where it cannot be written; then the record is as it was.
local function grant(companion, front, fence, asked, owner, px, debt, own)
  local t = redis.pcall('TIME')
  if t.err then return nil, t end
  local clocked = t[1] .. t[2]
  if #t[2] < 6 then clocked = t[1] .. sub('00000' .. t[2], -6) end
  if #clocked < 16 then clocked = string.rep('0', 16 - #clocked) .. clocked end
  local now, number = sub(clocked, 1, MS), clocked
  if fence ~= 'h' then
    local ahead, forgets = string.match(fence, '^h(%d*)(f?)$')
    if ahead then
      -- Rarely:
      if ahead ~= '' then number = string.format('%016.0f', clocked + ahead) end
      if forgets == 'f' then
        local known = redis.pcall('GET', floor_of(companion))
        if is_error(known) then return nil, known end
        number = above(known, number)
      end
    else number = fence == 's' and '0000000000000001' or '0000000000000000' end
  end
  local deadline = asked
  if asked ~= '0000000000000' then
    local low = (now + asked) % 1000000
    deadline = string.format('%07d%06d', (now + asked - low) / 1000000, low)
  end
  local back = now .. asked .. deadline .. owner
  local old = redis.pcall('SET', companion, front .. number .. back, 'PX', px, 'GET')
  if not old then return number, now, '-', '0', '0' end
  if type(old) == 'string' and string.find(old, '^1R[@A-CH-K]') and sub(old, FENCE) < number
    and (sub(old, OWNER) ~= owner or sub(old, CLIENT.PROCESS) == sub(front, CLIENT.PROCESS)) then return number, now, '', '0', '0' end
  -- Rarely:
  return succeed(companion, old, front, number, now, fence, back, owner, px, debt, own)
end

-- The same from what a step is told of a lease that may be granted. head: grant, session, identity, then the rules, and how long a debt lives, ms.
local function grant_of(companion, head, bits, fence, asked, owner, px, own)
  local front = '1L' .. string.char(NO_FLAGS + bits) .. sub(head, HEAD.GRANT.PROCESS)
  return grant(companion, front, fence, digits(asked), owner, px, sub(head, HEAD.DEBT), own)
end

-- Where a lock was taken whose record cannot be written: monitored it was, and nothing more can be told; else it is taken back, by a
-- command that has just passed where DEL may not be used. Where its record is of a later version (the error is `later`'s word) the lock stays taken,
-- with the TTL that was asked for, 13 digits: nobody would renew another.
local function unrecorded(monitor, native, lock, error, asked)
  if type(error) == 'string' then
    if not monitor then
      if tonumber(asked) > 0 then redis.pcall('PEXPIRE', lock, string.format('%.0f', asked)) else redis.pcall('PERSIST', lock) end
    end
    return { 'V', native, error }
  end
  if monitor then return { 'G', native, error, '0', 0, 0, '', '0', 0 } end
  if is_error(redis.pcall('DEL', lock)) then redis.pcall('SET', lock, '', 'PX', 1) end
  return { '?', error, '' }
end

-- A record whose lease was released is needed for ten more minutes, in which late clients come; as long as before where
-- somebody owes a release, and where its fencing token is not the time of the grant: then only the record knows it.
local function shorten(companion, record)
  local clocked = sub(record, AT.FENCE, BEFORE.FENCE + MS) == sub(record, SINCE) or sub(record, FENCE) == '0000000000000000'
  if clocked and bit.band(string.byte(record, AT.FLAGS), INDEBTED) == 0 then redis.pcall('PEXPIRE', companion, 600000) end
end

-- The record with a new TTL, and a new owner token where one is given.
local function rewrite(record, bits, now, asked, owner)
  local kept = bit.bor(bit.band(string.byte(record, AT.FLAGS), INDEBTED + DISTINCTIVE + ADDED), NO_FLAGS, bits)
  return sub(record, VERSION.STATE) .. string.char(kept) .. sub(record, GRANT.SINCE)
    .. digits(asked) .. digits(asked > 0 and now + asked or 0) .. (owner or owner_in(record)) .. added(record)
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
  if not has(flags, 'u') or owner_in(record) ~= owner or not kin(record, who) then return nil, 0 end
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
-- is likely the holder wanted the lock gone, so it goes by its TTL, and nobody owes a release then. paid: as `repay` answers.
local function refusal(companion, flags, record, reason, late, who, current, paid)
  local now, ended = clock(), 0
  if paid == 1 then reason = 'expired' end
  if has(flags, 'k') and not has(flags, 'm') and kin(record, who) then
    local bits = string.byte(record, AT.FLAGS)
    local kept, new = bit.band(bits, KEPT), bit.bor(bits, KEPT) - KEPT
    -- That of a refused try is none of the holder's, which is still to come.
    if paid == 3 then new = bit.bor(new, INDEBTED + WANTED) elseif paid ~= 2 and paid ~= 4 then new = bit.bor(new, WANTED) end
    if new ~= bits and not amend(companion, BEFORE.FLAGS, string.char(new)) and kept == KEPT then ended = 1 end
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

-- When a key ends on this server's clock, ms; -1 never. Before Redis 7 only to a millisecond or two.
local exact = true
local function ends_at(key)
  if exact then
    local at = redis.pcall('PEXPIRETIME', key)
    if type(at) == 'number' then return at end
    exact = false
  end
  local left = redis.call('PTTL', key)
  if left < 0 then return -1 end
  return clock() + left
end
local function moved(a, b) return a ~= b and (exact or a < 0 or b < 0 or math.abs(a - b) > 3) end

-- Copies of what a script of the application may write, where something may have to be put back: of all of it, or of none. Which keys
-- need none is in `uncopied`.
local copies, uncopied, undoable, copied_bytes = {}, {}, false, 0
local function measure(key)
  if not undoable or uncopied[key] then return end
  uncopied[key] = true
  local size = redis.pcall('MEMORY', 'USAGE', key)
  if type(size) == 'number' then copied_bytes = copied_bytes + size end
  undoable = not (type(size) == 'table' or copied_bytes > 1048576 or (size and size > 65536))
  copies[#copies + 1] = { key = key, dump = size }
end
local function copy(one)
  if not undoable or not one.dump then return end
  one.dump = redis.pcall('DUMP', one.key)
  undoable = type(one.dump) ~= 'table'
  one.ends = undoable and one.dump and ends_at(one.key)
end
-- The same of a key that is about to be written; nil where it is not known which.
local function keep_copy(key)
  if not key then undoable = false return end
  local known = #copies
  measure(key)
  if #copies > known then copy(copies[#copies]) end
end

-- A point in time as Redis reads it, whatever its size.
local function as_time(ends) return string.format('%.0f', math.min(ends, 9223372036854774784)) end
local function put_back(key, dump, ends)
  if not dump then return redis.pcall('DEL', key) end
  if ends < 0 then return redis.pcall('RESTORE', key, 0, dump, 'REPLACE') end
  return redis.pcall('RESTORE', key, as_time(ends), dump, 'REPLACE', 'ABSTTL')
end
-- Puts them back; answers how many keys Redis would not have put back, and whether there was anything to put back.
local function put_copies_back()
  local lost, changed = 0, false
  for i = 1, undoable and #copies or 0 do
    local copy = copies[i]
    local dump = redis.pcall('DUMP', copy.key)
    local now = dump and type(dump) ~= 'table' and ends_at(copy.key)
    if dump ~= copy.dump or (dump and moved(now, copy.ends)) then
      changed = true
      if is_error(put_back(copy.key, copy.dump, copy.ends)) then lost = lost + 1 end
    end
  end
  return lost, changed
end
