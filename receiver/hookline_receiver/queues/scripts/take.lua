#!lua flags=allow-oom
-- Take what is due. ARGV: owner, lease ms, most to take, most to look at, ms within which lapsed ones come back, a
-- random number below 1, most ended rows to drop. -> {{key, fence, attempts, packed delivery}, ...}
-- As two commands, two processors could take the same delivery.
-- What lapsed is queued again at a moment of its own: taken at once, all would meet again what killed their processor.
-- With allow-oom: handling what is stored makes room.
local taken, most, spread, place = {}, tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
purge(ARGV[7])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', OPEN, '-inf', text(now), 'LIMIT', 0, ARGV[4])) do
  if #taken == most then break end
  local row, body = read(key), redis.call('HGET', BODIES, key)
  if not row or not body or row.state > RUNNING then
    redis.call('ZREM', OPEN, key)
  elseif row.state == RUNNING then
    place = (place + 0.6180339887) % 1
    row.state, row.reason = QUEUED, 'lost'
    write(key, row)
    redis.call('ZADD', OPEN, text(now + 1 + math.floor(spread * place)), key)
  else
    row.state, row.owner, row.fence, row.attempts = RUNNING, ARGV[1], row.fence + 1, row.attempts + 1
    write(key, row)
    redis.call('ZADD', OPEN, text(now + tonumber(ARGV[2])), key)
    taken[#taken + 1] = {key, row.fence, row.attempts, body}
  end
end
return taken
