-- A destination is registered, or registered anew: whose it is, what it is and the tenant's revision in one step. As
-- several, a publication between them would match a destination that no worker knows, or miss one that was acknowledged.
-- ARGV: fingerprint, id, tenant, revision it was decided on, lane, limits, public text, sealed.
local id, tenant, revision, lane, limits = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local now = clock()
if not accepted_plan(ARGV[1], now) then return { 'unbound' } end

local owner, left_in = owner_of(id)
if left_in then
  local open = tonumber(call('HGET', key('D:' .. left_in), 'o') or '0')
  if open > 0 then return { 'busy', open } end
  -- Whoever may send its dead letters again must be whose they are.
  if owner ~= tenant and call('EXISTS', key('dead:' .. left_in)) == 1 then return { 'owned' } end
elseif owner and owner ~= tenant then
  return { 'owned' }
end

local known = owner and not left_in and entry_of(tenant, id)
if known and known.lane ~= lane then return { 'webhook' } end
-- It was of another webhook in between, and whose the dead letters are that it left here is known no more.
if left_in ~= lane and call('HGET', key('D:' .. lane), 'g') == '1' then return { 'busy', 0 } end
if known and known.public == ARGV[7] and call('HGET', key('reg:' .. tenant), 's' .. id) == ARGV[8] then
  return { 'registered', known.version, known.paused }
end
if revision_of(tenant) ~= revision then return { 'changed' } end

local entry = { version = next_version(now), paused = known and known.paused or '0', lane = lane, public = ARGV[7] }
if left_in == lane then
  call('ZREM', key('gone'), lane .. id)
  call('HDEL', key('D:' .. lane), 'g', 'p', 'h', 'w')
end
call('HSET', key('dst'), id, '+' .. tenant)
save(tenant, id, entry, ARGV[8], entry.version)
apply(entry, limits, now)
return { 'registered', entry.version, entry.paused }
