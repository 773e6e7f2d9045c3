-- A task as it stands, for operators. Reads only.
-- Event, tenant and caller's id of a publication, as long as it has its envelope. The body behind them is never read out.
local function names_of(pid)
  local raw, at, texts = call('GETRANGE', key('P:' .. pid), 0, 4095), 1, {}
  for i = 1, 3 do
    if #raw < at + 1 then break end
    local size = struct.unpack('>I2', raw, at)
    texts[i] = string.sub(raw, at + 2, at + 1 + size)
    at = at + 2 + size
  end
  return texts[1] or '', texts[2] or '', texts[3] or ''
end

-- The delivery that an ordered task waits for; the lane, when that is its running one; nil when none is before it.
local function blocker(pid, lane, r, aggregate, flight)
  if r.state > RUNNING then return nil end
  local queue = has(r.flags, F_AGGREGATE) and 'a:' .. queue_name(lane, aggregate) or has(r.flags, F_ORDERED) and 'q:' .. lane
  if not queue then return nil end
  if has(r.flags, F_ORDERED) and flight > 0 then return lane end
  for i = 0, MOST_PASSED - 1 do
    local before = call('LINDEX', key(queue), i)
    if not before or before == pid then return nil end
    local raw = call('HGET', key('S:' .. before), lane)
    local b = raw and unpack_record(raw)
    if b and (b.state <= RUNNING or has(b.flags, F_HOLDS)) then return before .. lane end
  end
  return nil
end

-- The task with what an operator is told of it, or nil. `lease` is its member of `leases`, if it has one.
local function view(did, now, lease)
  local pid, lane = string.sub(did, 1, 22), string.sub(did, 23)
  local v = call('HMGET', key('S:' .. pid), 'h', 't', lane)
  if not (v[1] and v[3]) then return nil end
  local _, created, _, revision, _, aggregate, event = struct.unpack(HEAD, v[1])
  local r = unpack_record(v[3])
  local d = call('HMGET', key('D:' .. lane), 'b', 'd', 'p', 'g', 'f', 'h')
  local health = health_of(d[6])
  local before = not lease and blocker(pid, lane, r, aggregate, tonumber(d[5]) or 0) or nil
  if r.state == WAITING and r.due <= now then r.state = ACCEPTED end
  if r.state == ACCEPTED and ((d[3] or '0') ~= '0' or before or (health and health.held > now)) then r.state = WAITING end
  if r.state < COMPLETED and d[4] == '1' and not lease then r.state, r.code = CANCELLED, CODES.destination_gone end
  if r.state < COMPLETED and lease then
    r.state, r.attempts, r.fence = RUNNING, r.attempts + 1, r.fence + 1
  end
  return { did = did, pid = pid, record = r, created = created, revision = hex(revision), trace = v[2] or '',
           event = call('HGET', key('plan:' .. hex(revision)), 'e:' .. event) or '',
           binding = d[1] or '', destination = d[2] or '', before = before, aggregate = aggregate }
end
