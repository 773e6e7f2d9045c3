-- What outlived its retention is freed, a bounded share per turn: dead letters with their body, then receipts.
-- One that cannot be read (somebody else wrote over it) must not stop the turn that meets it: it is left behind.
local function expire_one(did, now)
  local pid, lane = string.sub(did, 1, 22), string.sub(did, 23)
  local t, r = load_task(did)
  if t and t.lane_state and has(r.flags, F_HOLDS) then
    step_over(t, r, now)
    store(t, r)
  end
  if t then body_needed_less(pid, t.tasks, t.created) end
  call('ZREM', key('dead:' .. lane), pid)
  return lane
end

local function expire_dead(limit, now, dead_retention)
  local old = call('ZRANGEBYSCORE', key('dead'), '-inf', now - dead_retention, 'LIMIT', 0, limit)
  local touched = {}
  for _, did in ipairs(old) do
    local ok, lane = pcall(expire_one, did, now)
    if ok then touched[lane] = true end
  end
  if #old > 0 then
    call('ZREM', key('dead'), unpack(old))
    count('dead_expired', #old)
  end
  for lane in pairs(touched) do
    guarded(lane, now, function()
      local d = lane_state(lane)
      if d then resched(d, now) end
    end)
  end
  -- The receipts' retention runs from the publication here: the dead letter has outlived it already.
  flush_ended(function(e) return e.created end)
  return #old
end

local function forget(pid)
  local fields = call('HGETALL', key('S:' .. pid))
  local names, revision = { key('S:' .. pid), key('P:' .. pid) }, nil
  for i = 1, #fields, 2 do
    if fields[i] == 'h' then
      revision = select(4, struct.unpack(HEAD, fields[i + 1]))
    elseif #fields[i] == 16 then
      local r = unpack_record(fields[i + 1])
      if r.state > RUNNING and has(r.flags, F_QUEUED) then return false end
      if has(r.flags, F_HISTORY) then names[#names + 1] = key('H:' .. pid .. fields[i]) end
    end
  end
  call('UNLINK', unpack(names))
  return true, revision
end

local function purge(limit, now)
  local limits = call('HMGET', KEYS[1], 'retention_ms', 'dead_retention_ms')
  if not limits[1] then return 0 end
  local retention, dead_retention = tonumber(limits[1]), tonumber(limits[2])
  local done = expire_dead(limit, now, dead_retention)
  local old = call('ZRANGEBYSCORE', key('fin'), '-inf', now - retention, 'LIMIT', 0, limit)
  local gone, less = {}, {}
  for _, pid in ipairs(old) do
    local readable, freed, revision = pcall(forget, pid)
    if freed or not readable then
      gone[#gone + 1] = pid
      if readable and revision then less[revision] = (less[revision] or 0) + 1 end
    else
      -- An ended member still lies in a queue: it must not come alive under a later publication of the same identity.
      call('ZADD', key('fin'), now - retention + 60000, pid)
    end
  end
  if #gone > 0 then call('ZREM', key('fin'), unpack(gone)) end
  for revision, n in pairs(less) do count('n:' .. hex(revision), -n) end
  return done + #old
end
