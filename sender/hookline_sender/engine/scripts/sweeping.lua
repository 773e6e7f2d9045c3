-- Deadlines in lanes that no claim comes to: paused, at their cap, held by their head, or of a binding no worker knows.
-- `sweep` has every lane with tasks, scored by its next visit. A visit looks at one slice of the queue, the next visit at
-- the slice after it; where only ended tasks lead the queue, they leave it.
local SWEEP_PERIOD, SWEEP_SLICE, SWEEP_LANES = 60000, 32, 16

-- Since when a lane stands among those that give work; nil when it does not.
local function waiting_since(d)
  local at = call('ZSCORE', key('ready:' .. d.binding), d.lane) or call('ZSCORE', key('busy:' .. d.binding), d.lane)
  return at and tonumber(at) or nil
end

-- Claims come to a lane that gives work and was rescheduled lately, and look at deadlines themselves.
local function served(d, at, now)
  if d.gone then return true end
  if d.paused or d.flight >= d.cap then return false end
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

-- Returns from which place the queue is to be looked at next, and how many were looked at.
local function sweep_slice(d, from, now)
  local queue = key('q:' .. d.lane)
  local pids, leading = call('LRANGE', queue, from, from + SWEEP_SLICE - 1), 0
  for i, pid in ipairs(pids) do
    local ended, t, r = over(pid, d, now)
    if ended and from == 0 and leading == i - 1 then
      leading = i
      if t then
        r.flags = without(r.flags, F_QUEUED)
        store(t, r)
      end
    end
  end
  if leading > 0 then call('LTRIM', queue, leading, -1) end
  return #pids < SWEEP_SLICE and 0 or from + #pids - leading, #pids
end

local function sweep_lane(lane, now)
  local d = lane_state(lane)
  if not d then call('ZREM', key('sweep'), lane) return 0 end
  local at = waiting_since(d)
  if served(d, at, now) then call('ZADD', key('sweep'), now + SWEEP_PERIOD, lane) return 0 end
  if not d.ordered then promote(d, now, SWEEP_SLICE) end
  local before = tonumber(call('HGET', key('D:' .. lane), 's')) or 0
  local from, seen = sweep_slice(d, before, now)
  if from ~= before then call('HSET', key('D:' .. lane), 's', from) end
  if d.open <= 0 and before == 0 and seen == 0 then
    call('ZREM', key('sweep'), lane)
  else
    call('ZADD', key('sweep'), seen == SWEEP_SLICE and now or now + SWEEP_PERIOD, lane)
  end
  resched(d, now)
  -- Nobody served it: it keeps its turn among the others, and is not taken for served.
  for _, set in ipairs({ 'ready:', 'busy:' }) do
    if at then call('ZADD', key(set .. d.binding), 'XX', 'LT', at, lane) end
  end
  return seen
end

local function sweep(limit, now)
  for _, lane in ipairs(call('ZRANGEBYSCORE', key('sweep'), '-inf', now, 'LIMIT', 0, SWEEP_LANES)) do
    if limit <= 0 then return end
    local seen = guarded(lane, now, sweep_lane, lane, now)
    if seen then limit = limit - seen else call('ZADD', key('sweep'), now + SWEEP_PERIOD, lane) end
  end
end
