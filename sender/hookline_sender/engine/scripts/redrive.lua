-- A dead letter becomes a task again, with the same id and bytes: in its place where it holds those behind it, else at the
-- tail of its lane. Said again with the same request id it changes nothing and answers alike.
-- ARGV: delivery id, request id, accept repeat.
local did, request, accept_repeat = ARGV[1], ARGV[2], ARGV[3] == '1'
local now = clock()
local pid, lane = string.sub(did, 1, 22), string.sub(did, 23)
local MAX_RECOVERIES, MODES = 32, { unordered = '0', binding = '1', aggregate = '2' }

-- The recovery history: one line per redrive with its request, its time and why the task had failed.
local function recoveries()
  local lines = {}
  for line in string.gmatch(call('HGET', key('H:' .. did), 'r') or '', '[^\n]+') do
    local by, at = string.match(line, '^(%S+) (%d+)')
    if by == request then return lines, tonumber(at) end
    lines[#lines + 1] = line
  end
  return lines, nil
end

-- Why it cannot be redriven now, or nil.
local function obstacle(t, r)
  if r.state == FAILED and r.code == CODES.indeterminate and not accept_repeat then return { 'indeterminate' } end
  if r.state ~= FAILED then return { 'state', WORDS[view(did, now, find_lease(did)).record.state] } end
  if not call('ZSCORE', key('dead:' .. lane), pid) or call('EXISTS', key('P:' .. pid)) == 0 then return { 'expired' } end
  local d = assert(t.lane_state, 'the lane of a dead letter is gone')
  if d.gone then return { 'gone' } end
  if call('HEXISTS', KEYS[1], 'b:' .. d.binding) == 0 then return { 'unbound', d.binding } end
  local open, limit = tonumber(call('HGET', key('cnt'), 'open')) or 0, tonumber(call('HGET', KEYS[1], 'max_records'))
  if open + 1 > limit then return { 'full', open, limit } end
  return nil
end

-- It may have ended in its queue, and then its old place still stands.
local function leave_old_place(t, r)
  if not has(r.flags, F_QUEUED) then return end
  local headed = call('LREM', key('q:' .. lane), 1, pid) + call('ZREM', key('z:' .. lane), pid) > 0
  if not has(r.flags, F_AGGREGATE) then return end
  if headed then
    advance(t.lane_state, t.aggregate, pid, now)
  else
    local name = queue_name(lane, t.aggregate)
    call('LREM', key('a:' .. name), 1, pid)
    rewatch(name)
  end
end

-- The order that the plan gives the lane by now: it may have changed while nothing was unfinished.
local function adopt_order(d)
  local ordering = string.match(call('HGET', KEYS[1], 'b:' .. d.binding), ':(%a+)$')
  if d.open > 0 or MODES[ordering] == d.mode then return end
  d.mode, d.ordered = MODES[ordering], MODES[ordering] == '1'
  call('HSET', key('D:' .. lane), 'm', d.mode)
end

local function take_place(t, r)
  local d = t.lane_state
  adopt_order(d)
  local order = order_flag(d.mode, t.aggregate)
  if has(r.flags, F_HOLDS) and order > 0 and has(r.flags, order) then
    -- An aggregate's head held its followers from z.
    if call('ZREM', key('z:' .. lane), pid) == 1 then call('RPUSH', key('q:' .. lane), pid) end
  else
    leave_old_place(t, r)
    r.flags = without(without(r.flags, F_ORDERED), F_AGGREGATE) + order
    if order ~= F_AGGREGATE or append(lane, t.aggregate, pid, now) then call('RPUSH', key('q:' .. lane), pid) end
  end
  r.flags = with(without(r.flags, F_HOLDS), F_QUEUED)
end

local function queue_again(t, r, history)
  local d = t.lane_state
  take_place(t, r)
  call('HSET', key('H:' .. did), 'r', history)
  call('ZREM', key('dead:' .. lane), pid)
  call('ZREM', key('dead'), did)
  r.state, r.attempts, r.code, r.status, r.duration, r.releases = ACCEPTED, 0, 0, 0, 0, 0
  r.flags, r.token, r.due = with(with_streak(r.flags, 0), F_HISTORY), NO_TOKEN, now
  r.deadline = now + math.floor((policy_of(t.revision, d.binding).deadline or 86400) * 1000)
  store(t, r)
  call('ZADD', key('sweep'), 'LT', now + 60000, lane)
  d.open = d.open + 1
  count('open', 1)
  count('o:' .. d.binding, 1)
  count('redriven', 1)
  resched(d, now)
end

local function redrive()
  local t, r = load_task(did)
  if not t then return { 'unknown' } end
  local lines, before = recoveries()
  if before then return { 'redriven', before } end
  local refused = obstacle(t, r)
  if refused then return refused end
  lines[#lines + 1] = string.format('%s %.0f %d', request, now, r.code)
  queue_again(t, r, table.concat(lines, '\n', math.max(1, #lines - MAX_RECOVERIES + 1)))
  return { 'redriven', now }
end

local answer = guarded(lane, now, redrive) or { 'broken' }
flush_counts()
if answer[1] == 'redriven' and answer[2] == now then call('PUBLISH', key('wake'), '') end
return answer
