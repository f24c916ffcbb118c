-- announce: add lines to the event feed, if anybody reads it
-- keys:
-- args: notes..., each without its time
-- gives: 1
-- include: shared
if ears then
  for i = 4, #ARGV do call('PUBLISH', ears, pack('>I6', now) .. ARGV[i]) end
end
return 1
