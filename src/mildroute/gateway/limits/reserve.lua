-- Count a gateway's spending under one key, then try to reserve the maximum cost of a request.
-- KEYS: the epoch, the rate of the key, the dollars of the key.
-- ARGV: the epoch that the gateway joined, the gateway's name and its report (JSON). For a request,
-- these follow: its id, dollars, whether they are bounded, the daily limit or -1, requests,
-- requests per second or -1, burst, and the time after which the gateway no longer waits.
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1e6
local day = math.floor(now / 86400)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'unknown'} end
if redis.call('HGET', KEYS[3], 'day') ~= tostring(day) then
  redis.call('DEL', KEYS[3])
  redis.call('HSET', KEYS[3], 'day', day)
  redis.call('EXPIRE', KEYS[3], 172800)
end
local function add(field, amount)
  return tonumber(redis.call('HINCRBYFLOAT', KEYS[3], field, amount))
end
local report = cjson.decode(ARGV[3])
for _, id in ipairs(report.closed) do
  local dollars = redis.call('HGET', KEYS[3], 'open:' .. id)
  if dollars then
    redis.call('HDEL', KEYS[3], 'open:' .. id)
    add('held', -dollars)
  end
end
if report.day == day then
  -- Reports contain totals and not differences, so that a report that arrives twice counts once.
  local more = report.spent - (tonumber(redis.call('HGET', KEYS[3], 'by:' .. ARGV[2])) or 0)
  if more > 0 then add('spent', more) add('by:' .. ARGV[2], more) end
end
for id, dollars in pairs(report.open) do
  if redis.call('HSETNX', KEYS[3], 'open:' .. id, dollars) == 1 then add('held', dollars) end
end
local spent, held = add('spent', 0), add('held', 0)
local function reply(verdict, wait)
  local numbers = {now, spent, held, wait or 0}
  for i, number in ipairs(numbers) do numbers[i] = string.format('%.17g', number) end
  return {verdict, unpack(numbers)}
end
if ARGV[4] == nil then return reply('reported') end
local dollars, limit = tonumber(ARGV[5]), tonumber(ARGV[7])
local requests, rate, burst = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
if now > tonumber(ARGV[11]) then return reply('late') end
local level = burst
if rate > 0 then
  local bucket = redis.call('HMGET', KEYS[2], 'level', 'at')
  local since = math.max(0, now - (tonumber(bucket[2]) or now))
  level = math.min(burst, (tonumber(bucket[1]) or burst) + since * rate)
  if level + rate * 1e-6 < requests then return reply('rate', (requests - level) / rate) end
end
if limit >= 0 then
  local free = limit - spent - held
  if free <= 1e-9 or (ARGV[6] == '1' and dollars > free + 1e-9) then return reply('dollars') end
  redis.call('HSET', KEYS[3], 'open:' .. ARGV[4], dollars)
  held = add('held', dollars)
end
if rate > 0 then
  redis.call('HSET', KEYS[2], 'level', level - requests, 'at', string.format('%.17g', now))
  redis.call('EXPIRE', KEYS[2], 3600)
end
return reply('admitted')
