-- The vocabulary of core/request_parse.hpp in Lua: what users write, to a request and back to
-- words. For Lua 5.1 to 5.4, whose numbers are doubles in the oldest: everything that is added or
-- multiplied here stays under 2^53. The first part of what is embedded, placement.lua
-- and submit.lua the others.

local huge = 2 ^ 53
local most_gpus_per_node = 64

-- Refusals are Lua errors that carry a sentence. A soft one says that our vocabulary cannot express
-- it, though Slurm's can: whole GPUs are then left to Slurm.
local function refuse(format, ...) error({ sentence = format:format(...) }, 0) end
local function refuse_softly(format, ...)
  error({ sentence = format:format(...), soft = true }, 0)
end

local function quote(text)
  local shown = text:sub(1, 60):gsub("[%c]", function(c)
    return ("\\x%02x"):format(c:byte())
  end)
  return "'" .. shown .. (#text > 60 and "..." or "") .. "'"
end

local function plain(number) return ("%.0f"):format(number) end

local function ceil_div(a, b)
  local rest = math.fmod(a, b)
  return (a - rest) / b + (rest > 0 and 1 or 0)
end

-- 'a,b,,c' is four parts; the empty text is one empty part.
local function split(text, separator)
  local parts = {}
  for part in (text .. separator):gmatch("([^" .. separator .. "]*)" .. separator) do
    parts[#parts + 1] = part
  end
  return parts
end

local function contains(list, value)
  for _, each in ipairs(list) do
    if each == value then return true end
  end
  return false
end

-- A shell pattern as one of Lua's.
local function pattern_of(glob)
  local result, i = "^", 1
  while i <= #glob do
    local c = glob:sub(i, i)
    local negated, set, after = glob:match("^%[(!?)(%]?[^%]]*)%]()", i)
    if c == "*" then
      result = result .. ".*"
    elseif c == "?" then
      result = result .. "."
    elseif set and set ~= "" then
      set = set:gsub("[%%%]%[%^]", "%%%0")
      result = result .. "[" .. (negated == "!" and "^" or "") .. set .. "]"
      i = after - 1
    else
      result = result .. c:gsub("%W", "%%%0")
    end
    i = i + 1
  end
  return result .. "$"
end

local function matches(globs, name)
  for _, glob in ipairs(globs) do
    if name:find(pattern_of(glob)) then return true end
  end
  return false
end

-- Numbers, sizes and percentages -----------------------------------------------------------------

local function is_digits(text) return text:find("^[0-9]+$") ~= nil end
local function is_negative(text) return text:find("^%-[0-9]+$") ~= nil end
local function is_fraction(text) return text:find("^[0-9.]*$") ~= nil end

local function is_model(text)
  return text:find("^[0-9A-Za-z][0-9A-Za-z._+-]*$") ~= nil
    and not (text:find("%.") and is_fraction(text))
end

-- '12.5' in units of 1/2^k, rounded down without an intermediate result that is not exact.
local function binary_decimal(number, k)
  local whole, decimals = number:match("^([0-9]+)%.?([0-9]*)$")
  if not whole or #decimals > 9 then return nil end
  local rest, ten_power, part = tonumber(decimals) or 0, 10 ^ #decimals, 0
  for _ = 1, k do
    rest, part = rest * 2, part * 2
    if rest >= ten_power then rest, part = rest - ten_power, part + 1 end
  end
  return tonumber(whole) * 2 ^ k + part
end

local size_units = { { "t", 40 }, { "g", 30 }, { "m", 20 }, { "k", 10 } }

local function parse_size(text)
  local number, suffix = text:match("^([0-9.]*)(.*)$")
  local power = ({ [""] = 20, b = 0 })[suffix:lower()]
  for _, unit in ipairs(size_units) do
    local rest = suffix:lower():match("^" .. unit[1] .. "(.*)$")
    if rest == "" or rest == "b" or rest == "ib" then power = unit[2] end
  end
  local decimal = number:find("^[0-9]+%.[0-9]+$")
  if not power or not (is_digits(number) or (decimal and power > 0)) then
    refuse("--gpu-mem=%s is no memory size: write a number with K, M, G or T, such as 8G",
      quote(text))
  end
  local size = binary_decimal(number, power)
  if not size or size >= huge then
    refuse("--gpu-mem=%s cannot be held: write a size such as 8G", quote(text))
  end
  if size == 0 then
    refuse("--gpu-mem=%s asks for no memory: write --gpu-mem=8G, or --gpus=1 for a whole GPU",
      quote(text))
  end
  return size
end

local function format_size(size)
  for _, unit in ipairs(size_units) do
    if math.fmod(size, 2 ^ unit[2]) == 0 then
      return plain(size / 2 ^ unit[2]) .. unit[1]:upper()
    end
  end
  return plain(size) .. "B"
end

-- In 1/10,000.
local function parse_share(text)
  if text:sub(1, 2) == "0." and text:sub(-1) ~= "%" then
    refuse("--gpu-share=%s may mean a fraction or a percentage: write it as 25%% or 0.25%%",
      quote(text))
  end
  local number = text:gsub("%%$", "")
  local whole, decimals = number:match("^([0-9]+)%.([0-9]+)$")
  if not whole then whole, decimals = number:match("^([0-9]+)$"), "0" end
  if not whole then
    refuse("--gpu-share=%s is no percentage: write a number such as 25%% or 12.5%%", quote(text))
  end
  if #decimals > 2 then
    refuse("--gpu-share=%s is finer than a hundredth of a percent: write at most two decimals",
      quote(text))
  end
  local share = tonumber(whole) * 100 + tonumber(decimals) * (#decimals == 1 and 10 or 1)
  if share == 0 or share > 10000 then
    refuse("--gpu-share=%s is %s: write more than 0 and at most 100%%", quote(text),
      share == 0 and "nothing" or "more than one GPU")
  end
  return share
end

local function format_share(share)
  local hundredths = math.fmod(share, 100)
  local text = ("%.0f.%02.0f"):format((share - hundredths) / 100, hundredths)
  return text:gsub("0+$", ""):gsub("%.$", "") .. "%"
end

-- The vocabulary ---------------------------------------------------------------------------------

local gpu_syntax = "gpu:2 or gpu:titanrtx:1"
local count_syntax = "a number such as 2, or a model and a number"
local ticket_syntax = { mps = "mps:25 or mps:titanrtx:25", shard = "shard:4 or shard:titanrtx:4" }

local function parse_count(shown, text, syntax)
  if is_negative(text) then refuse("%s is negative: write %s", shown, syntax) end
  if not is_digits(text) then
    refuse("%s: %s is no count: write %s", shown, quote(text), syntax)
  end
  local count = tonumber(text) + 0.0 -- no integer that could wrap around
  if count >= huge then
    refuse("%s: %s is more than we can count: write %s", shown, quote(text), syntax)
  end
  return count
end

local function parse_model(shown, text, syntax)
  if not is_model(text) then
    refuse("%s: %s is neither a count nor a GPU model: write %s", shown, quote(text), syntax)
  end
  return text:lower()
end

-- '[model][:count]', either of them or both; a lone part that begins like a number is a count.
local function parse_counted(shown, parts, syntax)
  if #parts > 2 or contains(parts, "") then
    refuse("%s does not read as [model:]count: write %s", shown, syntax)
  end
  if #parts == 0 then return { count = 1 } end
  if #parts == 2 then
    local model = parse_model(shown, parts[1], syntax)
    return { model = model, count = parse_count(shown, parts[2], syntax) }
  end
  if is_digits(parts[1]) or is_negative(parts[1]) then
    return { count = parse_count(shown, parts[1], syntax) }
  end
  if is_fraction(parts[1]) then
    refuse("%s is no whole number of GPUs: for a part of one write --gpu-share=50%%", shown)
  end
  return { model = parse_model(shown, parts[1], syntax), count = 1 }
end

local function parse_tickets(shown, kind, parts)
  local syntax, factor = ticket_syntax[kind], 1
  local number, suffix = (parts[#parts] or ""):match("^([0-9]+)([kmgtpKMGTP])$")
  if number then
    parts[#parts] = number
    factor = 1024 ^ ("kmgtp"):find(suffix:lower())
  end
  local lone = #parts == 1 and parts[1]
  local says_count = #parts == 2 or (lone and (is_digits(lone) or not is_model(lone)))
  if kind == "mps" and not says_count then
    refuse("%s does not say how much: write %s", shown, syntax)
  end
  if lone and says_count and not is_digits(lone) and not is_negative(lone) then
    refuse("%s does not read as %s[:model]:count: write %s", shown, kind, syntax)
  end
  local counted = parse_counted(shown, parts, syntax)
  if counted.count == 0 then
    refuse("%s asks for none of a GPU: write %s, or --gres=none for no GPU", shown, syntax)
  end
  return { kind = kind, count = counted.count * factor, model = counted.model }
end

local gpu_names = { gpu = true, mps = true, shard = true }

-- One of Slurm's lists, sorted into entries about GPUs and the text of all others.
local function read_list(text)
  local list = { gpus = {}, others = {} }
  if not text or text:lower() == "none" then return list end
  list.text = text:gsub("^gres[/:]", ""):gsub(",gres[/:]", ",")
  for _, entry in ipairs(split(text, ",")) do
    local bare = entry:gsub("^gres/", ""):gsub("^gres:", "")
    local parts = split((bare:gsub("=", ":")), ":")
    local name = table.remove(parts, 1):lower()
    if gpu_names[name] then
      list.gpus[#list.gpus + 1] = { name = name, parts = parts }
    else
      list.others[#list.others + 1] = entry
      list.has_empty = list.has_empty or name == "" or name == "none"
    end
  end
  return list
end

local function refuse_empty_entries(list)
  if #list.gpus > 0 and list.has_empty then
    refuse("--gres=%s has an empty entry: write %s", quote(list.text), gpu_syntax)
  end
end

local function parse_gres(list)
  local shown, gpus, tickets = "--gres=" .. quote(list.text or ""), nil, nil
  for _, entry in ipairs(list.gpus) do
    if entry.name ~= "gpu" then
      if tickets then
        refuse("%s asks for two parts of a GPU: write one of them, such as %s", shown,
          ticket_syntax[entry.name])
      end
      tickets = parse_tickets(shown, entry.name, entry.parts)
    else
      local counted = parse_counted(shown, entry.parts, gpu_syntax)
      if gpus then refuse_softly("%s counts GPUs twice: write %s", shown, gpu_syntax) end
      gpus = counted
    end
  end
  if tickets and gpus then
    if gpus.count ~= 0 then
      refuse("%s asks for a whole GPU and for a part of one: write either gpu:1 or %s:%s", shown,
        tickets.kind, plain(tickets.count))
    end
    gpus = nil
  end
  return gpus, tickets
end

-- One option's word on how many GPUs the whole job gets; by_job: not of each node.
local function add_claim(claims, option, list, times, by_job)
  for i, entry in ipairs(list.gpus) do
    local text = table.concat(entry.parts, ":")
    local shown = option .. "=" .. quote(text)
    if entry.name ~= "gpu" then
      refuse("%s of a GPU can be asked for by node only: write --gres=%s", entry.name,
        ticket_syntax[entry.name])
    end
    local counted = parse_counted(shown, entry.parts, count_syntax)
    if i > 1 then refuse_softly("%s asks for GPUs of several models: write one", shown) end
    claims[#claims + 1] =
      { shown = shown, model = counted.model, count = counted.count * times, by_job = by_job }
  end
end

-- The GPUs of one node that all claims agree on.
local function agree(claims, nodes)
  local first, model = claims[1], nil
  for _, claim in ipairs(claims) do
    if claim.count ~= first.count then
      refuse_softly("%s and %s disagree: %s and %s GPUs for the job; write only one of them",
        first.shown, claim.shown, plain(first.count), plain(claim.count))
    end
    if model and claim.model and claim.model ~= model then
      refuse_softly("%s names another model than the other option: write only one of them",
        claim.shown)
    end
    model = model or claim.model
  end
  if math.fmod(first.count, nodes) ~= 0 then
    refuse_softly("%s does not spread evenly over %s nodes: write a multiple of that, or "
      .. "--gpus-per-node", first.shown, plain(nodes))
  end
  local count = first.count / nodes
  if count > most_gpus_per_node then
    local say = first.by_job and refuse_softly or refuse
    say("%s asks for %s GPUs of one node: write at most %d; a model is written gpu:model:1",
      first.shown, plain(count), most_gpus_per_node)
  end
  return count, model
end

-- What each node must give: nil for no GPU, else { count, model, and either of whole, tickets,
-- memory and compute }.
local function parse_options(options)
  local gpus, tickets = parse_gres(options.gres)
  local request = { tickets = tickets }
  if options.gpu_mem or options.gpu_share then
    local amount = options.gpu_mem and "--gpu-mem" or "--gpu-share"
    if tickets then
      refuse("--gres=%s and %s both say which part of a GPU: write only one of them",
        quote(options.gres.text), amount)
    end
    request.memory = options.gpu_mem and parse_size(options.gpu_mem)
    request.compute = options.gpu_share and parse_share(options.gpu_share)
    if gpus and gpus.count > 0 then
      refuse("--gres=%s asks for whole GPUs and %s for a part of one: drop %s, or write --gpus=1 "
        .. "for a share", quote(options.gres.text), amount, amount)
    end
  end
  request.whole = not (tickets or request.memory or request.compute)

  local claims = {}
  if gpus then
    claims[1] = {
      shown = "--gres=" .. quote(options.gres.text),
      model = gpus.model,
      count = gpus.count * options.nodes,
    }
  end
  add_claim(claims, "--gpus-per-node", options.gpus_per_node, options.nodes, false)
  if #claims > 0 then request.by_node = claims[#claims].count / options.nodes end
  add_claim(claims, "--gpus", options.gpus, 1, true)
  add_claim(claims, "--gpus-per-task", options.gpus_per_task, options.tasks, true)
  request.count, request.model = 1, tickets and tickets.model
  if #claims > 0 then
    local count, model = agree(claims, options.nodes)
    if model and request.model and model ~= request.model then
      refuse("--gres=%s and %s name different models: write only one of them",
        quote(options.gres.text), claims[1].shown)
    end
    request.count, request.model = count, request.model or model
    if count == 0 and not request.whole then
      refuse("%s asks for no GPU, another option for a part of one: write only one of them",
        claims[1].shown)
    end
  elseif request.whole then
    return nil
  end
  request.by_job = #claims > 0 and claims[#claims].by_job
  if request.count == 0 then return nil end
  return request
end

-- As core::format_gpu_request has it.
local function words_of(request)
  local model = request.model and request.model .. ":" or ""
  if request.whole then return ("gpu:%s%s"):format(model, plain(request.count)) end
  if request.tickets then
    return ("%s:%s%s"):format(request.tickets.kind, model, plain(request.tickets.count))
  end
  local words = {}
  if request.memory then words[#words + 1] = "--gpu-mem=" .. format_size(request.memory) end
  if request.compute then words[#words + 1] = "--gpu-share=" .. format_share(request.compute) end
  if request.model then words[#words + 1] = "--gpus=" .. model .. "1" end
  return table.concat(words, " ")
end
