// squeue: the command line, and the loop of -i.
#include <getopt.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/slurm/options.hpp"
#include "cli/view/named.hpp"
#include "cli/view/slurm_command.hpp"
#include "cli/view/slurm_json.hpp"
#include "cli/view/squeue_fields.hpp"
#include "cli/view/squeue_print.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kUsage = R"(Usage: squeue [OPTIONS]
  -A, --account=account(s)        comma separated list of accounts
  -a, --all                       all partitions
  -h, --noheader                  no headers
  -i, --iterate=seconds           repeat every so many seconds
  -j, --job=job(s)                comma separated list of jobs, 'last' being your latest
      --json                      JSON
  -l, --long                      long report
      --me                        equivalent to --user=<my username>
  -n, --name=job_name(s)          comma separated list of job names
      --noconvert                 don't convert units from their original type
  -o, --format=format             format specification
  -O, --Format=format             format specification by names
  -p, --partition=partition(s)    comma separated list of partitions
  -q, --qos=qos(s)                comma separated list of qos's
  -r, --array                     one line for each job array element
  -S, --sort=fields               comma separated list of fields to sort on
  -s, --steps                     job steps
      --start                     expected start times of pending jobs
  -t, --states=states             comma separated list of states, or 'all'
  -u, --user=user_name(s)         comma separated list of users
  -V, --version                   version information
      --help, --usage             this text
)";

enum LongOnly : int { kJson = 256, kMe, kNoConvert, kStart, kHelp, kIgnored };

constexpr auto kOptions = std::to_array<option>({
    {"account", required_argument, nullptr, 'A'},
    {"all", no_argument, nullptr, 'a'},
    {"array", no_argument, nullptr, 'r'},
    {"array-unique", no_argument, nullptr, 'r'},
    {"cluster", required_argument, nullptr, 'M'},
    {"clusters", required_argument, nullptr, 'M'},
    {"federation", no_argument, nullptr, kIgnored},
    {"format", required_argument, nullptr, 'o'},
    {"Format", required_argument, nullptr, 'O'},
    {"help", no_argument, nullptr, kHelp},
    {"hide", no_argument, nullptr, kIgnored},
    {"iterate", required_argument, nullptr, 'i'},
    {"jobs", required_argument, nullptr, 'j'},
    {"job", required_argument, nullptr, 'j'},
    {"json", no_argument, nullptr, kJson},
    {"licenses", required_argument, nullptr, 'L'},
    {"local", no_argument, nullptr, kIgnored},
    {"long", no_argument, nullptr, 'l'},
    {"me", no_argument, nullptr, kMe},
    {"name", required_argument, nullptr, 'n'},
    {"noconvert", no_argument, nullptr, kNoConvert},
    {"node", required_argument, nullptr, 'w'},
    {"nodes", required_argument, nullptr, 'w'},
    {"nodelist", required_argument, nullptr, 'w'},
    {"noheader", no_argument, nullptr, 'h'},
    {"partition", required_argument, nullptr, 'p'},
    {"partitions", required_argument, nullptr, 'p'},
    {"priority", no_argument, nullptr, 'P'},
    {"qos", required_argument, nullptr, 'q'},
    {"reservation", required_argument, nullptr, 'R'},
    {"sibling", no_argument, nullptr, kIgnored},
    {"siblings", no_argument, nullptr, kIgnored},
    {"sort", required_argument, nullptr, 'S'},
    {"start", no_argument, nullptr, kStart},
    {"states", required_argument, nullptr, 't'},
    {"steps", optional_argument, nullptr, 's'},
    {"usage", no_argument, nullptr, kHelp},
    {"user", required_argument, nullptr, 'u'},
    {"users", required_argument, nullptr, 'u'},
    {"verbose", no_argument, nullptr, 'v'},
    {"version", no_argument, nullptr, 'V'},
    {nullptr, 0, nullptr, 0},
});

struct Options {
  SqueueView view;
  std::string jobs;      // -j, as written
  std::string clusters;  // -M
  bool longer = false;
  bool start = false;
  bool json = false;
  unsigned iterate = 0;
};

// Every function that reads a part of the command line: nothing, or the exit status to end with.
using Ended = std::optional<int>;

Ended read_states(const Voice& voice, std::string_view list, JobFilter& filter) {
  for (const auto word : split(list, ',')) {
    if (equals_ignoring_case(word, "all")) {
      filter.all_states = true;
      continue;
    }
    const auto state = find_state(word);
    if (!state) {
      voice.error(fmt::format("Invalid job state specified: {}", word));
      voice.error(fmt::format("Valid job states include: {}", all_states()));
      return 1;
    }
    filter.states.emplace_back(*state);
  }
  return {};
}

Ended read_users(const Voice& voice, std::string_view list, JobFilter& filter) {
  auto uids = resolve_users(list);
  if (!uids) {
    voice.error(fmt::format("Invalid user: {}", uids.error()));
    return 1;
  }
  filter.uids.insert(filter.uids.end(), uids->begin(), uids->end());
  return {};
}

Ended read_jobs(const Voice& voice, std::string_view list, Options& options) {
  for (const auto id : split_outside_brackets(list)) {
    if (is_job_id(id)) continue;
    voice.error(fmt::format("Invalid job id: {}", id));
    return 1;
  }
  if (!options.jobs.empty()) options.jobs += ',';
  options.jobs += list;
  return {};
}

Ended read_option(const Voice& voice, int letter, Options& options) {
  const std::string_view value = optarg == nullptr ? "" : optarg;
  auto& view = options.view;
  switch (letter) {
    case 'A':
      add_words(view.filter.accounts, value);
      break;
    case 'h':
      view.header = false;
      break;
    case 'i': {
      const auto every = read_iterate(voice, value);
      if (!every) return 1;
      options.iterate = *every;
      break;
    }
    case 'j':
      return read_jobs(voice, value, options);
    case 'l':
      options.longer = true;
      break;
    case 'M':
      options.clusters = value;
      break;
    case 'n':
      add_words(view.filter.names, value);
      break;
    case 'o':
    case 'O':
      view.format = value;
      view.by_name = letter == 'O';
      break;
    case 'p':
      add_words(view.filter.partitions, value);
      break;
    case 'q':
      add_words(view.filter.qos, value);
      break;
    case 'r':
      view.expand_arrays = true;
      break;
    case 's':
      view.steps = true;
      if (!value.empty()) return read_jobs(voice, value, options);
      break;
    case 'S':
      view.sort = value;
      break;
    case 't':
      return read_states(voice, value, view.filter);
    case 'u':
      return read_users(voice, value, view.filter);
    case 'V':
      return print(version_text());
    case kJson:
      options.json = true;
      break;
    case kMe:
      view.filter.uids.push_back(::getuid());
      break;
    case kNoConvert:
      view.context.convert = false;
      break;
    case kStart:
      options.start = true;
      break;
    case kHelp:
      return print(kUsage);
    case '?':
      return try_help("squeue");
    default:
      break;  // accepted for Slurm's sake; means nothing on one machine
  }
  return {};
}

// What the environment says where the command line does not.
Ended read_environment(const Voice& voice, Options& options) {
  auto& view = options.view;
  const auto take = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (view.format.empty() && !options.longer && !options.start && !view.steps) {
    if (auto names = take("SQUEUE_FORMAT2"); !names.empty()) {
      view.format = std::move(names);
      view.by_name = true;
    } else {
      view.format = take("SQUEUE_FORMAT");
    }
  }
  if (view.sort.empty()) view.sort = take("SQUEUE_SORT");
  if (const auto states = take("SQUEUE_STATES");
      !states.empty() && view.filter.states.empty() && !view.filter.all_states) {
    if (auto ended = read_states(voice, states, view.filter)) return ended;
  }
  if (const auto users = take("SQUEUE_USERS"); !users.empty() && view.filter.uids.empty()) {
    return read_users(voice, users, view.filter);
  }
  return {};
}

void settle(Options& options) {
  auto& view = options.view;
  view.date_line = options.longer || options.iterate > 0;
  if (options.start) {
    view.filter.states = {"PENDING"};
    view.filter.all_states = false;
    if (view.sort.empty()) view.sort = "S";
  }
  if (!view.format.empty()) return;
  view.format = view.steps       ? kSqueueSteps
                : options.start  ? kSqueueStart
                : options.longer ? kSqueueLong
                                 : kSqueueFormat;
}

int show(const Voice& voice, Options& options) {
  constexpr std::string_view kPrefix = "slurm_load_jobs error";
  auto daemon = Daemon::connect();
  if (!daemon) return load_failed(kPrefix, daemon.error());
  if (!is_here(*daemon, options.clusters, voice)) return 1;
  std::string target = "/v1/jobs";
  auto& filter = options.view.filter;
  if (!options.jobs.empty()) {
    auto ids = resolve_job_ids(*daemon, options.jobs);
    if (!ids) return load_failed(kPrefix, ids.error());
    filter.ids = std::move(*ids);
  }
  // One job is asked for by its id, and unknown is an error; several are looked for in the queue.
  const bool one = filter.ids.size() == 1;
  if (one) {
    const auto& id = filter.ids.front();
    target += "?id=" + id.substr(0, id.find_first_of("_.+"));
  } else if (filter.ids.empty() && filter.uids.size() == 1) {
    target += "?user=" + net::percent_encode(user_name(Uid(filter.uids.front())));
  }
  const auto add = [&](std::string_view word) {
    target += target.find('?') == target.npos ? '?' : '&';
    target += word;
  };
  if (!options.json && options.view.format == kSqueueFormat) add("brief");
  if (filter.ids.empty() && filter.only_unfinished()) add("live");
  auto list = daemon->list(target);
  if (!list) return load_failed(kPrefix, list.error());
  if (one && list->jobs.empty()) {
    return load_failed(kPrefix, {"ESLURM_INVALID_JOB_ID", ""});
  }

  options.view.context.now = wall_now();
  if (options.json) {
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return load_failed(kPrefix, cluster.error());
    select_jobs(list->jobs, options.view);
    return print(squeue_json(list->jobs, cluster->cluster));
  }
  const auto text = format_squeue(list->jobs, options.view);
  if (!text) {
    voice.error(text.error().message);
    return 1;
  }
  for (const auto& field : text->unknown_fields) {
    voice.error(fmt::format("Invalid job format specification: {}", field));
  }
  return print(text->text);
}

}  // namespace

int run_squeue(int argc, char** argv) {
  const Voice voice("squeue");
  Options options;
  int letter = 0;
  while ((letter = getopt_long(argc, argv, "A:ahi:j:lL:M:n:o:O:p:Pq:rR:s::S:t:u:vVw:",
                               kOptions.data(), nullptr)) != -1) {
    if (const auto ended = read_option(voice, letter, options)) return *ended;
  }
  if (optind < argc) {
    voice.error(fmt::format("Unrecognized option: {}", argv[optind]));
    return try_help("squeue");
  }
  if (const auto ended = read_environment(voice, options)) return *ended;
  settle(options);
  return show_every(options.iterate, [&] { return show(voice, options); });
}

}  // namespace aliquot::cli
