// scancel: ends or signals jobs, by id or by what they are.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/jobs/job_ids.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

struct Request {
  std::vector<std::string> words;
  std::vector<JobPattern> ids;
  std::string user;
  std::string said_user;  // as it was given; of --me the number
  std::string name;
  std::string account;
  std::string partition;
  std::string qos;
  std::string state;
  std::string node;
  std::string reservation;
  std::string wckey;
  int signal = 0;
  bool batch = false;
  bool full = false;
  bool ask = false;
  bool nothing = false;  // an id that names no element: `7_`

  [[nodiscard]] std::string filter_words() const {
    std::string words_of;
    for (const auto& [key, value] :
         {std::pair("account", &account), std::pair("job_name", &name),
          std::pair("nodelist", &node), std::pair("partition", &partition), std::pair("qos", &qos),
          std::pair("reservation", &reservation), std::pair("state", &state),
          std::pair("user_name", &said_user), std::pair("wckey", &wckey)}) {
      if (!value->empty()) words_of += fmt::format("{}={} ", key, *value);
    }
    return words_of;
  }
  [[nodiscard]] bool filters() const {
    return !user.empty() || !name.empty() || !account.empty() || !partition.empty() ||
           !qos.empty() || !state.empty() || !node.empty() || !reservation.empty() ||
           !wckey.empty();
  }
};

// Reads the options; what is wrong with the first that is, is said as Slurm says it.
bool read_filters(const OptionSet& options, const Voice& voice, Request& request) {
  request.name = options.text("name");
  request.account = options.text("account");
  request.partition = options.text("partition");
  request.qos = options.text("qos");
  request.node = options.text("nodelist");
  request.reservation = options.text("reservation");
  request.wckey = options.text("wckey");
  request.batch = options.has("batch");
  request.full = options.has("full");
  request.ask = options.has("interactive");
  if (options.has("me")) {
    request.user = user_name(Uid(::getuid()));
    request.said_user = fmt::format("{}", ::getuid());
  }
  if (const auto user = options.maybe("user")) {
    const auto uid = find_user(*user);
    if (!uid) {
      voice.error(fmt::format("Invalid user name: {}", *user));
      return false;
    }
    request.user = user_name(*uid);
    request.said_user = *user;
  }
  if (const auto signal = options.maybe("signal")) {
    const auto number = parse_signal_name(*signal);
    if (!number) {
      fmt::print(stderr, "Unknown job signal: {}\n", make_plain(*signal));
      return false;
    }
    request.signal = *number;
  }
  if (const auto text = options.maybe("state")) {
    const auto state = find_state(*text);
    if (state != "PENDING" && state != "RUNNING" && state != "SUSPENDED") {
      fmt::print(stderr,
                 "Invalid job state specified: {}\n"
                 "Valid job states are PENDING, RUNNING, and SUSPENDED\n",
                 make_plain(*text));
      return false;
    }
    request.state = *state;
  }
  return true;
}

// Reads the ids after the options. Returns what is wrong with them; empty: all is well.
std::string read_ids(const std::vector<std::string_view>& words, Request& request) {
  for (const auto word : words) {
    for (const auto part : split_outside_brackets(word)) {
      if (part.size() > 1 && part.back() == '_' && is_digits(part.substr(0, part.size() - 1))) {
        request.nothing = true;
        continue;
      }
      const auto pattern = parse_job_pattern(part);
      if (!pattern) return fmt::format("Invalid job id {}", part);
      request.words.emplace_back(part);
      request.ids.push_back(*pattern);
    }
  }
  const bool none = request.ids.empty() && !request.filters() && !request.nothing;
  return none ? "No job identification provided" : "";
}

bool ended(const api::JobInfo& job) {
  return job.state != "PENDING" && job.state != "RUNNING" && job.state != "SUSPENDED" &&
         job.state != "CONFIGURING" && job.state != "COMPLETING";
}

// An empty list means any.
bool in_list(std::string_view list, std::string_view value) {
  return list.empty() || std::ranges::count(split(list, ','), value) > 0;
}

bool matches(const Request& request, const api::JobInfo& job) {
  return !ended(job) && (request.user.empty() || job.user == request.user) &&
         in_list(request.name, job.name) && in_list(request.account, job.account) &&
         in_list(request.partition, job.partition) && in_list(request.qos, job.qos) &&
         (request.state.empty() || job.state == request.state) &&
         (request.node.empty() || job.node == request.node) &&
         in_list(request.reservation, job.reservation) && request.wckey.empty();  // no job has one
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
    // A job that has ended already is as the user wants it: no message, unless -v asks for one.
    // With a filter it ended after it was listed. A step that never existed is an error.
    // What was to be signalled and is over is an error, too.
    const bool never = step.empty() ? request_.signal != 0 && request_.signal != SIGKILL
                                    : error.code != "ESLURM_ALREADY_DONE";
    if (gone && !never && voice_.level() <= 0) return;
    if (!(gone && voice_.level() < 0)) {
      voice_.error(
          fmt::format("Kill job error on job {}id {}: {}", step.empty() ? "" : "step ", whole,
                      gone && step.empty() ? "Invalid job id specified" : error_text(error)));
    }
    if (gone && !never && step.empty()) return;
    status_ = gone ? 1 : error_number(error.code) % 256;
  }

  [[nodiscard]] int status() const { return status_; }

 private:
  Reply<std::string> send(const std::string& id) {
    if (!daemon_) {
      auto connected = DaemonClient::connect();
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
  std::optional<DaemonClient> daemon_;
  int status_ = 0;
};

bool confirmed(const api::JobInfo& job) {
  fmt::print("Cancel job_id={} name={} partition={} [y/n]? ", job_id_text(job), job.name,
             job.partition);
  std::fflush(stdout);
  std::array<char, 128> line{};
  if (std::fgets(line.data(), line.size(), stdin) == nullptr) return false;
  return line[0] == 'y' || line[0] == 'Y';
}

int cancel_listed(const Request& request, const Voice& voice) {
  auto daemon = DaemonClient::connect();
  auto list = daemon ? daemon->list("/v1/jobs?live")
                     : Reply<api::JobList>(tl::make_unexpected(daemon.error()));
  if (!list) {
    fmt::print(stderr, "slurm_load_jobs error: {}\n", error_text(list.error()));
    return 1;
  }
  // Pending jobs are cancelled first, the latest first. Otherwise the end of a running job would
  // start a pending one that is to be cancelled as well.
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
  bool any = false;
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
    any = true;
    if (request.ask && !confirmed(job)) continue;
    if (named_steps.empty()) canceller.cancel(cancel_id(job));
    for (const auto& step : named_steps) canceller.cancel(cancel_id(job), step);
  }
  if (!any && voice.level() > 0 && request.filters()) {
    voice.error("No active jobs match ALL job filters, including: " + request.filter_words());
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
  const auto call = read_call(SlurmCommand::scancel, argc, argv, voice);
  if (!call) return call.error();
  Request request;
  if (!read_filters(call->options, voice, request)) return 1;
  if (const auto wrong = read_ids(call->words, request); !wrong.empty()) {
    voice.error(wrong);
    return 1;
  }
  if (call->options.has("clusters")) {
    auto daemon = DaemonClient::connect();
    if (daemon && !is_here(*daemon, call->options, voice)) return 1;
  }
  if (request.filters() || request.ask) return cancel_listed(request, voice);
  Canceller canceller(request, voice);
  for (auto pattern = request.ids.rbegin(); pattern != request.ids.rend(); ++pattern) {
    const auto targets = pattern->targets();
    for (auto id = targets.rbegin(); id != targets.rend(); ++id)
      canceller.cancel(*id, pattern->step);
  }
  return canceller.status();
}

}  // namespace aliquot::cli
