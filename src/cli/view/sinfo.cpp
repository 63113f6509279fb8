// sinfo: from its options to what is asked and shown.
#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/control/scontrol_reservation.hpp"
#include "cli/query.hpp"
#include "cli/view/list_options.hpp"
#include "cli/view/node_text.hpp"
#include "cli/view/sinfo_fields.hpp"
#include "cli/view/slurm_json.hpp"

namespace aliquot::cli {
namespace {

SinfoView sinfo_view(const OptionSet& options) {
  const bool longer = options.has("long");
  if (options.has("list-reasons")) return longer ? SinfoView::longer_reasons : SinfoView::reasons;
  if (options.has("summarize")) return SinfoView::summary;
  if (options.has("Node")) return longer ? SinfoView::by_node_longer : SinfoView::by_node;
  return longer ? SinfoView::longer : SinfoView::usual;
}

bool is_or_any(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
}

// The words of Slurm for -t, and for how it is asked beside them.
bool is_node_state(std::string_view word) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"all",         "unknown",    "unk",         "down",           "idle",
       "allocated",   "alloc",      "error",       "mixed",          "mix",
       "future",      "futr",       "drain",       "drained",        "draining",
       "drng",        "no_respond", "reserved",    "resv",           "perfctrs",
       "npc",         "power_up",   "power_down",  "powering_down",  "powered_down",
       "powering_up", "maint",      "reboot",      "cloud",          "completing",
       "comp",        "fail",       "failing",     "failg",          "planned",
       "plnd",        "blocked",    "invalid_reg", "dynamic_future", "dynamic_norm"});
  return std::ranges::any_of(kWords, [&](auto known) { return equals_ignoring_case(word, known); });
}

bool wants_node(const OptionSet& options, const api::NodeInfo& node) {
  if (!is_or_any(options.words("nodes"), node.name)) return false;
  if (options.has("dead") && node.state != "down") return false;
  if (options.has("list-reasons") && node.reason.empty() &&
      std::ranges::all_of(node.gpus, [](const api::GpuInfo& gpu) { return gpu.reason.empty(); })) {
    return false;
  }
  const auto states = options.words("states");
  return states.empty() || std::ranges::any_of(states, [&](const auto& state) {
           return equals_ignoring_case(state, node.state) || equals_ignoring_case(state, "all") ||
                  equals_ignoring_case(state, compact_node_state(node.state)) ||
                  (equals_ignoring_case(state, "drain") && node_is_drained(node));
         });
}

using Partitions = std::vector<const api::PartitionInfo*>;

// -S: what tells partitions apart; they have the same node. `#P` is the order of the settings.
void sort_partitions(Partitions& partitions, std::string_view text) {
  const auto keys = split(text, ',');
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const bool descending = key->find('-') != key->npos;
    if (key->empty() || key->find('#') != key->npos) continue;
    const auto by = [&](auto value) {
      std::ranges::stable_sort(partitions, [&](const auto* a, const auto* b) {
        return descending ? value(*b) < value(*a) : value(*a) < value(*b);
      });
    };
    using Partition = api::PartitionInfo;
    switch (key->back()) {
      case 'P':
      case 'R':
        by([](const Partition& one) { return std::string_view(one.name); });
        break;
      case 'a':
        by([](const Partition& one) { return one.up; });
        break;
      case 'l':
        by([](const Partition& one) { return one.max_time_ms.value_or(INT64_MAX); });
        break;
      case 'p':
        by([](const Partition& one) { return one.tier; });
        break;
      default:
        break;
    }
  }
}

int show_nodes(const OptionSet& options, const Voice& voice) {
  constexpr std::string_view kPrefix = "slurm_load_partitions";
  auto daemon = open_daemon(options, voice, kPrefix);
  if (!daemon) return daemon.error();
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kPrefix, cluster.error());
  if (wants_json(options)) return print(sinfo_json(*cluster));
  if (options.has("reservation")) {
    const auto all = daemon->get<api::ReservationList>("/v1/reservations");
    if (!all) return load_failed("slurm_load_reservations", all.error());
    if (all->reservations.empty()) return print("No reservations in the system\n");
    return print(
        reservation_table(all->reservations, *cluster, !options.has("noheader"), wall_now()));
  }

  const auto wanted = options.words("partition");
  Partitions partitions;
  for (const auto& partition : cluster->partitions) {
    if (is_or_any(wanted, partition.name)) partitions.push_back(&partition);
  }
  const auto view = sinfo_view(options);
  auto columns = chosen_columns(options, view == SinfoView::usual);
  if (!columns.given) columns.format = sinfo_format(view, *cluster, partitions);
  const auto listing = Listing<NodeRow>::of(sinfo_fields(), columns.format, columns.by_name);
  if (!listing) {
    voice.error(listing.error().message);
    return 1;
  }
  for (const auto& field : listing->unknown()) {
    if (columns.by_name) {
      voice.error(fmt::format("Invalid job format specification: {}", field));
    } else {
      fmt::print(stderr, "Invalid node format specification: {}\n", make_plain(field));
    }
  }
  sort_partitions(partitions, options.text("sort"));
  const bool by_node = options.has("Node");
  const bool none = !wants_node(options, cluster->node);
  const bool reasons = options.has("list-reasons");
  if (none && (by_node || reasons)) partitions.clear();
  const ViewContext context{wall_now()};
  std::string text;
  if (options.has("long") || options.has("iterate")) text += format_date_line(context.now) + "\n";
  text += format_sinfo(*listing, *cluster, partitions,
                       {.by_node = by_node && !reasons,
                        .header = !options.has("noheader"),
                        .reasons = reasons,
                        .no_node = none},
                       context);
  return print(text);
}

}  // namespace

int run_sinfo(int argc, char** argv) {
  Voice voice("sinfo");
  const auto call = read_call(SlurmCommand::sinfo, argc, argv, voice);
  if (!call) return call.error();
  for (const auto& word : call->options.words("states")) {
    if (word.empty() || is_node_state(word)) continue;
    voice.error(fmt::format("Bad state string: \"{}\"", word));
    voice.error(
        "valid states: unknown,down,idle,allocated,?,mixed,future,drain,drained,draining,"
        "no_respond,reserved,perfctrs,cloud,completing,powering_down,powered_down,power_down,"
        "powering_up,fail,maint,reboot,reboot^,unknown");
    return 1;
  }
  return show_every(call->options, voice, [&] { return show_nodes(call->options, voice); });
}

}  // namespace aliquot::cli
