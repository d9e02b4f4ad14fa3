-- What follows the guard where a script declares no lock. It is answered as it is; where it ended with an error,
-- or something was refused, { MARK, e it raised an error | n the refusal ended it | r it ended all the same, 1 what that is about was only noted, key,
-- name, error | what it returned, source, line }; of n, instead of that, { …, 1 what it did before stands, keys that Redis would not have put back }.
-- A script that a refusal ends leaves nothing behind, or all of it: see `copies`.
if ENFORCES == 1 then undoable, before = true, keep_copy end
local handler = rawget(globals, '__redis__err__handler') or function(err) return err end
local ended, result = xpcall(f, handler)
local no = refused or noted
if ended and not no then return result end

-- Rarely:
local key, name, only_noted = no and no[1] or '', no and no[2] or '', refused and 0 or 1
if ended then return { MARK, 'r', only_noted, key, name, result } end
result = placed(result)
if not refused or not is_refusal(result, refused) then return { MARK, 'e', only_noted, key, name, ended_by(result) } end
-- The script may have changed how replies are read, and the database.
if real.setresp then real.setresp(2) end
if away then undoable = false end
-- Who may not restore is told so of a TTL that is none, before anything is put back.
if undoable and copies[1] and not find(redis.pcall('RESTORE', copies[1].key, '-1', '', 'REPLACE').err, 'TTL', 1, true) then undoable = false end
return { MARK, 'n', only_noted, key, name, undoable and 0 or 1, put_copies_back(), 0 }
