-- Deadlines in lanes that no claim comes to: paused, at their cap, held by their head, or of a binding no worker knows.
-- `sweep` has every lane with tasks, and every aggregate's queue in which somebody waits, scored by the next visit. A visit
-- looks at one slice of the queue, the next visit at the slice after it.
local SWEEP_PERIOD, SWEEP_SLICE, SWEEP_LANES = 60000, 32, 16

-- Since when a lane stands among those that give work; nil when it does not: paused, at its limit, or without work.
local function waiting_since(d)
  local at = nil
  for _, set in ipairs(SETS) do at = at or call('ZSCORE', key(set .. d.binding), d.lane) end
  return at and tonumber(at) or nil
end

-- Claims come to a lane that gives work and was rescheduled lately, and look at deadlines themselves.
local function served(d, at, now)
  if d.gone then return true end
  return at and at <= now and at > now - SWEEP_PERIOD
end

-- Whether the member is over. One that is past its deadline ends here.
local function over(pid, d, now)
  local t, r = load_task(pid .. d.lane)
  if not t then return true end
  if r.state <= RUNNING and now >= r.deadline then
    r.code, r.token = CODES.deadline_exceeded, NO_TOKEN
    finish(t, r, FAILED, now)
  end
  return r.state > RUNNING, t, r
end

-- Looks at one slice of a queue, from the place in `field` of the lane on. Where only ended tasks lead the queue, they leave
-- it; its first `kept` are somebody else's. Returns how many were looked at, and from where.
local function sweep_slice(d, queue, field, kept, now)
  local from = tonumber(call('HGET', key('D:' .. d.lane), field)) or kept
  local pids, leading = call('LRANGE', queue, from, from + SWEEP_SLICE - 1), 0
  for i, pid in ipairs(pids) do
    local ended, t, r = over(pid, d, now)
    local stays = ended and t and (bars(d, r) or kept > 0 and has(r.flags, F_HOLDS))
    if ended and not stays and from == kept and leading == i - 1 then
      leading = i
      if t then
        if kept == 0 then give_way(t, r, now) else r.flags = without(r.flags, F_QUEUED) end
        store(t, r)
      end
    end
  end
  if leading > 0 then
    local first = kept > 0 and call('LRANGE', queue, 0, kept - 1) or {}
    call('LTRIM', queue, kept + leading, -1)
    if kept > 0 then call('LPUSH', queue, unpack(first)) end
  end
  local to = #pids < SWEEP_SLICE and kept or from + #pids - leading
  if to ~= from then
    if to == kept then call('HDEL', key('D:' .. d.lane), field) else call('HSET', key('D:' .. d.lane), field, to) end
  end
  return #pids, from
end

-- A lane that nobody served keeps its turn among the others, and is not taken for served.
local function resched_unserved(d, at, now)
  resched(d, now)
  for _, set in ipairs(SETS) do
    if at then call('ZADD', key(set .. d.binding), 'XX', 'LT', at, d.lane) end
  end
end

local function sweep_lane(lane, now)
  local d = lane_state(lane)
  if not d then call('ZREM', key('sweep'), lane) return 0 end
  local at = waiting_since(d)
  if served(d, at, now) then call('ZADD', key('sweep'), now + SWEEP_PERIOD, lane) return 0 end
  if not d.ordered then promote(d, now, SWEEP_SLICE) end
  local seen, from = sweep_slice(d, key('q:' .. lane), 's', 0, now)
  if d.open <= 0 and from == 0 and seen == 0 and not used(d, now) then
    call('ZREM', key('sweep'), lane)
  else
    call('ZADD', key('sweep'), seen == SWEEP_SLICE and now or now + SWEEP_PERIOD, lane)
  end
  resched_unserved(d, at, now)
  return seen
end

-- What waits behind the head of an aggregate: no claim comes to that, however well its lane is served.
local function sweep_followers(name, now)
  local d = lane_state(string.sub(name, 1, 16))
  if not d then call('ZREM', key('sweep'), name) return 0 end
  local at, seen = waiting_since(d), 0
  if not d.gone then seen = sweep_slice(d, key('a:' .. name), 's' .. string.sub(name, 18), 1, now) end
  call('ZADD', key('sweep'), seen == SWEEP_SLICE and now or now + SWEEP_PERIOD, name)
  rewatch(name)
  resched_unserved(d, at, now)
  return seen
end

local function sweep(limit, now)
  for _, name in ipairs(call('ZRANGEBYSCORE', key('sweep'), '-inf', now, 'LIMIT', 0, SWEEP_LANES)) do
    if limit <= 0 then return end
    local seen = guarded(string.sub(name, 1, 16), now, #name > 16 and sweep_followers or sweep_lane, name, now)
    if seen then limit = limit - seen else call('ZADD', key('sweep'), now + SWEEP_PERIOD, name) end
  end
end
