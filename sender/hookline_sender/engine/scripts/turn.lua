-- Settle the last batch and claim the next: one round trip and one fsync instead of two. Sent twice, it answers from
-- what W:<worker> remembers, so a lost reply neither loses nor doubles a claim.
-- ARGV: fingerprint, worker, sequence, token, slots, how many of them slow lanes may get, eager, lease ms, bindings n,
-- names…, settlements n, 9 fields each…
local MAX_BYTES, SHARE, DRAIN, SWEEP = 1048576, 16, 64, 64
local fingerprint, worker, sequence, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local slots, slow_room, lease, bindings = math.min(tonumber(ARGV[5]), 64), tonumber(ARGV[6]), tonumber(ARGV[8]), {}
local first = 10 + tonumber(ARGV[9])
eager = ARGV[7] == '1'
-- Each turn starts at another binding, so that none is always last when slots are few.
for i = 0, first - 11 do bindings[i + 1] = ARGV[10 + (i + string.byte(sequence, -1)) % (first - 10)] end
local settlements = tonumber(ARGV[first])
local now, shift = clock()
local memory = key('W:' .. worker)

-- A worker whose plan is no longer accepted may still say how its attempts ended, but gets no others.
if not accepted_plan(fingerprint, now) then
  if call('EXISTS', KEYS[1]) == 1 then
    settle_all(first + 1, settlements, now, worker)
    flush_ended(function() return now end)
    flush_counts()
  end
  return { 'unbound' }
end

local function replayed()
  local last = call('GET', memory)
  if not last or string.sub(last, 1, #sequence) ~= sequence then return nil end
  return cmsgpack.unpack(string.sub(last, #sequence + 1))
end

-- What the remembered turn claimed and still holds. Its leases lapse no sooner than one lease after it.
local function held(by, since)
  local tasks = {}
  for _, member in ipairs(call('ZRANGEBYSCORE', key('leases'), since + lease, '+inf')) do
    local t, r
    local ok = string.sub(member, 39) == by
    if ok then ok, t, r = pcall(load_task, string.sub(member, 1, 38)) end
    if ok and t and t.lane_state then
      started(t, r, by)
      t.record, t.lease = r, lease_of(lease, policy_of(t.revision, t.lane_state.binding))
      t.traceparent = call('HGET', key('S:' .. t.pid), 't')
      tasks[#tasks + 1] = t
    end
  end
  return tasks
end

-- When something known may next be claimed.
local function outlook()
  local soonest = nil
  for _, set in ipairs(SETS) do
    for _, binding in ipairs(set ~= 'slow:' and bindings or slow_room > 0 and bindings or {}) do
      local head = call('ZRANGE', key(set .. binding), 0, 0, 'WITHSCORES')
      if head[1] then soonest = math.min(soonest or math.huge, tonumber(head[2])) end
    end
  end
  local gone = call('ZRANGE', key('gone'), 0, 0, 'WITHSCORES')
  if gone[1] then soonest = math.min(soonest or math.huge, tonumber(gone[2])) end
  return soonest
end

local function reply(words, tasks, moved)
  local out, bodies, seen = {}, {}, {}
  for _, t in ipairs(tasks) do
    local r, d = t.record, t.lane_state
    out[#out + 1] = { t.pid, d.lane, d.binding, d.destination, r.attempts, r.fence, r.deadline, hex(t.revision),
                      t.traceparent or '', t.lease, d.config, d.health and d.health.slow and 1 or 0 }
    if not seen[t.pid] then
      seen[t.pid] = true
      local body = redis.pcall('GET', key('P:' .. t.pid))
      bodies[#bodies + 1] = { t.pid, type(body) == 'string' and body }
    end
  end
  local soonest = outlook()
  return { 'turn', now, words, out, bodies, soonest or -1, soonest and soonest <= now and moved > 0 and 1 or 0, shift,
           newly_disabled }
end

local last = replayed()
if last then
  local tasks = held(last.token, last.now)
  return reply(last.words, tasks, #tasks)
end

now, shift = keep_time(now, shift, lease)
local turn = { token = token, lease = lease, bytes = 0, max_bytes = MAX_BYTES, bodies = {}, tasks = {}, moved = 0,
               slow_room = slow_room, coin = string.byte(token) % 2 }
local words = settle_all(first + 1, settlements, now, worker)
reap(SHARE, now)
revisit(now)
turn.moved = drain_gone(DRAIN, now)
sweep(SWEEP, now)
if slots > 0 then slow_room = claim_all(bindings, slots, now, turn) end
flush_ended(function() return now end)
-- What is freed keeps up with what ends, or a namespace that is always busy would only grow.
purge(math.max(SHARE, settlements), now)
if #turn.tasks > 0 then begin_time(now, shift, lease) end
flush_counts()
if #words > 0 or #turn.tasks > 0 then
  call('SET', memory, sequence .. cmsgpack.pack({ token = token, words = words, now = now }), 'PX',
    math.max(60000, lease * 4))
end
return reply(words, turn.tasks, turn.moved)
