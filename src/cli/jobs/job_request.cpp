#include "cli/jobs/job_request.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/output_path.hpp"
#include "base/resource_limits.hpp"
#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/jobs/gpu_binding.hpp"
#include "cli/jobs/gpu_counts.hpp"
#include "cli/jobs/unused_words.hpp"
#include "cli/moment.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "sys/host_name.hpp"
#include "sys/program.hpp"

namespace aliquot::cli {
namespace {

// Options and the variables in which Slurm hands them to the job: for its steps, and because
// whoever wrote the script may look there.
struct Recorded {
  const char* option;
  const char* variable;
};
constexpr auto kRecorded = std::to_array<Recorded>({
    {"acctg-freq", "SLURM_ACCTG_FREQ"},
    {"cpus-per-gpu", "SLURM_CPUS_PER_GPU"},
    {"distribution", "SLURM_DISTRIBUTION"},
    {"gpu-bind", "SLURM_GPU_BIND"},
    {"hint", "SLURM_HINT"},
    {"mem-bind", "SLURM_MEM_BIND"},
    {"network", "SLURM_NETWORK"},
    {"ntasks-per-core", "SLURM_NTASKS_PER_CORE"},
    {"ntasks-per-gpu", "SLURM_NTASKS_PER_GPU"},
    {"ntasks-per-socket", "SLURM_NTASKS_PER_SOCKET"},
    {"overcommit", "SLURM_OVERCOMMIT"},
    {"reservation", "SLURM_JOB_RESERVATION"},
    {"switches", "SLURM_REQ_SWITCH"},
    {"threads-per-core", "SLURM_THREADS_PER_CORE"},
});

// Options that go to the daemon as they are written.
using Spec = api::JobSpec;
// clang-format off
constexpr auto kTexts = std::to_array<std::pair<const char*, std::string Spec::*>>({
    {"partition", &Spec::partition}, {"account", &Spec::account}, {"qos", &Spec::qos},
    {"comment", &Spec::comment}, {"reservation", &Spec::reservation}, {"licenses", &Spec::licenses},
    {"wckey", &Spec::wckey}, {"mail-type", &Spec::mail_type}, {"mail-user", &Spec::mail_user},
    {"dependency", &Spec::dependency}, {"constraint", &Spec::constraint}, {"array", &Spec::array},
    {"nodelist", &Spec::nodelist}, {"exclude", &Spec::exclude},
});
constexpr auto kMaybeTexts = std::to_array<std::pair<const char*, std::optional<std::string> Spec::*>>({
    {"output", &Spec::std_out}, {"error", &Spec::std_err}, {"input", &Spec::std_in},
    {"gres", &Spec::gres}, {"gpus", &Spec::gpus}, {"gpus-per-node", &Spec::gpus_per_node},
    {"gpus-per-task", &Spec::gpus_per_task}, {"gpu-mem", &Spec::gpu_mem}, {"gpu-share", &Spec::gpu_share},
});
// clang-format on

std::optional<std::int64_t> bytes_of(const OptionSet& options, std::string_view name) {
  const auto text = options.maybe(name);
  if (!text) return std::nullopt;
  const auto size = parse_size(*text);
  if (!size) return std::nullopt;  // checked before
  return size->value();
}

std::optional<std::int64_t> moment_of(const OptionSet& options, std::string_view name,
                                      WallTime now) {
  const auto text = options.maybe(name);
  if (!text) return std::nullopt;
  const auto moment = parse_moment(*text, now);
  if (!moment) return std::nullopt;
  return moment->ms();
}

// Only one of the three counts: that of the strongest source. Two from the same source are refused.
Parsed<void> set_memory(const OptionSet& options, api::JobSpec& job) {
  std::optional<Source> strongest;
  std::string_view chosen;
  for (const std::string_view name : {"mem", "mem-per-cpu", "mem-per-gpu"}) {
    const auto* value = options.find(name);
    if (value == nullptr) continue;
    if (strongest == value->source) {
      return tl::make_unexpected(
          Misuse{1, "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", true});
    }
    if (!strongest || *strongest < value->source) {
      strongest = value->source;
      chosen = name;
    }
  }
  // Slurm counts in whole MiB.
  auto bytes = bytes_of(options, chosen);
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  if (bytes && *bytes % kMiB != 0 && *bytes < INT64_MAX - kMiB) *bytes += kMiB - *bytes % kMiB;
  if (chosen == "mem") job.memory = bytes;
  if (chosen == "mem-per-cpu") job.memory_per_cpu = bytes;
  if (chosen == "mem-per-gpu") job.memory_per_gpu = bytes;
  return {};
}

void set_times(const OptionSet& options, WallTime now, api::JobSpec& job) {
  if (const auto text = options.maybe("time")) {
    const auto limit = parse_time_limit(*text);
    // Whole minutes, as in Slurm; 0 means no limit.
    if (limit && limit->length && limit->length->value() > 0) {
      const auto whole = (limit->length->value() + 59'999) / 60'000;
      job.time_limit_ms = whole * 60'000;
    } else if (limit) {
      job.no_time_limit = true;
    }
  }
  job.begin_ms = moment_of(options, "begin", now);
  job.deadline_ms = moment_of(options, "deadline", now);
  if (const auto text = options.maybe("signal")) {
    if (const auto signal = parse_signal_option(*text)) {
      job.signal = api::SignalRequest{signal->number, signal->seconds, signal->batch};
    }
  }
}

void set_urgency(const OptionSet& options, api::JobSpec& job) {
  job.hold = options.has("hold");
  if (const auto priority = options.number("priority")) {
    if (*priority == 0) {
      job.hold = true;
    } else {
      job.priority = priority;
    }
  }
  if (const auto nice = options.maybe("nice")) {
    const bool negative = nice->starts_with('-');
    const auto number = parse_digits(std::string_view(*nice).substr(negative ? 1 : 0));
    job.nice = number ? (negative ? -*number : *number) : 100;
  }
  const auto* yes = options.find("requeue");
  const auto* no = options.find("no-requeue");
  job.requeue = no == nullptr || (yes != nullptr && yes->source > no->source);
}

std::optional<std::uint32_t> parse_octal(std::string_view text) {
  if (text.empty() || text.size() > 4) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<std::uint32_t>(c - '0');
  }
  return value;
}

// `a,b` or `a`: does it name this one?
bool names(std::string_view list, std::string_view name) {
  return std::ranges::count(split(list, ','), name) > 0;
}
// … and no other?
bool names_only(std::string_view list, std::string_view name) {
  const auto parts = split(list, ',');
  return std::ranges::count(parts, name) == std::ssize(parts);
}

// Of errors whose words do not say which of many things is wrong.
bool wants_hint(std::string_view code) {
  constexpr auto kVague = std::to_array<std::string_view>(
      {"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "ESLURM_INVALID_GRES", "ESLURM_DEPENDENCY",
       "ESLURM_TOO_MANY_REQUESTED_CPUS", "ESLURM_BAD_TASK_COUNT", "ESLURM_INVALID_ARRAY"});
  return std::ranges::find(kVague, code) != kVague.end();
}

// Whoever has a Slurm beside us may have meant that.
std::string unreachable_hint(const std::string& command) {
  const char* path = std::getenv("PATH");
  std::error_code error;
  for (const std::string_view folder : split(std::string_view(path == nullptr ? "" : path), ':')) {
    const auto other = sys::find_in_path(command, folder);
    if (other.empty() || std::filesystem::equivalent(other, sys::own_program(), error)) continue;
    return fmt::format(
        "no aliquotd answers this {0}, which is Aliquot's: 'aliquot up' starts one; Slurm's is {1}",
        command, other);
  }
  return "no aliquotd answers: 'aliquot up' starts one, 'aliquot doctor' looks closer";
}

}  // namespace

CallSite describe_caller() {
  CallSite caller;
  caller.environment = Environment(environ);
  if (char* here = ::getcwd(nullptr, 0); here != nullptr) {
    caller.folder = here;
    std::free(here);  // NOLINT: getcwd's
  }
  caller.host = sys::host_name();
  caller.umask = ::umask(0);
  ::umask(caller.umask);
  return caller;
}

Parsed<api::JobSpec> make_job(const OptionSet& options, const CallSite& caller, WallTime now) {
  api::JobSpec job;
  if (auto fine = check_words(options); !fine) return tl::make_unexpected(fine.error());
  if (auto fine = gpu_binding_of(options); !fine) return tl::make_unexpected(fine.error());
  for (const auto& [option, field] : kTexts) job.*field = options.text(option);
  if (options.has("partition") && job.partition.empty()) job.partition = "(null)";
  for (const auto& [option, field] : kMaybeTexts) job.*field = options.maybe(option);

  job.work_dir = resolve_path(options.text("chdir", caller.folder), caller.folder);
  job.append = options.text("open-mode").starts_with('a');
  job.umask = caller.umask;
  if (const auto text = options.maybe("umask")) {
    const auto mask = parse_octal(*text);
    if (!mask) return tl::make_unexpected(Misuse{255, "Invalid --umask specification"});
    job.umask = *mask;
  }
  const auto propagate = parse_propagate(options.text("propagate", "ALL"));
  if (!propagate) {
    return tl::make_unexpected(
        Misuse{1, fmt::format("{}\n--propagate={} is not valid.", propagate.error().message,
                              options.text("propagate"))});
  }
  job.propagate = *propagate;
  job.submit_host = caller.host;

  set_times(options, now, job);
  set_urgency(options, job);
  job.kill_on_invalid_dependency = equals_ignoring_case(options.text("kill-on-invalid-dep"), "yes");
  if (options.has("array") && job.array.empty()) job.array = ",";  // for the daemon to refuse
  job.immediate = options.has("immediate");
  job.immediate_s = options.number("immediate").value_or(0);

  if (const auto nodes = options.maybe("nodes")) {
    job.nodes = parse_digits(std::string_view(*nodes).substr(0, nodes->find('-'))).value_or(1);
    const bool range = nodes->find('-') != std::string::npos;
    if (job.nodes == 0 && range) job.nodes = 1;
  }
  job.ntasks = options.number("ntasks");
  job.ntasks_per_node = options.number("ntasks-per-node");
  job.cpus_per_task = options.number("cpus-per-task");
  if (auto set = set_memory(options, job); !set) return tl::make_unexpected(set.error());
  if (auto set = count_by_gpu(options, job); !set) return tl::make_unexpected(set.error());
  job.overcommit = options.has("overcommit");
  job.exclusive = options.has("exclusive");
  job.oversubscribe = options.has("oversubscribe");

  auto mine = caller.environment;
  forget_job(mine);
  auto exported = export_environment(mine, options.maybe("export"));
  job.login_environment = exported.login || options.has("get-user-env");
  auto& environment = exported.environment;
  if (job.login_environment) environment.set("SLURM_GET_USER_ENV", "1");
  environment.set("SLURM_SUBMIT_DIR", caller.folder);
  environment.set("SLURM_SUBMIT_HOST", caller.host);
  environment.set("SLURM_UMASK", fmt::format("{:04o}", job.umask));
  for (const auto& recorded : kRecorded) {
    if (const auto* value = options.find(recorded.option)) {
      environment.set(recorded.variable, value->text.empty() ? "1" : value->text);
    }
  }
  job.environment = environment.variables();
  return job;
}

Reply<void> check_places(const OptionSet& options, DaemonClient& daemon, const Voice& voice) {
  const auto wanted = options.maybe("nodelist");
  const auto unwanted = options.maybe("exclude");
  const auto clusters = options.maybe("clusters");
  if (!wanted && !unwanted && !clusters) return {};
  const auto cluster = daemon.get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return tl::make_unexpected(cluster.error());
  if (clusters && !equals_ignoring_case(*clusters, "all") && !names(*clusters, cluster->cluster)) {
    say_no_cluster(voice, *clusters);
    return tl::make_unexpected(api::ErrorInfo{"", ""});
  }
  if (wanted && !names_only(*wanted, cluster->node.name)) {
    return tl::make_unexpected(api::ErrorInfo{"ESLURM_INVALID_NODE_NAME", ""});
  }
  if (unwanted && !unwanted->empty() && !names_only(*unwanted, cluster->node.name)) {
    return tl::make_unexpected(api::ErrorInfo{"ESLURM_INVALID_NODE_NAME", ""});
  }
  if (unwanted && names(*unwanted, cluster->node.name)) {
    return tl::make_unexpected(api::ErrorInfo{"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", ""});
  }
  return {};
}

Parsed<void> become_user(const OptionSet& options) {
  for (const std::string_view name : {"uid", "gid"}) {
    if (options.has(name) && ::geteuid() != 0) {
      return tl::make_unexpected(
          Misuse{255, fmt::format("--{} only permitted by root user", name)});
    }
  }
  if (const auto group = options.maybe("gid")) {
    const auto* entry = ::getgrnam(group->c_str());
    const auto number = parse_digits(*group);
    if (entry == nullptr && !number) {
      return tl::make_unexpected(Misuse{255, "Invalid --gid specification"});
    }
    const gid_t gid = entry != nullptr ? entry->gr_gid : static_cast<gid_t>(*number);
    if (!options.has("uid") && ::setgid(gid) != 0) {
      return tl::make_unexpected(Misuse{1, "Unable to set the group"});
    }
  }
  if (const auto user = options.maybe("uid")) {
    const auto uid = find_user(*user);
    const auto* entry = uid ? ::getpwuid(uid->value()) : nullptr;
    if (entry == nullptr) return tl::make_unexpected(Misuse{255, "Invalid --uid specification"});
    if (::initgroups(entry->pw_name, entry->pw_gid) != 0 || ::setgid(entry->pw_gid) != 0 ||
        ::setuid(entry->pw_uid) != 0) {
      return tl::make_unexpected(Misuse{1, fmt::format("Unable to become user {}", *user)});
    }
  }
  return {};
}

void say_options(const OptionSet& options, const Voice& voice) {
  if (voice.level() < 1) return;
  const std::string line = fmt::format("{0:->20} {0:->20}", "");
  voice.verbose("defined options");
  voice.verbose(line);
  for (const auto& [name, value] : options.given()) {
    voice.verbose(fmt::format("{:<20}: {}", name, value));
  }
  voice.verbose(line);
  voice.verbose("end of defined options");
}

int test_only(DaemonClient& daemon, const api::JobSpec& job, const Voice& voice) {
  const auto answer = daemon.post<api::JobInfo>("/v1/jobs?test=1", api::to_json(job));
  if (!answer) {
    say_refusal(voice, kTestFailed, answer.error(), job);
    return 1;
  }
  if (!answer->start_ms) {
    voice.info(
        fmt::format("Job {} would wait, nobody knows until when: what it needs is held without a "
                    "time limit, reserved, or out of service",
                    answer->id));
    return 0;
  }
  voice.info(fmt::format("Job {} to start at {} using {} processors on nodes {} in partition {}",
                         answer->id, format_timestamp(WallTime(*answer->start_ms)), answer->cpus,
                         answer->node, answer->partition));
  return 0;
}

void say_refusal(const Voice& voice, std::string_view prefix, const api::ErrorInfo& error,
                 const api::JobSpec& job) {
  if (error.code.empty() && error.message.empty()) return;  // said already
  const auto text = error_text(error);
  constexpr std::string_view kMemory = "Memory specification can not be satisfied";
  constexpr std::string_view kCpus = "CPU count per node can not be satisfied";
  bool hint = false;
  if (prefix == kTestFailed) {  // perror's
    fmt::print(stderr, "{}: {}\n", prefix, text);
    return;
  }
  if (error.code == "ESLURM_INVALID_GRES" && !job.gpu_mem && !job.gpu_share) {
    voice.error(text);  // Slurm's commands find it themselves
    if (!error.message.empty() && error.message != text) {
      voice.info(fmt::format("hint: {}", error.message));
    }
    return;
  }
  if (error.code == "ESLURM_INVALID_PARTITION_NAME") {
    const auto named = error.message.find("'");
    const auto end = error.message.find("'", named + 1);
    voice.error(fmt::format("invalid partition specified: {}",
                            named == std::string::npos || end == std::string::npos
                                ? job.partition
                                : error.message.substr(named + 1, end - named - 1)));
  } else if (error.message.starts_with(kMemory) || error.message.starts_with(kCpus)) {
    voice.error(error.message.starts_with(kMemory) ? kMemory : kCpus);
  } else if (!error.message.empty() && error.message != text && error.code != kUnreachable &&
             (job.gpu_mem || job.gpu_share || voice.level() > 0 ||
              error.code == "ESLURM_ACCOUNTING_POLICY")) {
    // Slurm has no message about shares, so the daemon's is printed.
    voice.error(error.message);
  } else {
    hint = !error.message.empty() && error.message != text && wants_hint(error.code);
  }
  voice.error(fmt::format("{}: {}", prefix, text));
  // Behind Slurm's words, which programs look for.
  if (hint) voice.info(fmt::format("hint: {}", error.message));
  if (error.code == kUnreachable)
    voice.info(fmt::format("hint: {}", unreachable_hint(voice.name())));
}

bool may_ask_again(const api::ErrorInfo& error, unsigned tries, const Voice& voice) {
  constexpr unsigned kRetries = 15;
  if (error.code != "EAGAIN" || tries == kRetries) return false;
  if (tries == 0) {
    voice.error(error.message);
    voice.error("Slurm temporarily unable to accept job, sleeping and retrying");
  }
  ::sleep(tries + 1);
  return true;
}

}  // namespace aliquot::cli
