#include "cli/view/sources.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "api/json.hpp"
#include "base/text.hpp"
#include "cli/view/programs.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

constexpr const char* kTool = "aliquot-slurm";

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

void read_rest(int from, std::string& to) {
  std::array<char, 65'536> buffer{};
  for (;;) {
    const auto size = ::read(from, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    to.append(buffer.data(), static_cast<std::size_t>(size));
  }
  ::close(from);
}

// What the tool prints; its own words where it fails.
Answer<std::string> run_tool(const std::vector<std::string>& words) {
  const auto program = find_part_program(kTool);
  if (program.empty()) {
    return wrong(fmt::format("{} is not beside this program: install the whole package", kTool));
  }
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
    return wrong(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return wrong(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  std::string printed;
  std::string said;
  read_rest(out[0], printed);
  read_rest(err[0], said);  // a line: it cannot have filled its pipe
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return printed;
  if (const auto line = said.find_last_not_of('\n'); line != said.npos) said.resize(line + 1);
  if (said.starts_with("aliquot: ")) said.erase(0, 9);
  return wrong(said.empty() ? fmt::format("{} failed", program) : said);
}

enum class Engine { embedded, slurm };

Answer<Engine> choose(const Answer<Daemon>& daemon) {
  const auto forced = variable("ALIQUOT_ENGINE");
  if (forced == "slurm") return Engine::slurm;
  if (!forced.empty() && forced != "embedded") {
    return wrong(fmt::format("ALIQUOT_ENGINE is {}: write slurm or embedded", quote(forced)));
  }
  if (forced.empty() && !daemon && has_slurm()) return Engine::slurm;
  return Engine::embedded;
}

Answer<api::Overview> ask_daemon(Daemon& daemon) {
  auto cluster = daemon.get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return tl::make_unexpected(cluster.error());
  auto list = daemon.list("/v1/jobs");
  if (!list) return tl::make_unexpected(list.error());
  return api::Overview{std::move(*cluster), std::move(list->jobs)};
}

template <class T>
Answer<T> decoded(const Answer<std::string>& printed) {
  if (!printed) return tl::make_unexpected(printed.error());
  auto value = api::from_json<T>(*printed);
  if (!value) return wrong(value.error().message);
  api::make_plain(*value);
  return std::move(*value);
}

}  // namespace

std::string overview_json(const api::Overview& overview) {
  api::JobListWriter jobs(overview.jobs.size());
  for (const auto& job : overview.jobs) jobs.add(job);
  return "{\"cluster\":" + api::to_json(overview.cluster) + "," + jobs.take().substr(1) + "\n";
}

Answer<api::Overview> ask_overview(bool limits) {
  auto daemon = Daemon::connect();
  const auto engine = choose(daemon);
  if (!engine) return tl::make_unexpected(engine.error());
  if (*engine == Engine::embedded) {
    if (!daemon) return tl::make_unexpected(daemon.error());
    return ask_daemon(*daemon);
  }
  std::vector<std::string> words{"view"};
  if (limits) words.emplace_back("--limits");
  return decoded<api::Overview>(run_tool(words));
}

Answer<api::WhyInfo> ask_why(const std::string& job) {
  auto daemon = Daemon::connect();
  const auto engine = choose(daemon);
  if (!engine) return tl::make_unexpected(engine.error());
  if (*engine == Engine::embedded) {
    if (!daemon) return tl::make_unexpected(daemon.error());
    return daemon->get<api::WhyInfo>("/v1/jobs/" + net::percent_encode(job) + "/why");
  }
  return decoded<api::WhyInfo>(run_tool({"view", "why", job}));
}

}  // namespace aliquot::cli
