-- Who waits for whom. Where a lane has one order, its q is that order. Where each aggregate has its own (mode 2),
-- `a:<lane>:<aggregate>` has the aggregate's tasks in order, and only the first of them has a place in q or z as well, or
-- a lease: the rest of the engine meets it like any other task.
-- A dead letter that holds its followers (F_HOLDS) keeps its place: in q where the lane has one order, in z until its
-- retention is over where the aggregate has.
local NO_AGGREGATE = string.rep('\0', 8)
local MOST_PASSED = 16

-- Below `a:`, and in `sweep` while somebody waits behind the head.
local function queue_name(lane, aggregate) return lane .. ':' .. hex(aggregate) end

-- The flag of a new task in a lane of that mode; 0 when it waits for no other.
local function order_flag(mode, aggregate)
  if mode == '1' then return F_ORDERED end
  return mode == '2' and aggregate ~= NO_AGGREGATE and F_AGGREGATE or 0
end

-- Puts a task at the tail of its aggregate's queue. True when it heads it, and is to get its place in q or z.
local function append(lane, aggregate, pid, now)
  local name = queue_name(lane, aggregate)
  local length = call('RPUSH', key('a:' .. name), pid)
  -- No claim comes to what is behind a head, but its deadlines are to be watched.
  if length == 2 then call('ZADD', key('sweep'), now + 60000, name) end
  return length == 1
end

-- After members left a queue: is anybody left to wait in it?
local function rewatch(name)
  if call('LLEN', key('a:' .. name)) > 1 then return end
  call('ZREM', key('sweep'), name)
  call('HDEL', key('D:' .. string.sub(name, 1, 16)), 's' .. string.sub(name, 18))
end

-- Until when a dead letter keeps its place.
local function held_until(d, pid, failed)
  local since = failed or call('ZSCORE', key('dead:' .. d.lane), pid)
  return since and since + (call('HGET', KEYS[1], 'dead_retention_ms') or 0) or 0
end

-- The head of an aggregate's queue makes way for the next that is unfinished or holds the rest. Those that ended while they
-- waited are passed over; after so many the next is left to whoever meets it in q. What may fail comes before what changes.
local function advance(d, aggregate, pid, now)
  local name = queue_name(d.lane, aggregate)
  local members, passed, left = call('LRANGE', key('a:' .. name), 0, MOST_PASSED), {}, nil
  if members[1] ~= pid then return end
  for i = 2, #members do
    local raw = call('HGET', key('S:' .. members[i]), d.lane)
    local r = raw and unpack_record(raw)
    local holding, over = r and has(r.flags, F_HOLDS), not r or r.state > RUNNING
    if r and (holding or not over or i > MOST_PASSED) then
      local due = holding and held_until(d, members[i]) or over and now or r.due
      if due > now then
        call('ZADD', key('z:' .. d.lane), due, members[i])
      else
        call('RPUSH', key('q:' .. d.lane), members[i])
      end
      left = i - 1
      break
    end
    if r then passed[members[i]] = r end
  end
  for each, r in pairs(passed) do
    r.flags = without(r.flags, F_QUEUED)
    call('HSET', key('S:' .. each), d.lane, pack_record(r))
  end
  call('LTRIM', key('a:' .. name), left or #members, -1)
  if #members > 1 then rewatch(name) end
end

-- A task is in q and z no more, nor leased: it makes way, unless it holds the others.
local function give_way(t, r, now)
  local d = t.lane_state
  if has(r.flags, F_HOLDS) then
    local till = has(r.flags, F_AGGREGATE) and held_until(d, t.pid, t.failed) or 0
    if till > now or bars(d, r) then
      r.flags = with(r.flags, F_QUEUED)
      if till > now then return call('ZADD', key('z:' .. d.lane), till, t.pid) end
      return call('LPUSH', key('q:' .. d.lane), t.pid)
    end
  end
  r.flags = without(without(r.flags, F_HOLDS), F_QUEUED)
  if has(r.flags, F_AGGREGATE) then advance(d, t.aggregate, t.pid, now) end
end

-- A dead letter holds nobody any more. A place that it has in a queue is passed over when its turn comes.
local function step_over(t, r, now)
  r.flags = without(r.flags, F_HOLDS)
  if has(r.flags, F_AGGREGATE) and call('ZREM', key('z:' .. t.lane_state.lane), t.pid) == 1 then give_way(t, r, now) end
end
