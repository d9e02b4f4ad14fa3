-- Guards the locks against a script of the application that computes names of keys: what it calls in place of redis.call looks at
-- each command first, and refuses what would write a lock that it does not declare, or touch a record; where the lock is only watched
-- it notes that, and lets it go. The
-- application's text stands in front of this as the function `f`, whose parameters hide every way to the real `redis`; it
-- sees nothing of what follows, and all that it can reach of this is made here. Before this stand, made for the
-- configuration in force: COMMANDS and BEGINNINGS (scripts/guard.rs), PREFIX (of records), OWN (companion.rs), PREFIX_MARK, a pattern, ENFORCES: 1 where any namespace does, else 2, lock(key): 1 a
-- lock whose namespace enforces, 2 another lock, and the number of its namespace; and ONLY: the line of the text where it has but one, else 0. Behind this stands guard_globals.lua, where the text has a word of it.
-- What follows finds: f, which runs the text guarded; declared, to which it adds the locks that it looks at itself; adopt, which it may set and which is asked whether such a lock that is about to be written becomes one of them, by its key and namespace; home, which
-- it sets to the number of their database; before, which it may set and is told of each other key that is about to be written, or nil where that is not known; refused: the first
-- command that was refused, as { key, name, the error }; noted: the first that would have been, as { key, name }; placed, which puts its line back into an error that the text raised.
local text, globals = f, _G
local real, call, try = redis, redis.call, redis.pcall
local find, match, lower, byte, gsub = string.find, string.match, string.lower, string.byte, string.gsub
local type, tostring, tonumber, select, pairs, pcall, error, rawget = type, tostring, tonumber, select, pairs, pcall, error, rawget
local format = string.format
local modern = rawget(real, 'REDIS_VERSION') ~= nil
local declared, refused, noted, adopt, before, home, away = {}, nil, nil, nil, nil, nil, false
-- Of each error that redis.call raised in the text: the line there, 0 where that is not known.
local lines = {}

-- Whether a key is one of the proxy's own, as OwnKey::of (companion.rs) says; then 1 or 2 like lock(key). One that is about no lock is about
-- all: it is what `about_all` says, and no script writes it.
local function record(key, about_all)
  about_all = about_all or ENFORCES
  if find(key, PREFIX_MARK) then return about_all end
  if sub(key, 1, #PREFIX) ~= PREFIX then return false end
  local kind, at = match(key, '^{[^}]*}([:#])()', #PREFIX + 1)
  if kind == ':' and sub(key, at, at + #OWN - 1) == OWN then return about_all end
  return at and lock(sub(key, at))
end

local function printed(key)
  key = gsub(sub(key, 1, 120), '[^%w%p]', function(c) return format('\\x%02x', byte(c)) end)
  return key
end
-- The error in place of a command. Where the text catches it, it goes on without what was refused.
local function refuse(key, name)
  local error = { err = 'LOCKDENIED unsafe-script key=' .. printed(key) .. ' cmd=' .. string.upper(name)
    .. ' hint="this script computes the name of a lock that it does not declare"' }
  refused = refused or { key, lower(name), error }
  return error
end

-- The same where the lock is enforced (1); where it is only watched (2) the command goes on, and is noted.
local function bar(mode, key, name)
  if mode == 1 then return refuse(key, name) end
  noted = noted or { key, lower(name) }
end

-- A key that would be written, and one that would be read.
local function writes(key, name)
  if type(key) == 'number' then return writes(tostring(key), name) or writes(format('%.17g', key), name) end
  if type(key) ~= 'string' or (declared[key] and not away) then return nil end
  local mode, namespace = record(key, 1), nil
  if not mode then
    mode, namespace = lock(key)
    if mode and adopt and not away and adopt(key, namespace) then return nil end
  end
  local no = mode and bar(mode, key, name)
  if before and not no then before(key) end
  return no
end
local function reads(key, name)
  local mode = type(key) == 'string' and record(key)
  return mode and bar(mode, key, name) or nil
end

-- A word as Redis compares it: without case, up to the first NUL.
local function option(word) return lower(match(tostring(word), '^[^%z]*')) end

-- Calls look with every key at these places among a command's words; answers what it says first. Letters as in guard.rs.
local function each(places, look, name, words, count)
  local first, last, step = 1, count, 1
  if places == '.' then return nil
  elseif places == '1' then last = 1
  elseif places == '2' then first, last = 2, 2
  elseif places == 'T' then last = 2
  elseif places == 'B' then last = count - 1
  elseif places == 'P' then step = 2
  elseif places == 'R' then first = 2
  elseif places == 'Q' then first = 3
  elseif places == 'O' then
    for i = 1, count - 1 do
      local word = option(words[i])
      local no = (word == 'store' or word == 'storedist') and look(words[i + 1], name)
      if no then return no end
    end
    return nil
  elseif places == 'K' or places == 'L' or places == 'M' then
    local at = places == 'L' and 2 or 1
    local keys = tonumber(words[at])
    if keys then
      if places == 'M' then step = 2 end
      first, last = at + 1, at + keys * step
    end
  end
  for i = first, last < count and last or count, step do
    local no = look(words[i], name)
    if no then return no end
  end
end

-- What is known of a command, and remembered while the script runs: 0 nothing, 1 it writes its first argument, 2 it reads
-- that, or three letters: which arguments it writes, which it reads, and f where it may reach into another database, d where
-- it goes to another one, x where names point elsewhere after it, k or s where it lists keys.
local kinds = {}
local function kind_of(name)
  if type(name) ~= 'string' then return 0 end
  -- No command is called so, and Redis may find another one behind it.
  if find(name, '[^!-~]') then return 'none' end
  local word = lower(name)
  -- They are in order; where those of a letter begin has four digits.
  local from = tonumber(sub(BEGINNINGS, (byte(word) or 0) * 4 - 387, (byte(word) or 0) * 4 - 384)) or 1
  local _, at = find(COMMANDS, ' ' .. word .. '=', from, true)
  -- Of a command that the table does not have any argument may be a key that it writes.
  local kind = at and sub(COMMANDS, at + 1, at + 3) or '*.?'
  if kind == '...' then kind = 0 elseif kind == '1..' then kind = 1 elseif kind == '.1.' then kind = 2 end
  kinds[name] = kind
  return kind
end

local function look(kind, name, ...)
  local words, count, more = { ... }, select('#', ...), sub(kind, 3)
  if more == 'x' then
    if before then before(nil) end
    return bar(ENFORCES, '', name)
  end
  if more == 'd' and before then before(nil) end
  if more == 'f' then
    local far = lower(name) == 'move'
    for i = 3, count do far = far or option(words[i]) == 'db' end
    if far then
      local key = tostring(words[lower(name) == 'move' and 1 or 2])
      local mode = lock(key)
      local no = mode and bar(mode, key, name)
      if no then return no end
      if before then before(nil) end
    end
  end
  if more == '?' and before then before(nil) end
  return each(sub(kind, 1, 1), writes, name, words, count) or each(sub(kind, 2, 2), reads, name, words, count)
end

-- A list of keys without the proxy's own.
local function without_records(keys)
  local left = {}
  for i = 1, #keys do
    if not record(keys[i]) then left[#left + 1] = keys[i] end
  end
  return left
end

-- Of an error of a command that the text called: the line of the call there, in place of this one.
local function located(said, where)
  local line = tonumber(match(where, ':(%d+): $')) or ONLY
  if modern then lines[said] = line return said end
  -- Before 7.0 Redis itself writes it in front of some.
  if line > 0 then said.err = gsub(said.err, '^(@user_script: )%d+', '%1' .. line) end
  lines[said.err] = line
  return said
end

local function guarded(raises)
  return function(...)
    local name, key = ...
    local kind, no = kinds[name or 0] or kind_of(name), nil
    if kind == 'none' then no = { err = 'ERR Unknown Redis command called from script' }
    elseif kind == 1 then no = writes(key, name)
    elseif kind == 2 then no = reads(key, name)
    elseif kind ~= 0 then no = look(kind, ...) end
    local said = no or try(...)
    if type(said) ~= 'table' then return said end
    if said.err then
      local _, where = pcall(error, '', 3)
      located(said, where)
      if raises then error(modern and said or said.err, 0) end
    elseif kind == '..d' then away = tonumber(key) ~= home
    elseif kind == '..k' then return without_records(said)
    elseif kind == '..s' and type(said[2]) == 'table' then said[2] = without_records(said[2]) end
    return said
  end
end

local P = { call = 0, pcall = 0 }
for name, value in pairs(real) do P[name] = value end
P.call, P.pcall = guarded(true), guarded(false)
local G, make, make_of
local function f() return text(P, P, G, nil, nil, make, make_of, rawget(globals, 'print'), nil) end

-- An error that ended the text, with its line there.
local function placed(raised)
  if type(raised) == 'table' then
    local line = lines[raised]
    if line then raised.line = line end
    return raised
  end
  local said = match(raised, '^@user_script:%d+: (.*)$')
  local line = said and lines[said]
  if line then return line > 0 and '@user_script:' .. line .. ': ' .. said or said end
  return raised
end
