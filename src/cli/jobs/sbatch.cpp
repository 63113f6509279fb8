// sbatch: submits a script and, with --wait, waits for its end.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/jobs/job_request.hpp"
#include "cli/jobs/script.hpp"
#include "cli/option_set.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kNotSubmitted = "Batch job submission failed";

Parsed<Script> find_script(const CommandLine& line, char** argv, int argc) {
  for (const auto& word : line.words) {
    if (word.name != "wrap") continue;
    if (static_cast<int>(line.rest) < argc) {
      return tl::make_unexpected(Misuse{1, "Script arguments not permitted with --wrap option"});
    }
    return wrap_script(word.value);
  }
  auto script =
      static_cast<int>(line.rest) < argc ? read_script_file(argv[line.rest]) : read_script_stdin();
  if (!script) return script;
  if (auto good = check_script(script->text); !good) return tl::make_unexpected(good.error());
  return script;
}

std::string default_name(const OptionSet& options, const Script& script) {
  if (options.has("wrap")) return "wrap";
  if (script.path.empty()) return "sbatch";
  return script.path.substr(script.path.rfind('/') + 1);
}

// The job's exit code; 1 if a signal ended it.
int status_of(const api::JobInfo& job) {
  if (job.exit_signal != 0) return 1;
  if (job.exit_code != 0) return job.exit_code & 0xff;
  return job.state == "COMPLETED" ? 0 : 1;
}

// Of an array the highest of all.
Reply<int> wait_once(std::int64_t id) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return tl::make_unexpected(daemon.error());
  const auto job = daemon->get<api::JobInfo>(fmt::format("/v1/jobs/{}/wait", id));
  if (!job) return tl::make_unexpected(job.error());
  if (!job->array_job_id) return status_of(*job);
  const auto elements = daemon->list(fmt::format("/v1/accounting?id={}", id));
  if (!elements) return tl::make_unexpected(elements.error());
  int highest = 0;
  for (const auto& element : elements->jobs) highest = std::max(highest, status_of(element));
  return highest;
}

// Outlasts a restart of the daemon, and a disk that is full.
int wait_for(std::int64_t id) {
  while (true) {
    const auto status = wait_once(id);
    if (status) return *status;
    if (!is_passing(status.error())) return 1;
    ::sleep(1);
  }
}

int submit(const OptionSet& options, const api::JobSpec& job, const Voice& voice) {
  auto daemon = DaemonClient::connect();
  if (!daemon) {
    say_refusal(voice, kNotSubmitted, daemon.error(), job);
    return 1;
  }
  if (auto placed = check_places(options, *daemon, voice); !placed) {
    say_refusal(voice, kNotSubmitted, placed.error(), job);
    return 1;
  }
  if (options.has("test-only")) return test_only(*daemon, job, voice);

  const auto submitted =
      post_patiently<api::Submitted>(*daemon, "/v1/jobs", api::to_json(job), voice);
  if (!submitted) {
    say_refusal(voice, kNotSubmitted, submitted.error(), job);
    return 1;
  }
  const bool named = options.has("clusters");
  if (options.has("parsable")) {
    fmt::print("{}{}{}\n", submitted->job_id, named ? ";" : "", options.text("clusters"));
  } else if (voice.level() >= 0) {
    fmt::print("Submitted batch job {}{}{}\n", submitted->job_id, named ? " on cluster " : "",
               options.text("clusters"));
  }
  // Whoever reads the id must have it before a long wait.
  if (std::fflush(stdout) != 0) return 1;
  return options.has("wait") ? wait_for(submitted->job_id) : 0;
}

}  // namespace

int run_sbatch(int argc, char** argv) {
  Voice voice("sbatch");
  const auto line = read_line(SlurmCommand::sbatch, argc, argv, voice);
  if (!line) return line.error();
  auto script = find_script(*line, argv, argc);
  if (!script) return refused(voice, script.error());
  const auto directives = read_directives(
      script->text, false,
      script->path.empty() ? "stdin" : script->path.substr(script->path.rfind('/') + 1));
  if (!directives) return refused(voice, directives.error());
  const auto given = gather_options(SlurmCommand::sbatch, *line, *directives);
  if (!given) return refused(voice, given.error());
  const auto& options = *given;
  voice.set_level(voice_level(options));
  say_options(options, voice);

  if (auto user = become_user(options); !user) return refused(voice, user.error());
  const auto caller = describe_caller();
  auto job = make_job(options, caller, sys::SystemClock().wall());
  if (!job) return refused(voice, job.error());
  job->batch = true;
  job->name = options.text("job-name", default_name(options, *script));
  job->command = script->path;
  job->script = std::move(script->text);
  for (int i = static_cast<int>(line->rest) + 1; i < argc; ++i)
    job->arguments.emplace_back(argv[i]);
  return submit(options, *job, voice);
}

}  // namespace aliquot::cli
