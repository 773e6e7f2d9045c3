-- What is queued for a removed destination is cancelled, a bounded share per turn. `gone` has lane and id, scored by the
-- next visit; at the last one the id is free again.
-- Nothing left is looked at once more: until then a removal that is sent again finds what it did.
local NEXT_WHILE_RUNNING, NEXT_WHILE_DEAD, NEXT_WHEN_EMPTY = 1000, 3600000, 60000

local function cancel_member(pid, lane, now)
  local t, r = load_task(pid .. lane)
  if not t then return end
  r.flags = without(r.flags, F_QUEUED)
  if r.state > RUNNING then return store(t, r) end
  r.code, r.token = CODES.destination_gone, NO_TOKEN
  finish(t, r, CANCELLED, now)
end

local function drain_lane(d, limit, now)
  local q, z = key('q:' .. d.lane), key('z:' .. d.lane)
  local queued = call('LRANGE', q, 0, limit - 1)
  for _, pid in ipairs(queued) do cancel_member(pid, d.lane, now) end
  if #queued > 0 then call('LTRIM', q, #queued, -1) end
  local delayed = limit > #queued and call('ZRANGE', z, 0, limit - #queued - 1) or {}
  for _, pid in ipairs(delayed) do cancel_member(pid, d.lane, now) end
  if #delayed > 0 then call('ZREM', z, unpack(delayed)) end
  resched(d, now)
  return #queued + #delayed
end

local function visit(member, limit, now)
  local lane, id, pause = string.sub(member, 1, 16), string.sub(member, 17), nil
  local d = lane_state(lane)
  local done = d and drain_lane(d, limit, now) or 0
  if done == limit then
    pause = 0
  elseif d and d.open > 0 then
    pause = NEXT_WHILE_RUNNING
  elseif call('EXISTS', key('dead:' .. lane)) == 1 then
    pause = NEXT_WHILE_DEAD
  elseif d then
    pause = NEXT_WHEN_EMPTY
  end
  if pause then
    call('ZADD', key('gone'), now + pause, member)
  else
    call('ZREM', key('gone'), member)
    -- The id may be taken again, by another webhook.
    if string.sub(call('HGET', key('dst'), id) or '', 1, 17) == '-' .. lane then call('HDEL', key('dst'), id) end
  end
  return done
end

local function drain_gone(limit, now)
  for _, member in ipairs(call('ZRANGEBYSCORE', key('gone'), '-inf', now, 'LIMIT', 0, 4)) do
    if limit <= 0 then return end
    local done = guarded(string.sub(member, 1, 16), now, visit, member, limit, now)
    if done then limit = limit - done else call('ZADD', key('gone'), now + 60000, member) end
  end
end
