-- Prepended to every script. KEYS[1] is the namespace's meta key; all other keys share its prefix and hash tag.
local call = redis.call
local prefix = string.sub(KEYS[1], 1, -5)
local ACCEPTED, WAITING, RUNNING, COMPLETED, FAILED, CANCELLED = 0, 1, 2, 3, 4, 5
local WORDS = { [0] = 'accepted', 'waiting', 'running', 'completed', 'failed', 'cancelled' }
local NO_TOKEN = string.rep('\0', 16)
-- Bits of a record's flags. STREAK counts leases that lapsed in a row (0 to 3).
local F_ORDERED, F_CANCEL, F_QUEUED, F_STREAK, F_HISTORY = 1, 2, 4, 8, 32
-- A record is 43 bytes. Over 64 a value would turn its whole hash from a listpack into a hashtable.
local RECORD = '>BBBI4BI2I4BI6I6c16'
-- A publication's head: digest, created, tasks, revision, producer, aggregate, event index, nonce of the call.
local HEAD = '>c16I6Bc8c8c8I2c8'

local function key(name) return prefix .. name end

-- The namespace's time in milliseconds, and by how much it is ahead of Redis' own: while tasks are leased turns note the
-- time, and when Redis' clock is set back behind that, everything here goes on from where it was. See timing.lua.
-- The offset exists for tests of time and is never set by hookline itself.
local function clock()
  local t = call('TIME')
  local m = call('HMGET', KEYS[1], 'shift', 'now', 'beat', 'debug_offset_ms')
  local shift = tonumber(m[1]) or 0
  local now = t[1] * 1000 + math.floor(t[2] / 1000) + (tonumber(m[4]) or 0) + shift
  local seen = tonumber(m[2])
  if seen and now < seen - (tonumber(m[3]) or 0) then return seen, shift + seen - now end
  return now, shift
end

local function has(flags, flag) return math.floor(flags / flag) % 2 == 1 end
local function with(flags, flag) if has(flags, flag) then return flags end return flags + flag end
local function without(flags, flag) if has(flags, flag) then return flags - flag end return flags end
local function streak(flags) return math.floor(flags / F_STREAK) % 4 end
local function with_streak(flags, n) return flags + (math.min(n, 3) - streak(flags)) * F_STREAK end

local function unpack_record(raw)
  local r = {}
  r.state, r.flags, r.attempts, r.fence, r.code, r.status, r.duration, r.releases, r.due, r.deadline, r.token =
    struct.unpack(RECORD, raw)
  return r
end

local function pack_record(r)
  return struct.pack(RECORD, r.state, r.flags, r.attempts, r.fence, r.code, r.status, r.duration, r.releases,
    r.due, r.deadline, r.token)
end

local function hex(raw)
  return (string.gsub(raw, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

local function bytes(text)
  return (string.gsub(text, '..', function(c) return string.char(tonumber(c, 16)) end))
end

-- The plan check of publish and turn: nothing runs in a namespace that was never bound, or was emptied.
local function accepted_plan(fingerprint, now)
  local until_ms = call('HGET', KEYS[1], 'fp:' .. fingerprint)
  return until_ms and (until_ms == '0' or tonumber(until_ms) > now)
end

-- Counters are collected and written once, so that a batch costs one command in the AOF.
local deltas = {}
local function count(name, by) deltas[name] = (deltas[name] or 0) + by end
local function flush_counts()
  local names, write = {}, {}
  for name, by in pairs(deltas) do if by ~= 0 then names[#names + 1] = name end end
  if #names == 0 then return end
  local old = call('HMGET', key('cnt'), unpack(names))
  for i, name in ipairs(names) do
    write[#write + 1] = name
    write[#write + 1] = string.format('%.0f', (tonumber(old[i]) or 0) + deltas[name])
  end
  call('HSET', key('cnt'), unpack(write))
  deltas = {}
end

-- Lane state is read once per script and written by resched(). `homes`: the binding under which a lane was met.
local lanes, homes = {}, {}
local function lane_state(lane)
  local d = lanes[lane]
  if d then return d end
  local v = call('HMGET', key('D:' .. lane), 'b', 'd', 'o', 'f', 'c', 'm', 'r', 'p', 'g')
  if not v[1] then return nil end
  d = { lane = lane, binding = v[1], destination = v[2], open = tonumber(v[3]), flight = tonumber(v[4]),
        cap = tonumber(v[5]), ordered = v[6] == '1', config = v[7] or '0', paused = v[8] == '1', gone = v[9] == '1' }
  d.was_open, d.was_flight = d.open, d.flight
  lanes[lane] = d
  return d
end

-- When a lane's next task may be claimed: milliseconds, or nil if nothing is queued.
local function next_due(d, now)
  if d.ordered then
    local head = call('LINDEX', key('q:' .. d.lane), 0)
    if not head then return nil end
    local raw = call('HGET', key('S:' .. head), d.lane)
    if not raw then return now end
    local r = unpack_record(raw)
    if r.state > RUNNING then return now end
    return math.max(now, math.min(r.due, r.deadline))
  end
  if call('LLEN', key('q:' .. d.lane)) > 0 then return now end
  local first = call('ZRANGE', key('z:' .. d.lane), 0, 0, 'WITHSCORES')
  if first[1] then return math.max(now, tonumber(first[2])) end
  return nil
end

-- Every change of a lane ends here. Invariant: an unblocked lane with work is in exactly one of ready and busy.
local function resched(d, now)
  local ready, busy = key('ready:' .. d.binding), key('busy:' .. d.binding)
  local due = d.flight < d.cap and next_due(d, now) or nil
  local at = not d.paused and not d.gone and due or nil
  -- A dead letter still needs the lane's names; its expiry comes through here again.
  local idle = d.open <= 0 and d.flight <= 0 and not due
  local dead = idle and redis.pcall('ZCARD', key('dead:' .. d.lane))
  if idle and (dead == 0 or type(dead) == 'table') then
    call('DEL', key('D:' .. d.lane))
    lanes[d.lane], homes[d.lane] = nil, nil
  elseif d.open ~= d.was_open or d.flight ~= d.was_flight then
    call('HSET', key('D:' .. d.lane), 'o', d.open, 'f', d.flight)
    d.was_open, d.was_flight = d.open, d.flight
  end
  if not at then
    call('ZREM', ready, d.lane)
    call('ZREM', busy, d.lane)
  elseif d.flight == 0 then
    call('ZADD', ready, at, d.lane)
    call('ZREM', busy, d.lane)
  else
    call('ZADD', busy, at, d.lane)
    call('ZREM', ready, d.lane)
  end
end

-- A lane whose keys are of the wrong type must not stop the others: it is set aside and shown. Nothing here may raise:
-- when the lane's state is what cannot be read, its binding is still known.
local function guarded(lane, now, change, ...)
  local ok, result = pcall(change, ...)
  if ok then return result end
  call('ZADD', key('broken'), now, lane)
  local d = lanes[lane]
  local binding = d and d.binding or homes[lane]
  if d then redis.pcall('HSET', key('D:' .. lane), 'o', d.open, 'f', d.flight) end
  if binding then
    redis.pcall('ZREM', key('ready:' .. binding), lane)
    redis.pcall('ZREM', key('busy:' .. binding), lane)
  end
end
