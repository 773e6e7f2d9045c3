#!lua flags=no-writes
-- A delivery as it stands. ARGV: key. -> {} | {key, state, attempts, reason, accepted, changed, due or '', body or ''}
-- Only reads, but all of one moment.
local row = read(ARGV[1])
return row and told(ARGV[1], row) or {}
