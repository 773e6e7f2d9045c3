#!lua flags=no-writes
-- How much there is to do. -> {open, dead, ms for which the longest due one has waited}
-- The clock is the store's, so the wait is counted here.
local first = redis.call('ZRANGE', OPEN, 0, 0, 'WITHSCORES')
local overdue = #first > 0 and math.max(0, now - tonumber(first[2])) or 0
return {redis.call('ZCARD', OPEN), redis.call('ZCARD', GRAVES), overdue}
