// `aliquot slurm setup`.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>

#include "base/counted.hpp"
#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "slurm/client.hpp"
#include "slurm/node_gpus.hpp"
#include "slurm/setup.hpp"
#include "slurm/setup_advice.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/tool/commands.hpp"
#include "slurm/tool/silence.hpp"
#include "sys/host_name.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

struct Options {
  SiteOptions site;
  std::vector<std::string> gpus;
  std::string simulate;
  bool billing = false;
  bool apply = false;
  bool undo = false;
  bool force = false;
  bool all = false;
};

// "/dev/nvidia[0-3]" of minors 0 to 3.
std::string device_files(const std::vector<const gpu::Device*>& devices) {
  std::vector<std::string> files;
  for (const gpu::Device* device : devices) {
    files.push_back(
        fmt::format("/dev/nvidia{}", device->minor.value_or(static_cast<int>(device->index))));
  }
  return fold_hostlist(files);
}

// The GPUs of this machine, for its node and all others on the same line of slurm.conf.
Result<std::vector<GpuGroup>> gpus_here(const std::string& simulate, const SiteSettings& settings,
                                        const std::string& slurm_conf) {
  const auto devices = find_gpus(simulate);
  if (!devices && !simulate.empty()) {
    return fail(devices.error().code,
                "there are no simulated GPUs {}: write MODEL:COUNT, e.g. h200:4", quote(simulate));
  }
  if (!devices && devices.error().code == Error::Code::unsupported) return std::vector<GpuGroup>{};
  if (!devices) return tl::make_unexpected(devices.error());
  const Site site = TRY(read_site(slurm_conf, read_conf_file));
  const std::string own =
      settings.agent.node.empty() ? sys::short_host_name() : settings.agent.node;
  const auto node = std::ranges::find(site.nodes, own, &SiteNode::name);
  if (node == site.nodes.end()) {
    return fail(Error::Code::not_found,
                "this machine has GPUs, but slurm.conf no node {}: tell whose they are with --gpus",
                quote(own));
  }
  std::vector<GpuGroup> groups = group_gpus(*devices);
  for (GpuGroup& group : groups) {
    for (const SiteNode& other : site.nodes) {
      if (other.place == node->place) group.nodes.push_back(other.name);
    }
  }
  return groups;
}

Result<SetupPlan> make_plan(const Options& options, const SiteSettings& settings,
                            const std::string& slurm_conf) {
  if (options.undo) return plan_undo(slurm_conf, read_conf_file);
  SetupInput input;
  input.slurm_conf = slurm_conf;
  input.settings = settings;
  input.version = TRY(find_version(options.site.slurm_version));
  if (input.version < kOldest) {
    return fail(Error::Code::unsupported, "Slurm {} has no gres/shard: 22.05 or newer is needed",
                to_string(input.version));
  }
  input.plugin = find_plugin(options.site.plugin);
  input.confine = !options.site.no_confine;
  input.billing = options.billing;
  const std::string here =
      settings.agent.node.empty() ? sys::short_host_name() : settings.agent.node;
  for (const std::string& text : options.gpus) {
    input.gpus.push_back(TRY(parse_gpu_group(text, here)));
  }
  if (input.gpus.empty()) {
    const std::string& simulate =
        options.simulate.empty() ? settings.agent.simulate : options.simulate;
    const auto gres = read_conf_file((fs::path(slurm_conf).parent_path() / "gres.conf").string());
    // What is here counts only where nothing is known yet, or it is asked for.
    const bool known = gres && !remembered_gpus(*gres).empty();
    if (!known || !options.simulate.empty()) {
      input.gpus = TRY(gpus_here(simulate, settings, slurm_conf));
    }
  }
  return plan_setup(input, read_conf_file);
}

// Jobs that an undo would hit are told, and stop it unless it is forced.
Result<void> look_at_queue(const Options& options, const std::string& slurm_conf) {
  const auto client = open_client({}, slurm_conf);
  const auto jobs = client ? (*client)->jobs() : tl::make_unexpected(client.error());
  if (!jobs) {
    fmt::print(
        "note: slurmctld does not answer, so jobs with a part of a GPU are not looked for\n");
    return {};
  }
  const auto hit = hit_by_undo(*jobs);
  if (!hit) return {};
  if (options.apply && !options.force) {
    return fail(Error::Code::failed_state, "{}; --force does it all the same", *hit);
  }
  fmt::print("warning: {}\n", *hit);
  return {};
}

Result<int> setup(const Options& options) {
  const SiteSettings settings = TRY(load_settings(options.site.config));
  const std::string slurm_conf = find_slurm_conf(options.site, settings);
  const SetupPlan plan = TRY(make_plan(options, settings, slurm_conf));
  fmt::print("{}", preview(plan, options.all));
  for (const std::string& note : plan.notes) fmt::print("note: {}\n", note);
  if (plan.changes.empty()) {
    fmt::print("Nothing to change.\n");
    return kDone;
  }
  if (options.undo) {
    const Silence silence;
    TRY(look_at_queue(options, slurm_conf));
  }
  if (!options.apply) {
    fmt::print("Nothing was changed: do it with --apply.\n");
    return kDone;
  }
  const Site site = TRY(read_site(slurm_conf, read_conf_file));
  const std::string kept =
      TRY(apply_plan(plan, site.folder() + "/aliquot-backup", site.get("SlurmUser").value_or("")));
  fmt::print("{} changed; what {} is in {}.\n{}\n", counted(plan.changes.size(), "file"),
             plan.changes.size() == 1 ? "it was" : "they were", kept, what_to_restart(plan));
  return kDone;
}

}  // namespace

std::vector<GpuGroup> group_gpus(const std::vector<gpu::Device>& devices) {
  std::map<std::string, std::vector<const gpu::Device*>> models;
  for (const gpu::Device& device : devices) {
    if (!device.slice) models[device.gpu.model].push_back(&device);
  }
  std::vector<GpuGroup> groups;
  for (const auto& [model, list] : models) {
    GpuGroup group{.nodes = {},
                   .model = model,
                   .count = static_cast<std::int64_t>(list.size()),
                   .memory = list.front()->gpu.memory,
                   .files = device_files(list)};
    for (const gpu::Device* device : list)
      group.memory = std::min(group.memory, device->gpu.memory);
    groups.push_back(std::move(group));
  }
  return groups;
}

void add_setup(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand(
      "setup",
      "Write what Slurm needs to share GPUs into its files; shows it, and changes nothing "
      "without --apply");
  const auto options = std::make_shared<Options>();
  add_site_options(*command, options->site);
  command->add_option(
      "--gpus", options->gpus,
      "[NODES=]MODEL:COUNT:MEMORY[:FILES]: the GPUs of nodes, e.g. "
      "'n[1-4]=h200:4:143156'; more than once for more kinds (those of this machine)");
  command->add_option("--simulate", options->simulate, "MODEL:COUNT: as if this machine had these");
  command->add_flag(
      "--billing", options->billing,
      "Bill shares and whole GPUs alike, beside what partitions bill already, so that "
      "one limit counts both");
  command->add_flag("--apply", options->apply, "Do it");
  auto* undo = command->add_flag("--undo", options->undo, "Take out everything that setup put in");
  command->add_flag("--force", options->force, "Undo although there are jobs with a part of a GPU")
      ->needs(undo);
  command->add_flag("--all", options->all,
                    "Show all of aliquot_submit.lua, not the site's table alone");
  command->callback([&invocation, options] {
    invocation.run = [options] {
      const auto status = setup(*options);
      return status ? *status : complain(status.error().message);
    };
  });
}

}  // namespace aliquot::slurm
