-- What a lane is, and when it next gives work. Stands in every script, after the prelude.
-- Lane state is read once per script and written by resched(). `homes`: the binding under which a lane was met.
local lanes, homes = {}, {}
local function lane_state(lane)
  local d = lanes[lane]
  if d then return d end
  local v = call('HMGET', key('D:' .. lane), 'b', 'd', 'o', 'f', 'c', 'm', 'r', 'p', 'g')
  if not v[1] then return nil end
  d = { lane = lane, binding = v[1], destination = v[2], open = tonumber(v[3]), flight = tonumber(v[4]),
        cap = tonumber(v[5]), mode = v[6], ordered = v[6] == '1', config = v[7] or '0', paused = v[8] == '1', gone = v[9] == '1' }
  d.was_open, d.was_flight = d.open, d.flight
  lanes[lane] = d
  return d
end

-- Whether a dead letter at the head of a lane's one order holds the rest.
local function bars(d, r) return d.ordered and has(r.flags, F_ORDERED) and has(r.flags, F_HOLDS) end

-- When a lane's next task may be claimed: milliseconds, or nil if nothing is queued.
local function next_due(d, now)
  if d.ordered then
    local head = call('LINDEX', key('q:' .. d.lane), 0)
    if not head then return nil end
    local raw = call('HGET', key('S:' .. head), d.lane)
    if not raw then return now end
    local r = unpack_record(raw)
    if r.state > RUNNING then return not bars(d, r) and now or nil end
    return math.max(now, math.min(r.due, r.deadline))
  end
  if call('LLEN', key('q:' .. d.lane)) > 0 then return now end
  local first = call('ZRANGE', key('z:' .. d.lane), 0, 0, 'WITHSCORES')
  if first[1] then return math.max(now, tonumber(first[2])) end
  return nil
end

-- Every change of a lane ends here. Invariant: an unblocked lane with work is in exactly one of ready and busy.
local function resched(d, now)
  local ready, busy = key('ready:' .. d.binding), key('busy:' .. d.binding)
  local due = d.flight < d.cap and next_due(d, now) or nil
  local at = not d.paused and not d.gone and due or nil
  -- A dead letter still needs the lane's names; its expiry comes through here again.
  local idle = d.open <= 0 and d.flight <= 0 and not due
  local dead = idle and redis.pcall('ZCARD', key('dead:' .. d.lane))
  if idle and (dead == 0 or type(dead) == 'table') then
    call('DEL', key('D:' .. d.lane))
    lanes[d.lane], homes[d.lane] = nil, nil
  elseif d.open ~= d.was_open or d.flight ~= d.was_flight then
    call('HSET', key('D:' .. d.lane), 'o', d.open, 'f', d.flight)
    d.was_open, d.was_flight = d.open, d.flight
  end
  if not at then
    call('ZREM', ready, d.lane)
    call('ZREM', busy, d.lane)
  elseif d.flight == 0 then
    call('ZADD', ready, at, d.lane)
    call('ZREM', busy, d.lane)
  else
    call('ZADD', busy, at, d.lane)
    call('ZREM', ready, d.lane)
  end
end

-- A lane whose keys are of the wrong type must not stop the others: it is set aside and shown. Nothing here may raise:
-- when the lane's state is what cannot be read, its binding is still known.
local function guarded(lane, now, change, ...)
  local ok, result = pcall(change, ...)
  if ok then return result end
  call('ZADD', key('broken'), now, lane)
  local d = lanes[lane]
  local binding = d and d.binding or homes[lane]
  if d then redis.pcall('HSET', key('D:' .. lane), 'o', d.open, 'f', d.flight) end
  if binding then
    redis.pcall('ZREM', key('ready:' .. binding), lane)
    redis.pcall('ZREM', key('busy:' .. binding), lane)
  end
end
