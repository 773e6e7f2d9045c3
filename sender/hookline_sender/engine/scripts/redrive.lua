-- A dead letter becomes a task again, with the same id and bytes, at the tail of its lane. Said again with the same
-- request id it changes nothing and answers alike. ARGV: delivery id, request id, accept repeat.
local did, request, accept_repeat = ARGV[1], ARGV[2], ARGV[3] == '1'
local now = clock()
local pid, lane = string.sub(did, 1, 22), string.sub(did, 23)
local MAX_RECOVERIES = 32

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
  if r.state == WAITING and r.due <= now and not has(r.flags, F_ORDERED) then r.state = ACCEPTED end
  if r.state < COMPLETED and find_lease(did) then r.state = RUNNING end
  if r.state ~= FAILED then return { 'state', WORDS[r.state] } end
  if not call('ZSCORE', key('dead:' .. lane), pid) or call('EXISTS', key('P:' .. pid)) == 0 then return { 'expired' } end
  local d = assert(t.lane_state, 'the lane of a dead letter is gone')
  if d.gone then return { 'gone' } end
  if call('HEXISTS', KEYS[1], 'b:' .. d.binding) == 0 then return { 'unbound', d.binding } end
  local open, limit = tonumber(call('HGET', key('cnt'), 'open')) or 0, tonumber(call('HGET', KEYS[1], 'max_records'))
  if open + 1 > limit then return { 'full', open, limit } end
  return nil
end

local function queue_again(t, r, history)
  local d = t.lane_state
  -- It may have ended in its queue, and then its old place still stands.
  if has(r.flags, F_QUEUED) then
    call('LREM', key('q:' .. lane), 1, pid)
    call('ZREM', key('z:' .. lane), pid)
  end
  call('RPUSH', key('q:' .. lane), pid)
  call('HSET', key('H:' .. did), 'r', history)
  call('ZREM', key('dead:' .. lane), pid)
  call('ZREM', key('dead'), did)
  r.state, r.attempts, r.code, r.status, r.duration, r.releases = ACCEPTED, 0, 0, 0, 0, 0
  r.flags = with(with_streak(without(r.flags, F_CANCEL), 0), F_HISTORY)
  r.flags, r.token, r.due = with(r.flags, F_QUEUED), NO_TOKEN, now
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
