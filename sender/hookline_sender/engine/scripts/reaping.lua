-- Leases that lapsed: their workers are gone. Any worker does this, a bounded share per turn.
-- The lost attempt counts. The first loss is repeated at once, a second in a row backs off.

-- Tasks that were lost together do not come back together: one of them may be what kills its worker. What is drawn inside
-- the policy's jitter follows from the task and its attempt, as a retry's does from chance.
local function lost_delay(t, r, policy, lost)
  if lost == 1 then return 0 end
  local base, jitter = math.min(policy.backoff * 2 ^ (lost - 2), policy.max_backoff), policy.jitter or 0
  local shortest, longest = base * (1 - jitter), math.min(base * (1 + jitter), policy.max_backoff)
  local drawn = tonumber(string.sub(redis.sha1hex(t.did .. r.attempts), 1, 4), 16) / 65536
  return math.floor((shortest + (longest - shortest) * drawn) * 1000)
end

local function reap_one(t, r, now)
  local d = t.lane_state
  local policy = policy_of(t.revision, d.binding)
  local lost = math.min(streak(r.flags) + 1, 3)
  r.code, r.status, r.duration = CODES.worker_lost, 0, 0
  r.flags = with_streak(r.flags, lost)
  remember(t, r, now, '-')
  count('worker_lost', 1)
  return retry_or_end(t, r, lost_delay(t, r, policy, lost), CODES.deadline_exceeded, now)
end

local function reap(limit, now)
  local lapsed, touched, reaped = call('ZRANGEBYSCORE', key('leases'), '-inf', now, 'LIMIT', 0, limit), {}, 0
  local free = {}
  if #lapsed > 0 and in_grace(now) then return 0 end
  for _, member in ipairs(lapsed) do
    local did, lane = string.sub(member, 1, 38), string.sub(member, 23, 38)
    local done = guarded(lane, now, function()
      local t, r = load_task(did)
      if t and r.state < COMPLETED then
        assert(t.lane_state, 'the lane of a running task is gone')
        started(t, r, NO_TOKEN)
        reap_one(t, r, now)
        touched[lane] = t.lane_state
        reaped = reaped + 1
      end
      return true
    end)
    -- In a broken lane the lease is kept for later, so that the task is not stranded when the lane is mended.
    if done then free[#free + 1] = member else call('ZADD', key('leases'), now + 60000, member) end
  end
  if #free > 0 then call('ZREM', key('leases'), unpack(free)) end
  for lane, d in pairs(touched) do guarded(lane, now, resched, d, now) end
  return reaped
end

-- Lanes that were set aside are looked at again once a minute, so that a mended one gives work without being told to.
local function revisit(now)
  for _, lane in ipairs(call('ZRANGEBYSCORE', key('broken'), '-inf', now - 60000, 'LIMIT', 0, 4)) do
    guarded(lane, now, function()
      local d = lane_state(lane)
      assert(d or call('EXISTS', key('q:' .. lane), key('z:' .. lane)) == 0, 'a lane with work has no state')
      if d then resched(d, now) end
      call('ZREM', key('broken'), lane)
    end)
  end
end
