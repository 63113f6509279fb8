// srun: runs a step, in the job it is called in or in one of its own. The tasks are its children;
// the daemon grants, keeps the books and moves srun into the job's cgroup.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/jobs/allocation.hpp"
#include "cli/jobs/gpu_binding.hpp"
#include "cli/jobs/gpu_counts.hpp"
#include "cli/jobs/job_request.hpp"
#include "cli/jobs/multi_prog.hpp"
#include "cli/jobs/script.hpp"
#include "cli/jobs/tasks.hpp"
#include "cli/jobs/unused_words.hpp"
#include "cli/option_set.hpp"
#include "cli/users.hpp"
#include "net/http.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

// For how long we try to report the end of a step to a daemon that does not answer.
constexpr int kReportSeconds = 15;
// How often we ask whether other steps have released what this one needs.
constexpr unsigned kStepRetryUs = 250'000;
// How long the daemon may take to say that it will signal a step.
constexpr std::chrono::seconds kSignalPatience(3);
constexpr std::int64_t kMostTasksOfAStep = 10'000;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::int64_t count_tasks(const OptionSet& options) {
  // -n on the command line beats a number of tasks per node that only the job's environment has.
  const auto* tasks = options.find("ntasks");
  const auto* per_node = options.find("ntasks-per-node");
  if (tasks != nullptr && (per_node == nullptr || tasks->source >= per_node->source)) {
    return options.number("ntasks").value_or(1);
  }
  if (per_node != nullptr) return options.number("ntasks-per-node").value_or(1);
  return 1;
}

// Those that it asks for, else those of the job around it.
std::int64_t gpus_of_step(const OptionSet& options, const CallSite& caller, bool inside) {
  const auto asked = gpus_asked(options);
  if (asked > 0 || !inside) return asked;
  return parse_digits(caller.environment.get("SLURM_GPUS_ON_NODE").value_or("")).value_or(0);
}

Result<std::vector<std::vector<std::string>>> commands_of(const OptionSet& options,
                                                          const std::vector<std::string>& words,
                                                          std::size_t ntasks) {
  if (!options.has("multi-prog")) return std::vector(ntasks, words);
  const auto file = read_script_file(words[0]);
  if (!file) {
    return fail(Error::Code::not_found, "Could not open multi_prog config file {}", words[0]);
  }
  return parse_multi_prog(file->text, ntasks, words[0]);
}

// The environment of all tasks: the caller's as --export has it, the job's, the step's.
Environment step_environment(const OptionSet& options, const CallSite& caller,
                             const std::vector<const api::Allocation*>& answers,
                             std::int64_t ntasks) {
  auto environment = export_environment(caller.environment, options.maybe("export")).environment;
  for (const auto* answer : answers) add_granted(environment, answer->environment);
  // What sbatch and salloc were asked for; srun says it to nobody.
  if (!caller.environment.get("SLURM_GPUS")) environment.unset("SLURM_GPUS");
  const auto& last = *answers.back();
  const auto tasks = fmt::format("{}", ntasks);
  const auto step = fmt::format("{}", last.step_id.value_or(0));
  environment.set("SLURM_STEP_ID", step);
  environment.set("SLURM_STEPID", step);
  const auto said = [&](const char* name) { return caller.environment.get(name); };
  const bool preserved = options.has("preserve-env");
  environment.set("SLURM_NTASKS", preserved ? said("SLURM_NTASKS").value_or(tasks) : tasks);
  environment.set("SLURM_NPROCS", preserved ? said("SLURM_NPROCS").value_or(tasks) : tasks);
  if (preserved && said("SLURM_NNODES")) environment.set("SLURM_NNODES", *said("SLURM_NNODES"));
  environment.set("SLURM_TASKS_PER_NODE", tasks);
  environment.set("SLURM_STEP_NUM_TASKS", tasks);
  environment.set("SLURM_STEP_TASKS_PER_NODE", tasks);
  environment.set("SLURM_STEP_NUM_NODES", "1");
  environment.set("SLURM_STEP_NODELIST", last.job.node);
  environment.set("SLURM_NODEID", "0");
  environment.set("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1");
  environment.set("SLURM_SRUN_COMM_HOST", "127.0.0.1");
  environment.set("SLURM_UMASK", fmt::format("{:04o}", caller.umask));
  environment.set("SRUN_DEBUG", "3");
  environment.unset("ENVIRONMENT");  // BATCH: of the batch script alone
  if (const auto cpus = options.maybe("cpus-per-task")) {
    environment.set("SLURM_CPUS_PER_TASK", *cpus);
  }
  std::string ids = "0";
  for (std::int64_t i = 1; i < ntasks; ++i) ids += fmt::format(",{}", i);
  environment.set("SLURM_GTIDS", ids);
  return environment;
}

// Of the GPUs that the step sees.
Result<void> bind_gpus(Environment& environment, const GpuBinding& binding, std::size_t task,
                       const Voice& voice) {
  const auto visible = environment.get("CUDA_VISIBLE_DEVICES");
  if (!visible || visible->empty()) return {};
  const auto gpus = split(*visible, ',');
  std::string mine;
  for (const std::size_t gpu : TRY(binding.gpus_of(task, gpus.size()))) {
    if (!mine.empty()) mine += ',';
    mine += gpus[gpu];
  }
  if (binding.verbose) voice.info(fmt::format("gpu-bind: task {}: {}", task, mine));
  environment.set("CUDA_VISIBLE_DEVICES", mine);
  return {};
}

// --pty wants a terminal on our side.
bool has_terminal(const Voice& voice, Environment& environment) {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0) {
    voice.error(fmt::format("ioctl(TIOCGWINSZ): {}", std::strerror(errno)));
    voice.error("Not using a pseudo-terminal, disregarding --pty option");
    return false;
  }
  environment.set("SLURM_PTY_WIN_COL", fmt::format("{}", size.ws_col));
  environment.set("SLURM_PTY_WIN_ROW", fmt::format("{}", size.ws_row));
  return true;
}

void report_end(std::optional<DaemonClient> daemon, const api::Allocation& step,
                const api::StepEnd& end) {
  const auto body = api::to_json(end);
  const auto target = fmt::format("/v1/jobs/{}/steps/{}/end", step.job_id, *step.step_id);
  for (int attempt = 0; attempt <= kReportSeconds; ++attempt) {
    if (attempt > 0) ::sleep(1);
    if (!daemon) {
      auto again = DaemonClient::connect();
      if (!again) continue;
      daemon.emplace(std::move(*again));
    }
    const auto answer = daemon->send("POST", target, body);
    if (answer) return;
    if (answer.error().code == "EAGAIN") continue;  // its disk is full just now
    if (answer.error().code != kUnreachable) return;
    daemon.reset();
  }
}

// A task may be a client of an MPS server. Killing it in the middle of its work would harm the
// server; the daemon can disconnect it first. The daemon may hang, so the wait has a limit.
bool ask_to_signal(std::int64_t job, std::int64_t step, int signal) {
  const auto done = std::make_shared<std::promise<bool>>();
  auto answer = done->get_future();
  std::thread([=] {
    auto daemon = DaemonClient::connect();
    done->set_value(daemon &&
                    daemon->send("POST", fmt::format("/v1/jobs/{}/steps/{}/cancel", job, step),
                                 api::to_json(api::CancelSpec{.signal = signal})));
  }).detach();
  return answer.wait_for(kSignalPatience) == std::future_status::ready && answer.get();
}

struct Step {
  std::optional<HeldAllocation> held;  // a job of our own
  std::optional<DaemonClient> daemon;
  api::Allocation answer;
};

// That the step wants more GPUs than its job has.
std::string more_than_job(std::string_view code, const api::StepSpec& spec) {
  const char* have = std::getenv("SLURM_GPUS_ON_NODE");
  const auto asked = parse_digits(spec.gpus.value_or(""));
  const auto held = have == nullptr ? std::nullopt : parse_digits(have);
  if (code != "ESLURM_INVALID_GRES" || !asked || !held || *asked <= *held) return "";
  return fmt::format("Step requested gres=gpu:{} is more than the job's gres=gpu:{}", *asked,
                     *held);
}

// Whether the node of the job is where the step wants to be; says so where it is not.
bool is_on_node(const OptionSet& options, const CallSite& caller, const std::string& job,
                const Voice& voice) {
  const auto node = caller.environment.get("SLURM_JOB_NODELIST");
  const auto wanted = options.words("nodelist");
  if (node && std::ranges::any_of(wanted, [&](const auto& name) { return name != *node; })) {
    voice.error(fmt::format(
        "Unable to create step for job {}: Requested node configuration is not available", job));
    return false;
  }
  const auto count = options.text("nodes");
  const auto least = parse_digits(std::string_view(count).substr(0, count.find('-')));
  if (!least || *least <= 1) return true;
  voice.error(fmt::format("Only allocated 1 nodes asked for {}", *least));
  return false;
}

// In the job that --jobid or the environment names.
std::optional<Step> step_in(const std::string& job, const api::StepSpec& spec, bool immediate,
                            const Voice& voice) {
  auto daemon = DaemonClient::connect();
  if (!daemon) {
    voice.error(fmt::format("Unable to confirm allocation for job {}: {}", job,
                            error_text(daemon.error())));
    return std::nullopt;
  }
  const auto target = fmt::format("/v1/jobs/{}/steps", net::percent_encode(job));
  const auto ask = [&] {
    return immediate ? daemon->post<api::Allocation>(target, api::to_json(spec))
                     : post_patiently<api::Allocation>(*daemon, target, api::to_json(spec), voice);
  };
  auto answer = ask();
  bool waited = false;
  while (!answer && !immediate && answer.error().code == "ESLURM_NODES_BUSY") {
    if (!std::exchange(waited, true)) {
      voice.info(fmt::format("Job {} step creation temporarily disabled, retrying ({})", job,
                             error_text(answer.error())));
    }
    ::usleep(kStepRetryUs);
    answer = ask();
  }
  if (answer && waited) {
    voice.info(
        fmt::format("Step created for StepId={}.{}", answer->job_id, answer->step_id.value_or(0)));
  }
  if (answer) return Step{std::nullopt, std::move(*daemon), std::move(*answer)};
  const auto& code = answer.error().code;
  if (code == "ESLURM_INVALID_JOB_ID" || code == "ESLURM_ALREADY_DONE" ||
      code == "ESLURM_ACCESS_DENIED") {
    voice.error(fmt::format("Unable to confirm allocation for job {}: {}", job,
                            error_text(answer.error())));
    voice.info(
        fmt::format("Check SLURM_JOB_ID environment variable. Expired or invalid job {}", job));
  } else {
    if (const auto why = more_than_job(code, spec); !why.empty()) voice.error(why);
    voice.error(
        fmt::format("Unable to create step for job {}: {}", job, error_text(answer.error())));
  }
  return std::nullopt;
}

// In a job that is made for it.
std::optional<Step> step_alone(const OptionSet& options, const CallSite& caller,
                               const std::vector<std::string>& words, const api::StepSpec& spec,
                               const Voice& voice, int& status) {
  auto job = make_job(options, caller, sys::SystemClock().wall());
  if (!job) {
    status = refused(voice, job.error());
    return std::nullopt;
  }
  job->batch = false;
  job->name = options.text("job-name", base_name(words[0]));
  job->command = words[0];
  if (!job->ntasks) job->ntasks = spec.ntasks;
  auto held = HeldAllocation::ask(options, *job, voice);
  if (!held) return std::nullopt;
  if (held->answer().step_id) {
    auto answer = held->answer();
    return Step{std::move(held), std::nullopt, std::move(answer)};
  }
  auto step = step_in(fmt::format("{}", held->answer().job_id), spec, true, voice);
  if (step) step->held = std::move(held);
  return step;
}

int run_step(Step step, const OptionSet& options, const CallSite& caller,
             std::vector<std::vector<std::string>> commands, const GpuBinding& binding,
             const Voice& voice) {
  std::vector<const api::Allocation*> answers;
  if (step.held) answers.push_back(&step.held->answer());
  answers.push_back(&step.answer);
  auto environment =
      step_environment(options, caller, answers, static_cast<std::int64_t>(commands.size()));
  StepPlan plan;
  plan.folder = resolve_path(options.text("chdir", caller.folder), caller.folder);
  const auto& job = step.answer.job;
  plan.names = {.job = JobId(step.answer.job_id),
                .array_job = job.array_job_id,
                .array_task = job.array_task_id,
                .job_name = job.name,
                .user = user_name(Uid(::geteuid())),
                .host = job.node.empty() ? caller.host : job.node,
                .step = step.answer.step_id.value_or(0)};
  plan.std_out = options.maybe("output");
  plan.std_err = options.maybe("error");
  plan.std_in = options.maybe("input");
  plan.append = options.text("open-mode").starts_with('a');
  plan.label = options.has("label");
  plan.kill_on_bad_exit =
      options.has("kill-on-bad-exit") && options.text("kill-on-bad-exit") != "0";
  plan.quit_on_interrupt = options.has("quit-on-interrupt") || options.has("disable-status");
  plan.wait_s = options.number("wait");
  EndNotice notice;
  if (step.held) {
    plan.notice = &notice;
    step.held->on_ending([&](const api::JobInfo& ending) { notice.leave(ending); });
  } else if (const auto* limit = options.find("time");
             limit != nullptr && limit->source == Source::command_line) {
    if (const auto time = parse_time_limit(limit->text); time && time->length) {
      plan.time_limit = time->length;
    }
  }
  plan.pty = options.has("pty") && has_terminal(voice, environment);
  if (step.answer.step_id && environment.get("CUDA_MPS_PIPE_DIRECTORY")) {
    plan.signal_step = [id = step.answer.job_id, number = *step.answer.step_id](int signal) {
      return ask_to_signal(id, number, signal);
    };
    // The daemon ends a job whose srun is gone, and disconnects it from the MPS server first.
    plan.die_with_us = !step.held;
  }

  // A command is looked for where srun is called, even if the task's PATH is another.
  const auto path = caller.environment.get("PATH").value_or("");
  const auto over = [&](const StepOutcome& outcome) {
    if (step.answer.step_id) report_end(std::move(step.daemon), step.answer, outcome.end);
    if (step.held) step.held->finish(outcome.end);
    return outcome.status;
  };
  for (std::size_t i = 0; i < commands.size(); ++i) {
    Task task{std::move(commands[i]), environment};
    task.environment.set("SLURM_PROCID", fmt::format("{}", i));
    task.environment.set("SLURM_LOCALID", fmt::format("{}", i));
    if (const auto bound = bind_gpus(task.environment, binding, i, voice); !bound) {
      voice.error(bound.error().message);
      return over({.status = 1, .end = {.exit_code = 1}});
    }
    if (!task.environment.get("PATH")) task.command[0] = find_program(task.command[0], path);
    plan.tasks.push_back(std::move(task));
  }
  return over(run_tasks(plan, voice));
}

// The engine has no process manager interface: tasks that want one run alone each.
std::optional<int> answer_mpi(const OptionSet& options, const Voice& voice) {
  const auto type = options.maybe("mpi");
  if (!type || *type == "none") return std::nullopt;
  if (*type == "list") {
    fmt::print("MPI plugin types are...\n\tnone\n");
    return std::fflush(stdout) == 0 ? 0 : 1;
  }
  voice.error(fmt::format("Couldn't find the specified plugin name for mpi/{} looking at all files",
                          *type));
  voice.error(fmt::format("cannot find mpi plugin for mpi/{}", *type));
  voice.error(fmt::format("MPI: Cannot create context for mpi/{}", *type));
  voice.error("MPI: Unable to load any plugin");
  voice.error(fmt::format("Invalid MPI type '{}', --mpi=list for acceptable types", *type));
  voice.info(
      "hint: tasks are started without a process manager interface: write --mpi=none, or run "
      "mpirun in the script");
  return 1;
}

int say_start(const OptionSet& options, const CallSite& caller,
              const std::vector<std::string>& words, std::int64_t ntasks, const Voice& voice) {
  auto job = make_job(options, caller, sys::SystemClock().wall());
  if (!job) return refused(voice, job.error());
  job->batch = false;
  job->name = options.text("job-name", base_name(words[0]));
  job->command = words[0];
  if (!job->ntasks) job->ntasks = ntasks;
  auto daemon = DaemonClient::connect();
  if (!daemon) {
    say_refusal(voice, kTestFailed, daemon.error(), *job);
    return 1;
  }
  if (auto placed = check_places(options, *daemon, voice); !placed) {
    say_refusal(voice, kTestFailed, placed.error(), *job);
    return 1;
  }
  return test_only(*daemon, *job, voice);
}

}  // namespace

int run_srun(int argc, char** argv) {
  Voice voice("srun");
  const auto call = read_call(SlurmCommand::srun, argc, argv, voice);
  if (!call) return call.error();
  const auto& options = call->options;
  say_options(options, voice);
  if (const auto status = answer_mpi(options, voice)) return *status;
  const std::vector<std::string> words(call->words.begin(), call->words.end());
  if (words.empty()) {
    voice.fatal("No command given to execute.");
    return 1;
  }
  if (std::ranges::find(words, ":") != words.end()) {
    voice.error(
        "a job has one component here, and ':' would begin another: start the commands beside "
        "each other, as 'srun one & srun other & wait'");
    return 1;
  }
  if (auto user = become_user(options); !user) return refused(voice, user.error());

  if (auto fine = check_words(options); !fine) return refused(voice, fine.error());
  const auto binding = gpu_binding_of(options);
  if (!binding) return refused(voice, binding.error());

  const auto caller = describe_caller();
  const auto inside = options.has("jobid")
                          ? options.text("jobid")
                          : std::string(caller.environment.get("SLURM_JOB_ID").value_or(""));
  const auto by_gpu = tasks_by_gpu(options, gpus_of_step(options, caller, !inside.empty()));
  if (!by_gpu) return refused(voice, by_gpu.error());
  const auto ntasks = by_gpu->value_or(count_tasks(options));
  if (ntasks > kMostTasksOfAStep) {
    voice.error(fmt::format("Invalid numeric value \"{}\" for --ntasks.", ntasks));
    return 1;
  }
  auto commands = commands_of(options, words, static_cast<std::size_t>(ntasks));
  if (!commands) {
    voice.error(commands.error().message);
    return 1;
  }
  if (options.has("test-only")) return say_start(options, caller, words, ntasks, voice);
  api::StepSpec spec;
  spec.ntasks = ntasks;
  spec.cpus_per_task = options.number("cpus-per-task").value_or(1);
  spec.overlap = options.has("overlap");
  spec.overcommit = options.has("overcommit");
  if (!inside.empty()) {
    if (!is_on_node(options, caller, inside, voice)) return 1;
    // What a job asked for is in the environment of its steps, too: only what is said here counts.
    const auto said = [&](std::string_view option) -> std::optional<std::string> {
      const auto* value = options.find(option);
      if (value == nullptr || value->source != Source::command_line) return std::nullopt;
      return value->text;
    };
    spec.gres = said("gres");
    spec.gpus = said("gpus");
    spec.gpus_per_node = said("gpus-per-node");
    spec.gpus_per_task = said("gpus-per-task");
    for (const char* part : {"gpu-share", "gpu-mem"}) {
      const auto text = said(part);
      if (!text) continue;
      voice.error(
          fmt::format("--{0}: a step has the share that its job has; for a part of its own "
                      "submit it as a job: sbatch --{0}={1}",
                      part, *text));
      return 1;
    }
    if (const auto each = said("cpus-per-gpu")) {
      const auto cpus = parse_digits(*each).value_or(1) * gpus_of_step(options, caller, true);
      spec.cpus_per_task = std::max(spec.cpus_per_task, (cpus + ntasks - 1) / ntasks);
    }
  }
  const auto* name = options.find("job-name");
  spec.name =
      name != nullptr && name->source == Source::command_line ? name->text : base_name(words[0]);

  int status = 1;
  auto step = inside.empty() ? step_alone(options, caller, words, spec, voice, status)
                             : step_in(inside, spec, options.has("immediate"), voice);
  if (!step) return status;
  return run_step(std::move(*step), options, caller, std::move(*commands), *binding, voice);
}

}  // namespace aliquot::cli
