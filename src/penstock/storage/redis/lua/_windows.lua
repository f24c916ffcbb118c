-- Windows: ids that are taken for a time from the acceptance of their jobs.

-- A script that needs these helpers builds them, in one table, with the first call.
local built_windows
local function windows()
  if built_windows then return built_windows end
  local W = {}

  -- When the window of an id ends, or nil if none is open.
  function W.end_of(q, id)
    local ends = to_number(call('ZSCORE', q.windows, id) or 0)
    return ends > now and ends or nil
  end

  -- Take the id of a job for its window, from its acceptance or its due time on.
  function W.take(q, id, j)
    if j.window then call('ZADD', q.windows, math.max(j.created, j.due) + j.window, id) end
  end

  -- Free the id of a job that has not completed; the window in which it was put goes on.
  function W.free(q, id, j)
    if not j or not j.window then return end
    if j.earliest > now then
      call('ZADD', q.windows, j.earliest, id)
    else
      call('ZREM', q.windows, id)
    end
  end

  -- Put a new job, or a successor that is released, into the window of its id: it is not due before that ends, at `ends`, if
  -- it is open. Then take its own.
  function W.enter(q, id, j, ends)
    if not j.window then return end
    if ends then
      j.earliest = ends
      if j.due < ends then j.due, j.time = ends, ends end
    end
    W.take(q, id, j)
  end

  -- The answer to a put of an id that an open window holds until `ends`, or nil.
  function W.refuse(e, ends)
    return ends and not e.update and { 'duplicate', 'completed', false, ends } or nil
  end

  built_windows = W
  return W
end
