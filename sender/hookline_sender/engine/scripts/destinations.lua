-- Some of the namespace's destinations, in no order: where the next ones begin ('0': nowhere), how many ids there are, then
-- id, tenant and public entry in turn. Who is registered all through a walk is met at least once in it. Reads only.
-- ARGV: where to begin ('0' at first), about how many.
local page = call('HSCAN', key('dst'), ARGV[1], 'COUNT', ARGV[2])
local out, owners = { page[1], call('HLEN', key('dst')) }, page[2]
for i = 1, #owners, 2 do
  local id, owner = owners[i], owners[i + 1]
  if string.sub(owner, 1, 1) == '+' then
    local tenant = string.sub(owner, 2)
    out[#out + 1] = id
    out[#out + 1] = tenant
    out[#out + 1] = call('HGET', key('reg:' .. tenant), 'p' .. id) or ''
  end
end
return out
