#!lua flags=allow-oom
-- Queue a dead letter again. ARGV: key. -> 1 | 0 (it is none)
-- As two commands, two redrives at once could queue it while its first new attempt runs.
-- With allow-oom: the row is rewritten in place.
local key = ARGV[1]
local row = read(key)
if not row or row.state ~= DEAD then return 0 end
row.state, row.attempts = QUEUED, 0
write(key, row)
redis.call('ZREM', GRAVES, key)
redis.call('ZREM', ENDED, key)
redis.call('ZADD', OPEN, text(now), key)
return 1
