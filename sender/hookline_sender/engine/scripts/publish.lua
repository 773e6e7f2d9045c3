-- One publication becomes one task per target, or nothing at all. As two commands, a crash between them would leave
-- an acknowledged event without tasks, or tasks without their body. Everything is checked before the first write.
-- ARGV: pid, nonce, fingerprint, revision, digest, event index, envelope, trace, delay ms, aggregate, tenants n,
-- (tenant, revision it was matched with)…, then eight for each task: lane, binding, destination, mode (1 in order of the
-- lane, 2 of the aggregate, else 0), deadline ms, limits, config version (0 for a static destination), paused.
-- Answers the receipts' lanes after the number of those skipped for want of room, and their lanes.
local pid, nonce, fingerprint, revision, digest = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local delay, aggregate, first = tonumber(ARGV[9]), ARGV[10], 12 + 2 * tonumber(ARGV[11])
local now = clock()

if not accepted_plan(fingerprint, now) then return { 'unbound' } end
local head = call('HGET', key('S:' .. pid), 'h')
if head then
  local known, _, _, _, _, _, _, by = struct.unpack(HEAD, head)
  if known ~= digest then return { 'conflict' } end
  local answer, skipped = { by == nonce and 'published' or 'duplicate', 0 }, call('HGET', key('S:' .. pid), 'k') or ''
  for lane in string.gmatch(skipped, string.rep('.', 16)) do
    answer[2] = answer[2] + 1
    answer[#answer + 1] = lane
  end
  for _, field in ipairs(call('HKEYS', key('S:' .. pid))) do
    if #field == 16 then answer[#answer + 1] = field end
  end
  return answer
end

for i = 12, first - 1, 2 do
  if (call('GET', key('rv:' .. ARGV[i])) or '0') ~= ARGV[i + 1] then return { 'stale' } end
end
if call('EXISTS', key('plan:' .. revision)) == 0 then return { 'revision' } end
local limits = call('HMGET', KEYS[1], 'max_records', 'max_per_destination', 'max_dead')
local open, limit = tonumber(call('HGET', key('cnt'), 'open')) or 0, tonumber(limits[1])
local most, most_dead = tonumber(limits[2]) or math.huge, tonumber(limits[3]) or math.huge
local dead = call('ZCARD', key('dead'))

-- The limit that a destination has reached, and how much counts against it; nil when it has room. One with dead letters
-- must not fill the ledger with more of them; a static one cannot be left out, so it answers for its own only, or others'
-- would refuse its publications. A lane that cannot be read is not judged: it is set aside below.
local function full(lane, limits, static)
  local held = tonumber(redis.pcall('HGET', key('D:' .. lane), 'o')) or 0
  local own = dead > 0 and redis.pcall('ZCARD', key('dead:' .. lane))
  if type(own) ~= 'number' then own = 0 end
  local backlog = limits_of(limits).backlog
  if held + own >= (backlog or most) then
    return backlog and 'max_backlog' or 'max_per_destination', held + own, backlog or most
  end
  local counted = static and own or dead
  if own > 0 and counted >= most_dead then return 'max_dead', counted, most_dead end
end

local targets, skipped = {}, {}
for i = first, #ARGV, 8 do
  local static = ARGV[i + 6] == '0'
  local name, held, most_held = full(ARGV[i], ARGV[i + 5], static)
  if not name then
    targets[#targets + 1] = i
  elseif static then
    return { 'crowded', ARGV[i + 1], name, held, most_held }
  else
    skipped[#skipped + 1] = ARGV[i]
  end
end
local tasks = #targets
if open + tasks > limit then return { 'full', open, limit } end

-- Without tasks nobody needs the envelope; what is left is the identity, for its retention.
if tasks > 0 then call('SET', key('P:' .. pid), ARGV[7]) else call('ZADD', key('fin'), now, pid) end
local created = math.floor(now / 1000)
local fields = { 'h', struct.pack(HEAD, digest, now, tasks, bytes(revision), bytes(fingerprint), aggregate,
  tonumber(ARGV[6]), nonce), 't', ARGV[8] }
for _, i in ipairs(targets) do
  fields[#fields + 1] = ARGV[i]
  fields[#fields + 1] = pack_record({
    state = delay > 0 and WAITING or ACCEPTED, flags = F_QUEUED + order_flag(ARGV[i + 3], aggregate),
    attempts = 0, fence = created, code = 0, status = 0, duration = 0, releases = 0,
    due = now + delay, deadline = now + tonumber(ARGV[i + 4]), token = NO_TOKEN })
end
-- `o` counts the tasks that still need the body; a single task needs no counter.
if tasks > 1 then fields[#fields + 1] = 'o'; fields[#fields + 1] = tasks end
if #skipped > 0 then fields[#fields + 1] = 'k'; fields[#fields + 1] = table.concat(skipped) end
call('HSET', key('S:' .. pid), unpack(fields))

-- How much is in flight in the lane and how much may be; nil when more than that holds it back. Its limits are those of
-- the plan under which something was last published to it.
local function lane_of(i)
  local lane, mode, limits = ARGV[i], ARGV[i + 3], ARGV[i + 5]
  local state = call('HMGET', key('D:' .. lane), 'o', 'f', 'c', 'm', 'w', 'k', 'h', 'p')
  -- Its deadlines are to be watched even if nobody claims. A lane that comes and goes keeps its next visit.
  if tonumber(state[1] or 0) <= 0 then call('ZADD', key('sweep'), 'LT', now + 60000, lane) end
  if not state[1] then
    call('HSET', key('D:' .. lane), 'b', ARGV[i + 1], 'd', ARGV[i + 2], 'o', 1, 'f', 0, 'c', limits, 'm', mode)
    -- Of a static destination the lane remembers neither.
    if ARGV[i + 6] ~= '0' then call('HSET', key('D:' .. lane), 'r', ARGV[i + 6], 'p', ARGV[i + 7]) end
    return 0, 1
  end
  -- A plan changes the order only of what has nothing unfinished. What ended may hold a place of the order before.
  if tonumber(state[1]) > 0 then mode = state[4] end
  if state[3] ~= limits or state[4] ~= mode then
    call('HSET', key('D:' .. lane), 'o', state[1] + 1, 'c', limits, 'm', mode)
    return nil
  end
  call('HINCRBY', key('D:' .. lane), 'o', 1)
  if state[6] or state[7] or (state[8] or '0') ~= '0' then return nil end
  return tonumber(state[2]), math.min(limits_of(limits).cap, tonumber(state[5] or '1'))
end

-- True when the lane newly has something to give: then an idle worker is woken.
local function enqueue(i)
  local lane, order, due = ARGV[i], order_flag(ARGV[i + 3], aggregate), now + delay
  local flight, most_in_flight = lane_of(i)
  local heads = order ~= F_AGGREGATE or append(lane, aggregate, pid, now)
  if order == F_ORDERED then
    heads = call('RPUSH', key('q:' .. lane), pid) == 1
  elseif heads and delay > 0 then
    call('ZADD', key('z:' .. lane), due, pid)
  elseif heads then
    call('RPUSH', key('q:' .. lane), pid)
  end
  if not flight then return resched(lane_state(lane), now, true) end
  if flight >= most_in_flight or not heads or ARGV[i + 7] == '1' then return false end
  local set = key((flight == 0 and 'ready:' or 'busy:') .. ARGV[i + 1])
  return call('ZADD', set, 'LT', 'CH', due, lane) == 1 and delay == 0
end

local answer, wake = { 'published', #skipped, unpack(skipped) }, false
for _, i in ipairs(targets) do
  homes[ARGV[i]] = ARGV[i + 1]
  wake = guarded(ARGV[i], now, enqueue, i) or wake
  count('o:' .. ARGV[i + 1], 1)
  answer[#answer + 1] = ARGV[i]
end
count('open', tasks)
count('skipped', #skipped)
count('n:' .. revision, 1)
flush_counts()
if wake then call('PUBLISH', key('wake'), '') end
return answer
