#include "slurm/site.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/hostlist.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 8;  // of files that include files

// Keys that begin a line about something else than the cluster as a whole.
bool has_subject(const ConfLine& line) {
  for (const std::string_view key :
       {"NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "SwitchName"}) {
    if (line.is_about(key)) return true;
  }
  return false;
}

class Reader {
 public:
  explicit Reader(const ReadFile& read) : read_(read) {}

  Result<void> add(const std::string& path, int depth) {
    if (depth > kDeepest) {
      return fail(Error::Code::invalid_argument, "{}: includes itself, or too deep", path);
    }
    const std::string text = TRY(read_(path));
    const std::size_t index = site_.files.size();
    ConfFile file{.path = path, .lines = lines_of_text(text), .entries = {}};
    file.entries = parse_conf_lines(file.lines);
    site_.files.push_back(std::move(file));
    for (std::size_t i = 0; i < site_.files[index].entries.size(); ++i) {
      // A copy: including grows the list of files.
      const ConfLine line = site_.files[index].entries[i];
      if (!line.include.empty()) {
        TRY(add(included(path, line.include), depth + 1));
        continue;
      }
      order_.push_back({index, i});
    }
    return {};
  }

  Site keys() { return std::move(site_); }

  Result<Site> finish() {
    for (const ConfPlace place : order_) TRY(take(ConfLine(site_.line(place)), place));
    for (auto& [partition, nodes] : partition_nodes_) {
      site_.partitions[partition].nodes = TRY(resolve(nodes));
    }
    return std::move(site_);
  }

 private:
  // Relative to the file; %c is the cluster's name.
  std::string included(const std::string& from, std::string name) {
    const std::string cluster = site_.get("ClusterName").value_or("cluster");
    for (auto at = name.find("%c"); at != std::string::npos;
         at = name.find("%c", at + cluster.size())) {
      name.replace(at, 2, cluster);
    }
    return (fs::path(from).parent_path() / name).lexically_normal().string();
  }

  Result<void> take(const ConfLine& line, ConfPlace place) {
    if (line.is_about("NodeName")) return take_nodes(line, place);
    if (line.is_about("PartitionName")) return take_partitions(line, place);
    if (line.is_about("NodeSet")) sets_[line.words.front().second] = line;
    return {};
  }

  Result<void> take_nodes(const ConfLine& line, ConfPlace place) {
    const std::string& names = line.words.front().second;
    if (equals_ignoring_case(names, "DEFAULT")) {
      if (const auto gres = line.get("Gres")) default_gres_ = *gres;
      return {};
    }
    const auto nodes = TRY(expand_hostlist(names));
    std::vector<std::string> hosts = nodes;
    if (const auto written = line.get("NodeHostname")) hosts = TRY(expand_hostlist(*written));
    auto written_features = line.get("Features");
    if (!written_features) written_features = line.get("Feature");
    const std::string features = written_features.value_or("");
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      SiteNode node{.name = nodes[i],
                    .host = hosts.size() == nodes.size() ? hosts[i]
                            : hosts.empty()              ? nodes[i]
                                                         : hosts.front(),
                    .gres = line.get("Gres").value_or(default_gres_),
                    .features = {},
                    .place = place};
      for (const auto feature : split(features, ',')) node.features.emplace_back(feature);
      site_.nodes.push_back(std::move(node));
    }
    return {};
  }

  Result<void> take_partitions(const ConfLine& line, ConfPlace place) {
    const std::string& names = line.words.front().second;
    // Whatever its case: Slurm has no partition of this name.
    if (equals_ignoring_case(names, "DEFAULT")) {
      partition_defaults_.words.insert(partition_defaults_.words.end(), line.words.begin() + 1,
                                       line.words.end());
      return {};
    }
    const auto value = [&](std::string_view key) {
      const auto own = line.get(key);
      return own ? own : partition_defaults_.get(key);
    };
    for (const auto name : split(names, ',')) {
      SitePartition partition{
          .name = std::string(name),
          .nodes = {},
          .billing_weights = value("TRESBillingWeights").value_or(""),
          .is_default = equals_ignoring_case(value("Default").value_or(""), "yes"),
          .place = place};
      partition_nodes_.emplace_back(site_.partitions.size(), value("Nodes").value_or(""));
      site_.partitions.push_back(std::move(partition));
    }
    return {};
  }

  // Names, ranges, node sets and ALL.
  Result<std::vector<std::string>> resolve(const std::string& text) {
    std::vector<std::string> names;
    for (const auto part : split_outside_brackets(text)) {
      if (equals_ignoring_case(part, "ALL")) {
        for (const SiteNode& node : site_.nodes) names.push_back(node.name);
        continue;
      }
      const auto set = sets_.find(std::string(part));
      if (set == sets_.end()) {
        for (auto& name : TRY(expand_hostlist(part))) names.push_back(std::move(name));
        continue;
      }
      if (const auto nodes = set->second.get("Nodes")) {
        for (auto& name : TRY(expand_hostlist(*nodes))) names.push_back(std::move(name));
      }
      if (const auto feature = set->second.get("Feature")) {
        for (const SiteNode& node : site_.nodes) {
          if (std::ranges::count(node.features, *feature) > 0) names.push_back(node.name);
        }
      }
    }
    return names;
  }

  const ReadFile& read_;
  Site site_;
  std::vector<ConfPlace> order_;  // in which Slurm reads them
  std::string default_gres_;
  ConfLine partition_defaults_;
  std::map<std::string, ConfLine> sets_;
  std::vector<std::pair<std::size_t, std::string>> partition_nodes_;
};

// Whether the settings allow shares in this partition.
bool is_open(const SitePartition& partition, const std::vector<std::string>& patterns) {
  return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
           return fnmatch(pattern.c_str(), partition.name.c_str(), 0) == 0;
         });
}

// Each GPU of the nodes with shares is a type of its own, and with that of all nodes that are in a
// partition with one of them.
void name_gpus(const Site& site, const std::vector<GpuGroup>& gpus, std::set<std::string> named,
               SiteTable& table) {
  for (std::size_t before = 0; before != named.size();) {
    before = named.size();
    for (const SitePartition& partition : site.partitions) {
      if (std::ranges::any_of(partition.nodes, [&](const auto& n) { return named.contains(n); }))
        named.insert(partition.nodes.begin(), partition.nodes.end());
    }
  }
  for (const GpuGroup& group : gpus) {
    for (const auto& node : group.nodes) {
      if (named.contains(node)) table.gpus_by_node[node].push_back({group.model, group.count});
    }
  }
  for (std::size_t i = 0; i < site.partitions.size(); ++i) {
    for (const auto& node : site.partitions[i].nodes) {
      if (table.gpus_by_node.contains(node)) table.partitions[i].nodes.push_back(node);
    }
  }
}

}  // namespace

std::optional<SlurmVersion> parse_slurm_version(std::string_view text) {
  const auto start = text.find_first_of("0123456789");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  text = text.substr(0, text.find_first_not_of("0123456789."));
  const auto parts = split(text, '.');
  if (parts.size() < 2) return std::nullopt;
  SlurmVersion version;
  const auto number = [&](std::size_t i) {
    const auto value = i < parts.size() ? parse_digits(parts[i]) : std::nullopt;
    return static_cast<int>(std::min<std::int64_t>(value.value_or(0), 9999));
  };
  version.major = number(0);
  version.minor = number(1);
  version.patch = number(2);
  if (version.major < 14) return std::nullopt;
  return version;
}

std::string to_string(const SlurmVersion& version) {
  return fmt::format("{}.{:02}.{}", version.major, version.minor, version.patch);
}

std::optional<ConfPlace> Site::find(std::string_view key) const {
  std::optional<ConfPlace> found;
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (std::size_t entry = 0; entry < files[file].entries.size(); ++entry) {
      const ConfLine& line = files[file].entries[entry];
      if (!has_subject(line) && line.get(key)) found = ConfPlace{file, entry};
    }
  }
  return found;
}

std::optional<std::string> Site::get(std::string_view key) const {
  const auto place = find(key);
  return place ? line(*place).get(key) : std::nullopt;
}

std::vector<std::string> Site::all(std::string_view key) const {
  std::vector<std::string> values;
  for (const ConfFile& file : files) {
    for (const ConfLine& entry : file.entries) {
      if (has_subject(entry)) continue;
      if (auto value = entry.get(key)) values.push_back(std::move(*value));
    }
  }
  return values;
}

bool SiteNode::has_gpus() const {
  return std::ranges::any_of(split_outside_brackets(gres), [](std::string_view part) {
    const auto kind = part.substr(0, part.find(':'));
    return kind == "gpu" || kind == "mps" || kind == "shard";
  });
}

std::string Site::folder() const { return fs::path(files.front().path).parent_path().string(); }

std::string Site::plugstack_path() const {
  const std::string named = get("PlugStackConfig").value_or("plugstack.conf");
  return (fs::path(folder()) / named).string();
}

Result<Site> read_site(const std::string& slurm_conf, const ReadFile& read) {
  Reader reader(read);
  TRY(reader.add(slurm_conf, 0));
  return reader.finish();
}

Result<Site> read_keys(const std::string& slurm_conf, const ReadFile& read) {
  Reader reader(read);
  TRY(reader.add(slurm_conf, 0));
  return reader.keys();
}

Result<GpuGroup> parse_gpu_group(std::string_view text, const std::string& here) {
  GpuGroup group;
  const auto bad = [&](std::string_view why) {
    return fail(Error::Code::invalid_argument,
                "{}: {}: write [NODES=]MODEL:COUNT:MEMORY[:FILES], e.g. n[1-4]=h200:4:143156",
                quote(text), why);
  };
  std::string_view rest = text;
  if (const auto equals = rest.find('='); equals != std::string_view::npos) {
    auto nodes = expand_hostlist(rest.substr(0, equals));
    if (!nodes) return bad(nodes.error().message);
    group.nodes = std::move(*nodes);
    rest.remove_prefix(equals + 1);
  } else {
    group.nodes = {here};
  }
  if (group.nodes.empty()) return bad("no nodes");
  std::vector<std::string_view> parts;
  for (int i = 0; i < 3; ++i) {
    const auto colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  }
  if (!is_plain_name(parts[0])) return bad("a model is letters, digits, '-', '_' and '.'");
  group.model = std::string(parts[0]);
  const auto count = parse_digits(parts[1]);
  if (!count || *count < 1 || *count > 64) return bad("COUNT is 1 to 64");
  group.count = *count;
  constexpr std::int64_t kNoGpuHas = 1LL << 30;  // MiB
  if (const auto bytes = parse_digits(parts[2]); bytes && *bytes >= kNoGpuHas) {
    group.memory = Bytes(*bytes);
  } else {
    const auto memory = parse_size(parts[2]);
    if (!memory) return bad(memory.error().message);
    group.memory = *memory;
  }
  if (group.memory < mib(1)) return bad("how much memory has each?");
  if (group.memory < gib(1)) {
    return bad(fmt::format("{} is no GPU's memory; a number alone is in MiB, with G in GiB",
                           format_size(group.memory)));
  }
  group.files = std::string(rest);
  if (rest.empty()) return group;
  if (!group.files.starts_with('/') ||
      group.files.find_first_of(" \t\n\"'#;\\$") != std::string::npos) {
    return bad("files are a full path such as /dev/nvidia[0-3]");
  }
  const auto files = expand_hostlist(group.files);
  if (!files) return bad(files.error().message);
  if (std::ssize(*files) != group.count) {
    return bad(fmt::format("{} GPUs and {} files", group.count, files->size()));
  }
  return group;
}

std::string usual_files(std::int64_t count) {
  return count == 1 ? "/dev/nvidia0" : fmt::format("/dev/nvidia[0-{}]", count - 1);
}

std::string format_gpu_group(const GpuGroup& group) {
  return fmt::format("{}={}:{}:{}B:{}", fold_hostlist(group.nodes), group.model, group.count,
                     group.memory, group.files);
}

bool names_each_gpu(const ShareSettings& share, const SlurmVersion& version) {
  return share.placement == "aliquot" && version < kMixingFixed;
}

SiteTable make_site_table(const Site& site, const std::vector<GpuGroup>& gpus,
                          const SiteSettings& settings, const SlurmVersion& version) {
  SiteTable table;
  table.unit = settings.share.unit;
  table.overcommit = settings.share.overcommit;
  table.mps_per_gpu = settings.share.mps_per_gpu;
  table.shards_per_gpu = settings.share.shards_per_gpu;
  table.gates = {settings.share.partitions, settings.share.accounts, settings.share.reservations};
  table.whole_as_shards = version < kMixingFixed;
  for (const GpuGroup& group : gpus) {
    auto model = std::ranges::find(table.models, group.model, &GpuModel::name);
    if (model == table.models.end()) {
      table.models.push_back({.name = group.model, .memory = group.memory});
      model = std::prev(table.models.end());
    }
    // Where GPUs of one name differ, what fits on all of them counts.
    model->memory = std::min(model->memory, group.memory);
    model->most_per_node = std::max(model->most_per_node, group.count);
  }
  for (GpuModel& model : table.models) model.shards = shards_of(model.memory, table.unit);
  // Where shares are given, and with it everything that shares a node with that.
  std::set<std::string> shared;
  for (const SitePartition& partition : site.partitions) {
    if (!is_open(partition, settings.share.partitions)) continue;
    shared.insert(partition.nodes.begin(), partition.nodes.end());
  }
  std::set<std::string> with_gpus;
  for (const SiteNode& node : site.nodes) {
    if (node.has_gpus()) with_gpus.insert(node.name);
  }
  const auto any = [](const SitePartition& partition, const std::set<std::string>& nodes) {
    return std::ranges::any_of(partition.nodes, [&](const auto& n) { return nodes.contains(n); });
  };
  for (const SitePartition& partition : site.partitions) {
    const std::set<std::string> nodes(partition.nodes.begin(), partition.nodes.end());
    PartitionGpus entry{.name = partition.name, .models = {}, .shared = any(partition, shared)};
    for (const GpuGroup& group : gpus) {
      const bool has =
          std::ranges::any_of(group.nodes, [&](const auto& n) { return nodes.contains(n); });
      if (has && std::ranges::count(entry.models, group.model) == 0) {
        entry.models.push_back(group.model);
      }
    }
    entry.foreign = entry.models.empty() && any(partition, with_gpus);
    const auto own = settings.share.by_partition.find(partition.name);
    if (own != settings.share.by_partition.end()) entry.share = own->second;
    if (partition.is_default) table.default_partition = partition.name;
    table.partitions.push_back(std::move(entry));
  }
  if (names_each_gpu(settings.share, version)) name_gpus(site, gpus, shared, table);
  return table;
}

}  // namespace aliquot::slurm
