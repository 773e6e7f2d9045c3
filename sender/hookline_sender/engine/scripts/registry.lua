-- A tenant's destinations as publishers match them: revision, then id and public entry in turn. Reads only. ARGV: tenant.
local out = { call('GET', key('rv:' .. ARGV[1])) or '0' }
local fields = call('HGETALL', key('reg:' .. ARGV[1]))
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) == 'p' then
    out[#out + 1] = string.sub(fields[i], 2)
    out[#out + 1] = fields[i + 1]
  end
end
return out
