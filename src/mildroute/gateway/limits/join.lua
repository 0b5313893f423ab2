-- Join the epoch of the server; return it with its age in seconds.
-- A new epoch begins when Redis has lost the old one, or when the server has changed, because the
-- new server may lack the latest writes.
-- KEYS: the epoch.
-- ARGV: the run id of the server.
local now = tonumber(redis.call('TIME')[1])
local epoch = redis.call('GET', KEYS[1])
if not epoch or string.match(epoch, '^%S+') ~= ARGV[1] then
  epoch = ARGV[1] .. ' ' .. now
  redis.call('SET', KEYS[1], epoch)
end
return {epoch, now - string.match(epoch, '%d+$')}
