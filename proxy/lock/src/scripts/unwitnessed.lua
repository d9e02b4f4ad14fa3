-- Marks leases ahead of a call that names their locks and that nobody can judge: it may give them back, and nobody sees that.
-- So none of them counts as one that ran out or was left unreleased. One that is over already is left as it is, unless the call was
-- carried out just now.
-- KEYS  lock, companion, lock, companion, …
-- ARGV  1 '1' where it was
-- Answers one number a lock: 1 where its lease is marked now, 0 where there is none, or it was marked before.
local answers = {}
for at = 1, #KEYS, 2 do
  local record, marked = redis.pcall('GET', KEYS[at + 1]), 0
  if type(record) == 'string' and sub(record, VERSION) == '1' and unreleased(record)
    and (ARGV[1] == '1' or redis.pcall('EXISTS', KEYS[at]) == 1)
    and not amend(KEYS[at + 1], BEFORE.FLAGS, string.char(string.byte(record, AT.FLAGS) + UNWITNESSED)) then marked = 1 end
  answers[#answers + 1] = marked
end
return answers
