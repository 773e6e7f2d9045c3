#!lua flags=no-writes
-- What is known of a delivery. ARGV: key, fingerprint. -> {'absent'} | {'known', state} | {'conflict'}
-- Only reads, but row and expiry must be of one moment: between two commands the row could be replaced.
local row = read(ARGV[1])
if not row then return {'absent'} end
if row.fingerprint ~= ARGV[2] then return {'conflict'} end
return {'known', row.state}
