-- DEL or UNLINK of several keys, locks and others. Each lock is judged as in release.lua.
-- KEYS  lock, companion, lock, companion … then the keys that are no locks
-- ARGV  1 DEL or UNLINK  2 number of locks  3 '1': any refusal refuses everything
--       4… five a lock: flags, own grant, observed grant, observed value, session+identity+the rules
-- Answers { 'M', how many keys went, '', one answer a lock as release.lua gives it }.
local locks, strict = tonumber(ARGV[2]), ARGV[3] == '1'
local found, refused = {}, false
for i = 1, locks do
  local at = 4 + (i - 1) * 5
  local flags, who = ARGV[at], ARGV[at + 4]
  local m = read('MGET', KEYS[i * 2 - 1], KEYS[i * 2]) or {}
  local value = m[1] or share(KEYS[i * 2 - 1], m[2])
  local entry = { flags = flags, value = value, record = m[2], mine = ARGV[at + 1], who = who }
  if governed(value, m[2]) then
    entry.governed = true
    local more
    entry.held, entry.late, entry.reason, more = proof(flags, m[2], ARGV[at + 1], '', ARGV[at + 2] .. ARGV[at + 3], who, KEYS[i * 2])
    if unread then return { '?', unread, '' } end
    if not entry.held and more then return asks(m[2], i - 1) end
    if not entry.held and not has(flags, 'm') then
      entry.refused = true
      -- Who pays a debt is not refused anything.
      local owes = has(flags, 'i') and identical(flags, m[2], who) and indebted(KEYS[i * 2], m[2], who)
      refused = refused or not owes
    end
  end
  if unread then return { '?', unread, '' } end
  found[i] = entry
end
local answer, total = { 'M', 0, '' }, 0
for i = 1, locks do
  local entry, lock, companion = found[i], KEYS[i * 2 - 1], KEYS[i * 2]
  local who = entry.who
  local reason = entry.reason or ''
  if strict and refused and not entry.refused then
    answer[3 + i] = { 'C', false, '' }
  elseif not entry.refused then
    local state = entry.held == 'o' and has(entry.flags, 'x') and 'T' or 'R'
    local recorded = entry.governed and not has(entry.flags, 'm')
    -- First the record: what cannot be recorded is not done.
    local gone = recorded and amend(companion, BEFORE.STATE, state) or run(ARGV[1], lock)
    if is_error(gone) then
      if recorded and not trouble then amend(companion, BEFORE.STATE, 'L') end
      if not ran then return { '?', gone, '' } end
      answer[3 + i], trouble = { 'C', false, gone }, nil
    else
      total = total + gone
      if entry.governed then
        local paid = not entry.held and repay(companion, entry.flags, entry.record, who) or 0
        if paid == 1 then reason = 'expired' end
        if not recorded then amend(companion, BEFORE.STATE, entry.held and state or 'T') end
        if entry.held and state == 'R' then shorten(companion, entry.record) end
        answer[3 + i] = { 'R', gone, reason, sub(entry.record, FENCE), sub(entry.record, SINCE), entry.held or '', false, state, entry.late and 1 or 0, paid }
      elseif gone == 1 then
        answer[3 + i] = { 'U', gone, later(entry.record) or '' }
      else
        local mark, record = '', entry.record
        -- Flag p is of no use here: locks before this one may be gone already.
        if record and sub(record, VERSION) == '1' then mark = overdue(companion, entry.flags, record, entry.mine, who) end
        answer[3 + i] = { 'A', gone, '', record and (mark or '') or '-', record and sub(record, SINCE) or '0' }
      end
      if trouble then answer[3 + i][3], trouble = trouble, nil end
    end
  end
end
if not (strict and refused) then
  for i = locks * 2 + 1, #KEYS do
    local gone = run(ARGV[1], KEYS[i])
    if type(gone) == 'number' then total = total + gone
    elseif not ran then return { '?', gone, '' } end
  end
end
-- Last, because Redis may not let a command before this pass: then nothing was refused either.
for i = 1, locks do
  local entry, companion, paid = found[i], KEYS[i * 2], 0
  if entry.refused then
    if not (strict and refused) then paid = repay(companion, entry.flags, entry.record, entry.who) end
    answer[3 + i] = refusal(companion, entry.flags, entry.record, entry.reason or '', entry.late, entry.who, nil, paid)
  end
end
answer[2] = total
return answer
