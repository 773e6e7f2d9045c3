#!lua
-- Store a delivery. ARGV: key, fingerprint, packed delivery, most rows, most rows to drop.
-- -> {'queued'} | {'known', state} | {'conflict'} | {'full'}
-- As two commands, two copies of a delivery could both find it absent, and a later body replace the one that runs.
-- Without allow-oom: a server without memory refuses the delivery, and its sender keeps it.
local key = ARGV[1]
local row = read(key)
if row then
  if row.fingerprint ~= ARGV[2] then return {'conflict'} end
  return {'known', row.state}
end
purge(ARGV[5])
redis.call('ZREM', GRAVES, key) -- what is left of a row that lapsed and was not dropped yet
redis.call('ZREM', ENDED, key)
if redis.call('HEXISTS', ROWS, key) == 0 and redis.call('HLEN', ROWS) >= tonumber(ARGV[4]) then return {'full'} end
write(key, {state = QUEUED, attempts = 0, fence = 0, accepted = now, owner = string.rep('\0', 16),
            fingerprint = ARGV[2], reason = ''})
redis.call('HSET', BODIES, key, ARGV[3])
redis.call('ZADD', OPEN, text(now), key)
return {'queued'}
