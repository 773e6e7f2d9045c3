-- Ties the namespace to a plan. Additive changes pass; a binding that was removed or changed is refused while it has
-- unfinished tasks. Sent again with the same plan it changes nothing but limits.
-- ARGV: layout, fingerprint, revision, max_records, retention_ms, dead_retention_ms, bindings n, (name, signature,
-- policy)…, events…
local DAY = 86400000
local layout, fingerprint, revision = ARGV[1], ARGV[2], ARGV[3]
local now, meta = clock(), {}
local raw = call('HGETALL', KEYS[1])
for i = 1, #raw, 2 do meta[raw[i]] = raw[i + 1] end
if meta.layout and meta.layout ~= layout then return { 'layout', meta.layout } end

local declared, last = {}, 7 + 3 * tonumber(ARGV[7])
for i = 8, last, 3 do declared[ARGV[i]] = ARGV[i + 1] end

local known = meta['fp:' .. fingerprint]
local accepted = known and (known == '0' or tonumber(known) > now)
if not accepted then
  local replaces = false
  for field, signature in pairs(meta) do
    if string.sub(field, 1, 2) == 'b:' and declared[string.sub(field, 3)] ~= signature then
      local name = string.sub(field, 3)
      local live = tonumber(call('HGET', key('cnt'), 'o:' .. name) or '0')
      if live > 0 then return { 'live', name, live, declared[name] and 'changed' or 'removed' } end
      replaces = true
    end
  end
  for field, value in pairs(meta) do
    if string.sub(field, 1, 3) == 'fp:' then
      -- Older processes of a rolling deploy go on for a day, unless their plan no longer fits.
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
  call('HSET', KEYS[1], unpack(write))
end

if call('EXISTS', key('plan:' .. revision)) == 0 then
  local fields = { 'v', call('HINCRBY', KEYS[1], 'revisions', 1) }
  for i = 8, last, 3 do
    fields[#fields + 1] = 'p:' .. ARGV[i]
    fields[#fields + 1] = ARGV[i + 2]
  end
  for i = last + 1, #ARGV do
    fields[#fields + 1] = 'e:' .. (i - last - 1)
    fields[#fields + 1] = ARGV[i]
  end
  call('HSET', key('plan:' .. revision), unpack(fields))
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
call('HSET', KEYS[1], 'rev:' .. revision, now, 'max_records', ARGV[4], 'retention_ms', ARGV[5],
  'dead_retention_ms', ARGV[6])
return { 'bound' }
