-- What follows the guard where a script declares no lock. It is answered as it is; where it ended with an error,
-- or something was refused, { MARK, e it raised an error | n the refusal ended it | r it ended all the same, key, name, error | what
-- it returned, source, line }.
local handler = rawget(globals, '__redis__err__handler') or function(err) return err end
local ended, result = xpcall(f, handler)
if ended and not refused then return result end

-- Rarely:
local key, name = '', ''
if refused then key, name = refused[1], refused[2] end
if ended then return { MARK, 'r', key, name, result } end
result = placed(result)
return { MARK, refused and is_refusal(result, refused) and 'n' or 'e', key, name, ended_by(result) }
