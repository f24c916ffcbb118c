-- A call that must take effect once, though its client sends it again when the answer does not come, so that it may
-- arrive twice, with anything between. ARGV 4 is the name of the request, 5 the time (ms) in which it may arrive again.
-- Its answer is kept for that time: a request that arrives again gets it, and changes nothing. Without an answer (nil)
-- nothing is kept: the client makes another request.
local function once(answer_of)
  local key = ARGV[2] .. 'requests:' .. ARGV[4]
  local before = call('GET', key)
  local read, kept = pcall(cmsgpack.unpack, before or '')
  if read and type(kept) == 'table' and #kept == 1 then return kept[1] end -- else there is none, or a damaged one
  local answer = answer_of()
  if answer == nil then return nil end
  call('SET', key, cmsgpack.pack({ answer }), 'PX', ARGV[5])
  return answer
end
