-- A registered destination gets other settings or keys, unless somebody changed it since they were decided on: two
-- rotations at once must not each forget the other's key.
-- ARGV: fingerprint, id, version it was decided on, limits, public text, sealed.
local id, version = ARGV[2], ARGV[3]
local now = clock()
if not accepted_plan(ARGV[1], now) then return { 'unbound' } end
local tenant, removed = owner_of(id)
if not tenant or removed then return { 'unknown' } end

local entry = entry_of(tenant, id)
if entry.public == ARGV[5] and call('HGET', key('reg:' .. tenant), 's' .. id) == ARGV[6] then
  return { 'configured', entry.version, entry.paused }
end
if entry.version ~= version then return { 'changed' } end
entry.version, entry.public = next_version(now), ARGV[5]
save(tenant, id, entry, ARGV[6], entry.version)
apply(entry, ARGV[4], now)
return { 'configured', entry.version, entry.paused }
