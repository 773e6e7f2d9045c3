#!lua flags=allow-oom
-- Renew or end an attempt. ARGV: key, owner, fence, step, ms (the lease, the wait, how long the row is kept), reason.
-- -> 1 | 0 (lost)
-- As two commands, a late processor could pass the check, lose the delivery, and then end its successor's attempt.
-- With allow-oom: the effect exists, so a full server must still let it be recorded.
local key, step = ARGV[1], ARGV[4]
local row = read(key)
if not row or row.owner ~= ARGV[2] or row.fence ~= tonumber(ARGV[3]) then return 0 end
local goal = ({renew = RUNNING, done = DONE, again = QUEUED, dead = DEAD})[step]
local still = row.state == RUNNING or (step == 'done' and row.state == QUEUED) -- lapsed, and not taken since
if not still then return row.state == goal and 1 or 0 end
local moment = text(now + tonumber(ARGV[5]))
if step == 'renew' then
  redis.call('ZADD', OPEN, moment, key)
  return 1
end
row.state = goal
if step ~= 'done' then row.reason = ARGV[6] end
write(key, row)
if step == 'again' then
  redis.call('ZADD', OPEN, moment, key)
  return 1
end
redis.call('ZREM', OPEN, key)
redis.call('ZADD', ENDED, moment, key)
if step == 'done' then redis.call('HDEL', BODIES, key) else redis.call('ZADD', GRAVES, text(now), key) end
return 1
