-- What can happen to a task: used by turn, reap and purge.
local policies = {}
local function policy_of(revision, binding)
  local id = revision .. binding
  if policies[id] == nil then
    local text = call('HGET', key('plan:' .. hex(revision)), 'p:' .. binding)
    policies[id] = text and cjson.decode(text) or { attempts = 1, backoff = 1, max_backoff = 1, timeout = 30 }
  end
  return policies[id]
end

-- Publications of which some task ended: how many fewer tasks need the body.
local ended = {}
local function body_needed_less(pid, tasks, created)
  local e = ended[pid] or { by = 0, tasks = tasks, created = created }
  e.by = e.by + 1
  ended[pid] = e
end

-- Frees the bodies nobody needs any more and starts the retention of their receipts.
local function flush_ended(score_of)
  local fin, bodies = {}, {}
  for pid, e in pairs(ended) do
    if e.tasks == 1 or call('HINCRBY', key('S:' .. pid), 'o', -e.by) <= 0 then
      fin[#fin + 1] = score_of(e)
      fin[#fin + 1] = pid
      bodies[#bodies + 1] = key('P:' .. pid)
    end
  end
  ended = {}
  if #fin == 0 then return end
  call('ZADD', key('fin'), unpack(fin))
  call('UNLINK', unpack(bodies))
end

-- One line per attempt, from the first failure on; the newest 16 are kept. Written with the record, by store().
-- `location`: the path a redirect named. A worker's name may have spaces, so it comes last.
local function remember(t, r, now, worker, location)
  if not location or location == '' then location = '-' end
  local line = string.format('%d %.0f %d %d %d %s %s', r.attempts, now, r.status, r.code, r.duration, location, worker)
  local text = call('HGET', key('H:' .. t.did), 'a')
  if text then
    local kept, from = {}, nil
    for entry in string.gmatch(text, '[^\n]+') do kept[#kept + 1] = entry end
    kept[#kept + 1] = line
    from = math.max(1, #kept - 15)
    line = table.concat(kept, '\n', from)
  end
  t.history, r.flags = line, with(r.flags, F_HISTORY)
end

local function store(t, r)
  if t.history then call('HSET', key('H:' .. t.did), 'a', t.history) end
  call('HSET', key('S:' .. t.pid), t.lane_state.lane, pack_record(r))
end

-- What the policy says of a dead letter that others wait behind.
local function holds(t, r)
  local ordered = has(r.flags, F_ORDERED) or has(r.flags, F_AGGREGATE)
  return ordered and not t.lane_state.gone and policy_of(t.revision, t.lane_state.binding).on_dead == 'block'
end

-- A task leaves the unfinished ones for good. As in requeue, the lane's keys come before the record: if one of them
-- cannot be written, the lease and the record still say that the task is running, and nothing is half done. `left`: it was
-- taken out of q or z; one that neither left nor ran keeps its place there, and is passed over.
local function finish(t, r, state, now)
  local d = t.lane_state
  if d.gone and not t.running then state, r.code = CANCELLED, CODES.destination_gone end
  if state == FAILED and holds(t, r) then r.flags = with(r.flags, F_HOLDS) end
  if t.running or t.left then
    if state == FAILED then t.failed = now; call('ZCARD', key('dead:' .. d.lane)) end
    give_way(t, r, now)
  end
  if state == FAILED then
    call('ZADD', key('dead:' .. d.lane), now, t.pid)
    call('ZADD', key('dead'), now, t.did)
  else
    body_needed_less(t.pid, t.tasks, t.created)
  end
  r.state = state
  store(t, r)
  if t.running then d.flight = d.flight - 1 end
  d.open = d.open - 1
  count('open', -1)
  count('o:' .. d.binding, -1)
  count(WORDS[state], 1)
  return WORDS[state]
end

-- What somebody no longer wants. The attempts' own codes stay in the history.
local function end_cancelled(t, r, now)
  r.code, r.status, r.duration = CODES.cancelled, 0, 0
  return finish(t, r, CANCELLED, now)
end

-- Back into the lane. In an ordered lane the task stays at the head and holds the rest until it is due.
local function requeue(t, r, due, now)
  local d = t.lane_state
  if d.gone then
    r.code = CODES.destination_gone
    return finish(t, r, CANCELLED, now)
  end
  if due > now and not d.ordered then
    call('ZADD', key('z:' .. d.lane), due, t.pid)
  else
    call('LPUSH', key('q:' .. d.lane), t.pid)
  end
  r.due, r.state, r.flags = due, due > now and WAITING or ACCEPTED, with(r.flags, F_QUEUED)
  store(t, r)
  if t.running then d.flight = d.flight - 1 end
  return WORDS[r.state]
end

-- A spent attempt that may be repeated: unless it was cancelled, was the last, or the next would be too late.
local function retry_or_end(t, r, delay, code_late, now)
  if has(r.flags, F_CANCEL) then return end_cancelled(t, r, now) end
  if r.attempts >= policy_of(t.revision, t.lane_state.binding).attempts then return finish(t, r, FAILED, now) end
  if now + delay >= r.deadline then
    r.code = code_late
    return finish(t, r, FAILED, now)
  end
  return requeue(t, r, now + delay, now)
end

-- A task with its record, or nil. Its lane state is the script's shared copy.
local function load_task(did)
  local pid, lane = string.sub(did, 1, 22), string.sub(did, 23)
  local v = call('HMGET', key('S:' .. pid), 'h', lane)
  if not (v[1] and v[2]) then return nil end
  local _, created, tasks, revision, _, aggregate = struct.unpack(HEAD, v[1])
  return { pid = pid, did = did, created = created, tasks = tasks, revision = revision, aggregate = aggregate,
           lane_state = lane_state(lane) }, unpack_record(v[2])
end

-- What a claim changes of the record: it is written when the attempt ends. At its end (in 2106) a fence stays.
local function started(t, r, token)
  t.running, r.attempts, r.token = true, math.min(r.attempts + 1, 255), token
  r.fence = math.min(r.fence + 1, 4294967295)
end
