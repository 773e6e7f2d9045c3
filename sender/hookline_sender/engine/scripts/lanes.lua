-- What a lane is, and when it next gives work. Stands in every script, after the prelude.
-- Lane state is read once per script and written by resched(). `homes`: the binding under which a lane was met.
local lanes, homes = {}, {}
-- Of each binding: lanes by the time they may next give work, with nothing in flight, with work in flight, and those whose
-- last outcome was a timeout.
local SETS = { 'ready:', 'busy:', 'slow:' }
local function lane_state(lane)
  local d = lanes[lane]
  if d then return d end
  local v = call('HMGET', key('D:' .. lane), 'b', 'd', 'o', 'f', 'c', 'm', 'r', 'p', 'g', 'w', 'k', 'h')
  if not v[1] then return nil end
  d = { lane = lane, binding = v[1], destination = v[2], open = tonumber(v[3]), flight = tonumber(v[4]),
        limits = limits_of(v[5]), mode = v[6], ordered = v[6] == '1', config = v[7] or '0',
        paused = (v[8] or '0') ~= '0', gone = v[9] == '1',
        window = tonumber(v[10]) or 1, bucket = v[11] or nil, health = health_of(v[12]) or nil }
  d.was_open, d.was_flight, d.was_window, d.was_bucket = d.open, d.flight, d.window, d.bucket
  d.was_health, d.was_slow = v[12] or nil, v[12] and true
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
    return math.max(now, r.due)  -- always before its deadline
  end
  if call('LLEN', key('q:' .. d.lane)) > 0 then return now end
  local first = call('ZRANGE', key('z:' .. d.lane), 0, 0, 'WITHSCORES')
  if first[1] then return math.max(now, tonumber(first[2])) end
  return nil
end

-- What has changed of a lane's state.
local function keep(d)
  local write, health = {}, health_text(d.health) or nil
  if d.open ~= d.was_open or d.flight ~= d.was_flight then write = { 'o', d.open, 'f', d.flight } end
  local function put(field, value) write[#write + 1] = field; write[#write + 1] = value end
  if d.window ~= d.was_window then put('w', d.window) end
  if d.bucket ~= d.was_bucket then put('k', d.bucket) end
  if health and health ~= d.was_health then put('h', health) end
  if #write > 0 then call('HSET', key('D:' .. d.lane), unpack(write)) end
  if d.was_health and not health then call('HDEL', key('D:' .. d.lane), 'h') end
  d.was_open, d.was_flight, d.was_window, d.was_bucket, d.was_health = d.open, d.flight, d.window, d.bucket, health
end

-- Puts a lane where it gives work at a time, or nowhere. `sooner`: it may only move forward, and the answer is whether it did.
local function place(d, at, sooner)
  local slow = d.health and d.health.slow
  local into = at and (slow and 'slow:' or d.flight == 0 and 'ready:' or 'busy:')
  if into ~= 'ready:' then call('ZREM', key('ready:' .. d.binding), d.lane) end
  if into ~= 'busy:' then call('ZREM', key('busy:' .. d.binding), d.lane) end
  if d.was_slow and into ~= 'slow:' then call('ZREM', key('slow:' .. d.binding), d.lane) end
  d.was_slow = slow
  if into and sooner then return call('ZADD', key(into .. d.binding), 'LT', 'CH', at, d.lane) == 1 end
  if into then call('ZADD', key(into .. d.binding), at, d.lane) end
end

-- Every change of a lane ends here. Invariant: an unblocked lane with work is in exactly one of ready, busy and slow.
local function resched(d, now, sooner)
  local due = d.flight < limit_of(d) and next_due(d, now) or nil
  local at = not d.paused and not d.gone and due and math.max(due, opens_at(d, now)) or nil
  -- A dead letter still needs the lane's names; its expiry comes through here again.
  local idle = d.open <= 0 and d.flight <= 0 and not due and not remembers(d, now)
  local dead = idle and redis.pcall('ZCARD', key('dead:' .. d.lane))
  if idle and (dead == 0 or type(dead) == 'table') then
    call('DEL', key('D:' .. d.lane))
    lanes[d.lane], homes[d.lane] = nil, nil
  else
    keep(d)
  end
  return place(d, at, sooner) and at <= now
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
    for _, set in ipairs(SETS) do redis.pcall('ZREM', key(set .. binding), lane) end
  end
end
