-- A lease is a member of `leases`: delivery id, then the token of the turn that claimed it, scored by when it lapses.
-- A claim writes nothing else of its task, so `running` is what has a lease. Looking one up without its token reads all
-- that is in flight, unless nothing of its lane is: for operators only.
local function find_lease(did)
  if (call('HGET', key('D:' .. string.sub(did, 23)), 'f') or '0') == '0' then return nil end
  for _, member in ipairs(call('ZRANGE', key('leases'), 0, -1)) do
    if string.sub(member, 1, 38) == did then return member end
  end
  return nil
end

-- The deliveries of a lane that run.
local function running_in(lane)
  local found = {}
  for _, member in ipairs(call('ZRANGE', key('leases'), 0, -1)) do
    if string.sub(member, 23, 38) == lane then found[#found + 1] = string.sub(member, 1, 38) end
  end
  return found
end
