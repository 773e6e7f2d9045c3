-- Steps of the clock, and outages. While tasks are leased `meta` has the largest time that a turn saw (`now`, at least
-- every `beat`) and the server's `run`. Set back by more than a beat, the clock is rebased: `shift` is added to it until
-- the namespace has nothing unfinished. No score and no record has to be rewritten for that, and none is wrong meanwhile.
-- After two beats without a turn, or on another server, no lease is taken back before `grace_until`: workers that could
-- not reach Redis get to settle first.
local SHORTEST_SPAN = 8000

local function run_id()
  local text = redis.pcall('INFO', 'server')
  return type(text) == 'string' and string.match(text, 'run_id:(%w+)') or ''
end

local function note(now, shift, beat, run)
  call('HSET', KEYS[1], 'now', now, 'beat', beat, 'shift', shift, 'run', run)
end

-- Before anything is decided by the time: the time to decide by. `lease` is the worker's.
local function keep_time(now, shift, lease)
  local m = call('HMGET', KEYS[1], 'now', 'beat', 'run', 'shift')
  local seen, beat = tonumber(m[1]), math.floor(math.max(lease, SHORTEST_SPAN) / 4)
  if seen and shift > (tonumber(m[4]) or 0) then
    note(now, shift, beat, m[3] or '')
    count('rebased', 1)
  end
  if call('EXISTS', key('leases')) == 0 then
    -- As soon as nothing waits for any time but the end of its retention, Redis' own is good again.
    if shift == 0 or call('EXISTS', key('sweep'), key('gone'), key('broken')) > 0 then return now, shift end
    call('HDEL', KEYS[1], 'now', 'shift')
    return now - shift, 0
  end
  if seen and now - seen < beat then return now, shift end
  local run = run_id()
  if seen and (now - seen > 2 * math.max(beat, tonumber(m[2]) or 0) or m[3] ~= run) then
    call('HSET', KEYS[1], 'grace_until', now + 4 * beat)
    count('outages', 1)
  end
  note(now, shift, beat, run)
  return now, shift
end

-- After a claim: from now on the time is kept.
local function begin_time(now, shift, lease)
  local seen, beat = tonumber(call('HGET', KEYS[1], 'now')), math.floor(math.max(lease, SHORTEST_SPAN) / 4)
  if not seen or now - seen >= beat then note(now, shift, beat, run_id()) end
end

-- Whether lapsed leases are to be left alone for now.
local function in_grace(now)
  local m = call('HMGET', KEYS[1], 'grace_until', 'now', 'beat', 'run')
  if now < (tonumber(m[1]) or 0) then return true end
  if not m[2] then return false end
  if now - m[2] > 2 * m[3] then return true end  -- a turn will find out
  local run = run_id()
  if run == m[4] then return false end
  call('HSET', KEYS[1], 'grace_until', now + 4 * m[3], 'run', run)
  count('outages', 1)
  return true
end
