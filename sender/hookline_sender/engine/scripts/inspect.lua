-- One task as it stands. Reads only. ARGV: delivery id.
local did = ARGV[1]
local pid, lane = string.sub(did, 1, 22), string.sub(did, 23)
local v = call('HMGET', key('S:' .. pid), 'h', 't', lane)
if not (v[1] and v[3]) then return { 'unknown' } end
local _, created, _, revision, _, _, event = struct.unpack(HEAD, v[1])
local r = unpack_record(v[3])
local d = call('HMGET', key('D:' .. lane), 'b', 'd')
local now = clock()
local state = r.state
if state == WAITING and r.due <= now and not has(r.flags, F_ORDERED) then state = ACCEPTED end
local lease = state < COMPLETED and find_lease(did)
if lease then state, r.attempts, r.fence = RUNNING, r.attempts + 1, r.fence + 1 end
return { 'task', now, state, r.flags, r.attempts, r.fence, r.code, r.status, r.duration, r.releases, r.due, r.deadline,
  created, hex(revision), call('HGET', key('plan:' .. hex(revision)), 'e:' .. event) or '', v[2] or '',
  d[1] or '', d[2] or '', call('HGET', key('H:' .. did), 'a') or '',
  tonumber(lease and call('ZSCORE', key('leases'), lease) or '-1') }
