-- For tests: what job_submit/lua gives a script, driven by lines. The arguments are the files to
-- run, as job_submit.lua would be; each line of input is one call, each line of output its result.
--   submit|modify key=value…     text values in hex; numbers as `#7`; `spank`, `env.NAME`,
--                                `record.NAME` (the job that is changed), `part.NAME=#1` (default?)
--   job key=value…               one more of slurm.jobs, in a new list as slurmctld makes it; without a key: none any more
--   reservation name=… key=…     one more of slurm.reservations
--   -> code key=value…           all fields that are set afterwards, `user` and `log` for messages

local function unhex(text)
  return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end
local function hex(text)
  return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- What a script may set, and as what. slurmctld takes more, but text for tres_per_node is written
-- differently from version to version: it must go through `gres`.
local settable = {
  account = "string", admin_comment = "string", cpus_per_tres = "string", features = "string",
  gres = "string", mem_per_tres = "string", partition = "string", reservation = "string",
  tres_bind = "string", tres_freq = "string", tres_per_job = "string", tres_per_socket = "string",
  tres_per_task = "string",
  max_nodes = "number", min_cpus = "number", min_mem_per_node = "number", min_nodes = "number",
  ntasks_per_node = "number", ntasks_per_tres = "number", num_tasks = "number",
  pn_min_cpus = "number", shared = "number",
}

local function described(fields)
  return setmetatable({}, {
    __index = function(_, key)
      assert(type(key) == "string", "field name expected")
      if key == "gres" then key = "tres_per_node" end
      return fields[key]
    end,
    __newindex = function(_, key, value)
      assert(settable[key], "unrecognized field: " .. tostring(key))
      assert(type(value) == settable[key], tostring(key) .. " must be a " .. tostring(settable[key]))
      if key == "gres" then key = "tres_per_node" end
      fields[key] = value ~= "" and value or nil
    end,
  })
end

local messages, logged = {}, {}
local function to(list)
  return function(format, ...) list[#list + 1] = format:format(...) end
end
slurm = {
  SUCCESS = 0, ERROR = -1, FAILURE = -1, NO_VAL = 0xfffffffe, NO_VAL16 = 0xfffe,
  jobs = {}, reservations = {}, log_user = to(messages), log_info = to(logged), log_error = to(logged), log_debug = to(logged),
}

local before = {}
for name in pairs(_G) do before[name] = true end
for _, file in ipairs(arg) do dofile(file) end
for name in pairs(_G) do
  local ours = name == "slurm_job_submit" or name == "slurm_job_modify" or name:find("^site_")
  assert(before[name] or ours, "leaked the global " .. name)
end

for line in io.lines() do
  local fields, record, parts, spank = {}, {}, {}, {}
  local call = line:match("^%a+")
  for key, kind, value in line:gmatch(" ([%w_.]+)=(#?)(%S*)") do
    value = kind == "#" and tonumber(value) or unhex(value)
    local name = key:match("%.(.*)$")
    if key == "spank" then
      spank[#spank + (next(spank) and 1 or 0)] = value -- the first is number 0, as slurmctld has it
    elseif key:find("^env%.") then
      fields.environment = fields.environment or {}
      fields.environment[name] = value
    elseif key:find("^record%.") then
      record[name] = value
    elseif key:find("^part%.") then
      parts[name] = { flag_default = value }
    else
      fields[key] = value
    end
  end
  if next(spank) then fields.spank_job_env = spank end
  local desc, ok, code = described(fields), nil, nil
  if call == "job" then
    slurm.jobs = next(fields) and { fields, (table.unpack or unpack)(slurm.jobs) } or {}
    fields, ok, code = {}, true, 0
  elseif call == "reservation" then
    slurm.reservations[fields.name] = fields
    fields, ok, code = {}, true, 0
  elseif call == "submit" then
    ok, code = pcall(slurm_job_submit, desc, parts, 1000)
  else
    ok, code = pcall(slurm_job_modify, desc, described(record), parts, 1000)
  end
  local result = { ok and ("%.0f"):format(tonumber(code) or 0) or "failed" }
  if not ok then logged[#logged + 1] = tostring(code) end
  for name, value in pairs(fields.environment or {}) do fields["env." .. name] = value end
  fields.environment, fields.spank_job_env = nil, nil
  fields.user = #messages > 0 and table.concat(messages, "\n") or nil
  fields.log = #logged > 0 and table.concat(logged, "\n") or nil
  for key, value in pairs(fields) do
    local number = type(value) == "number"
    result[#result + 1] = key .. "=" .. (number and "#" .. ("%.0f"):format(value) or hex(value))
  end
  for i = #messages, 1, -1 do messages[i] = nil end
  for i = #logged, 1, -1 do logged[i] = nil end
  io.write(table.concat(result, " "), "\n")
  io.flush()
end
