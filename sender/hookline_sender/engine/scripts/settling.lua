-- The end of an attempt. Only the token of the claim may report it; said twice it changes nothing and answers alike,
-- because the token stays in the record.
local MAX_RELEASES = 8

-- `ended` holds the leases this batch has ended; they are removed together, after it.
local function settle_one(s, now, worker, touched, ended)
  local t, r = load_task(s.did)
  if not t then return 'lost' end
  if ended[s.did .. s.token] or not call('ZSCORE', key('leases'), s.did .. s.token) then
    return r.token == s.token and WORDS[r.state] or 'lost'
  end
  if r.state > RUNNING then return WORDS[r.state] end
  assert(t.lane_state, 'the lane of a running task is gone')
  started(t, r, s.token)
  touched[t.lane_state.lane], s.owned = t.lane_state, true
  felt(t.lane_state, s, now)
  if s.kind == 'l' then
    if has(r.flags, F_CANCEL) then
      r.attempts = r.attempts - 1
      return end_cancelled(t, r, now)
    end
    r.releases = math.min(r.releases + 1, 255)
    if r.releases <= MAX_RELEASES then
      r.attempts = r.attempts - 1
      return requeue(t, r, now, now)
    end
    s.code, s.delay = CODES.interrupted, math.floor(policy_of(t.revision, t.lane_state.binding).backoff * 1000)
  end
  r.flags = with_streak(r.flags, 0)
  r.code, r.status, r.duration = s.code, s.status, s.duration
  if s.kind ~= 'o' or has(r.flags, F_HISTORY) then remember(t, r, now, worker, s.location) end
  if s.kind == 'o' then return finish(t, r, COMPLETED, now) end
  if s.kind == 'd' and not has(r.flags, F_CANCEL) then return finish(t, r, FAILED, now) end
  return retry_or_end(t, r, s.delay, CODES.deadline_exceeded, now)
end

local function settle_all(first, n, now, worker)
  local words, free, touched, ended = {}, {}, {}, {}
  for i = first, first + (n - 1) * 9, 9 do
    local s = { did = ARGV[i], token = ARGV[i + 1], kind = ARGV[i + 2], code = tonumber(ARGV[i + 3]),
                status = tonumber(ARGV[i + 4]), duration = tonumber(ARGV[i + 5]), delay = tonumber(ARGV[i + 6]),
                location = ARGV[i + 7], hold = tonumber(ARGV[i + 8]) }
    local word = guarded(string.sub(s.did, 23), now, settle_one, s, now, worker, touched, ended) or 'broken'
    if word == 'lost' then count('settle_lost', 1) end
    -- A lease that could not be settled stays, so that it lapses and is tried again.
    if s.owned and word ~= 'broken' then
      ended[s.did .. s.token] = true
      free[#free + 1] = s.did .. s.token
    end
    words[#words + 1] = word
  end
  if #free > 0 then call('ZREM', key('leases'), unpack(free)) end
  for lane, d in pairs(touched) do
    guarded(lane, now, disable, d, now)
    guarded(lane, now, resched, d, now)
  end
  return words
end
