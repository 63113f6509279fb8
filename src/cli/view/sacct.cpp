// sacct: the command line and the question to the daemon.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/slurm/options.hpp"
#include "cli/view/accounting_time.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/named.hpp"
#include "cli/view/sacct_fields.hpp"
#include "cli/view/slurm_command.hpp"
#include "cli/view/slurm_json.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kUsage = R"(sacct [<OPTION>]
  -a, --allusers             jobs of all users
  -A, --accounts=list        only these accounts
  -b, --brief                jobid, state and exit code
  -e, --helpformat           list the fields of --format
  -E, --endtime=time         only jobs in some state before this
  -j, --jobs=list            only these jobs, 'last' being your latest
      --json                 JSON
      --delimiter=characters for -p and -P
  -l, --long                 all the fields there are
  -n, --noheader             no header
      --name=list            only jobs of these names
      --noconvert            don't convert units from their original type
  -N, --nodelist=list        only jobs that ran there
  -o, --format=list          fields, each name[%width]
  -p, --parsable             '|' after every field
  -P, --parsable2            '|' between fields
  -q, --qos=list             only these qos
  -r, --partition=list       only these partitions
  -s, --state=list           only jobs in these states
  -S, --starttime=time       only jobs in some state after this; default 00:00 today
  -u, --user=list            only jobs of these users
      --units=[KMGTP]        sizes in this unit
  -X, --allocations          without steps
  -V, --version              version information
)";

enum LongOnly : int { kJson = 256, kName, kDelimiter, kUnits, kNoConvert, kIgnored, kIgnoredValue };

constexpr auto kOptions = std::to_array<option>({
    {"accounts", required_argument, nullptr, 'A'},
    {"allclusters", no_argument, nullptr, 'L'},
    {"allocations", no_argument, nullptr, 'X'},
    {"allusers", no_argument, nullptr, 'a'},
    {"array", no_argument, nullptr, kIgnored},
    {"brief", no_argument, nullptr, 'b'},
    {"clusters", required_argument, nullptr, 'M'},
    {"completion", no_argument, nullptr, 'c'},
    {"constraints", required_argument, nullptr, 'C'},
    {"delimiter", required_argument, nullptr, kDelimiter},
    {"duplicates", no_argument, nullptr, 'D'},
    {"endtime", required_argument, nullptr, 'E'},
    {"federation", no_argument, nullptr, kIgnored},
    {"file", required_argument, nullptr, 'f'},
    {"flags", required_argument, nullptr, 'F'},
    {"format", required_argument, nullptr, 'o'},
    {"gid", required_argument, nullptr, 'g'},
    {"group", required_argument, nullptr, 'g'},
    {"help", no_argument, nullptr, 'h'},
    {"helpformat", no_argument, nullptr, 'e'},
    {"jobs", required_argument, nullptr, 'j'},
    {"json", no_argument, nullptr, kJson},
    {"local", no_argument, nullptr, kIgnored},
    {"long", no_argument, nullptr, 'l'},
    {"name", required_argument, nullptr, kName},
    {"ncpus", required_argument, nullptr, 'I'},
    {"nnodes", required_argument, nullptr, 'i'},
    {"noconvert", no_argument, nullptr, kNoConvert},
    {"nodelist", required_argument, nullptr, 'N'},
    {"noheader", no_argument, nullptr, 'n'},
    {"parsable", no_argument, nullptr, 'p'},
    {"parsable2", no_argument, nullptr, 'P'},
    {"partition", required_argument, nullptr, 'r'},
    {"qos", required_argument, nullptr, 'q'},
    {"reason", required_argument, nullptr, 'R'},
    {"starttime", required_argument, nullptr, 'S'},
    {"state", required_argument, nullptr, 's'},
    {"timelimit-max", required_argument, nullptr, 'K'},
    {"timelimit-min", required_argument, nullptr, 'k'},
    {"truncate", no_argument, nullptr, 'T'},
    {"uid", required_argument, nullptr, 'u'},
    {"units", required_argument, nullptr, kUnits},
    {"usage", no_argument, nullptr, 'U'},
    {"user", required_argument, nullptr, 'u'},
    {"use-local-uid", no_argument, nullptr, kIgnored},
    {"verbose", no_argument, nullptr, 'v'},
    {"version", no_argument, nullptr, 'V'},
    {"wckeys", required_argument, nullptr, 'W'},
    {"whole-hetjob", optional_argument, nullptr, kIgnoredValue},
    {"yaml", no_argument, nullptr, kIgnored},
    {nullptr, 0, nullptr, 0},
});

struct Options {
  std::string format;
  std::string jobs;
  SacctLayout layout;
  AccountingContext context;
  std::optional<WallTime> start;
  std::optional<WallTime> end;
  std::vector<std::uint32_t> uids;
  std::vector<std::string> names;
  std::vector<std::string> states;
  std::vector<std::string> partitions;
  std::vector<std::string> accounts;
  std::vector<std::string> qos;
  std::string clusters;  // -M
  std::string delimiter = "|";
  bool all_users = false;
  bool json = false;
};

using Ended = std::optional<int>;

void add_words(std::vector<std::string>& to, std::string_view list) {
  for (const auto word : split(list, ',')) to.emplace_back(word);
}

Ended read_time(const Voice& voice, std::string_view text, std::optional<WallTime>& to) {
  const auto time = parse_accounting_time(text, wall_now());
  if (!time) {
    voice.error(time.error().message);
    return 1;
  }
  to = *time;
  return {};
}

Ended read_states(const Voice& voice, std::string_view list, std::vector<std::string>& to) {
  for (const auto word : split(list, ',')) {
    const auto state = find_state(word);
    if (!state) {
      voice.fatal(fmt::format("unrecognized job state value ({})", word));
      return 1;
    }
    to.emplace_back(*state);
  }
  return {};
}

Ended read_users(const Voice& voice, std::string_view list, Options& options) {
  auto uids = resolve_users(list);
  if (!uids) {
    voice.fatal(fmt::format("Invalid user id: {}", uids.error()));
    return 1;
  }
  options.uids.insert(options.uids.end(), uids->begin(), uids->end());
  return {};
}

Ended read_jobs(const Voice& voice, std::string_view list, Options& options) {
  for (const auto id : split_outside_brackets(list)) {
    if (id.empty() || is_job_id(id)) continue;
    voice.fatal(fmt::format("Bad job/step specified: {}", id));
    return 1;
  }
  if (!options.jobs.empty()) options.jobs += ',';
  options.jobs += list;
  return {};
}

Ended read_units(const Voice& voice, std::string_view value, AccountingContext& context) {
  constexpr std::string_view kLetters = "KMGTP";
  const char unit = value.size() == 1 ? static_cast<char>(value[0] & ~0x20) : '\0';
  if (unit == '\0' || kLetters.find(unit) == kLetters.npos) {
    voice.fatal(fmt::format("Invalid unit type '{}'. Allowed options are 'KMGTP'", value));
    return 1;
  }
  context.unit = unit;
  return {};
}

Ended read_option(const Voice& voice, int letter, Options& options) {
  const std::string_view value = optarg == nullptr ? "" : optarg;
  switch (letter) {
    case 'a':
      options.all_users = true;
      break;
    case 'A':
      add_words(options.accounts, value);
      break;
    case 'b':
      options.format = kSacctBrief;
      break;
    case 'e':
      return print(list_sacct_fields());
    case 'E':
      return read_time(voice, value, options.end);
    case 'h':
    case 'U':
      return print(kUsage);
    case 'j':
      return read_jobs(voice, value, options);
    case 'l':
      options.format = kSacctLong;
      break;
    case 'M':
      options.clusters = value;
      break;
    case 'n':
      options.layout.header = false;
      break;
    case 'o':
      if (!options.format.empty()) options.format += ',';
      options.format += value;
      break;
    case 'p':
    case 'P':
      options.layout.delimiter = "|";
      options.layout.trailing = letter == 'p';
      break;
    case 'q':
      add_words(options.qos, value);
      break;
    case 'r':
      add_words(options.partitions, value);
      break;
    case 's':
      return read_states(voice, value, options.states);
    case 'S':
      return read_time(voice, value, options.start);
    case 'u':
      return read_users(voice, value, options);
    case 'V':
      return print(version_text());
    case 'X':
      options.layout.steps = false;
      break;
    case kJson:
      options.json = true;
      break;
    case kName:
      add_words(options.names, value);
      break;
    case kDelimiter:
      options.delimiter = value;
      break;
    case kUnits:
      return read_units(voice, value, options.context);
    case kNoConvert:
      options.context.convert = false;
      break;
    case '?':
      return try_help("sacct");
    default:
      break;  // accepted for Slurm's sake; means nothing on one machine
  }
  return {};
}

template <class T, class U>
bool any_or_one_of(const std::vector<T>& wanted, const U& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

// The steps that -j 7.batch or -j 7.0 leaves.
void keep_steps(api::JobInfo& job, const std::vector<std::string>& ids) {
  const bool whole = std::ranges::any_of(
      ids, [&](const auto& id) { return id.find('.') == id.npos && matches_job_id(job, id); });
  if (whole || ids.empty()) return;
  std::erase_if(job.steps, [&](const api::StepInfo& step) {
    return std::ranges::none_of(ids, [&](const auto& id) {
      const auto dot = id.find('.');
      return dot != id.npos && matches_job_id(job, id.substr(0, dot)) &&
             id.substr(dot + 1) == step.id;
    });
  });
}

void select(std::vector<api::JobInfo>& jobs, const Options& options,
            const std::vector<std::string>& ids) {
  std::erase_if(jobs, [&](const api::JobInfo& job) {
    const bool named = ids.empty() || std::ranges::any_of(ids, [&](const auto& id) {
                         return matches_job_id(job, id.substr(0, id.find_first_of(".+")));
                       });
    return !named || !any_or_one_of(options.uids, job.uid) ||
           !any_or_one_of(options.names, job.name) || !any_or_one_of(options.states, job.state) ||
           !any_or_one_of(options.partitions, job.partition) ||
           !any_or_one_of(options.accounts, job.account) || !any_or_one_of(options.qos, job.qos);
  });
  for (auto& job : jobs) keep_steps(job, ids);
}

std::string target_of(const Options& options, const std::vector<std::string>& ids) {
  std::string query;
  const auto add = [&](std::string_view key, std::string_view value) {
    query += fmt::format("{}{}={}", query.empty() ? "?" : "&", key, net::percent_encode(value));
  };
  if (options.start) add("start", fmt::format("{}", options.start->ms()));
  if (options.end) add("end", fmt::format("{}", options.end->ms()));
  if (options.uids.size() == 1) add("user", user_name(Uid(options.uids.front())));
  if (options.names.size() == 1) add("name", options.names.front());
  if (ids.size() == 1) add("id", ids.front().substr(0, ids.front().find_first_of("_.+")));
  return "/v1/accounting" + query;
}

int show(const Voice& voice, Options& options) {
  constexpr std::string_view kPrefix = "sacct: error: Problem talking to the database";
  const auto fields =
      choose_sacct_fields(options.format.empty() ? kSacctFormat : std::string_view(options.format));
  if (!fields) {
    voice.error(fields.error().message);
    return 1;
  }
  auto daemon = Daemon::connect();
  if (!daemon) return load_failed(kPrefix, daemon.error());
  if (!is_here(*daemon, options.clusters, voice)) return 1;
  std::vector<std::string> ids;
  if (!options.jobs.empty()) {
    auto resolved = resolve_job_ids(*daemon, options.jobs);
    if (!resolved) return load_failed(kPrefix, resolved.error());
    ids = std::move(*resolved);
    std::erase(ids, "");
  }
  options.context.now = wall_now();
  if (ids.empty() && !options.start) options.start = start_of_day(options.context.now);
  // As in Slurm: one's own jobs, unless root or asked otherwise.
  if (ids.empty() && options.uids.empty() && !options.all_users && ::getuid() != 0) {
    options.uids.push_back(::getuid());
  }
  auto list = daemon->list(target_of(options, ids));
  if (!list) return load_failed(kPrefix, list.error());
  select(list->jobs, options, ids);
  const bool needs_cluster =
      options.json || std::ranges::any_of(*fields, [](const ChosenField& field) {
        return field.view->name == "Cluster";
      });
  if (needs_cluster) {
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return load_failed(kPrefix, cluster.error());
    options.context.cluster = cluster->cluster;
  }
  if (options.json) {
    return print(sacct_json(list->jobs, options.context.cluster, options.context.now));
  }
  return print(format_sacct(*fields, list->jobs, options.layout, options.context));
}

}  // namespace

int run_sacct(int argc, char** argv) {
  const Voice voice("sacct");
  Options options;
  int letter = 0;
  while ((letter =
              getopt_long(argc, argv, "aA:bcC:DeE:f:F:g:hi:I:j:k:K:lLM:nN:o:pPq:r:R:s:S:Tu:UvVW:X",
                          kOptions.data(), nullptr)) != -1) {
    if (const auto ended = read_option(voice, letter, options)) return *ended;
  }
  if (optind < argc) {
    voice.error(fmt::format("Unknown arguments:"));
    for (int i = optind; i < argc; ++i) voice.error(fmt::format(" {}", argv[i]));
    return 1;
  }
  if (options.layout.delimiter) options.layout.delimiter = options.delimiter;
  if (options.format.empty()) {
    if (const char* format = std::getenv("SACCT_FORMAT"); format != nullptr)
      options.format = format;
  }
  return show(voice, options);
}

}  // namespace aliquot::cli
