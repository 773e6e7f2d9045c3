-- A destination is not matched or claimed for any more from here on; what is queued for it is cancelled by turns. Its URL
-- and keys are gone at once. ARGV: id.
local id = ARGV[1]
local now = clock()
local tenant, left_in = owner_of(id)
if not tenant then return { 'unknown' } end
if left_in then return { 'removed', tonumber(call('HGET', key('D:' .. left_in), 'o') or '0') } end

local entry = entry_of(tenant, id)
local lane, reg = entry.lane, key('reg:' .. tenant)
local revision = next_version(now)
call('HDEL', reg, 'p' .. id, 's' .. id)
if call('EXISTS', reg) == 1 then
  call('SET', key('rv:' .. tenant), revision)
else
  call('DEL', key('rv:' .. tenant))
end

local d = lane_state(lane)
call('HSET', key('dst'), id, '-' .. lane .. tenant)
call('ZADD', key('gone'), d and now or now + 60000, lane .. id)
if d then
  call('HSET', key('D:' .. lane), 'g', '1')
  d.gone = true
  resched(d, now)
  call('PUBLISH', key('wake'), '')
end
return { 'removed', d and d.open or 0 }
