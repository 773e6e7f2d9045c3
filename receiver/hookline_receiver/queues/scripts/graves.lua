#!lua flags=no-writes
-- Dead letters in the order of their deaths. ARGV: moment of death and key to begin behind, most to tell. -> as look
-- Only reads, but row and place must be of one moment: between two commands one could be redriven.
local found, offset, from = {}, 0, tonumber(ARGV[1])
while #found < tonumber(ARGV[3]) do
  local keys = redis.call('ZRANGEBYSCORE', GRAVES, text(from), '+inf', 'WITHSCORES', 'LIMIT', offset, 100)
  if #keys == 0 then break end
  for i = 1, #keys, 2 do
    local row = (tonumber(keys[i + 1]) > from or keys[i] > ARGV[2]) and read(keys[i])
    if row and #found < tonumber(ARGV[3]) then found[#found + 1] = told(keys[i], row) end
  end
  offset = offset + 100
end
return found
