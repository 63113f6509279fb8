// sinfo: the command line.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/console.hpp"
#include "cli/slurm/options.hpp"
#include "cli/view/named.hpp"
#include "cli/view/node_text.hpp"
#include "cli/view/sinfo_fields.hpp"
#include "cli/view/slurm_command.hpp"
#include "cli/view/slurm_json.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kUsage = R"(Usage: sinfo [OPTIONS]
  -a, --all                  all partitions
  -h, --noheader             no headers
  -i, --iterate=seconds      repeat every so many seconds
      --json                 JSON
  -l, --long                 long output
  -N, --Node                 node-centric format
  -n, --nodes=NODES          only these nodes
  -o, --format=format        format specification
  -O, --Format=format        format specification by names
  -p, --partition=PARTITION  only these partitions
  -R, --list-reasons         why nodes are down or drained
  -s, --summarize            partition state only
  -t, --states=STATES        only nodes in these states
  -V, --version              version information
      --help, --usage        this text
)";

enum LongOnly : int { kJson = 256, kHelp, kIgnored };

constexpr auto kOptions = std::to_array<option>({
    {"all", no_argument, nullptr, 'a'},
    {"cluster", required_argument, nullptr, 'M'},
    {"clusters", required_argument, nullptr, 'M'},
    {"dead", no_argument, nullptr, 'd'},
    {"exact", no_argument, nullptr, 'e'},
    {"federation", no_argument, nullptr, kIgnored},
    {"format", required_argument, nullptr, 'o'},
    {"Format", required_argument, nullptr, 'O'},
    {"future", no_argument, nullptr, 'F'},
    {"help", no_argument, nullptr, kHelp},
    {"hide", no_argument, nullptr, kIgnored},
    {"iterate", required_argument, nullptr, 'i'},
    {"json", no_argument, nullptr, kJson},
    {"list-reasons", no_argument, nullptr, 'R'},
    {"local", no_argument, nullptr, kIgnored},
    {"long", no_argument, nullptr, 'l'},
    {"Node", no_argument, nullptr, 'N'},
    {"noconvert", no_argument, nullptr, kIgnored},
    {"node", required_argument, nullptr, 'n'},
    {"nodes", required_argument, nullptr, 'n'},
    {"noheader", no_argument, nullptr, 'h'},
    {"partition", required_argument, nullptr, 'p'},
    {"responding", no_argument, nullptr, 'r'},
    {"reservation", no_argument, nullptr, 'T'},
    {"sort", required_argument, nullptr, 'S'},
    {"states", required_argument, nullptr, 't'},
    {"summarize", no_argument, nullptr, 's'},
    {"usage", no_argument, nullptr, kHelp},
    {"verbose", no_argument, nullptr, 'v'},
    {"version", no_argument, nullptr, 'V'},
    {nullptr, 0, nullptr, 0},
});

struct Options {
  std::string format;
  bool by_name = false;
  bool by_node = false;
  bool longer = false;
  bool summary = false;
  bool reasons = false;
  bool header = true;
  bool json = false;
  bool dead = false;
  unsigned iterate = 0;
  std::vector<std::string> partitions;
  std::vector<std::string> states;
  std::vector<std::string> nodes;
  std::string clusters;  // -M
};

std::optional<int> read_option(const Voice& voice, int letter, Options& options) {
  const std::string_view value = optarg == nullptr ? "" : optarg;
  switch (letter) {
    case 'd':
      options.dead = true;
      break;
    case 'h':
      options.header = false;
      break;
    case 'i': {
      const auto every = read_iterate(voice, value);
      if (!every) return 1;
      options.iterate = *every;
      break;
    }
    case 'l':
      options.longer = true;
      break;
    case 'M':
      options.clusters = value;
      break;
    case 'n':
      add_words(options.nodes, value);
      break;
    case 'N':
      options.by_node = true;
      break;
    case 'o':
    case 'O':
      options.format = value;
      options.by_name = letter == 'O';
      break;
    case 'p':
      add_words(options.partitions, value);
      break;
    case 'R':
      options.reasons = true;
      break;
    case 's':
      options.summary = true;
      break;
    case 't':
      add_words(options.states, value);
      break;
    case 'V':
      return print(version_text());
    case kJson:
      options.json = true;
      break;
    case kHelp:
      return print(kUsage);
    case '?':
      return try_help("sinfo");
    default:
      break;  // accepted for Slurm's sake; means nothing on one machine
  }
  return {};
}

SinfoView view_of(const Options& options) {
  if (options.reasons) return SinfoView::reasons;
  if (options.summary) return SinfoView::summary;
  if (options.by_node) {
    return options.longer ? SinfoView::by_node_longer : SinfoView::by_node;
  }
  return options.longer ? SinfoView::longer : SinfoView::usual;
}

bool wants_node(const Options& options, const api::NodeInfo& node) {
  if (!options.nodes.empty() &&
      std::ranges::find(options.nodes, node.name) == options.nodes.end()) {
    return false;
  }
  if (options.dead && node.state != "down") return false;
  if (options.reasons && node.reason.empty()) return false;
  return options.states.empty() || std::ranges::any_of(options.states, [&](const auto& state) {
           return equals_ignoring_case(state, node.state) || equals_ignoring_case(state, "all") ||
                  equals_ignoring_case(state, compact_node_state(node.state)) ||
                  (equals_ignoring_case(state, "drain") && node_is_drained(node));
         });
}

int show(const Voice& voice, Options& options) {
  constexpr std::string_view kPrefix = "slurm_load_partitions";
  auto daemon = Daemon::connect();
  if (!daemon) return load_failed(kPrefix, daemon.error());
  if (!is_here(*daemon, options.clusters, voice)) return 1;
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kPrefix, cluster.error());
  if (options.json) return print(sinfo_json(*cluster));

  const auto view = view_of(options);
  const auto format = options.format.empty() ? sinfo_format(view, *cluster) : options.format;
  const auto listing = options.by_name ? Listing<NodeRow>::of_names(sinfo_fields(), format)
                                       : Listing<NodeRow>::of_letters(sinfo_fields(), format);
  if (!listing) {
    voice.error(listing.error().message);
    return 1;
  }
  for (const auto& field : listing->unknown()) {
    voice.error(fmt::format("Invalid node format specification: {}", field));
  }
  std::vector<const api::PartitionInfo*> partitions;
  for (const auto& partition : cluster->partitions) {
    const bool wanted =
        options.partitions.empty() ||
        std::ranges::find(options.partitions, partition.name) != options.partitions.end();
    if (wanted && wants_node(options, cluster->node)) partitions.push_back(&partition);
  }
  const ViewContext context{wall_now()};
  std::string text;
  if (options.longer || options.iterate > 0) text += format_date_line(context.now) + "\n";
  text += format_sinfo(*listing, *cluster, partitions,
                       {.by_node = options.by_node && !options.reasons, .header = options.header},
                       context);
  return print(text);
}

}  // namespace

int run_sinfo(int argc, char** argv) {
  const Voice voice("sinfo");
  Options options;
  int letter = 0;
  while ((letter = getopt_long(argc, argv, "adeFhi:lM:n:No:O:p:rRsS:t:TvV", kOptions.data(),
                               nullptr)) != -1) {
    if (const auto ended = read_option(voice, letter, options)) return *ended;
  }
  if (options.format.empty()) {
    const char* format = std::getenv("SINFO_FORMAT");
    if (format != nullptr && !options.longer && !options.summary && !options.reasons &&
        !options.by_node) {
      options.format = format;
    }
  }
  return show_every(options.iterate, [&] { return show(voice, options); });
}

}  // namespace aliquot::cli
