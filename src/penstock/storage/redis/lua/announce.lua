-- announce: publish events, if there is a listener
-- flags: allow-oom
-- keys:
-- args: name, queue, id, attempt, then '' or '=' and the worker, result and error, for each event
-- gives: 1
if listened then
  local function given(text) return text ~= '' and sub(text, 2) or nil end
  for i = 4, #ARGV, 7 do
    local to = wanted(ARGV[i], ARGV[i + 1])
    if to then
      add_event(to, ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), given(ARGV[i + 4]), given(ARGV[i + 5]),
        given(ARGV[i + 6]))
    end
  end
end
return 1
