-- Returns how many records were due to be freed. ARGV: limit.
local now = clock()
local purged = purge(tonumber(ARGV[1]), now)
flush_counts()
return purged
