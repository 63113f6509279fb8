-- What slurmctld runs for every job: a request for GPUs becomes a booking in shards, or a refusal in
-- a sentence. The table `site` (slurm/site_table.hpp), request.lua and placement.lua stand in front
-- of this text.

-- Not in the table before 23.02, or never.
local invalid_gres = slurm.ESLURM_INVALID_GRES or 2072
local no_such_node = slurm.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE or 2014
local no_value16 = slurm.NO_VAL16 or 0xfffe

-- The booking ------------------------------------------------------------------------------------

-- What shares are counted in there; of several partitions, what promises least of a GPU.
local function units_in(partitions)
  local units
  for _, name in ipairs(split(partitions, ",")) do
    local own = site.units[name] or site
    units = {
      overcommit = math.min(own.overcommit, units and units.overcommit or huge),
      mps_per_gpu = math.max(own.mps_per_gpu, units and units.mps_per_gpu or 0),
      shards_per_gpu = math.max(own.shards_per_gpu, units and units.shards_per_gpu or 0),
    }
  end
  return units
end

-- The shards that a share takes of a GPU; nil where it is more than that GPU.
local function shards_for(request, gpu, units)
  local least = ceil_div(gpu.shards, units.overcommit) -- one part in 10,000 of compute
  if request.tickets then
    local per_gpu = request.tickets.kind == "mps" and units.mps_per_gpu or units.shards_per_gpu
    if request.tickets.count > per_gpu then return nil end
    return math.max(ceil_div(gpu.shards * request.tickets.count, per_gpu), least)
  end
  if not request.memory then return ceil_div(gpu.shards * request.compute, 10000) end
  if request.memory > gpu.memory then return nil end
  local compute = request.compute and ceil_div(gpu.shards * request.compute, units.overcommit)
  return math.max(math.min(ceil_div(request.memory, gpu.shard), gpu.shards), compute or least)
end

-- The models of these partitions; those of the whole cluster where one is not in the table.
local function models_of(partitions)
  local models, seen = {}, {}
  for _, name in ipairs(split(partitions, ",")) do
    for _, model in ipairs(site.partitions[name] or site.all_models) do
      if not seen[model] then models[#models + 1] = site.models[model] end
      seen[model] = true
    end
  end
  return models
end

-- Whether the set has all of these.
local function all_in(set, partitions)
  for _, name in ipairs(split(partitions, ",")) do
    if not set[name] then return false end
  end
  return true
end

-- Whether a whole GPU could get into the company of shares there, and is booked as shards itself.
local function whole_as_shards(partitions)
  return site.whole_as_shards and not all_in(site.unshared, partitions)
end

local function names_of(models)
  local names = {}
  for _, gpu in ipairs(models) do names[#names + 1] = gpu.name end
  return table.concat(names, ", ")
end

local function candidates(request, partition)
  local here, wanted = models_of(partition), {}
  if #here == 0 then
    local others = {}
    for name, models in pairs(site.partitions) do
      if #models > 0 then others[#others + 1] = name end
    end
    table.sort(others)
    refuse("the partition %s has no GPU: write --partition with one of %s", quote(partition),
      table.concat(others, ", "))
  end
  for _, gpu in ipairs(here) do
    if not request.model or gpu.name:lower() == request.model then wanted[#wanted + 1] = gpu end
  end
  if #wanted == 0 then
    refuse("there is no GPU of model %s in the partition %s: write one of %s",
      quote(request.model), quote(partition), names_of(here))
  end
  return wanted
end

local function gres_of(gpu, shards)
  return ("shard:%s%s"):format(gpu and gpu.name .. ":" or "", plain(shards))
end

local function refuse_size(request, partition, models)
  if request.tickets then
    local kind, units = request.tickets.kind, units_in(partition)
    refuse("%s is more than one GPU: write at most %s:%s, or gpu:1 for a whole one",
      words_of(request), kind, plain(kind == "mps" and units.mps_per_gpu or units.shards_per_gpu))
  end
  local memory = 0
  for _, gpu in ipairs(models) do memory = math.max(memory, gpu.memory) end
  refuse("%s is more than any GPU of the partition %s has: write at most --gpu-mem=%s",
    words_of(request), quote(partition), format_size(memory))
end

-- Whether each GPU is a type of its own in one of these partitions.
local function by_gpu(partitions)
  for _, name in ipairs(split(partitions, ",")) do
    if site.partition_nodes[name] then return true end
  end
  return false
end

local function book_share(request, partition, models, _, desc)
  if request.count ~= 1 then
    refuse("%s parts of GPUs on a node are not possible: ask for one, or for whole GPUs",
      plain(request.count))
  end
  -- The largest of those it fits on; what it takes on whichever; what keeps it off the others.
  local largest, need, least, units = nil, 0, 0, units_in(partition)
  for _, gpu in ipairs(models) do
    local shards = shards_for(request, gpu, units)
    if not shards then
      least = math.max(least, gpu.shards + 1)
    else
      need = math.max(need, shards)
      if not largest or gpu.memory > largest.memory then largest = gpu end
    end
  end
  if not largest then refuse_size(request, partition, models) end
  local shards, only = math.max(need, least), nil
  if request.model then
    only, shards = largest, need
  elseif shards > largest.shards then
    only, shards = largest, shards_for(request, largest, units)
  end
  local must = only and #models_of(partition) > 1
  local placed = by_gpu(partition)
    and place_share(desc, partition, only and { only } or models, shards, must)
  if placed then return { gres = placed } end
  return { gres = gres_of((must or not by_gpu(partition)) and only, shards) }
end

local function book_whole(request, partition, models, alone, desc)
  local most, alike = 0, true
  for _, gpu in ipairs(models) do
    most = math.max(most, gpu.most_per_node)
    alike = alike and gpu.shards == models[1].shards
  end
  if request.by_node and request.by_node > most then
    -- As Slurm itself calls it.
    error({
      sentence = ("%s GPUs of one node are more than any of the partition %s has: write at most %s")
        :format(plain(request.by_node), quote(partition), plain(most)),
      code = no_such_node,
    }, 0)
  end
  local typed = request.model and not by_gpu(partition)
  local native = ("gpu:%s%s"):format(typed and models[1].name .. ":" or "", plain(request.count))
  -- Who has the node to himself meets no shares there.
  if not whole_as_shards(partition) or alone then return { native = native } end
  if by_gpu(partition) and desc and not request.by_task
    and (request.count ~= 1 or not alike or (request.model and #models_of(partition) > 1)) then
    local placed = place_whole(desc, partition, models, request.count)
    if placed then return { gres = placed } end
  end
  if request.count ~= 1 or not alike then return { native = native, exclusive = true } end
  return { gres = gres_of(typed and models[1], models[1].shards) }
end

-- `code`: what Slurm calls it, where a change is refused and the sentence cannot be told.
local gates = {
  { key = "partitions", what = "the partitions", option = "--partition", code = 2002 },
  { key = "accounts", what = "the accounts", option = "--account", code = 2045 },
  { key = "reservations", what = "the reservations", option = "--reservation", code = 2052 },
}

-- Every one of the names must be where shares are given: the job may start in any of them.
local function pass_gates(job)
  for _, gate in ipairs(gates) do
    local globs, names = site.gates[gate.key], job[gate.key]
    local open = #globs == 0 or names ~= ""
    for _, name in ipairs(split(names, ",")) do
      open = open and (#globs == 0 or matches(globs, name))
    end
    if not open then
      error({
        sentence = ("parts of a GPU are given in %s %s only: write %s, or --gres=gpu:1 for a whole GPU")
          :format(gate.what, table.concat(globs, ", "), gate.option),
        code = job.changed and gate.code,
      }, 0)
    end
  end
end

-- { gres, native, exclusive, words } for these options, or nil for a job without GPUs. `job` says
-- where it runs: { partitions, accounts, reservations }.
local function decide(options, job, desc)
  local entries = {}
  for _, list in ipairs({ options.gres, options.gpus_per_node }) do
    for _, entry in ipairs(list.gpus) do
      entries[#entries + 1] = entry.name .. (":" .. table.concat(entry.parts, ":")):gsub("^:$", "")
    end
  end
  local native = {
    native = table.concat(entries, ","),
    exclusive = whole_as_shards(job.partitions),
  }
  local share = options.gpu_mem or options.gpu_share
  if all_in(site.foreign, job.partitions) then
    if share then
      refuse("the GPUs of the partition %s are not shared: write --gres, as the site says, or "
        .. "--partition", quote(job.partitions))
    end
    native.exclusive = false
    return native
  end
  for _, list in ipairs({ options.gres, options.gpus_per_node, options.gpus, options.gpus_per_task }) do
    refuse_empty_entries(list)
  end
  for _, entry in ipairs(options.gres.gpus) do share = share or entry.name ~= "gpu" end
  if options.elsewhere then
    if share then refuse("a part of a GPU does not go with %s: drop it", options.elsewhere) end
    return native
  end

  local ok, request = pcall(parse_options, options)
  local soft = not ok and type(request) == "table" and request.soft
  if soft and not share and not options.handed then return native end
  if not ok then error(request, 0) end
  if not request then return nil end
  local models = candidates(request, job.partitions)
  if not request.whole then
    pass_gates(job)
    if options.alone then refuse("a part of a GPU does not go with --exclusive: drop one of them") end
  end
  local book = request.whole and book_whole or book_share
  -- Each task's own GPU: the words of its steps are Slurm's, if they were not handed over.
  request.by_task = #options.gpus_per_task.gpus > 0 and not options.handed
  local booking = book(request, job.partitions, models, options.alone, desc)
  booking.by_job = request.by_job
  booking.words = words_of(request)
  return booking
end

-- Slurm's descriptions of jobs ---------------------------------------------------------------------

local function text(value) return type(value) == "string" and value ~= "" and value or nil end

local function number(value, none)
  return type(value) == "number" and value >= 1 and value < none and value or nil
end

-- What a job asks for; `record`: the job that is changed, if there is one. Options that a step must
-- not repeat, because the job books something else, are handed over by our SPANK plugin instead of
-- Slurm: `ALIQUOT_GRES=mps:25` in the job's SPANK environment.
local function options_of(desc, record)
  local options, handed = {}, {}
  local spank = desc.spank_job_env
  for _, entry in pairs(type(spank) == "table" and spank or {}) do
    local name, value = tostring(entry):match("^_SLURM_SPANK_OPTION_aliquot_(gpu_%a+)=(.*)$")
    if name == "gpu_mem" or name == "gpu_share" then options[name] = value end
    name, value = tostring(entry):match("^ALIQUOT_([%u_]+)=(.+)$")
    if name then handed[name] = value end
  end
  local function handed_gpus(name) return handed[name] and "gpu:" .. handed[name] end
  local gres = text(desc.tres_per_node) or text(desc.gres)
  if handed.GRES then gres = gres and gres .. "," .. handed.GRES or handed.GRES end
  options.gres = read_list(gres)
  options.gpus_per_node = read_list(handed_gpus("GPUS_PER_NODE"))
  options.gpus = read_list(text(desc.tres_per_job) or handed_gpus("GPUS"))
  options.gpus_per_task = read_list(text(desc.tres_per_task) or handed_gpus("GPUS_PER_TASK"))
  options.handed = next(handed) and handed
  options.alone = desc.shared == 0
  record = record or {}
  options.nodes = number(desc.min_nodes, no_value) or number(record.min_nodes, no_value) or 1
  local per_node = number(desc.ntasks_per_node, no_value16)
  options.tasks = number(desc.num_tasks, no_value) or options.nodes * (per_node or 1)
  if #read_list(text(desc.tres_per_socket)).gpus > 0 then
    options.elsewhere = "--gpus-per-socket"
  elseif number(desc.ntasks_per_tres, no_value16) then
    options.elsewhere = "--ntasks-per-gpu"
  end
  return options
end

local function asks_for_gpus(options)
  return options.gpu_mem or options.gpu_share or options.elsewhere or #options.gres.gpus > 0
    or #options.gpus_per_node.gpus > 0 or #options.gpus.gpus > 0
    or #options.gpus_per_task.gpus > 0
end

local function default_partition(part_list)
  for name, partition in pairs(type(part_list) == "table" and part_list or {}) do
    if partition.flag_default == 1 then return name end
  end
  return site.default_partition
end

-- `record`: the job that is changed. An empty name takes it out of where it was.
local function whereabouts(desc, record, part_list)
  local function either(new, old) return text(new) or (new ~= "" and text(old)) or nil end
  local was = record or {}
  return {
    partitions = either(desc.partition, was.partition) or default_partition(part_list),
    accounts = either(desc.account, was.account) or text(desc.default_account) or "",
    reservations = either(desc.reservation, was.resv_name) or "",
    changed = record ~= nil,
  }
end

-- The words go where users cannot write, beside what others put there.
local function commented(comment, words)
  local pieces = {}
  for piece in ((comment or "") .. "; "):gmatch("(.-); ") do
    if piece ~= "" and piece:sub(1, 8) ~= "aliquot:" then pieces[#pieces + 1] = piece end
  end
  if words then pieces[#pieces + 1] = "aliquot: " .. words end
  return table.concat(pieces, "; ")
end

local function words_in(comment)
  for piece in ((comment or "") .. "; "):gmatch("(.-); ") do
    local words = piece:match("^aliquot: ([^;]*)")
    if words then return words end
  end
end

-- What else is in a list, behind `first`.
local function join(list, first)
  local entries = { first }
  for _, entry in ipairs(list.others) do entries[#entries + 1] = entry end
  return table.concat(entries, ",")
end

-- Through the field `gres`: to what has no prefix Slurm adds the one that it understands.
local function set_gres(desc, list, first)
  desc.gres = ("," .. join(list, first)):gsub(",gres[/:]", ","):sub(2)
end

-- What is said of each GPU says the same of each node, for there it is one.
local function move_per_gpu(desc, options)
  local handed = options.handed or {}
  local cpus = tonumber(handed.CPUS_PER_GPU
    or (text(desc.cpus_per_tres) or ""):match("gpu[:=](%d+)$"))
  if cpus then
    desc.pn_min_cpus = cpus
    desc.min_cpus = math.max(number(desc.min_cpus, no_value) or 1, cpus * options.nodes)
    -- Or Slurm looks for as many CPUs beside its tasks' own.
    if number(desc.num_tasks, no_value) and not number(desc.cpus_per_task, no_value16) then
      desc.cpus_per_task = ceil_div(cpus * options.nodes, desc.num_tasks)
    end
    desc.cpus_per_tres = ""
  end
  local memory = handed.MEM_PER_GPU or (text(desc.mem_per_tres) or ""):match("gpu[:=](%d+)$")
  if memory then
    desc.min_mem_per_node = ceil_div(parse_size(memory), 2 ^ 20)
    desc.mem_per_tres = ""
  end
  if (text(desc.tres_freq) or ""):find("gpu") then
    refuse("Slurm cannot set the clocks of a GPU that is booked in shards: drop --gpu-freq")
  end
end

-- sbatch hands its options on to every srun of the job, which would ask for what is not booked.
local handed_on = { "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK" }
local function clear_environment(desc)
  if not text(desc.script) then return end
  local environment = desc.environment
  for _, name in ipairs(handed_on) do
    if environment and environment[name] then environment[name] = "" end
  end
end

local function apply(desc, options, booking)
  if booking.gres then
    move_per_gpu(desc, options)
    set_gres(desc, options.gres, booking.gres)
    if #options.gpus.gpus > 0 then desc.tres_per_job = join(options.gpus) end
    if #options.gpus_per_task.gpus > 0 then desc.tres_per_task = join(options.gpus_per_task) end
    -- So many GPUs for the job are so many nodes with one each.
    if booking.by_job then desc.min_nodes, desc.max_nodes = options.nodes, options.nodes end
    clear_environment(desc)
  elseif options.handed then
    -- Back to Slurm with it.
    set_gres(desc, options.gres, booking.native)
    local cpus, memory = options.handed.CPUS_PER_GPU, options.handed.MEM_PER_GPU
    if cpus then desc.cpus_per_tres = "gres:gpu:" .. cpus end
    if memory then desc.mem_per_tres = "gres:gpu:" .. plain(ceil_div(parse_size(memory), 2 ^ 20)) end
    if booking.by_job then desc.min_nodes, desc.max_nodes = options.nodes, options.nodes end
  end
  if booking.exclusive then
    desc.shared = 0
    slurm.log_user("%s", "these GPUs take whole nodes, all GPUs of which the job sees and is billed "
      .. "for: this version of Slurm cannot keep parts of GPUs away from them; a single GPU of one "
      .. "model does not need that")
  end
end

local function submit(desc, part_list)
  local options = options_of(desc)
  local booking = asks_for_gpus(options) and decide(options, whereabouts(desc, nil, part_list), desc)
  if not booking then
    if options.handed and options.gres.text then desc.gres = options.gres.text end
    return
  end
  apply(desc, options, booking)
  if booking.gres then remember(booking.gres) end
  local comment = commented(text(desc.admin_comment), booking.words)
  if comment ~= "" then desc.admin_comment = comment end
end

-- The options that words of ours say.
local function options_of_words(words, nodes)
  local options = { nodes = nodes, tasks = nodes, gpus_per_node = read_list() }
  options.gpus, options.gpus_per_task = read_list(), read_list()
  local gres
  for word in words:gmatch("%S+") do
    local name, value = word:match("^%-%-(gpu[_-]?%a+)=(.*)$")
    if name == "gpu-mem" then options.gpu_mem = value end
    if name == "gpu-share" then options.gpu_share = value end
    if name == "gpus" then options.gpus = read_list("gpu:" .. value) end
    if not name then gres = word end
  end
  options.gres = read_list(gres)
  return options
end

-- Of each GPU in a booking: '120,120'.
local function counts_in(gres)
  local counts = {}
  for count in (gres .. ","):gmatch(":(%d+),") do counts[#counts + 1] = count end
  table.sort(counts)
  return table.concat(counts, ",")
end

-- A job that moves to other GPUs or through a gate is looked at anew.
local function move(desc, record, part_list)
  if not (desc.partition or desc.account or desc.reservation) then return end
  local words = words_in(text(record.admin_comment))
  if not words then
    local asks = (text(record.tres_per_node) or "") .. (text(record.tres_per_job) or "")
      .. (text(record.tres_per_socket) or "") .. (text(record.tres_per_task) or "")
    local there = whereabouts(desc, record, part_list)
    if asks:find("gpu") and whole_as_shards(there.partitions) then
      refuse("the job's GPUs are booked otherwise here: cancel it and submit it anew")
    end
    -- Booked by hand.
    if asks:find("shard") and not all_in(site.foreign, there.partitions) then pass_gates(there) end
    return
  end
  local now = text(record.tres_per_node) or ""
  local there = whereabouts(desc, record, part_list)
  local booking = decide(options_of_words(words, 1), there, {})
  local list = read_list(text(record.tres_per_node))
  local entries, plainly = {}, true
  for i, entry in ipairs(list.gpus) do
    entries[i] = entry.name .. ":" .. table.concat(entry.parts, ":")
    plainly = plainly and (#entry.parts == 1 or entry.parts[1]:find("%.%d+$") ~= nil)
  end
  local held = table.concat(entries, ",")
  local same = held == booking.gres
  -- Whichever GPU it named.
  if by_gpu(there.partitions) and booking.gres then
    same = plainly and counts_in(held) == counts_in(booking.gres)
  end
  if booking.native then same = not now:find("shard") end
  if same then return end
  if site.whole_as_shards or booking.native then
    refuse("the job books %s here: cancel it and submit it anew", booking.gres or "whole GPUs")
  end
  set_gres(desc, list, booking.gres)
end

local function modify(desc, record, part_list)
  local options = options_of(desc, record)
  if not asks_for_gpus(options) then
    -- Slurm 22.05 dies of a job whose GPUs are taken away and that starts afterwards.
    for _, name in ipairs({ "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }) do
      local held = text(record[name]) or ""
      if type(desc[name]) == "string" and (held:find("gpu") or held:find("shard"))
        and whole_as_shards(whereabouts(desc, record, part_list).partitions) then
        refuse("this version of Slurm cannot take a job's GPUs away: cancel it and submit it anew")
      end
    end
    return move(desc, record, part_list)
  end
  if whole_as_shards(whereabouts(desc, record, part_list).partitions) then
    refuse("this version of Slurm cannot change a job's GPUs: cancel it and submit it anew")
  end
  local booking = decide(options, whereabouts(desc, record, part_list))
  if booking then apply(desc, options, booking) end
  local words = booking and booking.words
  local comment = text(desc.admin_comment) or text(record.admin_comment)
  if words or words_in(comment) then desc.admin_comment = commented(comment, words) end
end

-- The two functions slurmctld calls ----------------------------------------------------------------

-- Whether anything in this description speaks of GPUs: where reading it has failed already.
local function may_ask_for_gpus(desc)
  local fields = { desc.tres_per_node, desc.tres_per_job, desc.tres_per_task, desc.tres_per_socket }
  local spank = desc.spank_job_env
  for _, entry in pairs(type(spank) == "table" and spank or {}) do fields[#fields + 1] = entry end
  for _, field in pairs(fields) do
    local words = tostring(field):lower()
    if words:find("gpu") or words:find("mps") or words:find("shard") then return true end
  end
  return false
end

local function guarded(ours, desc, ...)
  local ok, failure = pcall(ours, desc, ...)
  if ok then return slurm.SUCCESS end
  if type(failure) == "table" and failure.sentence then
    slurm.log_user("%s", failure.sentence)
    slurm.log_info("aliquot: refused: %s", failure.sentence)
    return failure.code or invalid_gres
  end
  slurm.log_error("aliquot: %s", tostring(failure))
  local readable, asks = pcall(may_ask_for_gpus, desc)
  if readable and not asks then return slurm.SUCCESS end
  slurm.log_user("%s", "the request for GPUs could not be read: please tell the administrator, "
    .. "who finds the reason in slurmctld's log")
  return slurm.ERROR
end

-- The site's function first: what it refuses is refused, what it changes is what we see. If it
-- fails, slurmctld hears of it as ever, but not before the booking is right.
local function chain(theirs, ours)
  return function(desc, ...)
    local ok, code = true, nil
    if theirs then ok, code = pcall(theirs, desc, ...) end
    if ok and (tonumber(code) or 0) ~= 0 then return code end
    local result = guarded(ours, desc, ...)
    if not ok and result == slurm.SUCCESS then error(code, 0) end
    return result
  end
end

-- Once, should the site's file name us twice.
if not package.loaded.aliquot_submit then
  package.loaded.aliquot_submit = true
  slurm_job_submit = chain(slurm_job_submit, submit)
  slurm_job_modify = chain(slurm_job_modify, modify)
end
