-- Lends slices of limits to gateways; leases.py says how, and what each argument is.

-- Days since 1970 at which a day's month begins (H. Hinnant, days_from_civil).
local function month_start(days)
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
    - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local month = math.floor((5 * doy + 2) / 153)
  return days - (doy - math.floor((153 * month + 2) / 5))
end
local function period_of(kind, now)
  local days = math.floor(now / 86400)
  if kind == 'day' then return days * 86400, (days + 1) * 86400 end
  local first = month_start(days)
  return first * 86400, month_start(first + 32) * 86400
end
-- End of the calendar.

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local me = ARGV[1]
local ttl = tonumber(ARGV[2])
local function text(number) return string.format('%.17g', number) end

-- Seconds for which a store that was flushed waits for gateways to tell what they hold.
local PATIENCE = 2.5
-- When the store was filled for the first time, or again; its last key.
local epoch = tonumber(redis.call('GET', KEYS[#KEYS]))
if not epoch then
  epoch = now
  redis.call('SET', KEYS[#KEYS], text(now))
end

local function read(key)
  local flat, record = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do record[flat[i]] = flat[i + 1] end
  return record
end

-- Unspent leases of other gateways, and how many gateways there are; expired ones are dropped.
local function others(key, record)
  local leased, gateways = 0, 1
  for field, value in pairs(record) do
    if string.sub(field, 1, 2) == 'g:' and field ~= 'g:' .. me then
      local entry = cmsgpack.unpack(value)
      if entry[4] <= now then
        redis.call('HDEL', key, field)
      else
        leased = leased + math.max(0, entry[3] - entry[2])
        gateways = gateways + 1
      end
    end
  end
  return leased, gateways
end

local function lend_period(key, kind, limit, sequence, start, life, known, acked, spent, keep,
    wanted, spare, bounded)
  local begun, ends = period_of(kind, now)
  local record = read(key)
  if tonumber(record.start) == ends then
    -- The store's clock went back over the end of a period, which begins no second time.
    begun, ends = period_of(kind, ends)
  end
  if tonumber(record.start) ~= begun then
    redis.call('DEL', key)
    record = {start = text(begun), life = text(now)}
    redis.call('HSET', key, 'start', record.start, 'life', record.life)
    redis.call('EXPIREAT', key, ends + 3600)
  end
  local mine = record['g:' .. me] and cmsgpack.unpack(record['g:' .. me])
  if mine and sequence <= mine[1] then return {} end
  local total = tonumber(record.spent) or 0
  local is_older = (tonumber(life) or 0) > tonumber(record.life)
  if start == begun and (is_older or life == record.life and known > total + 1e-9) then
    -- A sum only grows, and a life only begins later: the store came back from an older snapshot,
    -- which counts as a flush.
    record.life, record.hold = text(now), nil
    redis.call('HDEL', key, 'hold')
    redis.call('HSET', key, 'life', record.life, 'restored', text(total))
    record.restored = text(total)
    redis.call('SET', KEYS[#KEYS], record.life)
    epoch = now
  end
  if start ~= 0 and start ~= begun then
    acked, spent, keep = 0, 0, 0
  elseif start == 0 then
    total = math.max(total, known)
  elseif life ~= record.life then
    local restored = tonumber(record.restored) or 0
    if known > restored then
      total = total + known - restored
      redis.call('HSET', key, 'restored', text(known))
    end
    if not record.hold then
      record.hold = text(now + PATIENCE)
      redis.call('HSET', key, 'hold', record.hold)
    end
  end
  total = total + math.max(0, spent - math.max(mine and mine[2] or 0, acked))
  local leased, gateways = others(key, record)
  local free = limit - total - leased - math.max(0, keep - spent)
  local grant, extra, refused = 0, 0, 0
  -- An entry that was just made may be one that was flushed: others restore it within a second.
  local is_young = now - tonumber(record.life) < 1.2
  local is_needed = tonumber(record.need) and tonumber(record.need) > now
  if wanted > 0 then
    local held = record.hold and tonumber(record.hold) > now
    if now - epoch < PATIENCE and not record.hold then
      -- Others may know what was spent: this caller does not.
      local lent = limit - free
      held = lent > 0 and lent + wanted > limit / 16
    end
    if not held and wanted <= free + 1e-9 then
      grant = math.max(wanted, free / (is_young and 64 or 8))
    elseif not held and bounded == 0 and free > 1e-9 then
      grant = wanted
    else
      refused = 1
      redis.call('HSET', key, 'need', text(now + 3), 'needer', me)
    end
  end
  if spare > 0 and refused == 0 and not is_needed and not is_young then
    extra = math.max(0, math.min(spare, (free - grant) / (gateways + 1)))
  end
  redis.call('HSET', key, 'spent', text(total),
    'g:' .. me, cmsgpack.pack({sequence, spent, keep + grant + extra, now + ttl}))
  return {text(begun), record.life, text(total), text(free - grant - extra), text(grant), gateways,
    is_needed and record.needer ~= me and 1 or 0, text(ends - now), refused, text(extra)}
end

local function lend_flow(key, burst, rate, sequence, keep, wanted, bounded)
  local found = redis.call('HMGET', key, 'level', 'at')
  local level = tonumber(found[1]) or burst
  level = math.min(burst, level + math.max(0, now - (tonumber(found[2]) or now)) * rate)
  local mine = redis.call('GET', key .. ':' .. me)
  if mine then
    mine = cmsgpack.unpack(mine)
    if sequence <= mine[1] then return {} end
    level = math.min(burst, level + mine[2] - keep)
  end
  local grant, wait = 0, 0
  if wanted > 0 then
    if wanted <= level + 1e-9 then
      -- At most a quarter of a second's flow beyond what is wanted, at least a fiftieth.
      grant = math.min(level, math.max(wanted, math.min(level / 8, rate / 4), rate / 50))
    elseif bounded == 0 and level > 1e-9 then
      grant = wanted
    else
      wait = (wanted - level) / rate
    end
  end
  level = level - grant
  -- At least a millisecond: at a drain ttl is 0, and Redis takes no time of 0.
  local idle = math.max(1, math.ceil(((burst - level) / rate + ttl) * 1000))
  redis.call('HSET', key, 'level', text(level), 'at', text(now))
  redis.call('PEXPIRE', key, idle)
  redis.call('SET', key .. ':' .. me, cmsgpack.pack({sequence, keep + grant}), 'PX', idle)
  return {text(grant), text(level), text(wait)}
end

local function lend_slots(key, limit, known, sequence, keep, wanted)
  local record = read(key)
  local mine = record['g:' .. me] and cmsgpack.unpack(record['g:' .. me])
  if mine and sequence <= mine[1] then return {} end
  if not record.life then
    record.life = text(now)
    redis.call('HSET', key, 'life', record.life)
  end
  local leased, gateways = others(key, record)
  local free = limit - leased - keep
  if now - tonumber(record.life) < 1.2 then
    -- An entry that was just made may be one that was flushed: others tell what they hold.
    free = math.min(free, math.max(1, math.floor(limit / math.max(known, gateways))) - keep)
  end
  local is_needed = tonumber(record.need) and tonumber(record.need) > now and record.needer ~= me
  if is_needed then free = math.min(free, math.floor(limit / gateways) - keep) end
  local grant = 0
  if wanted > 0 then
    grant = math.max(0, math.min(free, math.max(wanted, math.floor(free / 8))))
    -- One that has its share does not ask others for theirs.
    if grant < wanted and keep + grant < math.max(1, math.floor(limit / gateways)) then
      redis.call('HSET', key, 'need', text(now + 3), 'needer', me)
    end
  end
  redis.call('HSET', key, 'g:' .. me, cmsgpack.pack({sequence, 0, keep + grant, now + ttl}))
  redis.call('PEXPIRE', key, math.ceil((math.max(ttl, 60) + 10) * 1000))
  return {text(grant), is_needed and 1 or 0, gateways}
end

local replies = {}
for i = 1, #KEYS - 1 do
  local key = KEYS[i]
  local at = 3 + (i - 1) * 12
  local kind, life, a = ARGV[at], ARGV[at + 4], {}
  for j = 1, 11 do a[j] = tonumber(ARGV[at + j]) end
  if kind == 'flow' then
    replies[i] = lend_flow(key, a[1], a[2], a[3], a[5], a[6], a[7])
  elseif kind == 'slots' then
    replies[i] = lend_slots(key, a[1], a[2], a[3], a[5], a[6])
  else
    replies[i] = lend_period(key, kind, a[1], a[2], a[3], life, a[5], a[6], a[7], a[8], a[9],
      a[10], a[11])
  end
end
return replies
