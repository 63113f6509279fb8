#include "engine/admission.hpp"

#include <algorithm>
#include <utility>

#include "api/json.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "core/placement.hpp"
#include "core/request_parse.hpp"
#include "engine/accounts.hpp"
#include "engine/job_info.hpp"
#include "engine/notices.hpp"
#include "engine/quotas.hpp"
#include "engine/reservations.hpp"

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
      return refuse(Why::too_long, "a path of the job is too long");
    }
    if (steers_terminal(path)) {
      return refuse(Why::bad_text,
                    fmt::format("the path {} holds control characters", quote(path)));
    }
  }
  for (const std::string& variable : spec.environment) {
    if (variable.find('\0') != std::string::npos || variable.find('=') == std::string::npos) {
      return refuse(Why::bad_environment, "the environment holds what is no variable");
    }
  }
  for (const std::string& argument : spec.arguments) {
    if (argument.find('\0') != std::string::npos) {
      return refuse(Why::bad_text, "an argument holds a zero byte");
    }
  }
  return {};
}

tl::unexpected<Refused> too_large(std::string_view what, std::size_t size, Bytes limit,
                                  std::string_view setting) {
  return refuse(Why::bad_text, fmt::format("{} {} {}: more than {} allows, {}", what,
                                           what.ends_with('s') ? "have" : "has",
                                           format_size(Bytes(static_cast<std::int64_t>(size))),
                                           setting, format_size(limit)));
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
            Why::bad_text,
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
    return refuse(Why::too_long,
                  "the options of the job are too long: 64K in all, without script, arguments "
                  "and environment");
  }
  return {};
}

// Of one machine, by its name.
Answer<void> check_nodes(const api::JobSpec& spec, std::string_view here) {
  for (const std::string* list : {&spec.nodelist, &spec.exclude}) {
    if (list->empty()) continue;
    for (const std::string_view name : split(*list, ',')) {
      if (name != here) return refuse(Why::no_such_node, fmt::format("this machine is {}", here));
    }
  }
  if (spec.exclude.empty()) return {};
  return refuse(Why::never_fits, fmt::format("there is no machine here but {}", here));
}

// What all GPUs of a machine are tells it from others.
Answer<void> check_features(std::string_view words, const core::Node& node) {
  constexpr std::string_view kBetween = "|&,()[]*";
  while (!words.empty()) {
    const auto end = std::min(words.find_first_of(kBetween), words.size());
    const auto word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    if (word.empty() || is_digits(word)) continue;
    const bool known = std::ranges::any_of(node.gpus, [&](const core::Gpu& gpu) {
      const std::string model = to_lower(core::model_name(gpu));
      return model == to_lower(word) || model.ends_with("_" + to_lower(word));
    });
    if (!known) {
      return refuse(
          Why::bad_feature,
          fmt::format("this machine has no GPU of model {}, and no other features", quote(word)));
    }
  }
  return {};
}

Answer<void> check_numbers(const api::JobSpec& spec) {
  if (spec.nodes == 0) return refuse(Why::bad_node_count, "a job has a node: leave -N out");
  if (spec.nodes != 1) {
    return refuse(Why::never_fits, "this is one machine: -N can only be 1");
  }
  if (!in_range(spec.ntasks, 1, kMaxCount) || !in_range(spec.ntasks_per_node, 0, kMaxCount)) {
    return refuse(Why::bad_task_count, "the number of tasks is out of range");
  }
  if (!in_range(spec.cpus_per_task, 1, kMaxCount) || !in_range(spec.min_cpus, 1, kMaxCount)) {
    return refuse(Why::never_fits, "the number of CPUs is out of range");
  }
  for (const auto& size : {spec.memory, spec.memory_per_cpu, spec.memory_per_gpu}) {
    if (!in_range(size, 0, std::int64_t{1} << 55U)) {
      return refuse(Why::bad_memory, "the memory is out of range");
    }
  }
  if (spec.immediate_s < 0 || spec.immediate_s > kMaxCount) {
    return refuse(Why::bad_time, "--immediate is out of range");
  }
  for (const auto& time : {spec.time_limit_ms, spec.begin_ms, spec.deadline_ms}) {
    if (!in_range(time, 0, kMaxMillis)) {
      return refuse(Why::bad_time, "a time is out of range");
    }
  }
  if (spec.nice < -kMaxCount * 1'000 || spec.nice > kMaxCount * 1'000 ||
      !in_range(spec.priority, 0, kMaxMillis)) {
    return refuse(Why::bad_priority, "the priority is out of range");
  }
  if (spec.signal && (spec.signal->number < 1 || spec.signal->number > 64 ||
                      spec.signal->before_s < 0 || spec.signal->before_s > 65'535)) {
    return refuse(Why::bad_signal, "--signal is out of range");
  }
  return {};
}

// `4 GPUs (h100)`
std::string gpus_in_words(const core::Node& node) {
  if (node.gpus.empty()) return "no GPU";
  std::vector<std::string> models;
  for (const core::Gpu& gpu : node.gpus) {
    if (std::ranges::find(models, core::model_name(gpu)) == models.end()) {
      models.push_back(core::model_name(gpu));
    }
  }
  return fmt::format("{} {} ({})", node.gpus.size(), node.gpus.size() == 1 ? "GPU" : "GPUs",
                     fmt::join(models, ", "));
}

// Those that can be used now: one that is broken would keep the job from ever starting.
std::optional<core::GpuRequest> all_gpus(const core::Node& node) {
  core::GpuRequest all{.count = 0, .what = core::WholeGpu{}, .models = {}};
  bool slices = false;
  for (const core::Gpu& gpu : node.gpus) {
    if (gpu.health != core::Health::ok) continue;
    ++all.count;
    slices = slices || !gpu.mig_profile.empty();
    // Slices are had only by name.
    const std::string model = to_lower(core::model_name(gpu));
    if (std::ranges::find(all.models, model) == all.models.end()) all.models.push_back(model);
  }
  if (!slices) all.models.clear();
  return all.count == 0 ? std::nullopt : std::optional(std::move(all));
}

}  // namespace

Answer<void> check_shown(std::string_view text) {
  constexpr std::size_t kLongest = 1'024;
  if (text.size() > kLongest) {
    return refuse(Why::too_long, "a name or text of the job is too long");
  }
  if (!is_plain_line(text)) {
    return refuse(Why::bad_text, "a name or text of the job holds control characters");
  }
  return {};
}

std::int64_t elements(const Job& job) {
  return std::max<std::int64_t>(std::ssize(job.waiting.tasks), 1);
}

Bytes record_size(const Job& job) {
  api::JobSpec spec = job.spec;
  spec.script.clear();
  spec.environment.clear();
  spec.arguments.clear();
  return Bytes(std::ssize(api::to_json(to_info(job))) + std::ssize(api::to_json(spec)));
}

Answer<void> Admission::read_spec(Job& job) const {
  const api::JobSpec& spec = job.spec;

  auto dependencies = core::parse_dependencies(spec.dependency);
  if (!dependencies) return refuse(Why::bad_dependency, dependencies.error().message);
  job.dependencies = std::move(*dependencies);

  auto gpus = core::parse_gpu_options(
      {.gres = spec.gres,
       .gpus = spec.gpus,
       .gpus_per_node = spec.gpus_per_node,
       .gpus_per_task = spec.gpus_per_task,
       .gpu_mem = spec.gpu_mem,
       .gpu_share = spec.gpu_share,
       .constraint = spec.constraint.empty() ? std::optional<std::string>() : spec.constraint,
       .tasks = job.ntasks(),
       .nodes = 1});
  if (!gpus) {
    // The words are right, but no machine has as much.
    const bool too_many = gpus.error().code == Error::Code::out_of_range;
    return refuse(too_many ? Why::never_fits : Why::bad_gpus, gpus.error().message);
  }
  job.request.gpus = std::move(*gpus);
  if (spec.exclusive) {
    if (job.request.gpus && !std::holds_alternative<core::WholeGpu>(job.request.gpus->what)) {
      return refuse(Why::bad_gpus,
                    "--exclusive is the machine with all its GPUs: leave out the share of one");
    }
    job.request.gpus = all_gpus(state_.ledger.cluster().node(0));
  }
  job.gres = job.request.gpus ? core::format_gpu_request(job.request.gpus) : "";

  const core::Node& node = state_.ledger.cluster().node(0);
  const auto cpus =
      checked_mul(kOneCpu * (spec.overcommit ? 1 : job.ntasks()), spec.cpus_per_task.value_or(1));
  job.request.cpus =
      spec.exclusive
          ? node.cpus
          : std::max(cpus.value_or(CpuMilli(INT64_MAX)),
                     checked_mul(kOneCpu, spec.min_cpus.value_or(1)).value_or(CpuMilli(INT64_MAX)));
  job.cpus = job.request.cpus;
  const std::int64_t whole_cpus = job.cpus / kOneCpu;

  std::optional<Bytes> memory;
  if (spec.memory) {
    memory = *spec.memory == 0 ? node.memory : Bytes(*spec.memory);
  } else if (spec.memory_per_cpu) {
    memory = checked_mul(Bytes(*spec.memory_per_cpu), whole_cpus).value_or(Bytes(INT64_MAX));
  } else if (spec.memory_per_gpu && job.request.gpus) {
    memory = checked_mul(Bytes(*spec.memory_per_gpu), job.request.gpus->count)
                 .value_or(Bytes(INT64_MAX));
  } else if (state_.settings.memory_per_cpu) {
    memory = checked_mul(*state_.settings.memory_per_cpu, whole_cpus).value_or(Bytes(INT64_MAX));
  }
  job.request.memory = memory.value_or(Bytes(0));
  job.memory = job.request.memory;

  auto shape = state_.ledger.cluster().shape(job.request);
  if (!shape) {
    return refuse(Why::never_fits, shape.error().message);
  }
  job.shape = *shape;
  job.unfit.clear();
  return {};
}

std::unordered_map<Uid, std::int64_t>& Admission::counts() {
  if (!state_.counts) {
    state_.counts.emplace();
    for (const auto& [id, job] : state_.jobs) (*state_.counts)[job.owner.uid] += elements(job);
  }
  return *state_.counts;
}

Answer<void> Admission::check_queue(const Caller& caller, const Job& job, std::int64_t more) {
  TRY(Accounts(state_).check_submit(job, more));
  const Limits& limits = state_.settings.limits;
  std::int64_t all = 0;
  for (const auto& [uid, count] : counts()) all += count;
  const std::int64_t mine = counts()[caller.uid];
  const std::int64_t most = limits.most_per_user();
  if (mine + more > most && !state_.is_admin(caller)) {
    return refuse(Why::over_limit, fmt::format("{} of your jobs wait or run: with this more than "
                                               "limits.max_submit_jobs_per_user allows, {}",
                                               mine, most));
  }
  if (all + more > limits.job_count) {
    return refuse(Why::try_again,
                  fmt::format("the queue is full: {} jobs wait or run, and limits.max_job_count is "
                              "{}; try again later",
                              all, limits.job_count));
  }
  if (state_.is_admin(caller)) return {};
  const auto stored = state_.store.stored_for(caller.uid);
  if (!stored) return try_again(stored.error());
  std::int64_t size = std::ssize(job.spec.script);
  for (const auto* list : {&job.spec.environment, &job.spec.arguments}) {
    for (const std::string& word : *list) size += std::ssize(word) + 1;
  }
  if (*stored + Bytes(size) + record_size(job) * more > limits.stored_per_user) {
    return refuse(Why::over_limit,
                  fmt::format("scripts, environments, arguments and options of your jobs have {}: "
                              "with this more than limits.max_stored_per_user allows, {}",
                              format_size(*stored), format_size(limits.stored_per_user)));
  }
  return {};
}

Answer<void> Admission::check_dependencies(const Job& job) {
  if (std::ssize(job.dependencies.all) > state_.settings.limits.dependencies) {
    return refuse(Why::bad_dependency,
                  fmt::format("{} dependencies are more than limits.max_dependencies allows, {}",
                              job.dependencies.all.size(), state_.settings.limits.dependencies));
  }
  for (const core::Dependency& one : job.dependencies.all) {
    if (one.kind == core::Dependency::Kind::singleton) continue;
    const bool itself = one.task ? job.task == one.task && job.array == one.job
                                 : one.job == job.id || job.array == one.job;
    if (itself) {
      return refuse(Why::bad_dependency, "a job cannot wait for itself");
    }
    const auto facts = state_.store.facts(one.job, std::nullopt);
    if (!facts) return try_again(facts.error());
    bool known = facts->has_value();
    if (known && one.task) {
      const auto task = names_.find_task(one.job, *one.task);
      if (!task) return try_again(task.error());
      known = task->has_value();
    }
    if (!known) {
      const std::string task = one.task ? fmt::format("_{}", *one.task) : "";
      return refuse(Why::bad_dependency,
                    fmt::format("there is no job {}{} to wait for", one.job, task));
    }
  }
  return {};
}

// Each once, and of a whole array says so.
void Admission::tidy_dependencies(Job& job) const {
  std::vector<core::Dependency> each;
  for (core::Dependency one : job.dependencies.all) {
    const auto head = state_.jobs.find(one.job);
    const bool array = head != state_.jobs.end() && head->second.array == one.job;
    one.all_tasks = one.all_tasks || (array && !one.task);
    if (std::ranges::find(each, one) == each.end()) each.push_back(one);
  }
  if (each == job.dependencies.all) return;
  job.dependencies.all = std::move(each);
  job.spec.dependency = core::format_dependencies(job.dependencies);
}

Answer<Job> Admission::check(const Caller& caller, api::JobSpec spec, const Job* changed) {
  TRY(state_.admit(caller));
  // First, and of what is too large no copy is made.
  TRY(check_sizes(spec, state_.settings.limits));
  TRY(check_texts(spec));
  TRY(check_numbers(spec));
  if (changed == nullptr) TRY(check_mail(spec, state_));
  if (changed == nullptr || spec.constraint != changed->spec.constraint) {
    TRY(check_features(spec.constraint, state_.ledger.cluster().node(0)));
  }
  if (changed == nullptr || spec.nodelist != changed->spec.nodelist ||
      spec.exclude != changed->spec.exclude) {
    TRY(check_nodes(spec, state_.machine.name));
  }
  if (changed == nullptr && spec.deadline_ms && *spec.deadline_ms < state_.clock.wall().ms()) {
    return refuse(Why::bad_time_limit, "the deadline is over");
  }
  Job job;
  if (changed != nullptr) {
    job.id = changed->id;
    job.array = changed->array;
    job.task = changed->task;
    job.owner = changed->owner;
  } else {
    const auto user = state_.users.find(caller.uid);
    if (!user && user.error().code != Error::Code::not_found) return try_again(user.error());
    if (!user) return refuse(Why::unknown_user, user.error().message);
    job.owner = {user->name, caller.uid, user->group, Gid(user->gid)};
  }
  // A job that stays where it is may stay there.
  const bool stays = changed != nullptr && changed->partition == spec.partition;
  job.partition =
      TRY(check_partitions(stays ? Caller{state_.owner} : caller, job.owner, spec.partition));
  if (spec.batch && !spec.script.starts_with("#!")) {
    return refuse(Why::bad_script, "a batch script starts with #!");
  }
  if (spec.script.find('\0') != std::string::npos) {
    return refuse(Why::bad_text, "the script holds a zero byte");
  }
  if (!spec.batch && !spec.array.empty()) {
    return refuse(Why::bad_array, "only batch jobs can be arrays");
  }
  const bool raised = changed == nullptr
                          ? spec.nice < 0 || spec.priority
                          : (spec.nice < 0 && spec.nice != changed->spec.nice) ||
                                (spec.priority && spec.priority != changed->spec.priority);
  if (raised && !state_.is_admin(caller)) {
    return refuse(Why::access_denied, "only root may raise a priority");
  }
  job.spec = std::move(spec);
  const bool same = changed != nullptr && job.spec.account == changed->spec.account &&
                    job.spec.qos == changed->spec.qos;
  if (!same) TRY(Accounts(state_).assign(caller, job));
  TRY(read_spec(job));
  TRY(check_dependencies(job));
  tidy_dependencies(job);
  if (!job.spec.array.empty()) {
    auto array = core::parse_array(job.spec.array);
    if (!array) return refuse(Why::bad_array, array.error().message);
    if (array->tasks.back() >= state_.settings.limits.array_size) {
      return refuse(Why::bad_array,
                    fmt::format("array index {} is not below limits.max_array_size, {}",
                                array->tasks.back(), state_.settings.limits.array_size));
    }
    job.set_waiting(std::move(*array));
  }
  if (changed == nullptr || job.spec.reservation != changed->spec.reservation ||
      job.request != changed->request) {
    TRY(Reservations(state_).check(caller, job));
  }
  const auto partitions = find_partitions(job.partition);
  const auto fits = [&](const Partition* partition) {
    const std::int64_t gpus = wants_of(job, state_.ledger.cluster().node(0))[core::Measure::gpus];
    if (partition->gpu_count && gpus > *partition->gpu_count * kWholeGpu.value()) return false;
    core::Shape there = job.shape;
    there.devices = devices_of(*partition);
    return core::ever_fits(state_.ledger.cluster(), there);
  };
  if (std::ranges::none_of(partitions, fits)) {
    const core::Node& node = state_.ledger.cluster().node(0);
    if (job.request.memory > node.memory) {
      return refuse(Why::never_fits, "Memory specification can not be satisfied");
    }
    const CpuMilli of_a_node =
        kOneCpu * std::max(job.spec.min_cpus.value_or(1), job.spec.cpus_per_task.value_or(1));
    if (of_a_node > node.cpus) {
      return refuse(Why::never_fits, "CPU count per node can not be satisfied");
    }
    return refuse(
        Why::never_fits,
        job.request.cpus > node.cpus ? fmt::format("{} CPUs are more than this machine's {}",
                                                   job.cpus / kOneCpu, node.cpus / kOneCpu)
        : core::ever_fits(state_.ledger.cluster(), job.shape)
            ? fmt::format("the GPUs of partition {} can never give {}", job.partition, job.gres)
            : fmt::format("{} is more than this machine can ever give: it has {}", job.gres,
                          gpus_in_words(node)));
  }

  const WallTime now = state_.clock.wall();
  job.priority = job.spec.priority.value_or(1);  // until the queue is looked at
  job.submitted = now;
  job.eligible = std::max(now, WallTime(job.spec.begin_ms.value_or(0)));
  job.time_limit = partitions.front()->default_time.length;
  if (const auto most = max_wall(state_.book, job, partitions.front()->qos);
      most && (!job.time_limit || *job.time_limit > *most)) {
    job.time_limit = most;
  }
  if (job.spec.no_time_limit) job.time_limit.reset();
  if (job.spec.time_limit_ms) job.time_limit = Millis(*job.spec.time_limit_ms);
  if (const auto* qos = qos_of(state_.book, job); qos != nullptr && qos->deny_on_limit) {
    Quotas quotas(state_);
    if (const auto never = quotas.claim(job, *partitions.front()).never; !never.empty()) {
      return refuse(Why::over_limit,
                    fmt::format("{}: the QOS {} refuses such jobs", never, qos->name));
    }
  }
  job.std_out = job.spec.std_out.value_or("");
  job.std_err = job.spec.std_err.value_or("");
  job.std_in = job.spec.std_in.value_or("");
  job.dependency_text = core::format_dependencies(job.dependencies);
  // Whoever submits it held holds it as its user, root too: so Slurm says.
  if (job.spec.hold || job.spec.priority == 0) job.hold = Hold::user;
  return job;
}

}  // namespace aliquot::engine
