// sattach: what a step writes, from now on until it ends. Tasks are children of their srun and have
// its files: where these can be read they are, and else it says so. Nothing is typed into a step
// from here.
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <set>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/interrupts.hpp"
#include "cli/query.hpp"
#include "cli/view/file_tail.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kSattachPrefix = "sattach: error: Could not get job step info";
constexpr Millis kLookForMore(250);

int no_step(const Voice& voice) {
  voice.error("Could not get job step info: Invalid job id specified");
  return 1;
}

const api::StepInfo* running_step(const api::JobInfo& job, const std::string& id) {
  for (const api::StepInfo& step : job.steps) {
    if (step.id == id && !step.end_ms) return &step;
  }
  return nullptr;
}

std::string layout_text(const api::JobInfo& job, const api::StepInfo& step) {
  std::string tasks;
  for (std::int64_t task = 0; task < step.ntasks; ++task) tasks += fmt::format("{} ", task);
  return fmt::format(
      "Job step layout:\n\t{0} tasks, 1 nodes ({1})\n\n\tNode 0 ({1}), {0} task(s): {2}\n",
      step.ntasks, job.node, tasks);
}

// The regular files that these processes write to, as the kernel names them.
std::set<std::string> files_of(const std::vector<std::int64_t>& pids) {
  std::set<std::string> files;
  for (const std::int64_t pid : pids) {
    for (const int number : {1, 2}) {
      std::error_code error;
      const auto path =
          std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", pid, number), error);
      if (error || !std::filesystem::is_regular_file(path, error) || error) continue;
      files.insert(path.string());
    }
  }
  return files;
}

std::set<std::string> files_of_step(DaemonClient& daemon, const api::JobInfo& job,
                                    const std::string& step) {
  const auto all =
      daemon.get<api::RunningProcesses>(job_target(fmt::format("{}", job.id)) + "/processes");
  std::set<std::string> files;
  if (all) {
    for (const api::StepProcesses& one : all->steps) {
      if (one.id == step) files = files_of(one.pids);
    }
  }
  // Where srun labels what its tasks write, it writes to the script's file.
  if (files.empty() && job.batch && !job.std_out.empty()) files.insert(job.std_out);
  return files;
}

int follow(DaemonClient& daemon, const std::string& id, const std::string& step,
           const std::set<std::string>& files) {
  std::deque<FileTail> tails;
  for (const std::string& file : files) tails.emplace_back(file);
  bool show = false;  // what is there already was written before
  const auto drain = [&] {
    for (FileTail& tail : tails) {
      std::string text;
      std::string failure;
      while (tail.read(text, failure)) {
        if (show) print(text);
        text.clear();
      }
    }
  };
  drain();
  show = true;
  Interrupts interrupts;
  while (true) {
    const auto job = daemon.get<api::JobInfo>(job_target(id));
    const bool over = !job || running_step(*job, step) == nullptr;
    drain();
    if (over) return 0;
    if (interrupts.wait(kLookForMore)) return kInterrupted;
  }
}

}  // namespace

int run_sattach(int argc, char** argv) {
  Voice voice("sattach");
  const auto call = read_call(SlurmCommand::sattach, argc, argv, voice);
  if (!call) return call.error();
  const OptionSet& options = call->options;
  const auto misuse = [&](std::string_view what) {
    voice.error(what);
    print(usage_text(SlurmCommand::sattach));
    return 1;
  };
  if (call->words.size() != 1) return misuse("too many parameters");  // Slurm's word for none, too
  const std::string_view word = call->words.front();
  const auto dot = word.find('.');
  const std::string id(word.substr(0, dot));
  const std::string step_id(dot == word.npos ? "" : word.substr(dot + 1));
  if (dot == word.npos) return misuse("Failed to parse stepid from command line options");
  if (!is_job_id(id)) return no_step(voice);
  for (const char* one : {"input-filter", "output-filter", "error-filter", "label", "pty"}) {
    if (!options.has(one)) continue;
    voice.error(fmt::format("--{}: tasks are not told apart here: run srun with --label", one));
    return 1;
  }
  auto daemon = open_daemon(options, voice, kSattachPrefix);
  if (!daemon) return daemon.error();
  // As is: files have to be opened by their names.
  const auto job = daemon->get_as_is<api::JobInfo>(job_target(id));
  if (!job && job.error().code == kUnreachable) return load_failed(kSattachPrefix, job.error());
  const api::StepInfo* const step = job ? running_step(*job, step_id) : nullptr;
  if (step == nullptr) return no_step(voice);
  if (options.has("layout")) {
    api::JobInfo shown = *job;
    api::make_plain(shown);
    return print(layout_text(shown, *step));
  }
  const auto files = files_of_step(*daemon, *job, step_id);
  if (files.empty()) {
    voice.error(fmt::format(
        "step {}.{} writes to a terminal or a pipe, which only its srun reads: give srun --output",
        id, step_id));
    return 1;
  }
  return follow(*daemon, fmt::format("{}", job->id), step_id, files);
}

}  // namespace aliquot::cli
