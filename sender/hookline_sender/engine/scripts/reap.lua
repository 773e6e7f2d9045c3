-- Returns how many lapsed leases were taken back. ARGV: limit.
local now = clock()
local reaped = reap(tonumber(ARGV[1]), now)
revisit(now)
flush_ended(function() return now end)
flush_counts()
return reaped
