-- One task as it stands. Reads only. ARGV: delivery id.
local did = ARGV[1]
local now = clock()
local lease = find_lease(did)
local t = view(did, now, lease)
if not t then return { 'unknown' } end
local r = t.record
local _, tenant, name = names_of(t.pid)
local before = t.before and #t.before == 16 and running_in(t.before)[1] or t.before
local history = call('HMGET', key('H:' .. did), 'a', 'r')
return { 'task', now, r.state, r.flags, r.attempts, r.fence, r.code, r.status, r.duration, r.releases, r.due, r.deadline,
  t.created, t.revision, t.event, t.trace, t.binding, t.destination, history[1] or '',
  tonumber(lease and r.state == RUNNING and call('ZSCORE', key('leases'), lease) or '-1'),
  tenant, name, history[2] or '', tonumber(r.state == FAILED and call('ZSCORE', key('dead'), did) or '-1'),
  r.state < RUNNING and before or '' }
