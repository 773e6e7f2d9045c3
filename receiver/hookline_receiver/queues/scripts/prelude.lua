-- Put before each script. KEYS of one receiver: rows (hash: key -> packed row), bodies (hash: key -> packed delivery),
-- open (zset: key by the moment it is due, or its lease ends), dead (zset: key by its death), ended (zset: key by the
-- moment a done or dead row is dropped). Moments are Unix ms.
-- A row packs into 74 bytes and its reason: state, attempts, fence, accepted, changed, owner, fingerprint, reason.
local FORMAT = '>BI4I4ddc16c32s'
local QUEUED, RUNNING, DONE, DEAD = 1, 2, 3, 4
local ROWS, BODIES, OPEN, GRAVES, ENDED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function text(number) return string.format('%.0f', number) end

local function read(key)
  local packed = redis.call('HGET', ROWS, key)
  if not packed then return nil end
  local row = {}
  row.state, row.attempts, row.fence, row.accepted, row.changed, row.owner, row.fingerprint, row.reason =
    struct.unpack(FORMAT, packed)
  if row.state == DONE or row.state == DEAD then
    local ends = redis.call('ZSCORE', ENDED, key)
    if not ends or tonumber(ends) <= now then return nil end
  end
  return row
end

local function write(key, row)
  row.changed = now
  redis.call('HSET', ROWS, key, struct.pack(FORMAT, row.state, row.attempts, row.fence, row.accepted, row.changed,
                                            row.owner, row.fingerprint, row.reason))
end

local function purge(most)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', ENDED, '-inf', text(now), 'LIMIT', 0, most)) do
    redis.call('HDEL', ROWS, old)
    redis.call('HDEL', BODIES, old)
    redis.call('ZREM', GRAVES, old)
    redis.call('ZREM', ENDED, old)
  end
end

local function told(key, row)
  local due = redis.call('ZSCORE', OPEN, key) or ''
  return {key, row.state, row.attempts, row.reason, text(row.accepted), text(row.changed), due,
          redis.call('HGET', BODIES, key) or ''}
end
