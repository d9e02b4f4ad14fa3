-- Whether the user has the rights that the step behind it takes. It changes nothing.
-- Before it stand, in the same block (rights.rs): lock and companion, a key of either kind; takes_own, whether the last argument
-- names the application's own command, which is tried and taken away. TRIALS are the commands as tables of words, with `key`.
-- Where something is missing, or where the step must be sent without it, it answers { 'Q', what is missing } and nothing
-- has been run: the names of commands, and ~ where the user may not use the names of records.
-- From 7.0 on Redis is asked (redis.acl_check_cmd); a command that it does not know counts as missing. Before that each
-- command is given to it, in words that change nothing, on a key that nobody has. Where memory is out, some of those
-- would let the step's first write pass; so the step is not taken then.
local may, missing, full = redis.acl_check_cmd, '', false
local nobodys = string.gsub(companion, '}:.*$', '}!lockwarden', 1)
-- Whether the server has no such command: a service has renamed it away.
local function is_unknown(said) return string.find(said, 'Unknown Redis command', 1, true) end
-- Tries a command: what it lacks, or false.
local function lacks(words)
  if may then return not may(unpack(words)) end
  local said = redis.pcall(unpack(words))
  if type(said) ~= 'table' or not said.err then return false end
  if string.find(said.err, 'OOM', 1, true) then full = true end
  return (string.find(said.err, 'The user executing the script', 1, true) or is_unknown(said.err)) and said.err
end
local function noted(what) return string.find(missing .. ' ', ' ' .. what .. ' ', 1, true) end
-- Notes a command that may not be run.
local function note(words, lacking, on_record)
  if not lacking then return end
  local what = words[1] == 'MEMORY' and 'memory|usage' or string.lower(words[1])
  if noted(what) then return end
  if on_record or (not may and string.find(lacking, 'at least one of the keys', 1, true)) then what = '~' end
  if not noted(what) then missing = missing .. ' ' .. what end
end
local keys = may and { lock, companion, (string.gsub(companion, '}:', '}#', 1)) } or { nobodys }
for i = 1, #keys do
  local key = keys[i]
  local each = { TRIALS }
  for j = 1, #each do
    local known, lacking = pcall(lacks, each[j])
    note(each[j], not known or lacking, i > 1 and known)
  end
end
if may then
  for _, word in ipairs({ 'EVAL', 'EVALSHA' }) do
    local words = { word, '', '0' }
    note(words, lacks(words), false)
  end
end
-- The application's own commands, as far as they can be tried. One that the server does not know it refuses itself.
for word in string.gmatch(takes_own and table.remove(ARGV) or '', '%S+') do
  local words
  if may then words = { word, lock }
  elseif string.find(' del unlink getdel persist ', ' ' .. word .. ' ', 1, true) then words = { word, nobodys }
  elseif string.find(word, '^p?expire') then words = { word, nobodys, '' } end
  if words then
    local known, lacking = pcall(lacks, words)
    if known and (may or not lacking or not is_unknown(lacking)) then note(words, lacking, false) end
  end
end
if missing ~= '' or full then return { 'Q', string.sub(missing, 2) } end
