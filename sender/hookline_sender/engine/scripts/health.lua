-- What the end of an attempt shows of its destination. A timeout or a failure that its owner has to mend says that it fails; only
-- what is in BREAKS opens the breaker. A lost worker, or a fault of our own, says nothing of it.
--
--              failures in a row                    time is over
--   closed ────────────────────────▶ open: it waits ────────────▶ half-open: one attempt at a time
--      ▲                                ▲                              │           │
--      │                                └── it fails: a longer wait ───┘           │
--      └────────────────────────────── a success ────────────────────────────────┘
local GONE, FAILING = '2', '3'
local newly_disabled = {}

-- No more attempts start until somebody resumes it. Of a registered destination the registry says so too, for publishers
-- and for when its lane is gone.
local function disable(d, now)
  local reason = d.disabled
  if not reason or d.paused or d.gone then return end
  call('HSET', key('D:' .. d.lane), 'p', reason)
  d.paused = true
  count('disabled', 1)
  newly_disabled[#newly_disabled + 1] = { d.binding, d.destination, tonumber(reason) }
  if d.config == '0' then return end
  local tenant, removed = owner_of(d.destination)
  local entry = tenant and not removed and entry_of(tenant, d.destination)
  if not entry or entry.lane ~= d.lane then return end
  entry.paused = reason
  save(tenant, d.destination, entry, nil, next_version(now))
end

local function open(h, l, now)
  h.opened = math.min(h.opened + 1, 99)
  h.held = now + math.min(l.wait * 2 ^ (h.opened - 1), l.longest)
end

-- `s`: the settlement. Its `hold` is for how long the destination asked to be left alone, or -1 when its health is not judged.
local function felt(d, s, now)
  if s.hold < 0 or s.kind == 'l' then return end
  if s.kind == 'o' then
    d.window = math.min(d.window * 2, d.limits.cap)
    -- Other attempts may still succeed while it is held because it asked for that.
    local asked = d.health and d.health.opened == 0 and closed_until(d, now) > now
    d.health = asked and { failures = 0, since = 0, held = d.health.held, opened = 0 } or nil
    return
  end
  if not FAULTS[s.code] then return end
  local l, h = d.limits, d.health or { failures = 0, since = now, held = 0, opened = 0 }
  d.health, h.slow = h, TIMEOUTS[s.code] or false
  if h.since == 0 then h.since = now end
  if BREAKS[s.code] then
    h.failures = math.min(h.failures + 1, 65535)
    if h.failures >= l.failures and closed_until(d, now) == now then open(h, l, now) end
  end
  if s.hold > 0 then h.held = math.max(h.held, now + math.min(s.hold, l.longest)) end
  if h.slow or h.held > now then d.window = 1 end
  if s.kind == 'd' and s.code == CODES.gone then
    d.disabled = GONE
  elseif l.disable and now - h.since >= l.disable then
    d.disabled = d.disabled or FAILING
  end
end
