#!lua flags=no-writes
-- How a delivery ended. ARGV: key, fingerprint. -> {'absent'} | {'conflict'} | {'done', status}
-- Only reads, but row and expiry must be of one moment: between two commands the row could be replaced.
local row = read(ARGV[1])
if not row then return {'absent'} end
if row.fingerprint ~= ARGV[2] then return {'conflict'} end
if row.state == DONE then return {'done', row.status} end
return {'absent'}
