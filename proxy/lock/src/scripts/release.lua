-- Gives a lock back: DEL, UNLINK, GETDEL, compare-and-delete scripts, DELEX, DELIFEQ, CAD.
-- KEYS  lock, companion
-- ARGV  1 flags (of proof, and m monitor, c the command compares the value itself, u and goes on where it is
--       another, z and found another already, g the value is wanted, k tokenless, w P S what is shown where the
--       value is another)  2 own grant  3 claimed value  4 observed grant  5 observed value  6 session+identity
--       7… the application's own command, or for one that compares the DEL that it comes to
-- A tokenless release may pay a debt instead.
-- The lock key goes first: a write that Redis allows when out of memory, so the record's passes too.
local lock, companion, flags = KEYS[1], KEYS[2], ARGV[1]
local monitor = has(flags, 'm')
local m = redis.pcall('MGET', lock, companion)
if m.err then return { '?', monitor and not has(flags, 'c') and redis.pcall(unpack(ARGV, 7)) or m, '' } end
local value, record = m[1], m[2]
if not value and not has(flags, 'c') and not has(flags, 'g') then value = share(lock, record) end
if not value then
  if has(flags, 'c') then return { 'A', redis.pcall('GET', lock), '', '', '0' } end
  local native, mark, more = redis.pcall(unpack(ARGV, 7)), ''
  if record and sub(record, 1, 1) == '1' and native ~= 1 then mark, more = overdue(companion, flags, record, ARGV[2], ARGV[6]) end
  if more then return asks(record, 0) end
  return { 'A', native, '', mark, record and sub(record, 68, 80) or '0' }
end
if has(flags, 'c') and (has(flags, 'z') or (form(value) == ARGV[3]) == (has(flags, 'u') ~= nil)) then
  local late = governed(value, record) and over(flags, record, ARGV[2])
  return { 'D', shown(flags, lock, value), late and 'expired' or '', late and 1 or 0 }
end
if not governed(value, record) then return { 'U', redis.pcall(unpack(ARGV, 7)), '' } end

local held, late, reason, more = proof(flags, record, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], companion)
if not held and more then return asks(record, 0) end
local paid = 0
if not held and not has(flags, 'c') then paid = repay(companion, flags, record, ARGV[6]) end
if not held and not monitor then return refusal(companion, flags, record, reason, late, ARGV[6], nil, paid) end
if paid == 1 then reason = 'expired' end
local native = redis.pcall(unpack(ARGV, 7))
if type(native) == 'table' and native.err then return { '?', native, '' } end
local state = held == 'o' and has(flags, 'x') and 'T' or 'R'
redis.call('SETRANGE', companion, 1, state)
return { 'R', native, reason or '', sub(record, 52, 67), sub(record, 68, 80), held or '', has(flags, 'g') and value or false, state, late and 1 or 0, paid }
