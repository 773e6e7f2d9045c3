-- Leasing tasks: lanes with nothing in flight first, then the others, each by the time it has waited. Those whose last outcome
-- was a timeout come after all of them, and get no more than the worker has room for.
local LOOK = 16  -- places of a queue that a claim looks at, at least: members that have ended lie between the others

local function candidates(sets, bindings, now, slots)
  local found, seen = {}, {}
  for _, set in ipairs(sets) do
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

-- What is due of an unordered lane goes to the head of its queue, at most so much that half of a claim is left for what the
-- queue holds: neither the retries nor the first attempts of a lane hold up the other. Of an odd one `coin` has the last.
local function mix(d, now, room, coin)
  local due = call('ZRANGEBYSCORE', key('z:' .. d.lane), '-inf', now, 'LIMIT', 0, room)
  if #due == 0 then return end
  local share = math.max(math.floor((room + coin) / 2), room - call('LLEN', key('q:' .. d.lane)))
  local first = {}
  for i = math.min(#due, share), 1, -1 do first[#first + 1] = due[i] end
  if #first == 0 then return end
  call('LPUSH', key('q:' .. d.lane), unpack(first))
  call('ZREM', key('z:' .. d.lane), unpack(first))
end

local function lease_of(base, policy)
  local margin = math.max(1000, math.floor(base / 6))
  return math.max(base, math.ceil((policy.timeout or 0) * 1000) + 2 * margin)
end

-- 'take', 'drop' (its place in the queue is all that is left of it), 'wait', or the code of why it ends here.
local function verdict(d, r, size, now)
  if r.state > RUNNING then return bars(d, r) and 'wait' or 'drop' end
  if now >= r.deadline then return 'deadline_exceeded' end
  if d.ordered and r.due > now then return 'wait' end
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
  for _, pid in ipairs(call('LRANGE', key('q:' .. d.lane), 0, math.max(room, LOOK) - 1)) do
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
  local room = math.min(quota, room_in(d, now))
  if room <= 0 then return resched(d, now) end
  if not d.ordered then mix(d, now, room, turn.coin) end
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
  turn.moved = turn.moved + consumed
  if consumed > 0 then call('LTRIM', key('q:' .. lane), consumed, -1) end
  spend(d, #taken, now)
  resched(d, now)
end

-- Each of the lanes gets its share, and then, of what is left, as much as it can take.
local function claim_from(found, slots, now, turn)
  local last = #turn.tasks + slots
  local quota = math.max(1, math.floor(slots / math.max(1, #found)))
  for _ = 1, 2 do
    for _, lane in ipairs(found) do
      local left = last - #turn.tasks
      if left <= 0 or turn.bytes >= turn.max_bytes then return end
      guarded(lane, now, claim_lane, lane, math.min(quota, left), now, turn)
    end
    quota = slots
  end
end

-- Slow lanes get one slot before the others, so that those never starve them; the only one there is in every other turn.
-- Answers how many more of theirs the worker has room for.
local function claim_all(bindings, slots, now, turn)
  local slow = candidates({ 'slow:' }, bindings, now, math.min(turn.slow_room, slots))
  local kept = #slow > 0 and (slots > 1 or turn.coin == 1) and 1 or 0
  claim_from(candidates({ 'ready:', 'busy:' }, bindings, now, slots - kept), slots - kept, now, turn)
  local before = #turn.tasks
  claim_from(slow, math.min(turn.slow_room, slots - before), now, turn)
  return turn.slow_room - (#turn.tasks - before)
end
