-- Leasing tasks: lanes with nothing in flight first, then the others, each by the time it has waited.
local function candidates(bindings, now, slots)
  local lanes_found, seen = {}, {}
  for _, set in ipairs({ 'ready:', 'busy:' }) do
    for _, binding in ipairs(bindings) do
      local room = slots - #lanes_found
      if room <= 0 then return lanes_found end
      for _, lane in ipairs(call('ZRANGEBYSCORE', key(set .. binding), '-inf', now, 'LIMIT', 0, room)) do
        if not seen[lane] then seen[lane] = true; lanes_found[#lanes_found + 1] = lane end
      end
    end
  end
  return lanes_found
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

-- 'take', 'drop' (its place in the queue is all that is left of it), 'late' or 'wait'.
local function verdict(r, now)
  if not r or r.state > RUNNING then return 'drop' end
  if now >= r.deadline then return 'late' end
  if has(r.flags, F_ORDERED) and r.due > now then return 'wait' end
  return 'take'
end

local function look(d, now, room, turn)
  local consumed, taken = 0, {}
  for _, pid in ipairs(call('LRANGE', key('q:' .. d.lane), 0, d.ordered and 15 or room - 1)) do
    if #taken >= room or turn.bytes >= turn.max_bytes then break end
    local v = call('HMGET', key('S:' .. pid), 'h', d.lane, 't')
    local r = v[2] and unpack_record(v[2]) or nil
    local what = verdict(r, now)
    if what == 'wait' then break end
    consumed = consumed + 1
    if what ~= 'drop' or r and r.state > RUNNING then r.flags = without(r.flags, F_QUEUED) end
    if what == 'drop' and r and r.state > RUNNING then store(pid, d.lane, r) end
    local _, created, tasks, revision = struct.unpack(HEAD, v[1] or string.rep('\0', 57))
    local t = { pid = pid, did = pid .. d.lane, created = created, tasks = tasks, revision = revision, lane_state = d,
                traceparent = v[3], record = r }
    if what == 'late' then
      r.code, r.token = CODES.deadline_exceeded, NO_TOKEN
      finish(t, r, FAILED, now)
    elseif what == 'take' then
      taken[#taken + 1] = t
      if not turn.bodies[pid] then
        turn.bodies[pid] = true
        turn.bytes = turn.bytes + call('STRLEN', key('P:' .. pid))
      end
    end
  end
  return consumed, taken
end

-- Leases first, then the queue: whatever fails, no task is without an owner or a place.
local function claim_lane(lane, quota, now, turn)
  local d = lane_state(lane)
  if not d then return 0 end
  local room = math.min(quota, d.cap - d.flight)
  if room <= 0 then return 0 end
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
  end
  if consumed > 0 then call('LTRIM', key('q:' .. lane), consumed, -1) end
  d.flight = d.flight + #taken
  resched(d, now)
  return #taken
end

local function claim_all(bindings, slots, now, turn)
  local left, found = slots, candidates(bindings, now, slots)
  local quota = math.max(1, math.floor(slots / math.max(1, #found)))
  for _ = 1, 2 do
    for _, lane in ipairs(found) do
      if left <= 0 or turn.bytes >= turn.max_bytes then return end
      left = left - (guarded(lane, now, claim_lane, lane, math.min(quota, left), now, turn) or 0)
    end
    quota = left
  end
end
