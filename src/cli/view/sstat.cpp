// sstat: which steps are meant, and what their processes use now.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/query.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/sstat_text.hpp"
#include "sys/process.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kSstatPrefix = "sstat: error";

struct WantedStep {
  std::string job;
  std::string step;  // empty: the first one, or all of them
};

OrStatus<std::vector<WantedStep>> read_wanted(const NamedCall& call, const Voice& voice) {
  std::vector<std::string> words = call.options.words("jobs");
  for (const auto word : call.words) {
    for (const auto one : split(word, ',')) words.emplace_back(one);
  }
  std::erase(words, "");
  if (words.empty()) {
    voice.error("You didn't give me any jobs to stat.");
    return tl::make_unexpected(1);
  }
  std::vector<WantedStep> wanted;
  for (const std::string& word : words) {
    const auto dot = word.find('.');
    WantedStep one{word.substr(0, dot), dot == word.npos ? "" : word.substr(dot + 1)};
    const bool known = one.step.empty() || one.step == "batch" || one.step == "extern" ||
                       parse_digits(one.step).has_value();
    if (!is_job_id(one.job) || !known || (dot != word.npos && one.step.empty())) {
      voice.fatal(fmt::format("Bad job/step specified: {}", word));
      return tl::make_unexpected(1);
    }
    wanted.push_back(std::move(one));
  }
  return wanted;
}

// Numbers of /proc/PID/stat, from the third field on: the second may hold anything.
std::vector<std::int64_t> stat_numbers(Pid pid) {
  std::vector<std::int64_t> numbers;
  const auto text = sys::read_proc(pid, "stat");
  const auto close = text ? text->rfind(')') : std::string::npos;
  if (close == std::string::npos) return numbers;
  for (const auto word : split(std::string_view(*text).substr(close + 1), ' ')) {
    if (!word.empty()) numbers.push_back(parse_digits(word).value_or(0));
  }
  return numbers;
}

TaskUse process_use(Pid pid) {
  TaskUse use;
  const auto numbers = stat_numbers(pid);
  // Counted from the third: majflt, utime, stime, cutime, cstime, vsize, rss.
  if (numbers.size() > 21) {
    const std::int64_t ticks = numbers[11] + numbers[12] + numbers[13] + numbers[14];
    use.cpu_ms = ticks * 1'000 / ::sysconf(_SC_CLK_TCK);
    use.pages = numbers[9];
    use.vm = numbers[20];
    use.rss = numbers[21] * ::sysconf(_SC_PAGESIZE);
  }
  if (const auto io = sys::read_proc(pid, "io")) {
    for (const auto line : split(*io, '\n')) {
      if (line.starts_with("rchar: ")) use.read = parse_digits(line.substr(7)).value_or(0);
      if (line.starts_with("wchar: ")) use.written = parse_digits(line.substr(7)).value_or(0);
    }
  }
  return use;
}

// A task is a process whose parent is none of the step's, with all that descends from it.
std::vector<TaskUse> tasks_of(const std::vector<std::int64_t>& pids, bool batch) {
  const std::set<std::int64_t> inside(pids.begin(), pids.end());
  std::map<std::int64_t, std::int64_t> parents;
  for (const std::int64_t pid : pids) {
    const auto process = sys::read_process(Pid(static_cast<int>(pid)));
    if (process) parents[pid] = process->parent.value();
  }
  std::map<std::int64_t, TaskUse> by_root;
  for (const auto& [pid, parent] : parents) {
    std::int64_t root = pid;
    // Never round in a circle, whatever happens meanwhile.
    for (std::size_t i = 0; i < pids.size(); ++i) {
      const auto above = parents.find(root);
      if (above == parents.end() || !inside.contains(above->second)) break;
      root = above->second;
    }
    const TaskUse use = process_use(Pid(static_cast<int>(pid)));
    TaskUse& task = by_root[batch ? 0 : root];
    task.cpu_ms += use.cpu_ms;
    task.rss += use.rss;
    task.vm += use.vm;
    task.pages += use.pages;
    task.read += use.read;
    task.written += use.written;
  }
  std::vector<TaskUse> tasks;
  for (const auto& [root, task] : by_root) tasks.push_back(task);
  return tasks;
}

// What its own processes have of the GPUs, and how busy they keep what it holds.
void add_gpu(StepUse& step, const api::JobInfo& job, const api::ClusterInfo& cluster,
             const api::RunningProcesses& all) {
  if (job.gpus.empty()) return;
  const auto memory_of = [&](const std::vector<std::int64_t>& pids) {
    std::int64_t memory = 0;
    bool any = false;
    for (const api::GpuInfo& gpu : cluster.node.gpus) {
      for (const api::GpuProcess& process : gpu.processes) {
        if (std::ranges::find(pids, process.pid) == pids.end()) continue;
        memory += process.memory;
        any = true;
      }
    }
    return any ? std::optional(memory) : std::nullopt;
  };
  step.gpu_memory = memory_of(step.pids);
  // The library measures the job as a whole: it is this step's where no other one is on a GPU.
  const auto on_gpu = std::ranges::count_if(
      all.steps, [&](const api::StepProcesses& one) { return memory_of(one.pids).has_value(); });
  if (!step.gpu_memory || on_gpu != 1 || !all.gpu_ms || !job.start_ms) return;
  const std::int64_t held =
      (wall_now().ms() - *job.start_ms) * static_cast<std::int64_t>(job.gpus.size());
  if (held > 0) step.gpu_percent = std::clamp<std::int64_t>(*all.gpu_ms * 100 / held, 0, 100);
}

// The steps of this job that are meant, or what Slurm says where there are none.
OrStatus<std::string> step_rows(DaemonClient& daemon, const api::ClusterInfo& cluster,
                                const WantedStep& wanted, bool all_steps, const SstatTable& table,
                                const Voice& voice) {
  const auto job = daemon.get<api::JobInfo>(job_target(wanted.job));
  const auto processes =
      !job ? Reply<api::RunningProcesses>(tl::make_unexpected(job.error()))
           : daemon.get<api::RunningProcesses>(job_target(wanted.job) + "/processes");
  if (!processes || processes->steps.empty()) {
    if (!processes && processes.error().code == "ESLURM_ACCESS_DENIED") {
      voice.error(error_text(processes.error()));
    } else {
      voice.error(fmt::format("{} for job {}", job ? "No steps running" : "couldn't get steps",
                              wanted.job));
    }
    return std::string();
  }
  std::string out;
  const bool several = wanted.step.empty() && all_steps;
  // Slurm's order: the script's first, then by number; alone the lowest number.
  std::vector<const api::StepProcesses*> steps;
  for (const api::StepProcesses& one : processes->steps) {
    if (wanted.step.empty() || wanted.step == one.id) steps.push_back(&one);
  }
  std::ranges::stable_sort(steps, [&](const auto* a, const auto* b) {
    const auto rank = [&](const auto* one) {
      return one->id == "batch" ? (several ? -1 : INT64_MAX) : parse_digits(one->id).value_or(0);
    };
    return rank(a) < rank(b);
  });
  if (steps.empty()) {
    voice.error(fmt::format("StepId={}.{} not found running.", wanted.job, wanted.step));
    return std::string();
  }
  if (!several) steps.resize(1);
  for (const api::StepProcesses* one : steps) {
    StepUse use{.id = job_id_text(*job) + "." + one->id,
                .node = job->node,
                .pids = one->pids,
                .tasks = tasks_of(one->pids, one->id == "batch"),
                .batch = one->id == "batch"};
    add_gpu(use, *job, cluster, *processes);
    out += table.row(use);
  }
  return out;
}

}  // namespace

int run_sstat(int argc, char** argv) {
  Voice voice("sstat");
  const auto call = read_call(SlurmCommand::sstat, argc, argv, voice);
  if (!call) return call.error();
  const OptionSet& options = call->options;
  if (options.has("helpformat")) return print(list_sstat_fields());
  SstatView view;
  if (options.has("pidformat")) view.format = kSstatPids;
  if (const auto format = options.maybe("format")) view.format = *format;
  view.convert = !options.has("noconvert");
  view.header = !options.has("noheader");
  if (options.has("parsable") || options.has("parsable2")) view.delimiter = "|";
  view.trailing = options.has("parsable");
  const auto wanted = read_wanted(*call, voice);
  if (!wanted) return wanted.error();
  const auto table = SstatTable::of(view);
  if (!table) {
    voice.error(table.error().message);
    return 1;
  }
  auto daemon = open_daemon(options, voice, kSstatPrefix);
  if (!daemon) return daemon.error();
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kSstatPrefix, cluster.error());
  print(table->header());
  for (const WantedStep& one : *wanted) {
    const auto rows = step_rows(*daemon, *cluster, one, options.has("allsteps"), *table, voice);
    if (!rows) return rows.error();
    if (const int status = print(*rows); status != 0) return status;
  }
  return 0;
}

}  // namespace aliquot::cli
