#!lua
-- Take a delivery. ARGV: key, fingerprint, owner, lease ms, retention ms, most rows, most rows to drop.
-- -> {'claimed', fence} | {'busy', ms left} | {'done', status} | {'conflict'} | {'full'}
-- As two commands, two copies of a delivery could both find it free and both run its handler.
-- Without allow-oom: a server without memory refuses the claim instead of forgetting it.
local key, owner = ARGV[1], ARGV[3]
local row = read(key)
local fence = 1
if row then
  if row.fingerprint ~= ARGV[2] then return {'conflict'} end
  if row.state == DONE then return {'done', row.status} end
  local ours = row.state == CLAIMED and row.owner == owner
  if row.state == CLAIMED and not ours and row.lease_ends > now then return {'busy', row.lease_ends - now} end
  fence = ours and row.fence or row.fence + 1
else
  local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[7])
  for _, old in ipairs(lapsed) do
    redis.call('HDEL', KEYS[1], old)
    redis.call('ZREM', KEYS[2], old)
  end
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[6]) then return {'full'} end
end
local lease = tonumber(ARGV[4])
write(key, {state = CLAIMED, fence = fence, status = 0, lease_ends = now + lease, owner = owner,
            fingerprint = ARGV[2]}, math.max(tonumber(ARGV[5]), lease))
return {'claimed', fence}
