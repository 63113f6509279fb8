#include "slurm/setup.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/hostlist.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "slurm/billing.hpp"
#include "slurm/node_gpus.hpp"
#include "slurm/site_edit.hpp"
#include "slurm/submit_lua.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

constexpr CommentStyle kConf{"#"};
constexpr CommentStyle kLua{"--"};
constexpr std::string_view kOptions = "# setup: ";    // that were given, and hold until undone
constexpr std::string_view kNewFile = " a new file";  // after the comment's start, in our block

Result<std::optional<std::string>> read_if_there(const ReadFile& read, const std::string& path) {
  auto text = read(path);
  if (text) return std::optional<std::string>(std::move(*text));
  if (text.error().code == Error::Code::not_found) return std::optional<std::string>{};
  return tl::make_unexpected(text.error());
}

bool is_new_file(std::string_view text, CommentStyle style) {
  const auto lines = lines_of_text(text);
  return std::ranges::count(lines, std::string(style.start) + std::string(kNewFile)) > 0;
}

// The line that says so, where we make the file, or have made it before; else nothing.
std::string new_file_line(const std::optional<std::string>& before, CommentStyle style) {
  if (before && !is_new_file(*before, style)) return "";
  return fmt::format("{}{}\n", style.start, kNewFile);
}

class Planner {
 public:
  Planner(const SetupInput& input, const ReadFile& read)
      : input_(input), read_(read), billing_(input.billing), confine_(input.confine) {}

  Result<SetupPlan> plan() {
    site_ = TRY(read_site(input_.slurm_conf, [&](const std::string& path) -> Result<std::string> {
      std::string text = TRY(read_(path));
      original_[path] = text;
      return own_text(text, path, kConf);
    }));
    TRY(know_gpus());
    TRY(check_settings());
    table_ = make_site_table(site_, plan_.gpus, input_.settings, input_.version);
    TRY(check(table_));
    TRY(edit_slurm_conf());
    TRY(edit_gres_conf());
    if (confine_) TRY(edit_cgroup_conf());
    TRY(edit_plugstack());
    TRY(edit_job_submit());
    say_what_is_not_shared();
    if (const auto& share = input_.settings.share;
        share.placement == "aliquot" && !names_each_gpu(share, input_.version)) {
      plan_.notes.push_back(fmt::format(
          "placement = \"aliquot\" does nothing here, as Slurm {} spreads shares itself "
          "(LL_SHARED_GRES): take it out of the settings",
          to_string(input_.version)));
    }
    return std::move(plan_);
  }

 private:
  std::string beside(std::string_view name) const {
    return (fs::path(site_.folder()) / name).string();
  }

  void change(const std::string& path, std::optional<std::string> before, std::string after) {
    // Where the site wrote something before or behind our lines, they may as well stay where they
    // are.
    const bool lua = path.ends_with(".lua");
    if (before && (lua ? means_the_same_lua(*before, after)
                       : means_the_same(*before, after, {kRememberedGpus, kOptions}))) {
      return;
    }
    plan_.changes.push_back({path, std::move(before), std::move(after)});
  }

  Result<void> know_gpus() {
    gres_conf_ = TRY(read_if_there(read_, beside("gres.conf")));
    for (const auto& line : lines_of_text(gres_conf_.value_or(""))) {
      if (!line.starts_with(kOptions)) continue;
      if (line.find(" --billing") != std::string::npos) billing_ = true;
      if (line.find(" --no-confine") != std::string::npos) confine_ = false;
    }
    const auto nodes = gpus_by_node(remembered_gpus(gres_conf_.value_or("")), input_.gpus);
    for (const auto& [node, groups] : nodes) {
      const std::string& name = node;  // clang 14 captures no structured binding
      const bool known =
          std::ranges::any_of(site_.nodes, [&](const auto& n) { return n.name == name; });
      const bool told = std::ranges::any_of(input_.gpus, [&](const auto& group) {
        return std::ranges::count(group.nodes, name) > 0;
      });
      if (!known && told) {
        return fail(Error::Code::not_found,
                    "{} has no line NodeName={}: add it, or name another node", input_.slurm_conf,
                    name);
      }
      std::set<std::string> models;
      for (const GpuGroup& group : groups) {
        if (!models.insert(group.model).second) {
          return fail(Error::Code::invalid_argument, "node {}: {} is told twice", name,
                      group.model);
        }
      }
    }
    plan_.gpus = gather_gpus(nodes, site_);
    nodes_ = nodes;
    if (plan_.gpus.empty()) {
      return fail(Error::Code::invalid_argument,
                  "no GPUs are known: run it on a node that has some, or tell them: --gpus "
                  "'n[1-4]=h200:4:143156'");
    }
    return {};
  }

  // What only the site can tell: a gate that nobody passes, settings of a partition that is not
  // there, a unit that leaves nothing to share.
  Result<void> check_settings() {
    const ShareSettings& share = input_.settings.share;
    std::vector<std::string> names;
    for (const SitePartition& partition : site_.partitions) names.push_back(partition.name);
    for (const std::string& pattern : share.partitions) {
      const auto matches = [&](const std::string& name) {
        return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
      };
      if (std::ranges::any_of(names, matches)) continue;
      return fail(Error::Code::not_found,
                  "share.partitions: no partition of {} matches {}: there are {}",
                  input_.slurm_conf, quote(pattern), fmt::join(names, ", "));
    }
    for (const auto& own : share.by_partition) {
      if (std::ranges::count(names, own.first) > 0) continue;
      return fail(Error::Code::not_found, "[partition.{}]: {} has no such partition: there are {}",
                  own.first, input_.slurm_conf, fmt::join(names, ", "));
    }
    const auto largest = std::ranges::max_element(plan_.gpus, {}, &GpuGroup::memory);
    if (largest->memory < share.unit) {
      return fail(Error::Code::invalid_argument,
                  "share.unit is {} and no GPU has more than {}: with one shard each there is "
                  "nothing to share; 1G is the usual",
                  format_size(share.unit), format_size(largest->memory));
    }
    return {};
  }

  Result<void> edit_slurm_conf() {
    SiteEdit edit(site_);
    const auto value = [&](std::string_view key) { return site_.get(key).value_or(""); };
    // The last of shard and mps wipes away what the other told a job of its GPU: the site's own mps
    // comes last where it has one, and jobs on shards are told by the agent.
    const std::string types = value("GresTypes");
    const bool own_mps = std::ranges::count(split(types, ','), "mps") > 0;
    edit.set("GresTypes", own_mps ? with_items(types, {"gpu", "shard", "mps"}, {"shard", "mps"})
                                  : with_items(types, {"gpu", "mps", "shard"}, {"shard"}));
    if (!equals_ignoring_case(value("SelectType"), "select/cons_tres")) {
      edit.set("SelectType", "select/cons_tres");
    }
    if (input_.version >= kSpreadsShards) {
      const auto parameters = site_.get("SelectTypeParameters").value_or("CR_Core_Memory");
      edit.set("SelectTypeParameters", with_items(parameters, {"LL_SHARED_GRES"}));
    }
    edit.set("JobSubmitPlugins", with_items(value("JobSubmitPlugins"), {"lua"}));
    const bool accounted = value("AccountingStorageType").ends_with("slurmdbd");
    if (billing_ && !accounted) {
      return fail(Error::Code::unsupported,
                  "--billing needs slurmdbd (AccountingStorageType=accounting_storage/slurmdbd): "
                  "without it Slurm has no limits to count for");
    }
    if (accounted) {
      edit.set("AccountingStorageTRES",
               with_items(value("AccountingStorageTRES"), {"gres/gpu", "gres/shard"}));
    }
    if (confine_) {
      edit.set("TaskPlugin", with_items(value("TaskPlugin"), {"task/cgroup"}, {"task/none"}));
    }
    TRY(edit_nodes(edit));
    edit_partitions(edit);
    for (std::size_t i = 0; i < site_.files.size(); ++i) {
      const std::string& path = site_.files[i].path;
      change(path, original_[path], edit.text(i));
    }
    return {};
  }

  Result<void> edit_nodes(SiteEdit& edit) {
    std::map<ConfPlace, std::vector<const SiteNode*>> lines;
    for (const SiteNode& node : site_.nodes) lines[node.place].push_back(&node);
    for (const auto& [place, nodes] : lines) {
      std::set<std::string> wanted;
      for (const SiteNode* node : nodes) {
        const auto gpus = nodes_.find(node->name);
        if (gpus == nodes_.end()) {
          wanted.insert("");
          continue;
        }
        std::vector<GpuGroup> groups = gpus->second;
        if (table_.gpus_by_node.contains(node->name)) {
          groups.clear();
          for (const GpuGroup& group : gpus->second) {
            for (auto& slot : TRY(slots_of(group))) groups.push_back(std::move(slot));
          }
        }
        wanted.insert(gres_of_node(node->gres, groups, input_.settings.share.unit));
      }
      if (wanted.size() > 1) {
        const ConfLine& line = site_.line(place);
        return fail(Error::Code::invalid_argument,
                    "{}:{}: the nodes of this line have different GPUs: split it into one line for "
                    "each kind of node",
                    site_.files[place.file].path, line.first + 1);
      }
      if (!wanted.begin()->empty() && nodes.front()->gres != *wanted.begin()) {
        edit.set(place, "Gres", *wanted.begin());
      }
    }
    return {};
  }

  void edit_partitions(SiteEdit& edit) {
    if (!billing_) return;
    std::set<ConfPlace> done;
    for (const SitePartition& partition : site_.partitions) {
      const auto entry = std::ranges::find(table_.partitions, partition.name, &PartitionGpus::name);
      if (entry->models.empty() || !done.insert(partition.place).second) continue;
      std::int64_t most = 1;
      for (const GpuModel& model : table_.models) {
        if (std::ranges::count(entry->models, model.name) > 0) most = std::max(most, model.shards);
      }
      const auto weights = with_gpu_weights(partition.billing_weights, most);
      if (weights) {
        edit.set(partition.place, "TRESBillingWeights", *weights);
      } else if (const auto bill = gpu_bill(partition.billing_weights);
                 bill.gpu == 0 || bill.shard == 0) {
        plan_.notes.push_back(
            fmt::format("partition {} keeps its TRESBillingWeights={}: write both GRES/gpu and "
                        "GRES/shard there, {} shards to a GPU",
                        partition.name, partition.billing_weights, most));
      }
    }
  }

  // The lines of one type. Where a node has several, shards need the GPUs' files as well.
  template <class Add>
  void add_gres_lines(const GpuGroup& group, bool with_files,
                      const std::set<std::pair<std::string, std::string>>& served, Add add) const {
    const auto shards = group.count * shards_of(group.memory, input_.settings.share.unit);
    const auto lines = [&](const std::string& nodes, const std::string& files) {
      add(fmt::format("NodeName={} Name=gpu Type={} File={}", nodes, group.model, files));
      if (with_files) {
        add(fmt::format("NodeName={} Name=shard Type={} Count={} File={}", nodes, group.model,
                        shards, files));
      }
    };
    GpuGroup rest = group;
    std::erase_if(rest.nodes, [&](const auto& n) { return served.contains({n, group.model}); });
    if (group.files.find("%n") == std::string::npos) {
      if (!rest.nodes.empty()) lines(fold_hostlist(rest.nodes), group.files);
    } else {
      for (const auto& node : rest.nodes) {
        std::string files = group.files;
        files.replace(files.find("%n"), 2, node);
        lines(node, files);
      }
    }
    if (!with_files) {
      add(fmt::format("NodeName={} Name=shard Type={} Count={}", fold_hostlist(group.nodes),
                      group.model, shards));
    }
  }

  // The site's own lines about GPUs stay where they serve, and are set aside where they would not.
  Result<void> edit_gres_conf() {
    const std::string own = TRY(own_text(gres_conf_.value_or(""), beside("gres.conf"), kConf));
    ConfEdit edit(own, kConf);
    std::set<std::pair<std::string, std::string>> served;  // node, model: by the site's own line
    for (const ConfLine& line : parse_conf_lines(edit.lines())) {
      const auto name = line.get("Name");
      if (!name || (*name != "gpu" && *name != "shard" && *name != "mps")) continue;
      std::vector<std::string> about;
      if (const auto nodes = line.get("NodeName")) {
        about = TRY(expand_hostlist(*nodes));
      } else {
        for (const auto& [node, unused] : nodes_) about.push_back(node);
      }
      const auto unknown =
          std::ranges::find_if(about, [&](const auto& n) { return !nodes_.contains(n); });
      const bool any =
          std::ranges::any_of(about, [&](const auto& n) { return nodes_.contains(n); });
      if (!any) continue;
      const auto type = line.get("Type");
      const bool by_gpu = std::ranges::any_of(
          about, [&](const auto& n) { return table_.gpus_by_node.contains(n); });
      if (*name == "gpu" && type && !by_gpu && (line.get("File") || line.get("MultipleFiles"))) {
        for (const auto& node : about) served.emplace(node, *type);
        continue;
      }
      if (unknown != about.end()) {
        return fail(Error::Code::invalid_argument,
                    "{}:{}: this line is also about {}, whose GPUs are not known: tell them with "
                    "--gpus, or split the line",
                    beside("gres.conf"), line.first + 1, *unknown);
      }
      edit.disable(line.first, line.count);
    }
    std::string ours = new_file_line(gres_conf_, kConf);
    const auto add = [&](std::string_view line) { ours.append(line).append("\n"); };
    if (billing_ || !confine_) {
      add(fmt::format("{}{}{}", kOptions.substr(0, kOptions.size() - 1),
                      billing_ ? " --billing" : "", confine_ ? "" : " --no-confine"));
    }
    for (const GpuGroup& group : plan_.gpus) {
      add(std::string(kRememberedGpus) + format_gpu_group(group));
      GpuGroup alike = group;
      GpuGroup named = group;
      const auto is_named = [&](const auto& n) { return table_.gpus_by_node.contains(n); };
      std::erase_if(alike.nodes, is_named);
      std::erase_if(named.nodes, [&](const auto& n) { return !is_named(n); });
      if (!alike.nodes.empty()) add_gres_lines(alike, false, served, add);
      if (named.nodes.empty()) continue;
      for (const GpuGroup& slot : TRY(slots_of(named))) add_gres_lines(slot, true, served, add);
    }
    ours.pop_back();
    edit.append(ours);
    change(beside("gres.conf"), gres_conf_, edit.text());
    return {};
  }

  Result<void> edit_cgroup_conf() {
    const std::string path = beside("cgroup.conf");
    const auto text = TRY(read_if_there(read_, path));
    const std::string own = TRY(own_text(text.value_or(""), path, kConf));
    ConfEdit edit(own, kConf);
    std::optional<ConfLine> found;
    for (const ConfLine& line : parse_conf_lines(edit.lines())) {
      if (line.get("ConstrainDevices")) found = line;
    }
    if (!found) {
      edit.append(new_file_line(text, kConf) + "ConstrainDevices=yes");
    } else if (!equals_ignoring_case(*found->get("ConstrainDevices"), "yes")) {
      edit.replace(found->first, found->count,
                   with_value(logical_text(edit.lines(), *found), "ConstrainDevices", "yes"));
    }
    change(path, text, edit.text());
    return {};
  }

  Result<void> edit_plugstack() {
    const std::string path = site_.plugstack_path();
    const auto text = TRY(read_if_there(read_, path));
    const std::string own = TRY(own_text(text.value_or(""), path, kConf));
    if (input_.plugin.empty()) {
      plan_.notes.push_back(
          "aliquot_spank.so is not installed here: plugstack.conf is left alone, "
          "and jobs are not held to their shares");
      return {};
    }
    ConfEdit edit(own, kConf);
    // optional: a plugin that does not load must never keep slurmd from starting.
    const AgentSettings& agent = input_.settings.agent;
    const std::int64_t patience = patience_of(agent);
    const std::string timeout =
        patience == AgentSettings().patience ? "" : fmt::format(" timeout={}", patience * 1'000);
    edit.append(fmt::format(
        "{}optional {} socket={} without={}{}{}", new_file_line(text, kConf), input_.plugin,
        agent.socket, agent.without, timeout,
        partitions_of_slurm() + (table_.gpus_by_node.empty() ? "" : " several=shards")));
    change(path, text, edit.text());
    return {};
  }

  // Seconds. Where the site does not say otherwise a step is as patient as Slurm is.
  std::int64_t patience_of(const AgentSettings& agent) const {
    if (agent.patience != AgentSettings().patience) return agent.patience;
    const auto slurms = parse_digits(site_.get("MessageTimeout").value_or(""));
    return std::clamp<std::int64_t>(slurms.value_or(0), agent.patience, 600);
  }

  // Where sbatch, srun and salloc leave words about GPUs to Slurm; the default partition has a
  // star.
  std::string partitions_of_slurm() const {
    const auto list = [&](std::string_view name, auto matches) {
      std::vector<std::string> names;
      for (const PartitionGpus& partition : table_.partitions) {
        if (!matches(partition)) continue;
        names.push_back(partition.name + (partition.name == table_.default_partition ? "*" : ""));
      }
      return names.empty() ? "" : fmt::format(" {}={}", name, fmt::join(names, ","));
    };
    return list("whole",
                [&](const PartitionGpus& partition) {
                  return table_.whole_as_shards && !partition.shared && !partition.models.empty();
                }) +
           list("foreign", [](const PartitionGpus& partition) { return partition.foreign; });
  }

  Result<void> edit_job_submit() {
    const std::string ours = beside("aliquot_submit.lua");
    const auto before = TRY(read_if_there(read_, ours));
    if (before && !before->starts_with(kSubmitLuaMark)) {
      return fail(Error::Code::already_exists, "{} is there and not ours: move it away", ours);
    }
    change(ours, before, make_submit_lua(table_));

    const std::string path = beside("job_submit.lua");
    const auto text = TRY(read_if_there(read_, path));
    ConfEdit edit(TRY(own_text(text.value_or(""), path, kLua)), kLua);
    edit.insert(end_of_lua(edit.lines()),
                fmt::format("{}dofile(\"{}\")", new_file_line(text, kLua), ours));
    change(path, text, edit.text());
    if (table_.whole_as_shards) {
      plan_.notes.push_back(
          fmt::format("Slurm {} may put a whole-GPU job beside shares (fixed in 23.11.5): whole "
                      "GPUs are booked as all of their shards",
                      to_string(input_.version)));
    }
    return {};
  }

  void say_what_is_not_shared() {
    std::vector<std::string> others;
    for (const SiteNode& node : site_.nodes) {
      if (!nodes_.contains(node.name) && node.has_gpus()) others.push_back(node.name);
    }
    if (others.empty()) return;
    plan_.notes.push_back(
        fmt::format("the GPUs of {} are not shared, as their memory is not known: tell it with "
                    "--gpus '{}=MODEL:COUNT:MEMORY'",
                    fold_hostlist(others), fold_hostlist(others)));
  }

  const SetupInput& input_;
  const ReadFile& read_;
  Site site_;
  std::map<std::string, std::string> original_;
  std::optional<std::string> gres_conf_;
  GpusByNode nodes_;
  SiteTable table_;
  bool billing_;
  bool confine_;
  SetupPlan plan_;
};

}  // namespace

Result<SetupPlan> plan_setup(const SetupInput& input, const ReadFile& read) {
  return Planner(input, read).plan();
}

Result<SetupPlan> plan_undo(const std::string& slurm_conf, const ReadFile& read) {
  SetupPlan plan;
  const Site site = TRY(read_site(slurm_conf, read));
  const auto beside = [&](std::string_view name) {
    return (fs::path(site.folder()) / name).string();
  };
  std::vector<std::pair<std::string, CommentStyle>> files;
  for (const ConfFile& file : site.files) files.emplace_back(file.path, kConf);
  files.emplace_back(beside("gres.conf"), kConf);
  files.emplace_back(beside("cgroup.conf"), kConf);
  files.emplace_back(site.plugstack_path(), kConf);
  files.emplace_back(beside("job_submit.lua"), kLua);
  for (const auto& [path, style] : files) {
    const auto text = TRY(read_if_there(read, path));
    if (!text || !has_ours(*text, style)) continue;
    std::string own = TRY(own_text(*text, path, style));
    const bool remove = own.empty() && is_new_file(*text, style);
    plan.changes.push_back(
        {path, text, remove ? std::optional<std::string>{} : std::optional(std::move(own))});
  }
  const auto lua = TRY(read_if_there(read, beside("aliquot_submit.lua")));
  if (lua && lua->starts_with(kSubmitLuaMark)) {
    plan.changes.push_back({beside("aliquot_submit.lua"), lua, std::nullopt});
  }
  return plan;
}

}  // namespace aliquot::slurm
