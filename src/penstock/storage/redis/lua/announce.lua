-- announce: publish events, if there is a listener
-- flags: allow-oom
-- keys:
-- args: event records..., each without its time
-- gives: 1
-- include: shared
if event_channel then
  for i = 4, #ARGV do publish_event(pack('>I6', now) .. ARGV[i]) end
end
return 1
