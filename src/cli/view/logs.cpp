// `aliquot logs`: what a job wrote, and with -f what it goes on to write until it ends.
#include <deque>

#include "api/json.hpp"
#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/interrupts.hpp"
#include "cli/own_command.hpp"
#include "cli/query.hpp"
#include "cli/view/engine_query.hpp"
#include "cli/view/file_tail.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/json_writer.hpp"

namespace aliquot::cli {
namespace {

struct LogsOptions {
  std::string job = "last";
  bool follow = false;
  bool json = false;
};

std::string absolute(const api::JobInfo& job, const std::string& path) {
  return path.empty() || path.starts_with('/') ? path : job.work_dir + "/" + path;
}

// Prints one or more files as they grow, each under its name if there are several.
class Output {
 public:
  void add(const std::string& path) {
    for (const auto& file : files_) {
      if (file.path() == path) return;
    }
    files_.emplace_back(path);
  }

  // Prints all that is there now. False: nothing was new.
  bool drain() {
    bool any = false;
    for (auto& file : files_) {
      std::string text;
      std::string failure;
      while (file.read(text, failure)) {
        if (files_.size() > 1 && last_ != &file) {
          fmt::print("{}==> {} <==\n", last_ == nullptr ? "" : "\n", make_plain(file.path()));
        }
        last_ = &file;
        print(text);
        text.clear();
        any = true;
      }
      if (!failure.empty() && failure != failure_) {
        complain(fmt::format("cannot read {}: {}", make_plain(file.path()), failure));
        failure_ = failure;
      }
    }
    return any;
  }

  [[nodiscard]] bool failed() const { return !failure_.empty(); }
  [[nodiscard]] bool seen() const {
    for (const auto& file : files_) {
      if (file.seen()) return true;
    }
    return false;
  }

 private:
  std::deque<FileTail> files_;
  const FileTail* last_ = nullptr;
  std::string failure_;
};

int print_json(const api::JobInfo& job) {
  JsonWriter json;
  json.begin_object().field("job_id", job.id).field("state", job.state);
  json.field("std_out", absolute(job, job.std_out)).field("std_err", absolute(job, job.std_err));
  return print(json.end_object().text());
}

int logs(const LogsOptions& options) {
  if (const auto no = refused_on_cluster("logs", {.kubernetes = "use 'kubectl logs'"})) return *no;
  if (!is_job_id(options.job)) return no_job_id(options.job);
  auto job = ask_job(options.job);
  if (!job) return refused(job.error(), options.job);
  if (options.json) return print_json(*job);
  // `last` was resolved once: a newer job does not change what we follow.
  const auto id = job->array_task_id ? fmt::format("{}_{}", job->array_job_id.value_or(job->id),
                                                   *job->array_task_id)
                                     : fmt::format("{}", job->id);
  Interrupts interrupts;
  bool told = false;
  while (options.follow && is_pending(*job)) {
    if (!told)
      complain(fmt::format("job {} waits ({}): see 'aliquot why {}'", id, job->reason, id));
    told = true;
    if (interrupts.wait(Millis(500))) return kInterrupted;
    job = ask_job(id);
    if (!job) return refused(job.error(), id);
  }
  if (job->std_out.empty()) {
    complain(is_pending(*job) ? fmt::format("job {} has not started: nothing is written yet", id)
                              : fmt::format("job {} has no output file that you may see", id));
    return kFailed;
  }
  Output output;
  output.add(absolute(*job, job->std_out));
  if (!job->std_err.empty()) output.add(absolute(*job, job->std_err));
  output.drain();
  while (options.follow) {
    const bool ended = is_finished(*job);
    const bool any = output.drain();
    if (ended && !any) break;
    if (interrupts.wait(Millis(ended ? 50 : 250))) return kInterrupted;
    if (ended) continue;
    // The daemon may be restarting: the files grow without it.
    if (auto now = ask_job(id)) job = std::move(now);
  }
  if (output.failed()) return kFailed;
  if (!output.seen()) {
    complain(fmt::format("{} does not exist (any more)", make_plain(absolute(*job, job->std_out))));
    return kFailed;
  }
  return kDone;
}

}  // namespace

void add_logs(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, logs);
  command.add_option("job", options.job, "The job's id, or last")->capture_default_str();
  command.add_flag("-f,--follow", options.follow, "Go on until the job ends");
  command.add_flag("--json", options.json, "Print the files' names as JSON");
}

}  // namespace aliquot::cli
