-- What is sealed of destinations is sealed under another key. One that was changed since it was read is left as it is, or
-- an old key would come back; the numbers of those are the answer. Versions and revisions stay: what anybody remembers of
-- a destination is still true.
-- ARGV: id, what is sealed, what shall be, in turn.
local changed = {}
for i = 1, #ARGV, 3 do
  local tenant, removed = owner_of(ARGV[i])
  local reg, field = key('reg:' .. (tenant or '')), 's' .. ARGV[i]
  local sealed = tenant and not removed and call('HGET', reg, field)
  if sealed == ARGV[i + 1] then
    call('HSET', reg, field, ARGV[i + 2])
  elseif sealed and sealed ~= ARGV[i + 2] then
    changed[#changed + 1] = (i - 1) / 3
  end
end
return changed
