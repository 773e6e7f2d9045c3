-- Tasks in one state, newest first, one bounded slice per call. Reads only.
-- ARGV: state, lane or '', limit, scan, from, skip, since, until, code or -1, binding, destination, tenant.
-- `from` and `skip` say where the slice before ended: a score and how many of that score were seen, or a place; see below.
local state, lane, limit, scan = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local from, skip, since, until_ms = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local code, binding, destination, tenant = tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12]
local now = clock()
local found, scanned = {}, 0

local function matches(t, at, of)
  local r = t.record
  return (r.state == state or (state == ACCEPTED and r.state == WAITING)) and at >= since and at <= until_ms
    and (code < 0 or r.code == code) and (binding == '' or t.binding == binding)
    and (destination == '' or t.destination == destination) and (tenant == '' or of == tenant)
end

local function consider(did, at, lease)
  local t = view(did, now, lease)
  if not t then return end
  local event, of, name = names_of(t.pid)
  if not matches(t, at or t.created, of) then return end
  local r = t.record
  found[#found + 1] = { did, r.state, r.attempts, r.code, r.status, at or -1, t.created, r.due, r.deadline,
    t.event ~= '' and t.event or event, of, name, t.binding, t.destination }
end

-- A sorted set by time, from the newest on. Many members share a millisecond, so a place is a score and a number.
local function by_score(name, each)
  local top = from ~= '' and from or (name == 'leases' and '+inf' or string.format('%.0f', until_ms))
  local bottom = name == 'leases' and '-inf' or string.format('%.0f', since)
  local members = call('ZREVRANGEBYSCORE', key(name), top, bottom, 'WITHSCORES', 'LIMIT', skip, scan)
  local last, same = from, skip
  for i = 1, #members, 2 do
    if #found >= limit then break end
    local score = members[i + 1]
    scanned = scanned + 1
    if score == last then same = same + 1 else last, same = score, 1 end
    each(members[i], tonumber(score))
  end
  local more = scanned * 2 < #members or #members == scan * 2
  return more and { last, same } or {}
end

-- How many wait behind a member of the lane, and in which queue.
local function behind(pid)
  local v = call('HMGET', key('S:' .. pid), 'h', lane)
  if not (v[1] and v[2]) or not has(unpack_record(v[2]).flags, F_AGGREGATE) then return 0 end
  local queue = key('a:' .. queue_name(lane, select(6, struct.unpack(HEAD, v[1]))))
  return call('LLEN', queue) - 1, queue
end

-- What waits in a lane: first what waits for its time, then its queue from the tail on, then what runs, and before each of
-- them what waits behind it. A place is a member, and how many of those behind it are still to be seen.
local function by_place()
  local timed, queued = call('ZCARD', key('z:' .. lane)), call('LLEN', key('q:' .. lane))
  local running = call('HGET', key('D:' .. lane), 'm') == '2' and running_in(lane) or {}
  local at, left, all = skip, tonumber(from), timed + queued + #running
  while at < all and scanned < scan and #found < limit do
    local pid
    if at < timed then
      pid = call('ZREVRANGE', key('z:' .. lane), at, at)[1]
    elseif at < timed + queued then
      pid = call('LINDEX', key('q:' .. lane), timed - at - 1)
    else
      pid = string.sub(running[at - timed - queued + 1], 1, 22)
    end
    local waiting, queue = behind(pid)
    left = math.min(left or waiting, waiting)
    if left > 0 then
      consider(call('LINDEX', queue, left) .. lane, nil, nil)
      left = left - 1
    else
      if at < timed + queued then consider(pid .. lane, nil, nil) end
      at, left = at + 1, nil
    end
    scanned = scanned + 1
  end
  return at < all and { left and tostring(left) or '', at } or {}
end

local next_place
if state == FAILED and lane ~= '' then
  next_place = by_score('dead:' .. lane, function(pid, at) consider(pid .. lane, at) end)
elseif state == FAILED then
  next_place = by_score('dead', consider)
elseif state == RUNNING then
  next_place = by_score('leases', function(member) consider(string.sub(member, 1, 38), nil, member) end)
elseif state == ACCEPTED then
  next_place = by_place()
else
  next_place = by_score('fin', function(pid, at)
    for _, field in ipairs(call('HKEYS', key('S:' .. pid))) do
      if #field == 16 then consider(pid .. field, at) end
    end
  end)
end
return { now, next_place, found }
