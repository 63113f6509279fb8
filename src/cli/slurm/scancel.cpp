// scancel: ends or signals jobs, by id or by what they are.
#include <fmt/format.h>
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cli/common.hpp"
#include "cli/multicall.hpp"
#include "cli/slurm/job_ids.hpp"
#include "cli/slurm/options.hpp"
#include "cli/view/slurm_command.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kScancelUsage =
    "Usage: scancel [OPTIONS] [JOBID[_TASK|_[TASKS]][.STEP]…]\n"
    "\n"
    "Options:\n"
    "  -A, --account=…      jobs of this account\n"
    "  -b, --batch          signal the batch shell only\n"
    "  -f, --full           signal the batch shell and all steps\n"
    "  -i, --interactive    ask before each job\n"
    "      --me             my jobs\n"
    "  -n, --name=…         jobs of this name\n"
    "  -p, --partition=…    jobs in this partition\n"
    "  -q, --qos=…          jobs of this quality of service\n"
    "  -Q, --quiet          no complaint about jobs that are not there\n"
    "  -s, --signal=…       send this signal instead of ending the job\n"
    "  -t, --state=…        PENDING, RUNNING or SUSPENDED jobs\n"
    "  -u, --user=…         jobs of this user\n"
    "  -v, --verbose        say what is done\n"
    "  -w, --nodelist=…     jobs on this node\n";

struct Request {
  std::vector<std::string> words;
  std::vector<JobPattern> ids;
  std::string user;
  std::string name;
  std::string account;
  std::string partition;
  std::string qos;
  std::string state;
  std::string node;
  std::string reservation;
  std::string wckey;
  std::string clusters;
  int signal = 0;
  bool batch = false;
  bool full = false;
  bool ask = false;
  bool hurry = false;

  [[nodiscard]] bool filters() const {
    return !user.empty() || !name.empty() || !account.empty() || !partition.empty() ||
           !qos.empty() || !state.empty() || !node.empty() || !reservation.empty() ||
           !wckey.empty();
  }
};

struct Early {
  int status = 0;
};

tl::expected<Request, Early> read_request(int argc, char** argv, Voice& voice) {
  constexpr auto kOptions = std::to_array<option>({
      {"account", required_argument, nullptr, 'A'},
      {"batch", no_argument, nullptr, 'b'},
      {"cluster", required_argument, nullptr, 'M'},
      {"clusters", required_argument, nullptr, 'M'},
      {"ctld", no_argument, nullptr, 0x101},
      {"cron", no_argument, nullptr, 0x105},
      {"full", no_argument, nullptr, 'f'},
      {"help", no_argument, nullptr, 0x102},
      {"hurry", no_argument, nullptr, 'H'},
      {"interactive", no_argument, nullptr, 'i'},
      {"jobname", required_argument, nullptr, 'n'},
      {"me", no_argument, nullptr, 0x104},
      {"name", required_argument, nullptr, 'n'},
      {"nodelist", required_argument, nullptr, 'w'},
      {"partition", required_argument, nullptr, 'p'},
      {"qos", required_argument, nullptr, 'q'},
      {"quiet", no_argument, nullptr, 'Q'},
      {"reservation", required_argument, nullptr, 'R'},
      {"sibling", required_argument, nullptr, 0x106},
      {"signal", required_argument, nullptr, 's'},
      {"state", required_argument, nullptr, 't'},
      {"usage", no_argument, nullptr, 0x103},
      {"user", required_argument, nullptr, 'u'},
      {"verbose", no_argument, nullptr, 'v'},
      {"version", no_argument, nullptr, 'V'},
      {"wckey", required_argument, nullptr, 0x107},
      {nullptr, 0, nullptr, 0},
  });
  Request request;
  int level = 0;
  optind = 0;
  while (true) {
    const int found =
        ::getopt_long(argc, argv, "A:bfHiM:n:p:Qq:R:s:t:u:vVw:", kOptions.data(), nullptr);
    if (found == -1) break;
    switch (found) {
      case 'A':
        request.account = optarg;
        break;
      case 'b':
        request.batch = true;
        break;
      case 'f':
        request.full = true;
        break;
      case 'H':
        request.hurry = true;
        break;
      case 'i':
        request.ask = true;
        break;
      case 'n':
        request.name = optarg;
        break;
      case 'p':
        request.partition = optarg;
        break;
      case 'q':
        request.qos = optarg;
        break;
      case 'Q':
        level = -1;
        break;
      case 'R':
        request.reservation = optarg;
        break;
      case 'u': {
        const auto uid = find_user(optarg);
        if (!uid) {
          voice.error(fmt::format("Invalid user name: {}", optarg));
          return tl::make_unexpected(Early{1});
        }
        request.user = user_name(*uid);
        break;
      }
      case 'v':
        ++level;
        break;
      case 'w':
        request.node = optarg;
        break;
      case 's': {
        const auto number = parse_signal_name(optarg);
        if (!number) {
          voice.error(fmt::format("Unknown job signal: {}", optarg));
          return tl::make_unexpected(Early{1});
        }
        request.signal = *number;
        break;
      }
      case 't': {
        const std::string text = optarg;
        for (const auto& [shorthand, whole] :
             {std::pair{"PD", "PENDING"}, {"R", "RUNNING"}, {"S", "SUSPENDED"}}) {
          if (equals_ignoring_case(text, shorthand) || equals_ignoring_case(text, whole)) {
            request.state = whole;
          }
        }
        if (request.state.empty()) {
          voice.error(fmt::format("Invalid job state specified: {}", text));
          return tl::make_unexpected(Early{1});
        }
        break;
      }
      case 'M':
        request.clusters = optarg;
        break;
      case 0x101:
      case 0x105:
      case 0x106:
        break;  // one cluster, one daemon
      case 0x107:
        request.wckey = optarg;
        break;
      case 0x104:
        request.user = user_name(Uid(::getuid()));
        break;
      case 0x102:
        std::fwrite(kScancelUsage.data(), 1, kScancelUsage.size(), stdout);
        return tl::make_unexpected(Early{0});
      case 0x103:
        std::fputs(
            "Usage: scancel [-bfiQv] [-A account] [-n name] [-p partition] [-q qos] "
            "[-s signal] [-t state] [-u user] [--me] [JOBID…]\n",
            stdout);
        return tl::make_unexpected(Early{0});
      case 'V':
        std::fputs(version_text().c_str(), stdout);
        return tl::make_unexpected(Early{0});
      default:
        std::fputs("Try \"scancel --help\" for more information\n", stderr);
        return tl::make_unexpected(Early{1});
    }
  }
  voice.set_level(level);
  for (int i = optind; i < argc; ++i) {
    for (const auto part : split_outside_brackets(argv[i])) {
      const auto pattern = parse_job_pattern(part);
      if (!pattern) {
        voice.error(fmt::format("Invalid job id {}", part));
        return tl::make_unexpected(Early{1});
      }
      request.words.emplace_back(part);
      request.ids.push_back(*pattern);
    }
  }
  if (request.ids.empty() && !request.filters()) {
    voice.error("No job identification provided");
    return tl::make_unexpected(Early{1});
  }
  return request;
}

bool ended(const api::JobInfo& job) {
  return job.state != "PENDING" && job.state != "RUNNING" && job.state != "SUSPENDED" &&
         job.state != "CONFIGURING" && job.state != "COMPLETING";
}

bool in_list(std::string_view list, std::string_view value) {
  for (const auto part : split(list, ',')) {
    if (part == value) return true;
  }
  return false;
}

bool matches(const Request& request, const api::JobInfo& job) {
  return !ended(job) && (request.user.empty() || job.user == request.user) &&
         (request.name.empty() || in_list(request.name, job.name)) &&
         (request.account.empty() || in_list(request.account, job.account)) &&
         (request.partition.empty() || in_list(request.partition, job.partition)) &&
         (request.qos.empty() || in_list(request.qos, job.qos)) &&
         (request.state.empty() || job.state == request.state) &&
         (request.node.empty() || job.node == request.node);
}

class Canceller {
 public:
  Canceller(const Request& request, const Voice& voice) : request_(request), voice_(voice) {}

  // `id` as the daemon takes it: 7, 7_3; and a step of it, or none.
  void cancel(const std::string& id, const std::string& step = "") {
    const auto whole = step.empty() ? id : fmt::format("{}.{}", id, step);
    const std::string_view what = step.empty() ? "job" : "step";
    if (request_.signal == 0) {
      voice_.verbose(fmt::format("Terminating {} {}", what, whole));
    } else {
      voice_.verbose(fmt::format("Signal {} to {} {}", request_.signal, what, whole));
    }
    const auto answer = send(step.empty() ? id : fmt::format("{}/steps/{}", id, step));
    if (answer) return;
    const auto& error = answer.error();
    const bool gone = error.code == "ESLURM_INVALID_JOB_ID" || error.code == "ESLURM_ALREADY_DONE";
    // What is not there any more is what was asked for, unless someone wants to know. A step that
    // never was is not that.
    const bool never = !step.empty() && error.code != "ESLURM_ALREADY_DONE";
    if (gone && !never && !(voice_.level() > 0 || request_.filters())) return;
    if (!(gone && voice_.level() < 0)) {
      voice_.error(fmt::format("Kill job error on job {}id {}: {}", step.empty() ? "" : "step ",
                               whole, error_text(error)));
    }
    status_ = gone ? 1 : error_number(error.code) % 256;
  }

  [[nodiscard]] int status() const { return status_; }

 private:
  Answer<std::string> send(const std::string& id) {
    if (!daemon_) {
      auto connected = Daemon::connect();
      if (!connected) return tl::make_unexpected(connected.error());
      daemon_.emplace(std::move(*connected));
    }
    api::CancelSpec spec;
    spec.signal = request_.signal;
    spec.batch = request_.batch;
    spec.full = request_.full;
    auto answer = daemon_->send("POST", fmt::format("/v1/jobs/{}/cancel", id), api::to_json(spec));
    if (!answer && answer.error().code == kUnreachable) daemon_.reset();
    return answer;
  }

  const Request& request_;
  const Voice& voice_;
  std::optional<Daemon> daemon_;
  int status_ = 0;
};

bool confirmed(const api::JobInfo& job) {
  fmt::print("Cancel job_id={} name={} partition={} [y/n]? ", shown_id(job), job.name,
             job.partition);
  std::fflush(stdout);
  std::array<char, 128> line{};
  if (std::fgets(line.data(), line.size(), stdin) == nullptr) return false;
  return line[0] == 'y' || line[0] == 'Y';
}

int cancel_listed(const Request& request, const Voice& voice) {
  auto daemon = Daemon::connect();
  auto list = daemon ? daemon->list("/v1/jobs?live")
                     : Answer<api::JobList>(tl::make_unexpected(daemon.error()));
  if (!list) {
    fmt::print(stderr, "slurm_load_jobs error: {}\n", error_text(list.error()));
    return 1;
  }
  // What waits goes first, the latest first: else the end of one lets the next start that is to go.
  if (!request.ask) {
    std::ranges::stable_sort(list->jobs, [](const api::JobInfo& a, const api::JobInfo& b) {
      const auto rank = [](const api::JobInfo& job) {
        return std::pair(job.state != "PENDING", -job.id);
      };
      return rank(a) < rank(b);
    });
  }
  Canceller canceller(request, voice);
  int status = 0;
  std::vector<bool> seen(request.ids.size());
  for (const auto& job : list->jobs) {
    bool named = request.ids.empty();
    std::vector<std::string> named_steps;
    for (std::size_t i = 0; i < request.ids.size(); ++i) {
      if (!request.ids[i].matches(job)) continue;
      named = true;
      if (!request.ids[i].step.empty()) named_steps.push_back(request.ids[i].step);
      if (!ended(job)) seen[i] = true;
    }
    if (!named || !matches(request, job)) continue;
    if (request.ask && !confirmed(job)) continue;
    if (named_steps.empty()) canceller.cancel(cancel_id(job));
    for (const auto& step : named_steps) canceller.cancel(cancel_id(job), step);
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) continue;
    if (voice.level() >= 0 && (request.filters() || voice.level() > 0)) {
      voice.error(
          fmt::format("Kill job error on job id {}: Invalid job id specified", request.words[i]));
      status = 1;
    }
  }
  return canceller.status() != 0 ? canceller.status() : status;
}

}  // namespace

int run_scancel(int argc, char** argv) {
  Voice voice("scancel");
  const auto request = read_request(argc, argv, voice);
  if (!request) return request.error().status;
  if (!request->clusters.empty()) {
    auto daemon = Daemon::connect();
    if (daemon && !is_here(*daemon, request->clusters, voice)) return 1;
  }
  if (request->filters() || request->ask) return cancel_listed(*request, voice);
  Canceller canceller(*request, voice);
  for (auto pattern = request->ids.rbegin(); pattern != request->ids.rend(); ++pattern) {
    const auto targets = pattern->targets();
    for (auto id = targets.rbegin(); id != targets.rend(); ++id)
      canceller.cancel(*id, pattern->step);
  }
  return canceller.status();
}

}  // namespace aliquot::cli
