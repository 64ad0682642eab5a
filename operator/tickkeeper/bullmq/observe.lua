--[[
  Reads many schedulers of one queue in one atomic look and returns only those that are not plainly healthy.
  Read-only: runs as EVALSHA_RO. Key names are BullMQ's (bullmq 3.4.4, addJobScheduler-11.lua, moveToActive-11.lua).

  KEYS  1 repeat  2 delayed  3 prioritized  4 wait  5 paused  6 active  7 meta  8 completed  9 failed  10 limiter
        11 marker  12 stalled  13 events  14 id, which only their types are asked of
  ARGV  1 the queue's base key, ending in ':'   2 lateness in ms that is still plainly healthy
        3 slack in ms
        4 the schedulers, as one JSON text (a client takes its time over 1,200 arguments), six values each:
          id, digest of its hash when last verified ('' returns it whatever it looks like), every (0 for cron),
          offset (for cron: its next fire), latest sane due time (0 for every: now + every + slack),
          1 to hear of its due time though it is healthy

  Returns { now, queue facts { paused, concurrency, active count, limited, maxLenEvents },
            { entry … } } with entry = { position (from 1), score, hash fields or false, digest, where its next job is,
            1 when that job's hash is whole, leftover job id, key of a wrong type }; false stands for nothing, and of
            a hash that is as it was when last verified only { ic } is told;
            { position, score, ic } for a healthy one that was asked for;
            { position, leftover job id } for one that is gone whole: after a FLUSHALL that is each of them.
]]
local base, calm, slack = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- Longest stretch of a list that is read: LPOS of 500 ids in 100,000 entries took 1.8 s (measured).
local READ = 1000
local FIELDS = { 'name', 'every', 'offset', 'pattern', 'tz', 'limit', 'startDate', 'endDate', 'data', 'opts', 'ic' }

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- A key of another type must be reported, not raised: it is one scheduler's (or one queue's) fault, not all of theirs.
local wrong = false
local function call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    if string.find(reply.err, 'WRONGTYPE', 1, true) then
      wrong = key
      return false
    end
    error(reply.err, 0)
  end
  return reply
end

local TYPES = {
  'zset', 'zset', 'zset', 'list', 'list', 'list', 'hash', 'zset', 'zset', 'string', 'zset', 'set', 'stream', 'string'
}
local shared_wrong = false
for i, want in ipairs(TYPES) do
  local found = redis.call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= want then
    shared_wrong = KEYS[i]
    break
  end
end

local facts = { false, false, 0, false, false }
if not shared_wrong then
  local meta = redis.call('HMGET', KEYS[7], 'paused', 'concurrency', 'opts.maxLenEvents', 'max')
  local used = tonumber(redis.call('GET', KEYS[10]) or '0') or 0
  local limited = used >= (tonumber(meta[4]) or 2 ^ 53 - 1) and redis.call('PTTL', KEYS[10]) > 0
  facts = { meta[1], meta[2], redis.call('LLEN', KEYS[6]), limited and 1 or false, meta[3] }
end

local lists, cut = nil, false
local function in_lists(id)
  if not lists then
    lists = {}
    for i, name in ipairs({ 'wait', 'paused', 'active' }) do
      local key = KEYS[3 + i]
      -- BullMQ pushes on the left and takes from the right: what waits longest is at the end.
      for _, member in ipairs(redis.call('LRANGE', key, -READ, -1)) do
        lists[member] = name
      end
      if redis.call('LLEN', key) > READ then cut = true end
    end
  end
  return lists[id]
end

-- Most queues have none: asking each schedule's job there would be a fifth of what 200 overdue ones cost.
local prioritizes = not shared_wrong and redis.call('EXISTS', KEYS[3]) == 1

local function where(id, due, whole)
  if redis.call('ZSCORE', KEYS[2], id) then return 'delayed' end
  if prioritizes and redis.call('ZSCORE', KEYS[3], id) then return 'prioritized' end
  local list = in_lists(id)
  if list == 'active' and redis.call('EXISTS', base .. id .. ':lock') == 0 then return 'active-unlocked' end
  if list then return list end
  if redis.call('ZSCORE', KEYS[8], id) or redis.call('ZSCORE', KEYS[9], id) then return 'finished' end
  -- Beyond what is read may only be what is due and has its data: anything else would not be in a list.
  return cut and due <= now and whole and 'backlog' or 'nowhere'
end

-- The tick that still waits for a scheduler whose entry is gone: it has the slot of the hash, whoever wrote that.
local function waiting_by(fields, id)
  local every, offset = tonumber(fields[2]), tonumber(fields[3] or '0')
  if not (every and offset and every >= 1 and every < 2 ^ 53 and offset >= 0 and offset < 2 ^ 53) then return false end
  local last = math.floor(now / every) * every + offset % every
  if last > now then last = last - every end
  for _, due in ipairs({ last + every, last }) do
    local job = 'repeat:' .. id .. ':' .. string.format('%.0f', due)
    local at = redis.call('EXISTS', base .. job) == 1 and where(job, due, true)
    if at == 'delayed' or at == 'prioritized' or at == 'wait' or at == 'paused' then return job end
  end
  return false
end

local function digest_of(fields, is_cron)
  local parts = {}
  for i = 1, 10 do
    local value = fields[i]
    if is_cron and i == 3 then value = false end -- BullMQ's own offset beside a pattern means nothing
    parts[i] = value and (#value .. ':' .. value) or '-'
  end
  return redis.sha1hex(table.concat(parts, ','))
end

local HEALTHY_AT = { delayed = true, prioritized = true, wait = true, paused = true, active = true }
local found = {}
for position, wanted in ipairs(cjson.decode(ARGV[4])) do
  local id, verified, every, offset, latest, asked = unpack(wanted)
  wrong = shared_wrong
  local score, fields, digest, place, whole, leftover = false, false, false, 'nowhere', false, false
  local slot = offset
  if every > 0 then
    slot = math.floor(now / every) * every + offset
    if slot <= now then slot = slot + every end
    latest = now + every + slack
  end
  if not wrong then
    score = redis.call('ZSCORE', KEYS[1], id)
    local hash_key = KEYS[1] .. ':' .. id
    fields = call('HMGET', hash_key, unpack(FIELDS))
    if fields then
      if fields[1] or fields[11] or redis.call('EXISTS', hash_key) == 1 then
        digest = digest_of(fields, every == 0)
      else
        fields = false
      end
    end
    if score then
      local job = 'repeat:' .. id .. ':' .. score
      whole = call('HEXISTS', base .. job, 'rjk') == 1
      place = where(job, tonumber(score), whole)
    end
    local next_job = 'repeat:' .. id .. ':' .. string.format('%.0f', slot)
    if tonumber(score) ~= slot and redis.call('EXISTS', base .. next_job) == 1 then leftover = next_job end
    if not score and not leftover and fields then leftover = waiting_by(fields, id) end
  end
  local due = tonumber(score)
  local healthy = not wrong and due and digest and digest == verified and due <= latest and now - due <= calm
    and HEALTHY_AT[place] and whole and (every == 0 or (due - offset) % every == 0)
  if healthy then
    if asked == 1 then found[#found + 1] = { position, score, fields[11] } end
  elseif not (wrong or score or fields) then
    found[#found + 1] = { position, leftover }
  else
    if digest and digest == verified then fields = { fields[11] } end
    found[#found + 1] = { position, score, fields, digest, place, whole and 1 or 0, leftover, wrong }
  end
end
return { now, facts, found }
