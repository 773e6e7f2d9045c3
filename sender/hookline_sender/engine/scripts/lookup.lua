-- Destinations by id, with what is sealed: the time, Redis' own time, then for each id its tenant, public entry and sealed
-- text, or nothing. Reads only. ARGV: ids.
local now, shift = clock()
local out = { now, now - shift }
for i, id in ipairs(ARGV) do
  local owner = call('HGET', key('dst'), id)
  local found = {}
  if owner and string.sub(owner, 1, 1) == '+' then
    local tenant = string.sub(owner, 2)
    local v = call('HMGET', key('reg:' .. tenant), 'p' .. id, 's' .. id)
    if v[1] and v[2] then found = { tenant, v[1], v[2] } end
  end
  out[i + 2] = found
end
return out
