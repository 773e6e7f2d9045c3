-- The policies of one plan revision, as name and JSON text in turn. Reads only. ARGV: revision.
local out, fields = {}, call('HGETALL', key('plan:' .. ARGV[1]))
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 2) == 'p:' then
    out[#out + 1] = string.sub(fields[i], 3)
    out[#out + 1] = fields[i + 1]
  end
end
return out
