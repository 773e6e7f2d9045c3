-- What the scripts that change the registry share. A destination is two fields of reg:<tenant>: 'p' and its id, with
-- version, pause, lane and a text anybody may read; 's' and its id, what is sealed. Pause is 0, 1, or why it is disabled: 2,
-- it is gone, 3, it has failed for too long. `dst` says whose an id is: '+' and the tenant, or '-', lane and tenant while
-- something of a removed destination is left.
local function owner_of(id)
  local raw = call('HGET', key('dst'), id)
  if not raw then return nil end
  if string.sub(raw, 1, 1) == '+' then return string.sub(raw, 2), nil end
  return string.sub(raw, 18), string.sub(raw, 2, 17)
end

local function entry_of(tenant, id)
  local raw = call('HGET', key('reg:' .. tenant), 'p' .. id)
  local version, paused, lane, public = string.match(raw or '', '^(%d+) (%d) (%S+) (.*)$')
  return version and { version = version, paused = paused, lane = lane, public = public }
end

local function revision_of(tenant) return call('GET', key('rv:' .. tenant)) or '0' end

-- Never a number that a change of this namespace had before, so that what somebody remembers of an id or a tenant that was
-- gone for a while is not taken for what it is now.
local function next_version(now)
  local last = tonumber(call('HGET', KEYS[1], 'registry') or '0')
  local version = string.format('%.0f', math.max(last + 1, now))
  call('HSET', KEYS[1], 'registry', version)
  return version
end

local function save(tenant, id, entry, sealed, revision)
  local public = table.concat({ entry.version, entry.paused, entry.lane, entry.public }, ' ')
  call('HSET', key('reg:' .. tenant), 'p' .. id, public)
  if sealed then call('HSET', key('reg:' .. tenant), 's' .. id, sealed) end
  call('SET', key('rv:' .. tenant), revision)
end

-- New settings reach a lane that has tasks at once; one that has none gets them with its next publication.
local function apply(entry, limits, now)
  local d = lane_state(entry.lane)
  if not d then return end
  call('HSET', key('D:' .. d.lane), 'r', entry.version, 'c', limits)
  d.config, d.limits = entry.version, limits_of(limits)
  resched(d, now)
end

-- Said twice it changes nothing. A running attempt goes on; deadlines do too. What was disabled stays so when it is paused;
-- what is resumed starts as if nothing had failed. A static destination has no entry, and only its lane to be resumed.
local function set_paused(id, lane, paused, now)
  local tenant, removed = owner_of(id)
  local entry = tenant and not removed and entry_of(tenant, id)
  if entry and lane ~= '' and entry.lane ~= lane then entry = nil end
  if not entry and lane == '' then return { 'unknown' } end
  if entry then
    if entry.paused == paused or (paused == '1' and entry.paused ~= '0') then return { 'set' } end
    entry.paused, lane = paused, entry.lane
    save(tenant, id, entry, nil, next_version(now))
  end
  local d = lane_state(lane)
  if d and d.paused ~= (paused == '1') then
    call('HSET', key('D:' .. d.lane), 'p', paused)
    d.paused = paused == '1'
    if not d.paused and d.health then d.health, d.window = nil, 1 end
    resched(d, now)
    if not d.paused then call('PUBLISH', key('wake'), '') end
  end
  return { 'set' }
end
