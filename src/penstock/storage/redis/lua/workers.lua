-- workers: a part of the workers that are alive; one may come in two parts
-- flags: no-writes
-- keys: workers
-- args: cursor ('0': from the start)
-- gives: {cursor to go on with ('0' at the end), {id, record, ...}}
-- include: shared
local PART = 500 -- about as many records as one call reads
local gives, page = {}, call('HSCAN', ARGV[2], ARGV[4], 'COUNT', PART)
local all = page[2]
for i = 1, #all, 2 do
  local record = all[i + 1]
  local until_ms = #record >= 12 and unpack_head('>I6', record, 7)
  if until_ms and until_ms > now then
    gives[#gives + 1] = all[i]
    gives[#gives + 1] = record
  end
end
return { page[1], gives }
