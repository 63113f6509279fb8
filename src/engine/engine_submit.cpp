// Submission: everything a user may write is checked here, once, before anything is on record.
#include <algorithm>
#include <utility>

#include "api/json.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "core/placement.hpp"
#include "core/request_parse.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {
namespace {

constexpr std::size_t kMaxPath = 4'096;
// One argument or variable: the kernel's MAX_ARG_STRLEN.
constexpr std::size_t kMaxWord = std::size_t{128} << 10U;
// What is kept in memory of a job while it waits: names, paths, requests.
constexpr std::size_t kMaxRecord = std::size_t{64} << 10U;
constexpr std::int64_t kMaxCount = 1'000'000;
constexpr std::int64_t kMaxMillis = std::int64_t{1} << 50U;

bool in_range(const std::optional<std::int64_t>& value, std::int64_t least, std::int64_t most) {
  return !value || (*value >= least && *value <= most);
}

Answer<void> check_texts(const api::JobSpec& spec) {
  for (const std::string* text :
       {&spec.name, &spec.partition, &spec.account, &spec.qos, &spec.comment, &spec.reservation,
        &spec.licenses, &spec.wckey, &spec.mail_type, &spec.mail_user, &spec.submit_host,
        &spec.constraint}) {
    // They are shown to others: they must not steer their terminals, or break lines.
    if (const auto fine = check_shown(*text); !fine) return fine;
  }
  for (const std::string& path : {spec.work_dir, spec.command, spec.std_out.value_or(""),
                                  spec.std_err.value_or(""), spec.std_in.value_or("")}) {
    if (path.size() > kMaxPath) {
      return refuse(400, "ESLURM_PATHNAME_TOO_LONG", "a path of the job is too long");
    }
    if (steers_terminal(path)) {
      return refuse(400, "ESLURM_INVALID_JOB_TEXT",
                    fmt::format("the path {} holds control characters", quote(path)));
    }
  }
  for (const std::string& variable : spec.environment) {
    if (variable.find('\0') != std::string::npos || variable.find('=') == std::string::npos) {
      return refuse(400, "ESLURM_ENVIRONMENT_MISSING", "the environment holds what is no variable");
    }
  }
  for (const std::string& argument : spec.arguments) {
    if (argument.find('\0') != std::string::npos) {
      return refuse(400, "ESLURM_INVALID_JOB_TEXT", "an argument holds a zero byte");
    }
  }
  return {};
}

tl::unexpected<Refused> too_large(std::string_view what, std::size_t size, Bytes limit,
                                  std::string_view setting) {
  return refuse(
      400, "ESLURM_INVALID_JOB_TEXT",
      fmt::format("{} {} {}: more than {} allows, {}", what, what.ends_with('s') ? "have" : "has",
                  format_size(Bytes(static_cast<std::int64_t>(size))), setting,
                  format_size(limit)));
}

bool is_over(std::size_t size, Bytes limit) { return std::cmp_greater(size, limit.value()); }

Answer<void> check_sizes(const api::JobSpec& spec, const Limits& limits) {
  if (is_over(spec.script.size(), limits.script)) {
    return too_large("the script", spec.script.size(), limits.script, "limits.max_script_size");
  }
  std::size_t words = 0;
  for (const auto* list : {&spec.environment, &spec.arguments}) {
    for (const std::string& word : *list) {
      if (word.size() >= kMaxWord) {
        return refuse(
            400, "ESLURM_INVALID_JOB_TEXT",
            fmt::format("{} has {}: the kernel starts no program with more than 128K",
                        quote(word.substr(0, 20) + "…"), format_size(Bytes(std::ssize(word)))));
      }
      words += word.size() + 1;
    }
  }
  if (is_over(words, limits.environment)) {
    return too_large("environment and arguments", words, limits.environment,
                     "limits.max_environment_size");
  }
  api::JobSpec rest = spec;
  rest.script.clear();
  rest.environment.clear();
  rest.arguments.clear();
  if (api::to_json(rest).size() > kMaxRecord) {
    return refuse(400, "ESLURM_PATHNAME_TOO_LONG",
                  "the options of the job are too long: 64K in all, without script, arguments "
                  "and environment");
  }
  return {};
}

Answer<void> check_numbers(const api::JobSpec& spec) {
  if (spec.nodes != 1) {
    return refuse(400, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
                  "this is one machine: -N can only be 1");
  }
  if (!in_range(spec.ntasks, 1, kMaxCount) || !in_range(spec.ntasks_per_node, 0, kMaxCount)) {
    return refuse(400, "ESLURM_BAD_TASK_COUNT", "the number of tasks is out of range");
  }
  if (!in_range(spec.cpus_per_task, 1, kMaxCount)) {
    return refuse(400, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
                  "the number of CPUs is out of range");
  }
  for (const auto& size : {spec.memory, spec.memory_per_cpu, spec.memory_per_gpu}) {
    if (!in_range(size, 0, std::int64_t{1} << 55U)) {
      return refuse(400, "ESLURM_INVALID_TASK_MEMORY", "the memory is out of range");
    }
  }
  if (spec.immediate_s < 0 || spec.immediate_s > kMaxCount) {
    return refuse(400, "ESLURM_INVALID_TIME_VALUE", "--immediate is out of range");
  }
  for (const auto& time : {spec.time_limit_ms, spec.begin_ms, spec.deadline_ms}) {
    if (!in_range(time, 0, kMaxMillis)) {
      return refuse(400, "ESLURM_INVALID_TIME_VALUE", "a time is out of range");
    }
  }
  if (spec.nice < -kMaxCount * 1'000 || spec.nice > kMaxCount * 1'000 ||
      !in_range(spec.priority, 0, kMaxMillis)) {
    return refuse(400, "ESLURM_INVALID_PRIORITY", "the priority is out of range");
  }
  if (spec.signal && (spec.signal->number < 1 || spec.signal->number > 64 ||
                      spec.signal->before_s < 0 || spec.signal->before_s > 65'535)) {
    return refuse(400, "ESLURM_INVALID_SIGNAL", "--signal is out of range");
  }
  return {};
}

// As many jobs as it will become.
std::int64_t elements(const Job& job) {
  return std::max<std::int64_t>(std::ssize(job.waiting.tasks), 1);
}

}  // namespace

Bytes record_size(const Job& job) {
  api::JobSpec spec = job.spec;
  spec.script.clear();
  spec.environment.clear();
  spec.arguments.clear();
  return Bytes(std::ssize(api::to_json(job.info)) + std::ssize(api::to_json(spec)));
}

const Partition* Engine::find_partition(const std::string& name) const {
  const auto& all = settings_.partitions;
  const auto found = std::ranges::find_if(
      all, [&](const Partition& one) { return name.empty() ? one.is_default : one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// From what was asked to what is matched: the same for a new job, an updated one, and one that is
// read back from the record.
Answer<void> Engine::read_spec(Job& job) const {
  const api::JobSpec& spec = job.spec;
  api::JobInfo& info = job.info;

  auto dependencies = core::parse_dependencies(spec.dependency);
  if (!dependencies) return refuse(400, "ESLURM_DEPENDENCY", dependencies.error().message);
  job.dependencies = std::move(*dependencies);

  // --ntasks-per-node alone says how many tasks there are: there is one node.
  info.ntasks = spec.ntasks.value_or(std::max<std::int64_t>(spec.ntasks_per_node.value_or(1), 1));
  info.ntasks_per_node = spec.ntasks_per_node.value_or(0);
  info.cpus_per_task = spec.cpus_per_task.value_or(1);
  info.constraint = spec.constraint;

  auto gpus = core::parse_gpu_options(
      {.gres = spec.gres,
       .gpus = spec.gpus,
       .gpus_per_node = spec.gpus_per_node,
       .gpus_per_task = spec.gpus_per_task,
       .gpu_mem = spec.gpu_mem,
       .gpu_share = spec.gpu_share,
       .constraint = spec.constraint.empty() ? std::optional<std::string>() : spec.constraint,
       .tasks = info.ntasks,
       .nodes = 1});
  if (!gpus) {
    // More than anyone has is well said but not to be had.
    const bool too_many = gpus.error().code == Error::Code::out_of_range;
    return refuse(400,
                  too_many ? "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE" : "ESLURM_INVALID_GRES",
                  gpus.error().message);
  }
  job.request.gpus = std::move(*gpus);
  info.gres = job.request.gpus ? core::format_gpu_request(job.request.gpus) : "";

  const core::Node& node = ledger_.cluster().node(0);
  const auto cpus = checked_mul(CpuMilli(info.ntasks * 1'000), info.cpus_per_task);
  job.request.cpus = spec.exclusive ? node.cpus : cpus.value_or(CpuMilli(INT64_MAX));
  info.cpus = job.request.cpus / kOneCpu;

  std::optional<Bytes> memory;
  if (spec.memory) {
    memory = *spec.memory == 0 ? node.memory : Bytes(*spec.memory);
  } else if (spec.memory_per_cpu) {
    memory = checked_mul(Bytes(*spec.memory_per_cpu), info.cpus).value_or(Bytes(INT64_MAX));
  } else if (spec.memory_per_gpu && job.request.gpus) {
    memory = checked_mul(Bytes(*spec.memory_per_gpu), job.request.gpus->count)
                 .value_or(Bytes(INT64_MAX));
  } else if (settings_.memory_per_cpu) {
    memory = checked_mul(*settings_.memory_per_cpu, info.cpus).value_or(Bytes(INT64_MAX));
  }
  job.request.memory = memory.value_or(Bytes(0));
  info.memory = job.request.memory.value();

  auto shape = ledger_.cluster().shape(job.request);
  if (!shape) {
    return refuse(400, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", shape.error().message);
  }
  job.shape = *shape;
  job.unfit.clear();
  return {};
}

std::unordered_map<std::uint32_t, std::int64_t>& Engine::counts() {
  if (!counts_) {
    counts_.emplace();
    for (const auto& [id, job] : jobs_) (*counts_)[job.info.uid] += elements(job);
  }
  return *counts_;
}

// So that nobody fills the queue, or the disk, for everybody.
Answer<void> Engine::check_queue(const Caller& caller, const Job& job, std::int64_t more) {
  const Limits& limits = settings_.limits;
  std::int64_t all = 0;
  for (const auto& [uid, count] : counts()) all += count;
  const std::int64_t mine = counts()[caller.uid.value()];
  const std::int64_t most = limits.most_per_user();
  if (mine + more > most && !is_admin(caller)) {
    return refuse(403, "ESLURM_ACCOUNTING_POLICY",
                  fmt::format("{} of your jobs wait or run: with this more than "
                              "limits.max_submit_jobs_per_user allows, {}",
                              mine, most));
  }
  if (all + more > limits.job_count) {
    return refuse(503, "EAGAIN",
                  fmt::format("the queue is full: {} jobs wait or run, and limits.max_job_count is "
                              "{}; try again later",
                              all, limits.job_count));
  }
  if (is_admin(caller)) return {};
  const auto stored = store_.stored_for(caller.uid);
  if (!stored) return try_again(stored.error());
  std::int64_t size = std::ssize(job.spec.script);
  for (const auto* list : {&job.spec.environment, &job.spec.arguments}) {
    for (const std::string& word : *list) size += std::ssize(word) + 1;
  }
  if (*stored + Bytes(size) + record_size(job) * more > limits.stored_per_user) {
    return refuse(403, "ESLURM_ACCOUNTING_POLICY",
                  fmt::format("scripts, environments, arguments and options of your jobs have {}: "
                              "with this more than limits.max_stored_per_user allows, {}",
                              format_size(*stored), format_size(limits.stored_per_user)));
  }
  return {};
}

Answer<void> Engine::check_dependencies(const Job& job) {
  if (std::ssize(job.dependencies.all) > settings_.limits.dependencies) {
    return refuse(400, "ESLURM_DEPENDENCY",
                  fmt::format("{} dependencies are more than limits.max_dependencies allows, {}",
                              job.dependencies.all.size(), settings_.limits.dependencies));
  }
  for (const core::Dependency& one : job.dependencies.all) {
    if (one.kind == core::Dependency::Kind::singleton) continue;
    const bool itself =
        one.task ? job.info.array_task_id == one.task && job.info.array_job_id == one.job.value()
                 : one.job == job.id() || job.info.array_job_id == one.job.value();
    if (itself) {
      return refuse(400, "ESLURM_DEPENDENCY", "a job cannot wait for itself");
    }
    const auto facts = store_.facts(one.job, std::nullopt);
    if (!facts) return try_again(facts.error());
    bool known = facts->has_value();
    if (known && one.task) {
      const auto task = find_task(one.job, *one.task);
      if (!task) return try_again(task.error());
      known = task->has_value();
    }
    if (!known) {
      const std::string task = one.task ? fmt::format("_{}", *one.task) : "";
      return refuse(400, "ESLURM_DEPENDENCY",
                    fmt::format("there is no job {}{} to wait for", one.job, task));
    }
  }
  return {};
}

Answer<Job> Engine::check(const Caller& caller, api::JobSpec spec, const Job* changed) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  // First, and of what is too large no copy is made.
  if (const auto fine = check_sizes(spec, settings_.limits); !fine) {
    return tl::make_unexpected(fine.error());
  }
  if (const auto fine = check_texts(spec); !fine) return tl::make_unexpected(fine.error());
  if (const auto fine = check_numbers(spec); !fine) return tl::make_unexpected(fine.error());
  Job job;
  if (changed != nullptr) {
    job.info.id = changed->info.id;
    job.info.array_job_id = changed->info.array_job_id;
    job.info.array_task_id = changed->info.array_task_id;
    job.info.user = changed->info.user;
    job.info.uid = changed->info.uid;
    job.info.group = changed->info.group;
    job.info.gid = changed->info.gid;
  } else {
    const auto user = users_.find(caller.uid);
    if (!user) return refuse(403, "ESLURM_USER_ID_MISSING", user.error().message);
    job.info.user = user->name;
    job.info.uid = caller.uid.value();
    job.info.group = user->group;
    job.info.gid = user->gid;
  }
  const Partition* partition = find_partition(spec.partition);
  if (partition == nullptr) {
    return refuse(400, "ESLURM_INVALID_PARTITION_NAME",
                  "there is no partition " + quote(spec.partition));
  }
  if (spec.batch && !spec.script.starts_with("#!")) {
    return refuse(400, "ESLURM_JOB_SCRIPT_MISSING", "a batch script starts with #!");
  }
  if (spec.script.find('\0') != std::string::npos) {
    return refuse(400, "ESLURM_INVALID_JOB_TEXT", "the script holds a zero byte");
  }
  if (!spec.batch && !spec.array.empty()) {
    return refuse(400, "ESLURM_INVALID_ARRAY", "only batch jobs can be arrays");
  }
  const bool raised = changed == nullptr
                          ? spec.nice < 0 || spec.priority
                          : (spec.nice < 0 && spec.nice != changed->spec.nice) ||
                                (spec.priority && spec.priority != changed->spec.priority);
  if (raised && !is_admin(caller)) {
    return refuse(403, "ESLURM_ACCESS_DENIED", "only root may raise a priority");
  }
  job.spec = std::move(spec);
  if (const auto fine = read_spec(job); !fine) return tl::make_unexpected(fine.error());
  if (const auto fine = check_dependencies(job); !fine) return tl::make_unexpected(fine.error());
  if (!job.spec.array.empty()) {
    auto array = core::parse_array(job.spec.array);
    if (!array) return refuse(400, "ESLURM_INVALID_ARRAY", array.error().message);
    if (array->tasks.back() >= settings_.limits.array_size) {
      return refuse(400, "ESLURM_INVALID_ARRAY",
                    fmt::format("array index {} is not below limits.max_array_size, {}",
                                array->tasks.back(), settings_.limits.array_size));
    }
    job.waiting = std::move(*array);
  }
  if (!core::ever_fits(ledger_.cluster(), job.shape)) {
    const core::Node& node = ledger_.cluster().node(0);
    if (job.request.memory > node.memory) {
      return refuse(400, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
                    "Memory specification can not be satisfied");
    }
    return refuse(400, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
                  job.request.cpus > node.cpus
                      ? fmt::format("{} CPUs are more than this machine's {}", job.info.cpus,
                                    node.cpus / kOneCpu)
                      : fmt::format("this machine's GPUs can never give {}", job.info.gres));
  }

  const WallTime now = clock_.wall();
  api::JobInfo& info = job.info;
  info.name = job.spec.name;
  info.account = job.spec.account.empty() ? info.user : job.spec.account;
  info.partition = partition->name;
  info.qos = job.spec.qos.empty() ? "normal" : job.spec.qos;
  info.comment = job.spec.comment;
  info.state = core::long_name(job.state);
  info.nice = job.spec.nice;
  info.priority = job.spec.priority.value_or(std::max<std::int64_t>(10'000 - info.nice, 1));
  info.requeue = job.spec.requeue;
  info.batch = job.spec.batch;
  info.submit_ms = now.ms();
  info.eligible_ms = std::max(now.ms(), job.spec.begin_ms.value_or(0));
  info.time_limit_ms = job.spec.time_limit_ms;
  if (!info.time_limit_ms && !partition->default_time.unlimited()) {
    info.time_limit_ms = partition->default_time.length->value();
  }
  info.deadline_ms = job.spec.deadline_ms;
  info.command = job.spec.command;
  info.work_dir = job.spec.work_dir;
  info.std_out = job.spec.std_out.value_or("");
  info.std_err = job.spec.std_err.value_or("");
  info.std_in = job.spec.std_in.value_or("");
  info.submit_host = job.spec.submit_host;
  info.dependency = core::format_dependencies(job.dependencies);
  // Whoever submits it held holds it as its user, root too: so Slurm says.
  if (job.spec.hold || job.spec.priority == 0) job.hold = Hold::user;
  return job;
}

Job& Engine::add(Job job) {
  job.info.id = ++last_id_;
  job.payload = job.info.id;
  if (job.is_array()) {
    const auto& tasks = job.waiting.tasks;
    job.info.array_job_id = job.info.id;
    job.info.array_pending = core::format_array(job.waiting);
    job.info.array_throttle = job.waiting.limit;
    job.info.array_count = std::ssize(tasks);
    job.info.array_min = tasks.front();
    job.info.array_max = tasks.back();
    job.info.array_step = tasks.size() > 1 ? tasks[1] - tasks[0] : 1;
  }
  Payload payload{std::exchange(job.spec.script, {}), std::exchange(job.spec.environment, {}),
                  std::exchange(job.spec.arguments, {})};
  require(store_.save_payload(job.payload, Uid(job.info.uid), payload,
                              record_size(job) * elements(job)));
  resolve_paths(job);
  const JobId id = job.id();
  Job& added = jobs_.emplace(id, std::move(job)).first->second;
  if (counts_) (*counts_)[added.info.uid] += elements(added);
  save(added);
  dependencies_changed_ = dependencies_changed_ || !added.dependencies.empty();
  schedule_needed_ = true;
  return added;
}

Answer<api::Submitted> Engine::submit(const Caller& caller, api::JobSpec spec) {
  spec.batch = true;
  auto job = check(caller, std::move(spec));
  if (!job) return tl::make_unexpected(job.error());
  if (const auto room = check_queue(caller, *job, elements(*job)); !room) {
    return tl::make_unexpected(room.error());
  }
  return api::Submitted{add(std::move(*job)).info.id};
}

Answer<JobId> Engine::allocate(const Caller& caller, api::JobSpec spec, Granted granted) {
  spec.batch = false;
  auto job = check(caller, std::move(spec));
  if (!job) return tl::make_unexpected(job.error());
  if (const auto room = check_queue(caller, *job, elements(*job)); !room) {
    return tl::make_unexpected(room.error());
  }
  if (job->spec.immediate && job->spec.immediate_s <= 1 &&
      !core::place_by_scan(ledger_.cluster(), job->shape, *policy_)) {
    return refuse(409, "ESLURM_NODES_BUSY", "there is no room now");
  }
  Job& added = add(std::move(*job));
  Client& client = clients_[added.id()];
  client = {.granted = std::move(granted), .pid = caller.pid, .attached = true};
  if (added.spec.immediate) {
    client.start_by = clock_.mono() + seconds(std::max<std::int64_t>(added.spec.immediate_s, 1));
  }
  return added.id();
}

Answer<api::JobInfo> Engine::test(const Caller& caller, api::JobSpec spec) {
  auto job = check(caller, std::move(spec));
  if (!job) return tl::make_unexpected(job.error());
  job->info.id = last_id_ + 1;
  std::vector<core::QueueEntry> queue{{.job = job->id(), .shape = job->shape}};
  const auto running = running_entries();
  const auto decision = core::schedule(ledger_.cluster(), queue, running, *policy_);
  Millis start_in(0);
  if (!decision.waits.empty()) start_in = decision.waits[0].start_in.value_or(core::kForever);
  job->info.start_ms = std::max(clock_.wall().ms() + start_in.value(), job->info.eligible_ms);
  job->info.node = machine_.name;
  return job->info;
}

}  // namespace aliquot::engine
