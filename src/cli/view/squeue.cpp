// squeue: from its options to what is asked and shown.
#include <unistd.h>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/list_options.hpp"
#include "cli/view/slurm_json.hpp"
#include "cli/view/squeue_fields.hpp"
#include "cli/view/squeue_print.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

OrStatus<JobFilter> read_queue_filter(const OptionSet& options, const Voice& voice) {
  JobFilter filter;
  for (const auto& word : options.words("states")) {
    if (word.empty()) continue;
    if (equals_ignoring_case(word, "all")) {
      filter.all_states = true;
    } else if (const auto state = find_state(word)) {
      filter.states.emplace_back(*state);
    } else {
      voice.error(fmt::format("Invalid job state specified: {}", word));
      voice.error(fmt::format("Valid job states include: {}", all_states()));
      fmt::print(stderr, "\n");
      return tl::make_unexpected(1);
    }
  }
  // A list without words is one that nothing is on.
  const auto empty = [&](std::string_view name) {
    const auto* value = options.find(name);
    return value != nullptr && value->source == Source::command_line && value->text.empty();
  };
  filter.none = empty("states") || empty("user") || empty("jobs");
  if (options.has("me")) filter.uids.push_back(::getuid());
  const auto* users = options.find("user");
  if (users != nullptr && !users->text.empty() &&
      (users->source == Source::command_line || !options.has("me"))) {
    const auto uids = resolve_users(users->text);
    if (!uids) {
      voice.error(fmt::format("Invalid user: {}", uids.error()));
      fmt::print(stderr, "\n");
      filter.none = true;
      return filter;
    }
    filter.uids.insert(filter.uids.end(), uids->begin(), uids->end());
  }
  filter.accounts = options.words("account");
  filter.names = options.words("name");
  filter.partitions = options.words("partition");
  filter.qos = options.words("qos");
  filter.reservations = options.words("reservation");
  filter.licenses = options.words("licenses");
  filter.nodes = options.words("nodelist");
  return filter;
}

// -j, and what -s names as well.
OrStatus<std::string> read_queue_ids(const OptionSet& options, const Voice& voice) {
  std::string list = options.text("jobs");
  if (const auto steps_of = options.text("steps"); !steps_of.empty()) {
    list += (list.empty() ? "" : ",") + steps_of;
  }
  if (list.empty()) return list;
  for (const auto id : split_outside_brackets(list)) {
    if (is_job_id(id)) continue;
    voice.error(fmt::format("Invalid job id: {}", id));
    return tl::make_unexpected(1);
  }
  return list;
}

SqueueView queue_view(const OptionSet& options, JobFilter filter) {
  const bool longer = options.has("long");
  const bool start = options.has("start");
  SqueueView view;
  view.filter = std::move(filter);
  view.header = !options.has("noheader");
  view.date_line = longer || options.has("iterate");
  view.steps = options.has("steps");
  view.expand_arrays = options.has("array");
  view.sort = options.text("sort");
  view.context.convert = !options.has("noconvert");
  if (start) {
    view.filter.states = {"PENDING"};
    view.filter.all_states = false;
    if (view.sort.empty()) view.sort = "S";
  }
  const auto columns = chosen_columns(options, !longer && !start && !view.steps);
  view.by_name = columns.by_name;
  view.format = columns.given ? columns.format
                : view.steps  ? kSqueueSteps
                : start       ? kSqueueStart
                : longer      ? kSqueueLong
                              : kSqueueFormat;
  return view;
}

// One job is asked for by its id; several are looked for in the queue.
std::string queue_target(const SqueueView& view, bool json) {
  const auto& filter = view.filter;
  std::string target = "/v1/jobs";
  const auto add = [&](std::string_view word) {
    target += target.find('?') == target.npos ? '?' : '&';
    target += word;
  };
  if (filter.ids.size() == 1) {
    const auto& id = filter.ids.front();
    add("id=" + id.substr(0, id.find_first_of("_.+")));
  } else if (filter.ids.empty() && filter.uids.size() == 1) {
    add("user=" + net::percent_encode(user_name(Uid(filter.uids.front()))));
  }
  if (!json && view.format == kSqueueFormat) add("brief");
  if (filter.ids.empty() && filter.only_unfinished()) add("live");
  return target;
}

int show_queue(const OptionSet& options, const std::string& ids, SqueueView& view,
               const Voice& voice) {
  constexpr std::string_view kPrefix = "slurm_load_jobs error";
  auto daemon = open_daemon(options, voice, kPrefix);
  if (!daemon) return daemon.error();
  if (!ids.empty()) {
    auto resolved = resolve_job_ids(*daemon, ids);
    if (!resolved) return load_failed(kPrefix, resolved.error());
    view.filter.ids = std::move(*resolved);
  }
  const bool json = wants_json(options);
  if (!view.filter.nodes.empty()) {
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return load_failed(kPrefix, cluster.error());
    for (const auto& node : view.filter.nodes) {
      if (node == cluster->node.name) continue;
      voice.error(fmt::format("Invalid node name {}", node));
      return 1;
    }
  }
  auto list = daemon->list(queue_target(view, json));
  if (!list) return load_failed(kPrefix, list.error());
  if (view.filter.ids.size() == 1 && list->jobs.empty()) {
    return load_failed(kPrefix, {"ESLURM_INVALID_JOB_ID", ""});
  }
  view.context.now = wall_now();
  if (view.by_name && to_lower(view.format).find("cluster") != std::string::npos) {
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return load_failed(kPrefix, cluster.error());
    view.context.cluster = cluster->cluster;
  }
  if (json) {
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return load_failed(kPrefix, cluster.error());
    select_jobs(list->jobs, view);
    return print(squeue_json(list->jobs, cluster->cluster));
  }
  const auto text = format_squeue(list->jobs, view);
  if (!text) {
    voice.error(text.error().message);
    return 1;
  }
  for (const auto& field : text->unknown_fields) {
    voice.error(fmt::format("Invalid job format specification: {}", field));
  }
  const int status = print(text->text);
  if (text->wrong_sort.empty()) return status;
  std::fflush(stdout);
  voice.error(text->wrong_sort);
  return 1;
}

}  // namespace

int run_squeue(int argc, char** argv) {
  Voice voice("squeue");
  const auto call = read_call(SlurmCommand::squeue, argc, argv, voice);
  if (!call) return call.error();
  if (!call->words.empty()) {
    voice.error(fmt::format("Unrecognized option: {}", call->words.front()));
    print(usage_text(SlurmCommand::squeue));
    return 1;
  }
  auto filter = read_queue_filter(call->options, voice);
  if (!filter) return filter.error();
  const auto ids = read_queue_ids(call->options, voice);
  if (!ids) return ids.error();
  auto view = queue_view(call->options, std::move(*filter));
  return show_every(call->options, voice,
                    [&] { return show_queue(call->options, *ids, view, voice); });
}

}  // namespace aliquot::cli
