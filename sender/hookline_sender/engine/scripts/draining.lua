-- What is queued for a removed destination is cancelled, a bounded share per turn. `gone` has lane and id, scored by the
-- next visit; at the last one the id is free again.
-- Nothing left is looked at once more: until then a removal that is sent again finds what it did.
local NEXT_WHILE_RUNNING, NEXT_WHILE_DEAD, NEXT_WHEN_EMPTY = 1000, 3600000, 60000

local function cancel_member(pid, lane, now)
  local t, r = load_task(pid .. lane)
  if not t then return end
  t.left, r.flags = true, without(r.flags, F_HOLDS)
  if r.state > RUNNING then
    give_way(t, r, now)
    return store(t, r)
  end
  r.code, r.token = CODES.destination_gone, NO_TOKEN
  finish(t, r, CANCELLED, now)
end

-- What waits behind the head of an aggregate's queue comes to q or z when the head leaves it.
local function drain_lane(d, limit, now)
  local q, z, done = key('q:' .. d.lane), key('z:' .. d.lane), 0
  while done < limit do
    local queued = call('LINDEX', q, 0)
    local pid = queued or call('ZRANGE', z, 0, 0)[1]
    if not pid then break end
    cancel_member(pid, d.lane, now)
    if queued then call('LPOP', q) else call('ZREM', z, pid) end
    done = done + 1
  end
  resched(d, now)
  return done
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
  local drained = 0
  for _, member in ipairs(call('ZRANGEBYSCORE', key('gone'), '-inf', now, 'LIMIT', 0, 4)) do
    if limit <= drained then break end
    local done = guarded(string.sub(member, 1, 16), now, visit, member, limit - drained, now)
    if done then drained = drained + done else call('ZADD', key('gone'), now + 60000, member) end
  end
  return drained
end
