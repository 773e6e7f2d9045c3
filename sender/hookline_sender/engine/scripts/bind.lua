-- Ties the namespace to a plan. Additive changes pass; a binding that was removed or changed is refused while it has
-- unfinished tasks, and else unless the caller may replace plans. Sent again with the same plan it changes only limits.
-- ARGV: layout, fingerprint, revision, may replace (0 or 1), max_records, retention_ms, dead_retention_ms,
-- max_per_destination, max_dead, bindings n, (name, signature, policy)…, events…
local DAY = 86400000
local layout, fingerprint, revision = ARGV[1], ARGV[2], ARGV[3]
local now, meta = clock(), {}
local raw = call('HGETALL', KEYS[1])
for i = 1, #raw, 2 do meta[raw[i]] = raw[i + 1] end
if meta.layout and meta.layout ~= layout then return { 'layout', meta.layout } end

-- Lua's unpack() stops near 8,000 values.
local function put(name, fields)
  for i = 1, #fields, 1000 do call('HSET', name, unpack(fields, i, math.min(i + 999, #fields))) end
end

local declared, last = {}, 10 + 3 * tonumber(ARGV[10])
for i = 11, last, 3 do declared[ARGV[i]] = ARGV[i + 1] end

-- What the plan would take from the namespace: bindings that it does not declare, or declares differently.
local function taken()
  local replaces, live
  for field, signature in pairs(meta) do
    local name = string.sub(field, 1, 2) == 'b:' and string.sub(field, 3)
    if name and declared[name] ~= signature then
      local open = tonumber(call('HGET', key('cnt'), 'o:' .. name) or '0')
      local word = declared[name] and 'changed' or 'removed'
      replaces = { 'replaces', name, word }
      if open > 0 then live = { 'live', name, open, word } end
    end
  end
  return replaces, live
end

-- Processes of the plans before go on for a day (a rolling deploy), unless their plan no longer fits.
local function become_current(replaces)
  for field, value in pairs(meta) do
    if string.sub(field, 1, 3) == 'fp:' then
      if replaces or (value ~= '0' and tonumber(value) <= now) then
        call('HDEL', KEYS[1], field)
      elseif value == '0' then
        call('HSET', KEYS[1], field, now + DAY)
      end
    elseif string.sub(field, 1, 2) == 'b:' and not declared[string.sub(field, 3)] then
      call('HDEL', KEYS[1], field)
    end
  end
  local write = { 'layout', layout, 'fp:' .. fingerprint, '0' }
  for name, signature in pairs(declared) do
    write[#write + 1] = 'b:' .. name
    write[#write + 1] = signature
  end
  put(KEYS[1], write)
end

local known = meta['fp:' .. fingerprint]
if known ~= '0' then
  local replaces, live = taken()
  if known and tonumber(known) > now and replaces then
    -- A process of the plan before starts again amid a deploy: it gets its day, and takes nothing from the new plan.
    call('HSET', KEYS[1], 'fp:' .. fingerprint, now + DAY)
  elseif live then
    return live
  elseif replaces and ARGV[4] ~= '1' then
    return replaces
  else
    become_current(replaces)
  end
end

if call('EXISTS', key('plan:' .. revision)) == 0 then
  local fields = {}
  for i = 11, last, 3 do
    fields[#fields + 1] = 'p:' .. ARGV[i]
    fields[#fields + 1] = ARGV[i + 2]
  end
  for i = last + 1, #ARGV do
    fields[#fields + 1] = 'e:' .. (i - last - 1)
    fields[#fields + 1] = ARGV[i]
  end
  put(key('plan:' .. revision), fields)
end

for field, bound in pairs(meta) do
  local old = string.sub(field, 1, 4) == 'rev:' and string.sub(field, 5)
  if old and old ~= revision and tonumber(bound) < now - DAY
    and (tonumber(call('HGET', key('cnt'), 'n:' .. old) or '0') <= 0) then
    call('DEL', key('plan:' .. old))
    call('HDEL', key('cnt'), 'n:' .. old)
    call('HDEL', KEYS[1], field)
  end
end
call('HSET', KEYS[1], 'rev:' .. revision, now, 'max_records', ARGV[5], 'retention_ms', ARGV[6],
  'dead_retention_ms', ARGV[7], 'max_per_destination', ARGV[8], 'max_dead', ARGV[9])
return { 'bound' }
