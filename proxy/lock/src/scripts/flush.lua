-- Empties a database, or all of them, unless live leases of enforcing namespaces would go with it: FLUSHDB, FLUSHALL.
-- KEYS  none: it is about every key there is
-- ARGV  1 flags (a all databases, m nothing stops it, l looks and does nothing)  2 what companions begin with  3 the glob that finds them
--       4 most keys that are looked at  5 most leases that are counted, where counting decides nothing any more
--       6 number of globs
--       7… three a glob, the first that matches wins: number of its namespace; e if that enforces and one of
--       x the text is the key, p the key begins with the text, a any key, g anything else; the text
--       then the application's own command
-- Reads only, up to the application's own command. Answers
--   { 'F' run or 'N' refused, what Redis answered, reason, how many keys there were, whether they were looked at (1 all
--     of them, 2 up to the most leases, 0 none), then four a namespace with live leases: its number, how many, one of
--     their keys, its database (-1: the selected one) }
--   Where they cannot be looked at, flag m lets the command run all the same, and the reason is Redis's error.
local flags, prefix, globs = ARGV[1], ARGV[2], tonumber(ARGV[6])
local most, lenient, own = tonumber(ARGV[5]), has(flags, 'm'), 7 + globs * 3
local byte, find = string.byte, string.find

local function matches(shape, text, key)
  if has(shape, 'p') then return sub(key, 1, #text) == text end
  if has(shape, 'x') then return key == text end
  if has(shape, 'a') then return true end
  return glob(text, key)
end

local stops, counted, found, places = false, 0, {}, {}

-- A live lease: counted for the first namespace that claims its key.
local function note(key, db)
  for at = 7, own - 1, 3 do
    if matches(ARGV[at + 1], ARGV[at + 2], key) then
      local entry = places[ARGV[at]]
      if not entry then
        entry = { tonumber(ARGV[at]), 0, key, db }
        places[ARGV[at]], found[#found + 1] = entry, entry
        stops = stops or has(ARGV[at + 1], 'e')
      end
      entry[2], counted = entry[2] + 1, counted + 1
      return
    end
  end
end

local function enough() return counted >= most and (lenient or stops) end

-- What stands in a key, if it is a string. One command for each key: a name that somebody has made up, or one of the proxy's own, may
-- be in another slot than the key in it, which may then be on another node; and in cluster mode one command over two slots is refused,
-- and ends all scripts of Valkey 9.1.
local function read_text(key)
  local found = redis.pcall('GET', key)
  if not is_error(found) then return found end
  local is_here = not find(found.err, 'non local key', 1, true)
  if is_here and not find(found.err, 'WRONGTYPE', 1, true) then unread = found end
  return nil
end

-- Looks through the selected database; answers an error of Redis, if any.
local function look(db)
  local cursor = '0'
  repeat
    local page = redis.pcall('SCAN', cursor, 'MATCH', ARGV[3], 'COUNT', 1000)
    if page.err then return page end
    cursor = page[1]
    for _, companion in ipairs(page[2]) do
      local brace = find(companion, '}', #prefix + 2, true)
      if brace and byte(companion, brace + 1) == 58 then
        local key = sub(companion, brace + 2)
        local value, record = read_text(key), read_text(companion)
        value = value or share(key, record)
        if unread then return unread end
        if governed(value, record) then note(key, db) end
      end
    end
  until cursor == '0' or enough()
end

-- How many keys each database has: pairs of number and size, and their sum.
local function sizes()
  if not has(flags, 'a') then
    local size = redis.pcall('DBSIZE')
    if type(size) == 'table' then return nil, 0, size end
    return { { -1, size } }, size
  end
  local info = redis.pcall('INFO', 'keyspace')
  if type(info) == 'table' and info.err then return nil, 0, info end
  local list, sum = {}, 0
  for db, size in string.gmatch(info, 'db(%d+):keys=(%d+)') do
    list[#list + 1] = { tonumber(db), tonumber(size) }
    sum = sum + tonumber(size)
  end
  return list, sum
end

local list, keys, trouble = sizes()
local seen = not trouble and keys <= tonumber(ARGV[4])
if seen then
  for _, entry in ipairs(list) do
    if entry[1] >= 0 then
      local chosen = redis.pcall('SELECT', entry[1])
      if chosen.err then trouble = chosen end
    end
    trouble = trouble or look(entry[1])
    if trouble or enough() then break end
  end
end
if trouble and not lenient then return { '?', trouble, '' } end
local looked = 1
if trouble or not seen then looked = 0 elseif enough() then looked = 2 end
local answer = { 'N', false, 'bulk-delete', keys, looked }
if lenient or (seen and not stops) then
  answer[1], answer[2] = 'F', has(flags, 'l') and 1 or redis.pcall(unpack(ARGV, own))
  answer[3] = trouble and trouble.err or ''
end
for _, entry in ipairs(found) do
  for i = 1, 4 do answer[#answer + 1] = entry[i] end
end
return answer
