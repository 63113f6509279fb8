-- Which GPU of a node: share.placement = "aliquot", on Slurm before 23.11.5, which takes the first
-- that has room. There each GPU is a gres type of its own (h200.0 to h200.3), and a job that can
-- begin at once names the one that is least held. `site.nodes` has the nodes with such types. The
-- second part of what is embedded.
--
-- A type cannot be taken back while a job waits: Slurm 22.05 dies of it. So whoever has to wait
-- anyway names none, and gets whichever GPU has room first: order, priorities and backfill are
-- Slurm's. Several whole GPUs name theirs in any case.

local no_value = slurm.NO_VAL or 0xfffffffe
local pending, running, suspended = 0, 1, 2 -- Slurm's states of a job
local queue_grace = 3 -- seconds in which a job that can begin has begun

-- What a list of nodes may become, in characters of names: users write such lists, and slurmctld
-- does nothing else meanwhile.
local most_expanded = 2 ^ 20
local longest_number = 18

-- One piece of a list of nodes, `n[1-3,7]x[0-1]`: into `found`. What is left of so many characters;
-- nil: they are not enough.
local function expand_piece(piece, found, left)
  left = left - #piece
  if left < 0 then return nil end
  local before, list, after = piece:match("^([^%[]*)%[([%d,%-]+)%](.*)$")
  if not before then
    found[#found + 1] = piece
    return left
  end
  for _, part in ipairs(split(list, ",")) do
    local first, last = part:match("^(%d+)%-?(%d*)$")
    if first and math.max(#first, #last) > longest_number then return nil end
    for number = tonumber(first or 1), tonumber(last ~= "" and last or first or 0) do
      local name = ("%s%0" .. #first .. ".0f%s"):format(before, number, after)
      left = expand_piece(name, found, left)
      if not left then return nil end
    end
  end
  return left
end

-- `n1`, `n[1-3,7]`, `r[1-2]n[1-4],m1`; nil where these are too many.
local function expand_nodes(names)
  local found, left = {}, most_expanded
  if #names > left then return nil end
  local outside = names:gsub("%[[^%[%]]*%]", function(list) return (list:gsub(",", ";")) end)
  for _, piece in ipairs(split(outside, ",")) do
    if piece ~= "" then left = expand_piece((piece:gsub(";", ",")), found, left) end
    if not left then return nil end
  end
  return found
end

-- Those that a user names by an option.
local function nodes_of_user(option, names)
  return expand_nodes(names)
    or refuse("%s=%s stands for far too many nodes: name fewer", option, quote(names))
end

-- 'shard:h200.0:24,shard:h200.1:0' by type.
local function shards_by_type(gres)
  local types = {}
  for name, count in (gres or ""):gmatch("shard:([^:,]+):(%d+)") do
    types[name] = (types[name] or 0) + tonumber(count)
  end
  return types
end

-- Whether it is shards of whichever GPU has room first.
local function names_none(gres) return ((gres or "") .. ","):find("shard:%d+,") ~= nil end

-- What was named since slurmctld last made its list of jobs, by type. It makes a new one only when
-- something has changed in a later second than the list's: of a burst, and of what it left running,
-- the old list tells nothing, for as long as nothing else happens.
local latest = { list = nil, named = {}, unnamed = false }
local function unseen()
  if latest.list ~= slurm.jobs then latest = { list = slurm.jobs, named = {}, unnamed = false } end
  return latest
end
local function remember(gres)
  local named = unseen().named
  for name, count in pairs(shards_by_type(gres)) do named[name] = (named[name] or 0) + count end
  latest.unnamed = latest.unnamed or names_none(gres)
end

local function set_of(list)
  local set = {}
  for _, each in ipairs(list) do set[each] = true end
  return set
end

-- Which nodes the job can get, of what a script is shown: -w, -x, and who has reserved them now.
local function within_reach(desc)
  local only = desc.req_nodes and set_of(nodes_of_user("--nodelist", desc.req_nodes))
  local never = set_of(nodes_of_user("--exclude", desc.exc_nodes or ""))
  local own, inside, now = set_of(split(desc.reservation or "", ",")), nil, os.time()
  for name, reservation in pairs(slurm.reservations or {}) do
    local begun = (reservation.start_time or 0) <= now and now < (reservation.end_time or 0)
    for _, node in ipairs(expand_nodes(reservation.node_list or "") or {}) do
      if own[name] then
        inside = inside or {}
        inside[node] = true
      elseif begun and not desc.reservation then
        never[node] = true
      end
    end
  end
  return function(node)
    return not never[node] and (not only or only[node]) and (not inside or inside[node])
  end
end

-- What jobs hold of each GPU, by node and type, and what waiting ones have named, by type.
local function look_at_jobs()
  local held, named = {}, {}
  for _, job in pairs(slurm.jobs or {}) do
    local state = type(job.job_state) == "number" and math.fmod(job.job_state, 256)
    if state == pending then
      for name, count in pairs(shards_by_type(job.tres_per_node)) do
        named[name] = (named[name] or 0) + count
      end
    elseif state == running or state == suspended then
      local nodes = expand_nodes(job.nodes or "") or {}
      for name, count in pairs(shards_by_type(job.gres_used)) do
        for _, node in ipairs(nodes) do
          held[node] = held[node] or {}
          held[node][name] = (held[node][name] or 0) + count / #nodes
        end
      end
    end
  end
  for name, count in pairs(unseen().named) do named[name] = (named[name] or 0) + count end
  return held, named
end

-- The GPUs of these models that the job can get in the partitions: { type, model, total: held and named everywhere,
-- free: on all nodes together, less what is named, most_free: on the node that has most of it },
-- and by node those that nobody holds.
local function look_at_gpus(desc, partitions, models)
  local held, named = look_at_jobs()
  local reach = within_reach(desc)
  local wanted, gpus, order, free = {}, {}, {}, {}
  for _, model in ipairs(models) do wanted[model.name] = model end
  for _, partition in ipairs(split(partitions, ",")) do
    for _, node in ipairs(site.partition_nodes[partition] or {}) do
      for _, group in ipairs((free[node] or not reach(node)) and {} or site.nodes[node]) do
        local model = wanted[group.model]
        for i = 0, model and group.count - 1 or -1 do
          local name = group.model .. "." .. i
          local gpu = gpus[name]
          if not gpu then
            local promised = named[name] or 0
            gpu = { type = name, model = model, total = promised, free = -promised, most_free = 0 }
            gpus[name], order[#order + 1] = gpu, gpu
          end
          local used = (held[node] or {})[name] or 0
          gpu.total = gpu.total + used
          gpu.free = gpu.free + model.shards - used
          gpu.most_free = math.max(gpu.most_free, model.shards - used)
          free[node] = free[node] or {}
          gpu.named = named[name] ~= nil
          if used == 0 then
            free[node][group.model] = free[node][group.model] or {}
            table.insert(free[node][group.model], gpu)
          end
        end
      end
    end
  end
  return order, free
end

local function least_held(gpus)
  local best
  for _, gpu in ipairs(gpus) do
    if not best or gpu.total < best.total then best = gpu end
  end
  return best
end

-- Whether a job like this begins as soon as there is room: nothing else keeps it waiting, and nobody
-- is about to take a GPU that he did not name. Which nodes have a feature no script is shown.
local function begins_at_once(desc, partitions)
  local later = type(desc.begin_time) == "number" and desc.begin_time > os.time()
  if desc.array_inx or desc.dependency or desc.priority == 0 or later then return false end
  if desc.features or #nodes_of_user("--nodelist", desc.req_nodes or "") > 1 then return false end
  if (tonumber(desc.min_nodes) or 1) > 1 and desc.min_nodes < no_value then return false end
  if unseen().unnamed then return false end
  local here = set_of(split(partitions, ","))
  for _, job in pairs(slurm.jobs or {}) do
    local waits = type(job.job_state) == "number" and math.fmod(job.job_state, 256) == pending
    local long = os.time() - (job.submit_time or 0) > queue_grace
    if waits and (job.priority or 0) > 0 and (long or names_none(job.tres_per_node)) then
      for _, name in ipairs(split(job.partition or "", ",")) do
        if here[name] then return false end
      end
    end
  end
  return true
end

-- A share of so many shards on the least held GPU that has room. `must`: whoever asks by model
-- names a GPU in any case, as the models are no types here.
local function place_share(desc, partitions, models, shards, must)
  if not must and not begins_at_once(desc, partitions) then return nil end
  local gpus, roomy = look_at_gpus(desc, partitions, models), {}
  for _, gpu in ipairs(gpus) do
    if gpu.most_free >= shards and gpu.free >= shards then roomy[#roomy + 1] = gpu end
  end
  local best = least_held(#roomy > 0 and roomy or must and gpus or {})
  return best and ("shard:%s:%s"):format(best.type, plain(shards))
end

-- The fewest GPUs of one node that nobody holds and that are enough.
local function free_together(free, count, even_named)
  local chosen
  for _, by_model in pairs(free) do
    for _, all in pairs(by_model) do
      local list = {}
      for _, gpu in ipairs(all) do
        if even_named or not gpu.named then list[#list + 1] = gpu end
      end
      if #list >= count and (not chosen or #list < #chosen) then chosen = list end
    end
  end
  return chosen
end

-- So many whole GPUs of one model: free ones of one node, or else those that are least held. What
-- was named a moment ago may be over already.
local function place_whole(desc, partitions, models, count)
  local gpus, free = look_at_gpus(desc, partitions, models)
  local chosen = free_together(free, count, false) or free_together(free, count, true)
  if not chosen then
    local by_model = {}
    for _, gpu in ipairs(gpus) do
      by_model[gpu.model.name] = by_model[gpu.model.name] or {}
      table.insert(by_model[gpu.model.name], gpu)
    end
    for _, model in ipairs(models) do
      local list = by_model[model.name] or {}
      if #list >= count and not chosen then chosen = list end
    end
  end
  if not chosen then return nil end
  table.sort(chosen, function(a, b)
    return a.total ~= b.total and a.total < b.total or a.total == b.total and a.type < b.type
  end)
  local entries = {}
  for i = 1, count do
    entries[i] = ("shard:%s:%s"):format(chosen[i].type, plain(chosen[i].model.shards))
  end
  table.sort(entries)
  return table.concat(entries, ",")
end
