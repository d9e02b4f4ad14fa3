-- The rest of the guard, for a text that speaks of _G, load or loadstring. Elsewhere they are nil: no text can
-- reach them but by their names.
-- What the text makes at run time is guarded like itself. It must be a chunk of its own, and no compiled one.
local setmetatable, load, loadstring, concat = setmetatable, load, loadstring, table.concat
local function chunk(source, name)
  if type(source) == 'number' then source = tostring(source) end
  if type(source) ~= 'string' then return loadstring(source, name) end
  if byte(source) == 27 or find(source, OTHERS) then return nil, 'compiled code and other scripts are not loaded by a guarded script' end
  name = name or source
  local fine, why = loadstring(source, name)
  if not fine then return nil, why end
  -- A function that takes any arguments has a variable arg, which a chunk has not: only one that says ... is such.
  local head = 'return function(redis,server,_G,getfenv,setfenv,loadstring,load,print,newproxy) return function('
  fine = loadstring(head .. ') ' .. source .. '\nend end', name)
  if not fine then fine, why = loadstring(head .. '...) ' .. source .. '\nend end', name) end
  if not fine then return nil, why end
  return fine()(P, P, G, nil, nil, make, make_of, rawget(globals, 'print'), nil)
end
make = function(source, name) return chunk(source, name) end
make_of = function(source, name)
  if type(source) ~= 'function' then return load(source, name) end
  local pieces = {}
  while true do
    local piece = source()
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' then error('reader function must return a string', 2) end
    pieces[#pieces + 1] = piece
  end
  return chunk(concat(pieces), name or '=(load)')
end

-- What it sees as _G: the real one, without the ways around this.
local hidden = { getfenv = true, setfenv = true, newproxy = true, server = true }
G = { redis = P, loadstring = make, load = make_of }
G._G = G
if rawget(globals, 'server') then G.server = P end
setmetatable(G, {
  __index = function(_, name)
    if hidden[name] or (type(name) == 'string' and find(name, OTHERS)) then return nil end
    return globals[name]
  end,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
  __metatable = false,
})
