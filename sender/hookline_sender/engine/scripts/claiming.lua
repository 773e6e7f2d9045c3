-- Leasing tasks: lanes with nothing in flight first, then the others, each by the time it has waited.
local function candidates(bindings, now, slots)
  local found, seen = {}, {}
  for _, set in ipairs({ 'ready:', 'busy:' }) do
    for _, binding in ipairs(bindings) do
      local room = slots - #found
      if room <= 0 then return found end
      for _, lane in ipairs(call('ZRANGEBYSCORE', key(set .. binding), '-inf', now, 'LIMIT', 0, room)) do
        if not seen[lane] then seen[lane] = true; found[#found + 1] = lane end
        homes[lane] = binding
      end
    end
  end
  return found
end

local function promote(d, now, limit)
  local due = call('ZRANGEBYSCORE', key('z:' .. d.lane), '-inf', now, 'LIMIT', 0, limit)
  if #due == 0 then return end
  call('RPUSH', key('q:' .. d.lane), unpack(due))
  call('ZREM', key('z:' .. d.lane), unpack(due))
end

local function lease_of(base, policy)
  local margin = math.max(1000, math.floor(base / 6))
  return math.max(base, math.ceil((policy.timeout or 0) * 1000) + 2 * margin)
end

-- 'take', 'drop' (its place in the queue is all that is left of it), 'wait', or the code of why it ends here.
local function verdict(d, r, size, now)
  if r.state > RUNNING then return bars(d, r) and 'wait' or 'drop' end
  if now >= r.deadline then return 'deadline_exceeded' end
  if (d.ordered or has(r.flags, F_ORDERED)) and r.due > now then return 'wait' end
  -- Somebody removed the envelope. Claimed without it, the task would only lapse, attempt after attempt.
  return size > 0 and 'take' or 'internal_error'
end

-- The member at a place of the queue, and what is to become of it. Nothing is written.
local function member(pid, d, now)
  local v = call('HMGET', key('S:' .. pid), 'h', d.lane, 't')
  local size = call('STRLEN', key('P:' .. pid))
  if not (v[1] and v[2]) then return nil, 'drop' end
  local _, created, tasks, revision, _, aggregate = struct.unpack(HEAD, v[1])
  local t = { pid = pid, did = pid .. d.lane, created = created, tasks = tasks, revision = revision, lane_state = d,
              aggregate = aggregate, traceparent = v[3], record = unpack_record(v[2]), size = size }
  return t, verdict(d, t.record, size, now)
end

local function look(d, now, room, turn)
  local consumed, taken = 0, {}
  for _, pid in ipairs(call('LRANGE', key('q:' .. d.lane), 0, d.ordered and 15 or room - 1)) do
    if #taken >= room or turn.bytes >= turn.max_bytes then break end
    local t, what = member(pid, d, now)
    if what == 'wait' then break end
    consumed = consumed + 1
    if what == 'take' then
      taken[#taken + 1] = t
      if not turn.bodies[pid] then turn.bodies[pid], turn.bytes = true, turn.bytes + t.size end
    elseif t then
      local r = t.record
      t.left = true
      if what == 'drop' then
        give_way(t, r, now)
        store(t, r)
      else
        r.code, r.token = CODES[what], NO_TOKEN
        finish(t, r, FAILED, now)
        -- Then it was put back in front of the queue, which is trimmed by as many as were consumed.
        if bars(d, r) then break end
      end
    end
  end
  return consumed, taken
end

-- Leases first, then the queue: whatever fails, no task is without an owner or a place.
local function claim_lane(lane, quota, now, turn)
  local d = lane_state(lane)
  if not d then return assert(not homes[lane], 'a lane with work has no state') end
  local room = math.min(quota, d.cap - d.flight)
  if room <= 0 then return resched(d, now) end
  if not d.ordered then promote(d, now, room) end
  local consumed, taken = look(d, now, room, turn)
  local leases = {}
  for _, t in ipairs(taken) do
    t.lease = lease_of(turn.lease, policy_of(t.revision, d.binding))
    leases[#leases + 1] = now + t.lease
    leases[#leases + 1] = t.did .. turn.token
  end
  if #leases > 0 then call('ZADD', key('leases'), unpack(leases)) end
  for _, t in ipairs(taken) do
    started(t, t.record, turn.token)
    turn.tasks[#turn.tasks + 1] = t
    d.flight = d.flight + 1
  end
  if consumed > 0 then call('LTRIM', key('q:' .. lane), consumed, -1) end
  resched(d, now)
end

local function claim_all(bindings, slots, now, turn)
  local found = candidates(bindings, now, slots)
  local quota = math.max(1, math.floor(slots / math.max(1, #found)))
  for _ = 1, 2 do
    for _, lane in ipairs(found) do
      local left = slots - #turn.tasks
      if left <= 0 or turn.bytes >= turn.max_bytes then return end
      guarded(lane, now, claim_lane, lane, math.min(quota, left), now, turn)
    end
    quota = slots
  end
end
