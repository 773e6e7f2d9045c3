-- What holds a destination back besides its queue: its limits, and what its attempts have shown. Fields of its D:
--   c  limits, as a declaration or a registration sets them: concurrency, rate per second, backlog, failures that open the
--      breaker, its first and its longest wait, time of unbroken failure that disables; times in ms, `-` or nothing for
--      what is not set
--   w  window: how many attempts may be in flight so far. 1 at first, doubled by each success up to the concurrency, and 1
--      again after a timeout
--   k  bucket: tokens that are left of the rate, and when that was so
--   h  health, only while it fails: failures in a row, since when, until when it is held, how often in a row the breaker
--      has opened, and whether the last outcome was a timeout
-- A lane whose attempts succeed at its full concurrency writes none of them.
local ALMOST = 0.0001  -- what a sum of rounded tokens may be short of a whole one

local parsed = {}
local function limits_of(text)
  local l = parsed[text]
  if l then return l end
  local n = { tonumber(text) }
  for part in string.gmatch(n[1] and '' or text, '%S+') do n[#n + 1] = tonumber(part) or false end
  l = { cap = n[1], rate = n[2], backlog = n[3], failures = n[4] or BREAKER.failures, wait = n[5] or BREAKER.wait,
        longest = n[6] or BREAKER.longest, disable = n[7] }
  parsed[text] = l
  return l
end

local function health_of(text)
  local failures, since, held, opened, slow = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) ([01])$')
  return failures and { failures = tonumber(failures), since = tonumber(since), held = tonumber(held),
                        opened = tonumber(opened), slow = slow == '1' }
end

local function health_text(h)
  return h and string.format('%d %.0f %.0f %d %d', h.failures, h.since, h.held, h.opened, h.slow and 1 or 0)
end

-- Whole tokens of a bucket that holds what one second brings, and at least one. Time that goes backwards adds none.
local function refilled(d, now)
  local most = math.max(1, d.limits.rate)
  local tokens, at = string.match(d.bucket or '', '^(%S+) (%d+)$')
  if not tokens then return most, most end
  return math.min(most, tonumber(tokens) + math.max(0, now - at) * d.limits.rate / 1000), most
end

local function spend(d, count, now)
  if not d.limits.rate or count == 0 then return end
  d.bucket = string.format('%.4f %.0f', math.max(0, refilled(d, now) - count), now)
end

-- How many attempts may be in flight at once. An eager turn does not wait for the first successes.
local eager = false
local function limit_of(d)
  if d.ordered then return 1 end
  return eager and not d.health and d.limits.cap or math.min(d.limits.cap, d.window)
end

-- Until when its health holds a lane: never longer than its longest wait, even if the clock was set back meanwhile.
local function closed_until(d, now)
  local h = d.health
  return h and h.held > now and h.held <= now + d.limits.longest and h.held or now
end

-- When something may be claimed of a lane that is neither blocked nor at its limit.
local function opens_at(d, now)
  local at = closed_until(d, now)
  if not d.limits.rate then return at end
  local short = 1 - ALMOST - refilled(d, now)
  return short > 0 and math.max(at, now + math.ceil(short * 1000 / d.limits.rate)) or at
end

-- How many tasks may be claimed of a lane now.
local function room_in(d, now)
  if d.paused or d.gone or opens_at(d, now) > now then return 0 end
  local room = limit_of(d) - d.flight
  return d.limits.rate and math.min(room, math.floor(refilled(d, now) + ALMOST)) or room
end

-- Whether its rate was used lately: forgotten, it could be used anew.
local function used(d, now)
  if not (d.limits.rate and d.bucket) then return false end
  local tokens, most = refilled(d, now)
  return tokens < most
end

-- Whether a lane has something to remember although it has no tasks.
local function remembers(d, now) return d.paused and d.config == '0' or used(d, now) end
