#include "cli/view/engine_query.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "api/json.hpp"
#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/jobs/job_ids.hpp"
#include "cli/machine/paths.hpp"
#include "cli/query.hpp"
#include "cli/view/job_text.hpp"
#include "net/http.hpp"
#include "sys/program.hpp"

namespace aliquot::cli {
namespace {

constexpr const char* kSlurmTool = "aliquot-slurm";
constexpr const char* kKubeTool = "aliquot-kube";

tl::unexpected<api::ErrorInfo> wrong(std::string message) {
  return tl::make_unexpected(api::ErrorInfo{"", std::move(message)});
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Is this machine part of a Slurm cluster?
bool has_slurm() {
  if (const auto named = variable("SLURM_CONF"); !named.empty()) {
    return ::access(named.c_str(), R_OK) == 0;
  }
  return ::access("/etc/slurm/slurm.conf", R_OK) == 0 ||
         ::access("/run/slurm/conf/slurm.conf", R_OK) == 0;
}

// What the tool prints; if it fails, its message is the error.
Reply<std::string> run_tool(const char* tool, const std::vector<std::string>& words) {
  const auto program = find_part_program(tool);
  if (program.empty()) {
    return wrong(fmt::format("{} is not beside this program: install the whole package", tool));
  }
  std::vector<std::string> argv{program};
  argv.insert(argv.end(), words.begin(), words.end());
  auto [status, printed, said] =
      sys::run_program({.file = program, .argv = std::move(argv)}, sys::Streams::apart);
  if (status == 0) return std::move(printed);
  if (const auto line = said.find_last_not_of('\n'); line != said.npos) said.resize(line + 1);
  if (said.starts_with("aliquot: ")) said.erase(0, 9);
  return wrong(said.empty() ? fmt::format("{} failed", program) : said);
}

Reply<Engine> choose(const Reply<DaemonClient>& daemon, const KubeOptions& kube = {}) {
  const auto asked = engine_asked();
  if (!asked) return wrong(asked.error().message);
  const auto engine = asked->value_or(!daemon && has_slurm() ? Engine::slurm : Engine::embedded);
  if (const auto misplaced = kube.misplaced(engine)) return wrong(*misplaced);
  return engine;
}

std::vector<std::string> kube_view(const KubeOptions& kube,
                                   std::initializer_list<const char*> more) {
  std::vector<std::string> words{"view"};
  for (auto& word : kube.words()) words.push_back(std::move(word));
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Reply<api::Overview> ask_daemon(DaemonClient& daemon) {
  auto cluster = daemon.get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return tl::make_unexpected(cluster.error());
  auto list = daemon.list("/v1/jobs");
  if (!list) return tl::make_unexpected(list.error());
  return api::Overview{std::move(*cluster), std::move(list->jobs)};
}

// The queue forgets a job soon after its end; accounting does not.
Reply<api::JobInfo> find_daemons_job(DaemonClient& daemon, const std::string& id) {
  auto job = daemon.get_as_is<api::JobInfo>(job_target(id));
  if (job || job.error().code == kUnreachable) return job;
  auto list =
      daemon.list("/v1/accounting?id=" + net::percent_encode(id.substr(0, id.find('_'))), true);
  if (list) {
    for (auto& one : list->jobs) {
      if (matches_job_id(one, id)) return std::move(one);
    }
  }
  return tl::make_unexpected(job.error());
}

template <class T>
Reply<T> decoded(const Reply<std::string>& printed) {
  if (!printed) return tl::make_unexpected(printed.error());
  auto value = api::from_json<T>(*printed);
  if (!value) return wrong(value.error().message);
  api::make_plain(*value);
  return std::move(*value);
}

}  // namespace

int refused(const api::ErrorInfo& error) {
  if (error.code == kUnreachable) {
    complain("no daemon answers: start it with 'aliquot up', or look with 'aliquot doctor'");
  } else {
    complain(error_text(error));
  }
  return kFailed;
}

int refused(const api::ErrorInfo& error, const std::string& job) {
  if (error.code != "ESLURM_INVALID_JOB_ID") return refused(error);
  complain(job == "last" ? "you have no job yet" : fmt::format("there is no job {}", job));
  return kFailed;
}

int no_job_id(const std::string& text) {
  complain(fmt::format("'{}' is no job's id: write a number such as 7, 7_3, or last", text));
  return kMisused;
}

std::string overview_json(const api::Overview& overview) {
  api::JobListWriter jobs(overview.jobs.size());
  for (const auto& job : overview.jobs) jobs.add(job);
  return "{\"cluster\":" + api::to_json(overview.cluster) + "," + jobs.take().substr(1) + "\n";
}

Reply<api::Overview> ask_overview(bool limits, const KubeOptions& kube) {
  auto daemon = DaemonClient::connect();
  const auto engine = choose(daemon, kube);
  if (!engine) return tl::make_unexpected(engine.error());
  if (*engine == Engine::kubernetes) {
    const auto words = limits ? kube_view(kube, {"--quota"}) : kube_view(kube, {});
    return decoded<api::Overview>(run_tool(kKubeTool, words));
  }
  if (*engine == Engine::embedded) {
    if (!daemon) return tl::make_unexpected(daemon.error());
    return ask_daemon(*daemon);
  }
  std::vector<std::string> words{"view"};
  if (limits) words.emplace_back("--limits");
  return decoded<api::Overview>(run_tool(kSlurmTool, words));
}

Reply<api::JobInfo> ask_job(const std::string& id) {
  auto daemon = DaemonClient::connect();
  const auto engine = choose(daemon);
  if (!engine) return tl::make_unexpected(engine.error());
  if (*engine == Engine::embedded) {
    if (!daemon) return tl::make_unexpected(daemon.error());
    return find_daemons_job(*daemon, id);
  }
  const auto printed = run_tool(kSlurmTool, {"view"});
  if (!printed) return tl::make_unexpected(printed.error());
  auto overview = api::from_json<api::Overview>(*printed);
  if (!overview) return wrong(overview.error().message);
  std::optional<api::JobInfo> found;
  for (auto& job : overview->jobs) {
    const bool matches =
        id == "last" ? job.uid == static_cast<std::int64_t>(::getuid()) : matches_job_id(job, id);
    if (matches && (!found || job.id > found->id)) found = std::move(job);
  }
  if (found) return std::move(*found);
  return wrong(id == "last"
                   ? "Slurm knows no job of yours; it forgets one minutes after its end (MinJobAge)"
                   : fmt::format("Slurm does not know job {}, or no more: it forgets where a job "
                                 "wrote minutes after its end (MinJobAge)",
                                 id));
}

Reply<api::WhyInfo> ask_why(const std::string& job, const KubeOptions& kube) {
  auto daemon = DaemonClient::connect();
  const auto engine = choose(daemon, kube);
  if (!engine) return tl::make_unexpected(engine.error());
  if (*engine == Engine::kubernetes) {
    return decoded<api::WhyInfo>(run_tool(kKubeTool, kube_view(kube, {"--why", job.c_str()})));
  }
  // `7_[1-3]`: squeue shows elements that wait together so. They wait for the same.
  const auto several = job.ends_with(']') ? parse_job_pattern(job) : std::nullopt;
  if (*engine == Engine::embedded) {
    if (!daemon) return tl::make_unexpected(daemon.error());
    return daemon->get<api::WhyInfo>(job_target(several ? several->targets()[0] : job) + "/why");
  }
  return decoded<api::WhyInfo>(run_tool(kSlurmTool, {"view", "why", several ? several->job : job}));
}

}  // namespace aliquot::cli
