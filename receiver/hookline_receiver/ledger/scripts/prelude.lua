-- Put before each script. KEYS: rows (hash: entry key -> packed row), expiry (zset: entry key by last moment, ms).
-- A row packs into 63 bytes, so that a million of them fit into about 300 MB: state, fence, status, end of the lease
-- in ms, owner (16 bytes), fingerprint (32 bytes).
local FORMAT = '>BI4Hdc16c32'
local CLAIMED, RELEASED, DONE = 1, 2, 3

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function read(key)
  local expires = redis.call('ZSCORE', KEYS[2], key)
  if not expires or tonumber(expires) <= now then return nil end
  local packed = redis.call('HGET', KEYS[1], key)
  if not packed then return nil end
  local state, fence, status, lease_ends, owner, fingerprint = struct.unpack(FORMAT, packed)
  return {state = state, fence = fence, status = status, lease_ends = lease_ends, owner = owner,
          fingerprint = fingerprint}
end

local function write(key, row, retention_ms)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + retention_ms), key)
  redis.call('HSET', KEYS[1], key,
             struct.pack(FORMAT, row.state, row.fence, row.status, row.lease_ends, row.owner, row.fingerprint))
end
