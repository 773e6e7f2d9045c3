-- Nobody wants this task any more: a pending one ends at once, a running one when its attempt ends without success.
-- A dead letter stays one, but holds nobody any more.
-- Answers how the task stands afterwards, so that asking again answers alike. ARGV: delivery id.
local did = ARGV[1]
local now = clock()
local lane = string.sub(did, 23)

local function cancel()
  local t, r = load_task(did)
  if not t then return 'unknown' end
  if has(r.flags, F_HOLDS) and t.lane_state then
    step_over(t, r, now)
    store(t, r)
    resched(t.lane_state, now)
  end
  if r.state > RUNNING then return WORDS[r.state] end
  assert(t.lane_state, 'the lane of an unfinished task is gone')
  if find_lease(did) then
    if not has(r.flags, F_CANCEL) then
      r.flags = with(r.flags, F_CANCEL)
      store(t, r)
    end
    return WORDS[RUNNING]
  end
  -- Found and removed where it waits for its time; in a queue its place is skipped when a claim comes to it.
  if call('ZREM', key('z:' .. lane), t.pid) == 1 then t.left = true end
  r.token = NO_TOKEN
  local word = end_cancelled(t, r, now)
  resched(t.lane_state, now)
  return word
end

local word = guarded(lane, now, cancel) or 'broken'
flush_ended(function() return now end)
flush_counts()
return word
