-- Prepended to every script. KEYS[1] is the namespace's meta key; all other keys share its prefix and hash tag.
local call = redis.call
local prefix = string.sub(KEYS[1], 1, -5)
local ACCEPTED, WAITING, RUNNING, COMPLETED, FAILED, CANCELLED = 0, 1, 2, 3, 4, 5
local WORDS = { [0] = 'accepted', 'waiting', 'running', 'completed', 'failed', 'cancelled' }
local NO_TOKEN = string.rep('\0', 16)
-- Bits of a record's flags. STREAK counts leases that lapsed in a row (0 to 3); for the last two see ordering.lua.
local F_ORDERED, F_CANCEL, F_QUEUED, F_STREAK, F_HISTORY, F_AGGREGATE, F_HOLDS = 1, 2, 4, 8, 32, 64, 128
-- A record is 43 bytes. Over 64 a value would turn its whole hash from a listpack into a hashtable.
local RECORD = '>BBBI4BI2I4BI6I6c16'
-- A publication's head: digest, created, tasks, revision, producer, aggregate, event index, nonce of the call.
local HEAD = '>c16I6Bc8c8c8I2c8'

local function key(name) return prefix .. name end

-- The namespace's time in milliseconds, and by how much it is ahead of Redis' own: while tasks are leased turns note the
-- time, and when Redis' clock is set back behind that, everything here goes on from where it was. See timing.lua.
-- The offset exists for tests of time and is never set by hookline itself.
local function clock()
  local t = call('TIME')
  local m = call('HMGET', KEYS[1], 'shift', 'now', 'beat', 'debug_offset_ms')
  local shift = tonumber(m[1]) or 0
  local now = t[1] * 1000 + math.floor(t[2] / 1000) + (tonumber(m[4]) or 0) + shift
  local seen = tonumber(m[2])
  if seen and now < seen - (tonumber(m[3]) or 0) then return seen, shift + seen - now end
  return now, shift
end

local function has(flags, flag) return math.floor(flags / flag) % 2 == 1 end
local function with(flags, flag) if has(flags, flag) then return flags end return flags + flag end
local function without(flags, flag) if has(flags, flag) then return flags - flag end return flags end
local function streak(flags) return math.floor(flags / F_STREAK) % 4 end
local function with_streak(flags, n) return flags + (math.min(n, 3) - streak(flags)) * F_STREAK end

local function unpack_record(raw)
  local r = {}
  r.state, r.flags, r.attempts, r.fence, r.code, r.status, r.duration, r.releases, r.due, r.deadline, r.token =
    struct.unpack(RECORD, raw)
  return r
end

local function pack_record(r)
  return struct.pack(RECORD, r.state, r.flags, r.attempts, r.fence, r.code, r.status, r.duration, r.releases,
    r.due, r.deadline, r.token)
end

local function hex(raw)
  return (string.gsub(raw, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

local function bytes(text)
  return (string.gsub(text, '..', function(c) return string.char(tonumber(c, 16)) end))
end

-- The plan check of publish and turn: nothing runs in a namespace that was never bound, or was emptied.
local function accepted_plan(fingerprint, now)
  local until_ms = call('HGET', KEYS[1], 'fp:' .. fingerprint)
  return until_ms and (until_ms == '0' or tonumber(until_ms) > now)
end

-- Counters are collected and written once, so that a batch costs one command in the AOF.
local deltas = {}
local function count(name, by) deltas[name] = (deltas[name] or 0) + by end
local function flush_counts()
  local names, write = {}, {}
  for name, by in pairs(deltas) do if by ~= 0 then names[#names + 1] = name end end
  if #names == 0 then return end
  local old = call('HMGET', key('cnt'), unpack(names))
  for i, name in ipairs(names) do
    write[#write + 1] = name
    write[#write + 1] = string.format('%.0f', (tonumber(old[i]) or 0) + deltas[name])
  end
  call('HSET', key('cnt'), unpack(write))
  deltas = {}
end
