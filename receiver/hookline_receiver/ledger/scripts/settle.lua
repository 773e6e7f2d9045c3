#!lua flags=allow-oom
-- Renew, complete or release a claim. ARGV: key, owner, fence, step, retention ms, lease ms or status. -> 1 | 0 (lost)
-- As two commands, a late owner could pass the check, lose the claim, and then overwrite its successor's row.
-- With allow-oom: the effect exists, so a full server must still let it be recorded; the row is rewritten in place.
local row = read(ARGV[1])
if not row or row.owner ~= ARGV[2] or row.fence ~= tonumber(ARGV[3]) then return 0 end
local step = ARGV[4]
local goal = ({renew = CLAIMED, complete = DONE, release = RELEASED})[step]
if row.state ~= CLAIMED then return row.state == goal and 1 or 0 end
row.state = goal
local keep = tonumber(ARGV[5])
if step == 'renew' then
  row.lease_ends = now + tonumber(ARGV[6])
  keep = math.max(keep, tonumber(ARGV[6]))
end
if step == 'complete' then row.status = tonumber(ARGV[6]) end
write(ARGV[1], row, keep)
return 1
