-- How a destination stands: its lane, and its pause where it is registered. Reads only. ARGV: lane, destination.
local lane, id = ARGV[1], ARGV[2]
local now = clock()
local tenant, removed = owner_of(id)
local entry = tenant and not removed and entry_of(tenant, id)
local own = entry and entry.lane == lane and entry.paused
local d = lane_state(lane)
local dead = call('ZCARD', key('dead:' .. lane))
if not d then return { now, 0, 0, dead, own or '0' } end
local h = d.health or { failures = 0, since = 0, held = 0, opened = 0 }
return { now, d.open, d.flight, dead, own or call('HGET', key('D:' .. lane), 'p') or '0', limit_of(d), h.failures, h.since,
  closed_until(d, now) > now and h.held or 0, h.opened, h.slow and 1 or 0 }
