// sacct: from its options to what is asked and shown.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/moment.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/job_filter.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/sacct_fields.hpp"
#include "cli/view/slurm_json.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kSacctPrefix = "sacct: error: Problem talking to the database";

// What is asked of the daemon, beside the columns.
struct AccountingQuery {
  JobFilter filter;  // its ids stay empty: steps may be named as well
  std::string jobs;  // -j, as written
  std::optional<WallTime> start = {};
  std::optional<WallTime> end = {};
  AccountingContext context = {};
};

OrStatus<std::optional<WallTime>> read_limit(const OptionSet& options, std::string_view name) {
  const auto text = options.maybe(name);
  if (!text) return std::nullopt;
  const auto time = parse_moment(*text, wall_now(), Tense::past);
  if (time) return *time;
  fmt::print(stderr, "{}\n", make_plain(no_moment(*text)));
  return tl::make_unexpected(1);
}

// Reads which jobs are asked for. Returns Slurm's message about the first wrong word; empty: all is
// well.
std::string read_accounting_filter(const OptionSet& options, AccountingQuery& query) {
  auto& filter = query.filter;
  for (const auto& word : options.words("state")) {
    const auto state = find_state(word);
    if (!state) return fmt::format("unrecognized job state value '{}'", word);
    filter.states.emplace_back(*state);
  }
  filter.all_states = filter.states.empty();
  query.jobs = options.text("jobs");
  for (const auto id : split_outside_brackets(query.jobs)) {
    if (!id.empty() && !is_job_id(id)) return fmt::format("Bad job/step specified: {}", id);
  }
  filter.names = options.words("name");
  filter.partitions = options.words("partition");
  filter.accounts = options.words("accounts");
  filter.qos = options.words("qos");
  filter.nodes = options.words("nodelist");
  if (const auto unit = options.maybe("units")) {
    const char letter = unit->size() == 1 ? static_cast<char>((*unit)[0] & ~0x20) : '\0';
    if (letter == '\0' || std::string_view("KMGTP").find(letter) == std::string_view::npos) {
      return fmt::format("Invalid unit type '{}'. Allowed options are 'KMGTP'", *unit);
    }
    query.context.unit = letter;
  }
  query.context.convert = !options.has("noconvert");
  return {};
}

OrStatus<AccountingQuery> read_query(const OptionSet& options, const Voice& voice) {
  AccountingQuery query;
  if (const auto wrong = read_accounting_filter(options, query); !wrong.empty()) {
    voice.fatal(wrong);
    return tl::make_unexpected(1);
  }
  if (options.has("user")) {
    auto uids = resolve_users(options.text("user"));
    if (!uids) {
      voice.error(fmt::format("Invalid user id: {}", uids.error()));
      return tl::make_unexpected(1);
    }
    query.filter.uids = std::move(*uids);
  }
  const auto start = read_limit(options, "starttime");
  if (!start) return tl::make_unexpected(start.error());
  const auto end = read_limit(options, "endtime");
  if (!end) return tl::make_unexpected(end.error());
  query.start = *start;
  query.end = *end;
  const auto last = query.end.value_or(wall_now());
  if (query.start && *query.start > last) {
    voice.error(fmt::format("Start time ({}) requested is after end time ({}).",
                            format_timestamp(*query.start), format_timestamp(last)));
    return tl::make_unexpected(1);
  }
  return query;
}

// -b and -l begin the list anew; -o adds to it.
std::string accounting_format(const NamedCall& call) {
  std::optional<std::string> format;
  for (const auto& word : call.line.words) {
    if (word.name == "brief") format = kSacctBrief;
    if (word.name == "long") format = kSacctLong;
    if (word.name == "format") format = (format ? *format + "," : "") + word.value;
  }
  if (!format) format = call.options.maybe("format");
  return format.value_or(std::string(kSacctFormat));
}

// The steps that -j 7.batch or -j 7.0 leaves; whether the job itself was not asked for.
bool keep_steps(api::JobInfo& job, const std::vector<std::string>& ids) {
  const bool whole = std::ranges::any_of(
      ids, [&](const auto& id) { return id.find('.') == id.npos && matches_job_id(job, id); });
  if (whole || ids.empty()) return false;
  std::erase_if(job.steps, [&](const api::StepInfo& step) {
    return std::ranges::none_of(ids, [&](const auto& id) {
      const auto dot = id.find('.');
      return dot != id.npos && matches_job_id(job, id.substr(0, dot)) &&
             id.substr(dot + 1) == step.id;
    });
  });
  return true;
}

// -s, where a time is said as well, or jobs are: who was in one of the states then. A time is none
// where it is now.
bool was_in_state(const api::JobInfo& job, const std::vector<std::string>& states, WallTime start,
                  WallTime end) {
  const auto begun = has_started(job) ? job.start_ms : std::nullopt;
  const auto over = is_finished(job) ? job.end_ms : std::nullopt;
  return std::ranges::any_of(states, [&](const std::string& state) {
    if (state == "PENDING") {
      const auto eligible = eligible_ms(job);
      return (begun || is_pending(job)) && eligible && *eligible <= end.ms() &&
             (!begun || *begun >= start.ms());
    }
    if (state == "RUNNING") return begun && *begun <= end.ms() && (!over || *over >= start.ms());
    if (job.state != state) return false;
    return !over || (*over >= start.ms() && *over <= end.ms());
  });
}

// Returns the jobs of which only steps were asked for.
std::vector<std::int64_t> select_accounted(std::vector<api::JobInfo>& jobs, JobFilter filter,
                                           const std::vector<std::string>& ids) {
  for (const auto& id : ids) filter.ids.push_back(id.substr(0, id.find_first_of(".+")));
  std::erase_if(jobs, [&](const api::JobInfo& job) { return !filter.accepts(job); });
  std::vector<std::int64_t> steps_only;
  for (auto& job : jobs) {
    if (keep_steps(job, ids)) steps_only.push_back(job.id);
  }
  // The elements of an array stand together, in their order.
  std::ranges::stable_sort(jobs, {}, [](const api::JobInfo& job) {
    return std::pair(job.array_job_id.value_or(job.id), job.array_task_id.value_or(-1));
  });
  return steps_only;
}

std::string accounting_target(const AccountingQuery& query, const std::vector<std::string>& ids,
                              bool duplicates) {
  const auto& filter = query.filter;
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{}{}={}", text.empty() ? "?" : "&", key, net::percent_encode(value));
  };
  if (query.start) add("start", fmt::format("{}", query.start->ms()));
  if (duplicates) add("duplicates", "1");
  if (query.end) add("end", fmt::format("{}", query.end->ms()));
  if (filter.uids.size() == 1) add("user", user_name(Uid(filter.uids.front())));
  if (filter.names.size() == 1) add("name", filter.names.front());
  if (ids.size() == 1) add("id", ids.front().substr(0, ids.front().find_first_of("_.+")));
  return "/v1/accounting" + text;
}

SacctLayout accounting_layout(const OptionSet& options) {
  SacctLayout layout;
  layout.header = !options.has("noheader");
  layout.steps = !options.has("allocations");
  const auto* between = options.find("parsable2");
  const auto* after = options.find("parsable");
  if (between == nullptr && after == nullptr) return layout;
  layout.delimiter = options.text("delimiter", "|");
  layout.trailing = after != nullptr && (between == nullptr || after->place > between->place);
  return layout;
}

int show_accounting(const NamedCall& call, AccountingQuery query, const Voice& voice) {
  const auto& options = call.options;
  const auto fields = choose_sacct_fields(accounting_format(call));
  if (!fields) {
    voice.error(fields.error().message);
    return 1;
  }
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(kSacctPrefix, daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kSacctPrefix, cluster.error());
  query.context.cluster = cluster->cluster;
  query.context.node_memory = cluster->node.memory;
  auto layout = accounting_layout(options);
  // Of a cluster that nobody knows there are no jobs.
  const auto named = options.words("clusters");
  if (!named.empty() && std::ranges::none_of(named, [&](const std::string& name) {
        return name.empty() || name == cluster->cluster || equals_ignoring_case(name, "all");
      })) {
    return print(format_sacct(*fields, {}, layout, query.context));
  }
  std::vector<std::string> ids;
  if (!query.jobs.empty()) {
    auto resolved = resolve_job_ids(*daemon, query.jobs);
    if (!resolved) return load_failed(kSacctPrefix, resolved.error());
    ids = std::move(*resolved);
    std::erase(ids, "");
  }
  query.context.now = wall_now();
  const bool in_window = query.start || !ids.empty();
  if (ids.empty() && !query.start) {
    query.start = *parse_moment("today", query.context.now, Tense::past);
  }
  // As in Slurm: one's own jobs, unless root or asked otherwise.
  auto& uids = query.filter.uids;
  if (ids.empty() && uids.empty() && !options.has("allusers") && ::getuid() != 0) {
    uids.push_back(::getuid());
  }
  auto list = daemon->list(accounting_target(query, ids, options.has("duplicates")));
  if (!list) return load_failed(kSacctPrefix, list.error());
  if (!query.filter.states.empty() && in_window) {
    const auto states = std::exchange(query.filter.states, {});
    query.filter.all_states = true;
    const auto end = query.end.value_or(query.context.now);
    std::erase_if(list->jobs, [&](const api::JobInfo& job) {
      return !was_in_state(job, states, query.start.value_or(WallTime(0)), end);
    });
  }
  layout.steps_only = select_accounted(list->jobs, query.filter, ids);
  return print(wants_json(options)
                   ? sacct_json(list->jobs, query.context.cluster, query.context.now)
                   : format_sacct(*fields, list->jobs, layout, query.context));
}

}  // namespace

int run_sacct(int argc, char** argv) {
  Voice voice("sacct");
  const auto call = read_call(SlurmCommand::sacct, argc, argv, voice);
  if (!call) return call.error();
  if (call->options.has("helpformat")) return print(list_sacct_fields());
  if (!call->words.empty()) {
    voice.error("Unknown arguments:");
    for (const auto word : call->words) voice.error(fmt::format(" {}", word));
    return 1;
  }
  auto query = read_query(call->options, voice);
  if (!query) return query.error();
  return show_accounting(*call, std::move(*query), voice);
}

}  // namespace aliquot::cli
