#include "node/environment.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/job_variables.hpp"
#include "base/text.hpp"
#include "node/process_tree.hpp"

namespace aliquot::node {
namespace {

constexpr std::int64_t kMiB = 1024L * 1024;
constexpr std::string_view kLibraryPath = "LD_LIBRARY_PATH";
constexpr std::string_view kPreload = "LD_PRELOAD";

// Besides kJobVariables, what we set or leave out on purpose: an outer job's value never shows
// through. Other SLURM_* variables are settings for srun and stay.
constexpr std::array kOurs = {"ALIQUOT_JOB",
                              "CUDA_DEVICE_ORDER",
                              "CUDA_VISIBLE_DEVICES",
                              "ENVIRONMENT",
                              "SLURMD_NODENAME",
                              "SLURM_ARRAY_JOB_ID",
                              "SLURM_ARRAY_TASK_COUNT",
                              "SLURM_ARRAY_TASK_ID",
                              "SLURM_ARRAY_TASK_MAX",
                              "SLURM_ARRAY_TASK_MIN",
                              "SLURM_ARRAY_TASK_STEP",
                              "SLURM_CLUSTER_NAME",
                              "SLURM_CONF",
                              "SLURM_JOB_ACCOUNT",
                              "SLURM_JOB_CPUS_PER_NODE",
                              "SLURM_JOB_DEPENDENCY",
                              "SLURM_JOB_END_TIME",
                              "SLURM_JOB_GID",
                              "SLURM_JOB_GPUS",
                              "SLURM_JOB_ID",
                              "SLURM_JOB_NAME",
                              "SLURM_JOB_NODELIST",
                              "SLURM_JOB_NUM_NODES",
                              "SLURM_JOB_PARTITION",
                              "SLURM_JOB_QOS",
                              "SLURM_JOB_START_TIME",
                              "SLURM_JOB_UID",
                              "SLURM_JOB_USER",
                              "SLURM_NODE_ALIASES",
                              "SLURM_PRIO_PROCESS",
                              "SLURM_SRUN_COMM_HOST",
                              "SLURM_SRUN_COMM_PORT",
                              "SLURM_STEP_GPUS",
                              "SLURM_STEP_ID",
                              "SLURM_STEP_LAUNCHER_PORT",
                              "SLURM_STEP_NODELIST",
                              "SLURM_STEP_NUM_NODES",
                              "SLURM_STEP_NUM_TASKS",
                              "SLURM_STEP_TASKS_PER_NODE",
                              "SLURM_SUBMIT_DIR",
                              "SLURM_SUBMIT_HOST",
                              "SLURM_TOPOLOGY_ADDR",
                              "SLURM_TOPOLOGY_ADDR_PATTERN",
                              "SLURM_WORKING_CLUSTER"};

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

class Builder {
 public:
  void operator()(std::string_view name, std::string_view value) {
    environment_.push_back(std::string(name).append("=").append(value));
  }
  void operator()(std::string_view name, std::int64_t value) {
    (*this)(name, std::to_string(value));
  }
  template <class T>
  void if_any(std::string_view name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  void if_any(std::string_view name, const std::string& value) {
    if (!value.empty()) (*this)(name, value);
  }
  void all(const Environment& variables) {
    environment_.insert(environment_.end(), variables.begin(), variables.end());
  }
  Environment take() { return std::move(environment_); }

 private:
  Environment environment_;
};

std::string gpu_indices(const std::vector<api::GpuHold>& gpus) {
  std::vector<std::int64_t> indices;
  for (const auto& gpu : gpus) indices.push_back(gpu.index);
  return fmt::format("{}", fmt::join(indices, ","));
}
std::vector<std::string> gpu_uuids(const std::vector<api::GpuHold>& gpus) {
  std::vector<std::string> uuids;
  for (const auto& gpu : gpus) uuids.push_back(gpu.uuid);
  return uuids;
}

Environment gpus_seen(const std::vector<api::GpuHold>& gpus, GpuNames names) {
  const bool slices = std::ranges::any_of(
      gpus, [](const api::GpuHold& gpu) { return gpu.uuid.starts_with("MIG-"); });
  if (slices || names == GpuNames::uuid) return gpu_environment(gpu_uuids(gpus));
  std::vector<std::int64_t> indices;
  for (const auto& gpu : gpus) {
    indices.push_back(names == GpuNames::index
                          ? gpu.index
                          : std::ranges::count_if(gpus, [&](const api::GpuHold& other) {
                              return other.index < gpu.index;
                            }));
  }
  return gpu_environment({fmt::format("{}", fmt::join(indices, ","))});
}

void add_gpus(const JobContext& context, Builder* set) {
  const auto& job = context.job;
  set->all(gpus_seen(job.gpus, context.gpu_names));
  if (!job.gpus.empty()) {
    (*set)("SLURM_GPUS_ON_NODE", static_cast<std::int64_t>(job.gpus.size()));
    (*set)("SLURM_JOB_GPUS", gpu_indices(job.gpus));
  }
  set->if_any("SLURM_GPUS", context.spec.gpus);
  set->if_any("SLURM_GPUS_PER_NODE", context.spec.gpus_per_node);
  set->if_any("SLURM_GPUS_PER_TASK", context.spec.gpus_per_task);
}

void add_memory(const JobContext& context, Builder* set) {
  const auto& spec = context.spec;
  if (spec.memory_per_cpu && !spec.memory) {
    (*set)("SLURM_MEM_PER_CPU", *spec.memory_per_cpu / kMiB);
  } else if (spec.memory_per_gpu && !spec.memory) {
    (*set)("SLURM_MEM_PER_GPU", *spec.memory_per_gpu / kMiB);
  } else if (context.job.memory > 0) {
    (*set)("SLURM_MEM_PER_NODE", context.job.memory / kMiB);
  }
}

void add_tasks(const JobContext& context, Builder* set) {
  const auto& job = context.job;
  const auto& spec = context.spec;
  set->if_any("SLURM_CPUS_PER_TASK", spec.cpus_per_task);
  if (spec.ntasks || spec.ntasks_per_node || !spec.batch) {
    (*set)("SLURM_NTASKS", job.ntasks);
    (*set)("SLURM_NPROCS", job.ntasks);
  }
  set->if_any("SLURM_NTASKS_PER_NODE", spec.ntasks_per_node);
  (*set)("SLURM_TASKS_PER_NODE", job.ntasks);
  (*set)("SLURM_JOB_CPUS_PER_NODE", job.cpus);
  (*set)("SLURM_CPUS_ON_NODE", job.cpus);
}

void add_array(const api::JobInfo& job, Builder* set) {
  if (!job.array_job_id || !job.array_task_id) return;
  (*set)("SLURM_ARRAY_JOB_ID", *job.array_job_id);
  (*set)("SLURM_ARRAY_TASK_ID", *job.array_task_id);
  (*set)("SLURM_ARRAY_TASK_COUNT", job.array_count);
  (*set)("SLURM_ARRAY_TASK_MIN", job.array_min);
  (*set)("SLURM_ARRAY_TASK_MAX", job.array_max);
  (*set)("SLURM_ARRAY_TASK_STEP", job.array_step);
}

void add_job(const JobContext& context, Builder* set) {
  const auto& job = context.job;
  const auto& spec = context.spec;
  (*set)("SLURM_JOB_ID", job.id);
  (*set)("SLURM_JOBID", job.id);
  (*set)("SLURM_JOB_NAME", job.name);
  (*set)("SLURM_JOB_USER", job.user);
  (*set)("SLURM_JOB_UID", job.uid);
  (*set)("SLURM_JOB_GID", job.gid);
  set->if_any("SLURM_JOB_ACCOUNT", job.account);
  set->if_any("SLURM_JOB_QOS", job.qos);
  (*set)("SLURM_JOB_PARTITION", job.partition);
  (*set)("SLURM_JOB_NODELIST", job.node);
  (*set)("SLURM_NODELIST", job.node);
  (*set)("SLURM_JOB_NUM_NODES", 1);
  (*set)("SLURM_NNODES", 1);
  (*set)("SLURM_NODE_ALIASES", "(null)");
  (*set)("SLURM_CLUSTER_NAME", context.cluster);
  if (job.start_ms) {
    (*set)("SLURM_JOB_START_TIME", *job.start_ms / 1000);
    if (job.time_limit_ms) {
      (*set)("SLURM_JOB_END_TIME", (*job.start_ms + *job.time_limit_ms) / 1000);
    }
  }
  if (job.restarts > 0) (*set)("SLURM_RESTART_COUNT", job.restarts);
  set->if_any("SLURM_JOB_DEPENDENCY", spec.dependency);
  const auto submitted_from = get(spec.environment, "SLURM_SUBMIT_DIR");
  (*set)("SLURM_SUBMIT_DIR", !context.submit_dir.empty() ? std::string_view(context.submit_dir)
                                                         : submitted_from.value_or(job.work_dir));
  (*set)("SLURM_SUBMIT_HOST", job.submit_host);
  add_tasks(context, set);
  add_memory(context, set);
  add_gpus(context, set);
  add_array(job, set);
  if (!context.mark.empty()) (*set)(kMarkVariable, context.mark);
}

// The place of a process on the only node.
void add_rank(const JobContext& context, Builder* set) {
  (*set)("SLURMD_NODENAME", context.job.node);
  (*set)("SLURM_NODEID", 0);
  (*set)("SLURM_PROCID", 0);
  (*set)("SLURM_LOCALID", 0);
  (*set)("SLURM_GTIDS", 0);
  (*set)("SLURM_PRIO_PROCESS", 0);
  (*set)("SLURM_TOPOLOGY_ADDR", context.job.node);
  (*set)("SLURM_TOPOLOGY_ADDR_PATTERN", "node");
}

// NAME=folder:the rest, without the folder where it was before: a job inside a job has it already.
std::string in_front(const Environment& user, std::string_view name, const std::string& folder,
                     std::string_view otherwise) {
  auto value = fmt::format("{}={}", name, folder);
  const auto before = get(user, name).value_or(otherwise);
  if (before.empty()) return value;
  for (const auto part : split(before, ':')) {
    if (part != folder) value.append(":").append(part);
  }
  return value;
}

// Where our commands, and the stand-in's libraries and programs, are found before any others.
Environment found_first(const JobContext& context, const Environment& user,
                        std::string_view usual) {
  constexpr std::string_view kPath = "PATH";
  Environment variables;
  if (!context.socket.empty()) variables.push_back("ALIQUOT_SOCKET=" + context.socket);
  Environment path = user;
  if (context.standin) {
    const auto folder = context.standin->directory.string();
    variables = merge(variables, gpu::environment(*context.standin));
    variables.push_back(in_front(user, kLibraryPath, folder, ""));
    path = {in_front(path, kPath, folder, usual)};
  }
  if (!context.commands.empty()) path = {in_front(path, kPath, context.commands, usual)};
  if (context.standin || !context.commands.empty()) variables = merge(variables, path);
  return variables;
}

// Ours first, then the user's own; the one of an outer job never.
Environment preload_environment(const JobContext& context, const Environment& user) {
  std::string list = context.preload;
  const auto before = get(user, kPreload);
  std::string words(before.value_or(""));
  std::ranges::replace(words, ' ', ':');
  for (const auto word : split(words, ':')) {
    if (word.empty() || word.ends_with("/libaliquot.so")) continue;
    if (!list.empty()) list += ':';
    list += word;
  }
  if (list.empty() && !before) return {};
  return {std::string(kPreload) + "=" + list};
}

bool is_of_a_job(std::string_view name) {
  const auto among = [&](const auto& list) { return std::ranges::find(list, name) != list.end(); };
  return among(kOurs) || among(kMpsVariables) || among(kJobVariables);
}

Environment without_ours(const Environment& user) {
  Environment kept;
  for (const auto& variable : user) {
    if (!is_of_a_job(name_of(variable))) kept.push_back(variable);
  }
  return kept;
}

}  // namespace

std::optional<std::string_view> get(const Environment& environment, std::string_view name) {
  for (const auto& variable : environment) {
    if (variable.size() > name.size() && variable[name.size()] == '=' &&
        variable.starts_with(name)) {
      return std::string_view(variable).substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

Environment merge(const Environment& base, const Environment& over) {
  Environment all;
  std::unordered_map<std::string, std::size_t> places;
  for (const auto* side : {&base, &over}) {
    for (const auto& variable : *side) {
      const auto equals = variable.find('=');
      if (equals == std::string::npos || equals == 0) continue;
      if (variable.find('\0') != std::string::npos) continue;
      const auto [place, added] = places.emplace(variable.substr(0, equals), all.size());
      if (added) {
        all.push_back(variable);
      } else {
        all[place->second] = variable;
      }
    }
  }
  return all;
}

Environment gpu_environment(const std::vector<std::string>& uuids) {
  return {fmt::format("CUDA_VISIBLE_DEVICES={}", fmt::join(uuids, ",")),
          "CUDA_DEVICE_ORDER=PCI_BUS_ID"};
}

Environment batch_environment(const JobContext& context, const Environment& user) {
  Builder defaults;
  defaults.if_any("HOME", context.home);
  defaults.if_any("SHELL", context.shell);
  defaults("USER", context.job.user);
  defaults("LOGNAME", context.job.user);
  defaults("PATH", "/usr/local/bin:/usr/bin:/bin");
  defaults("TMPDIR", context.tmp_dir);

  Builder ours;
  ours("ENVIRONMENT", "BATCH");
  ours("HOSTNAME", context.job.node);
  if (context.spec.login_environment) ours("SLURM_GET_USER_ENV", 1);
  add_job(context, &ours);
  add_rank(context, &ours);

  auto all = merge(defaults.take(), without_ours(user));
  all = merge(all, found_first(context, all, "/usr/local/bin:/usr/bin:/bin"));
  all = merge(all, preload_environment(context, all));
  return merge(merge(all, ours.take()), context.extra);
}

Environment allocation_environment(const JobContext& context) {
  Builder ours;
  add_job(context, &ours);
  // The client puts it, and the folders of search paths, in front of its own.
  ours.if_any(kPreload, context.preload);
  return merge(merge(found_first(context, {}, ""), ours.take()), context.extra);
}

Environment step_environment(const JobContext& context, const StepContext& step) {
  Builder ours;
  add_rank(context, &ours);
  const auto& node = context.job.node;
  ours("SLURM_STEP_ID", step.step);
  ours("SLURM_STEPID", step.step);
  ours("SLURM_STEP_NODELIST", node);
  ours("SLURM_STEP_NUM_NODES", 1);
  ours("SLURM_STEP_NUM_TASKS", step.ntasks);
  ours("SLURM_STEP_TASKS_PER_NODE", step.ntasks);
  ours("SLURM_NTASKS", step.ntasks);
  ours("SLURM_NPROCS", step.ntasks);
  ours("SLURM_TASKS_PER_NODE", step.ntasks);
  if (context.spec.cpus_per_task || step.cpus_per_task > 1) {
    ours("SLURM_CPUS_PER_TASK", step.cpus_per_task);
  }
  const auto& gpus = step.gpus ? *step.gpus : context.job.gpus;
  if (!gpus.empty()) ours("SLURM_STEP_GPUS", gpu_indices(gpus));
  if (step.gpus) {
    ours.all(gpus_seen(gpus, context.gpu_names));
    ours("SLURM_GPUS_ON_NODE", static_cast<std::int64_t>(gpus.size()));
  }
  ours("SLURM_SRUN_COMM_HOST", "127.0.0.1");
  ours("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1");
  ours("SLURM_UMASK", fmt::format("{:04o}", context.spec.umask));
  ours("SRUN_DEBUG", 3);
  return merge(merge(allocation_environment(context), ours.take()), context.extra);
}

}  // namespace aliquot::node
