#include "slurm/view/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "core/request_parse.hpp"
#include "core/request_words.hpp"
#include "gpu/trouble.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/gres.hpp"
#include "slurm/job_state.hpp"
#include "slurm/sample_text.hpp"
#include "slurm/slurm_grant.hpp"
#include "slurm/view/why.hpp"

namespace aliquot::slurm {
namespace {

// Without the sockets of a node's gres, `(S:0-1)`, and without the prefix of a request's.
std::vector<GresHold> read_gres(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("(S:")) {
      const auto end = text.find(')', i);
      if (end == text.npos) break;
      i = end;
    } else if ((i == 0 || text[i - 1] == ',') && text.substr(i).starts_with("gres:")) {
      i += 4;
    } else {
      plain += text[i];
    }
  }
  return parse_gres_detail(plain).value_or(std::vector<GresHold>());
}

std::int64_t ms(std::int64_t seconds_since_epoch) { return seconds_since_epoch * 1'000; }

std::string_view base_state(std::string_view state) {
  return state.substr(0, state.find_first_of("+*~#!%$@^-"));
}

std::vector<GpuLoad> samples_of(const SlurmNode& node) {
  return parse_sample_text(node.extra).value_or(std::vector<GpuLoad>());
}

NodeGpus node_gpus(const SlurmNode& node, const SiteSettings& settings) {
  NodeGpus gpus{node.name, {}, settings.share};
  for (const auto& gpu : gpus_of(node, settings)) {
    gpu::Device device;
    device.gpu = {
        .id = GpuId(std::to_string(gpus.devices.size())), .model = gpu.model, .memory = gpu.memory};
    gpus.devices.push_back(std::move(device));
  }
  return gpus;
}

// A job has ended with `exit_status` as wait() has it.
void set_exit(api::JobInfo& info, std::int64_t status) {
  info.exit_code = static_cast<int>((status >> 8U) & 0xff);
  info.exit_signal = static_cast<int>(status & 0x7f);
}

api::JobInfo job_info(const SlurmJob& job, const SiteSettings& settings,
                      const UserName& user_name) {
  api::JobInfo info;
  info.id = job.id;
  info.array_job_id = job.array_job_id;
  info.array_task_id = job.array_task_id;
  if (is_waiting(job) && !job.array_task_id) info.array_pending = job.array_tasks;
  info.name = job.name;
  info.user = user_name(job.uid);
  info.uid = job.uid;
  info.gid = job.gid;
  info.account = job.account;
  info.partition = job.partition;
  info.qos = job.qos;
  info.comment = job.comment;
  info.state = job.state;
  info.reason = job.reason.empty() ? "None" : job.reason;
  info.priority = job.priority;
  info.restarts = job.restarts;
  set_exit(info, job.exit_status);
  info.submit_ms = info.eligible_ms = ms(job.submit_s);
  if (job.start_s > 0 && !is_no_estimate(job)) info.start_ms = ms(job.start_s);
  if (job.end_s > 0) info.end_ms = ms(job.end_s);
  if (const auto limit = time_limit_of(job)) info.time_limit_ms = ms(*limit);
  info.ntasks = job.tasks;
  info.cpus = job.cpus;
  const auto request = request_of(job, settings);
  info.gres = request ? core::format_gpu_request(request) : words_of(job);
  if (holds_gpus(job.state)) {
    if (const auto node = remarked_on(job.admin_comment, Remark::broken_gpu)) {
      info.reason_detail = fmt::format("a GPU that it holds on {} is broken", *node);
    } else if (const auto from = remarked_on(job.admin_comment, Remark::escape)) {
      info.reason_detail = fmt::format("a process of it on {} is outside of its share", *from);
    }
  }
  if (const auto used = used_in(job.admin_comment)) {
    info.gpu_ms = used->gpu_time.value();
    info.gpu_memory_peak = used->memory_peak.value();
  }
  info.node = job.nodes;
  info.command = job.command;
  info.work_dir = job.work_dir;
  info.std_out = job.std_out;
  info.std_err = job.std_err;
  return info;
}

void add_hold(api::GpuInfo& gpu, const api::GpuHold& hold, std::int64_t job) {
  gpu.jobs.push_back(job);
  gpu.memory_granted += hold.memory;
  gpu.compute_granted += hold.compute;
  gpu.whole = gpu.whole || hold.whole;
}

// What the samples say of jobs: by job, on all of their GPUs together.
using Uses = std::unordered_map<std::int64_t, std::int64_t>;
Uses uses_in(const Snapshot& snapshot) {
  Uses uses;
  for (const auto& node : snapshot.nodes) {
    for (const GpuLoad& gpu : samples_of(node)) {
      for (const JobUse& use : gpu.jobs) uses[use.job] += use.utilisation.value();
    }
  }
  return uses;
}

// The mean over its GPUs.
std::int64_t utilisation_of(const api::JobInfo& job, const Uses& uses) {
  const auto found = uses.find(job.id);
  return found == uses.end() || job.gpus.empty() ? 0 : found->second / std::ssize(job.gpus);
}

api::NodeInfo node_info(const SlurmNode& node, const SiteSettings& settings) {
  api::NodeInfo info;
  info.name = node.name;
  info.state = node_state(node.state);
  info.reason = node.reason;
  info.cpus = node.cpus;
  info.cpus_allocated = node.cpus_allocated;
  // slurmctld says of some versions that it is allocated, whatever of it is.
  if (info.state == "allocated" && info.cpus_allocated < info.cpus) info.state = "mixed";
  info.memory = node.memory.value();
  info.memory_allocated = node.memory_allocated.value();
  const auto samples = samples_of(node);
  std::int64_t index = 0;
  for (const auto& booked : gpus_of(node, settings)) {
    api::GpuInfo gpu;
    gpu.index = index++;
    gpu.model = booked.model;
    gpu.health = takes_jobs(node) ? "ok" : info.state;
    gpu.memory = booked.memory.value();
    gpu.compute_limit = settings.share.most_compute(node.partitions).value();
    gpu.stale = true;
    for (const auto& sample : samples) {
      if (sample.index != gpu.index) continue;
      gpu.stale = false;
      gpu.utilisation = sample.utilisation.value();
      gpu.memory_used = sample.memory_used.value();
      if (!sample.trouble.empty()) gpu.health = gpu::trouble_text(sample.trouble);
      for (const auto& use : sample.jobs) {
        gpu.processes.push_back({.pid = 0,  // all of them
                                 .user = {},
                                 .command = {},
                                 .memory = use.memory.value(),
                                 .job_id = use.job});
        gpu.uses.push_back({.job_id = use.job,
                            .memory = use.memory.value(),
                            .utilisation = use.utilisation.value()});
      }
      for (const auto& process : sample.foreign) {
        gpu.processes.push_back({.pid = process.pid,
                                 .user = process.user,
                                 .command = {},
                                 .memory = process.memory.value(),
                                 .job_id = {}});
      }
    }
    info.gpus.push_back(std::move(gpu));
  }
  return info;
}

}  // namespace

std::int64_t tres_count(std::string_view text, std::string_view name) {
  for (const auto part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == part.npos || part.substr(0, equals) != name) continue;
    return parse_digits(part.substr(equals + 1)).value_or(0);
  }
  return 0;
}

std::vector<BookedGpu> gpus_of(const SlurmNode& node, const SiteSettings& settings) {
  const auto items = read_gres(node.gres);
  std::map<std::string, std::int64_t> shards;
  std::int64_t gpus = 0;
  for (const auto& item : items) {
    if (item.name == "shard") shards[item.type] += item.count;
    if (item.name == "gpu") gpus += item.count;
  }
  std::vector<BookedGpu> all;
  for (const auto& item : items) {
    if (item.name != "gpu" || item.count <= 0) continue;
    std::int64_t each = 0;
    if (const auto typed = shards.find(item.type); typed != shards.end()) {
      each = typed->second / item.count;
    } else if (const auto untyped = shards.find(""); untyped != shards.end()) {
      each = untyped->second / gpus;
    }
    Bytes memory = settings.share.unit * each;
    const std::string model(settings.share.placement == "aliquot" ? model_of_slot(item.type)
                                                                  : std::string_view(item.type));
    if (const auto known = node.gpu_memory.find(model);
        known != node.gpu_memory.end() &&
        (each == 0 || shards_of(known->second, settings.share.unit) == each)) {
      memory = known->second;
    }
    for (std::int64_t i = 0; i < std::min<std::int64_t>(item.count, 64); ++i) {
      all.push_back({model.empty() ? "gpu" : model, each, memory});
    }
  }
  // The true size, where it makes as many shards as the site gave it.
  for (const auto& sample : samples_of(node)) {
    if (sample.index >= std::ssize(all)) continue;
    auto& gpu = all[static_cast<std::size_t>(sample.index)];
    if (gpu.shards == 0 || shards_of(sample.memory, settings.share.unit) == gpu.shards) {
      gpu.memory = sample.memory;
    }
  }
  return all;
}

void know_sizes(std::vector<SlurmNode>& nodes, const std::vector<GpuGroup>& told) {
  std::map<std::string, Bytes> seen;
  for (const SlurmNode& node : nodes) {
    const auto gpus = read_gres(node.gres);
    const auto samples = samples_of(node);
    // Of nodes with one model alone: there every sample is of it.
    const auto models = std::ranges::count(gpus, "gpu", &GresHold::name);
    const auto model = std::ranges::find(gpus, "gpu", &GresHold::name);
    if (models == 1 && !samples.empty()) seen[model->type] = samples.front().memory;
  }
  for (SlurmNode& node : nodes) {
    for (const GpuGroup& group : told) {
      if (std::ranges::count(group.nodes, node.name) > 0)
        node.gpu_memory[group.model] = group.memory;
    }
    node.gpu_memory.insert(seen.begin(), seen.end());
  }
}

std::string words_of(const SlurmJob& job) {
  if (const auto words = asked_words(job.admin_comment)) return *words;
  std::string text;
  for (const auto& item : read_gres(job.tres_per_node)) {
    if (item.name != "gpu" && item.name != "shard" && item.name != "mps") continue;
    text += fmt::format("{}{}{}:{}", text.empty() ? "" : ",", item.name,
                        item.type.empty() ? "" : ":" + item.type, item.count);
  }
  return text;
}

std::optional<std::int64_t> booked_of(const SlurmJob& job, std::string_view gres) {
  std::int64_t count = 0;
  for (const auto& item : read_gres(job.tres_per_node)) {
    if (item.name == gres) count += item.count;
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

std::optional<core::GpuRequest> request_of(const SlurmJob& job, const SiteSettings& settings) {
  if (const auto words = asked_words(job.admin_comment)) {
    if (auto request = core::parse_request(*words); request && request->gpus) return request->gpus;
  }
  for (const auto& item : read_gres(job.tres_per_node)) {
    core::GpuRequest request;
    if (!item.type.empty()) request.models = {to_lower(item.type)};
    if (item.name == "gpu") {
      request.count = item.count;
      return request;
    }
    if (item.name == "shard") {  // booked by hand: so many units of memory
      request.what = core::Amounts{settings.share.unit * item.count, std::nullopt};
      return request;
    }
  }
  return std::nullopt;
}

std::string node_state(std::string_view slurm_state) {
  const auto base = to_lower(base_state(slurm_state));
  if (slurm_state.find("DRAIN") != slurm_state.npos) {
    return base == "mixed" || base == "allocated" ? "draining" : "drained";
  }
  if (base == "down" || slurm_state.ends_with('*') ||
      slurm_state.find("NOT_RESPONDING") != slurm_state.npos) {
    return "down";
  }
  return base;
}

bool takes_jobs(const SlurmNode& node) {
  const auto state = node_state(node.state);
  return state == "idle" || state == "mixed" || state == "allocated";
}

bool is_waiting(const SlurmJob& job) { return job.state == "PENDING"; }

bool is_no_estimate(const SlurmJob& job) {
  constexpr std::int64_t kTooFar = 300 * 86'400;
  return is_waiting(job) && (job.priority == 0 || job.start_s - job.submit_s > kTooFar);
}

std::vector<api::GpuHold> holds_of(const SlurmJob& job, const std::vector<SlurmNode>& nodes,
                                   const SiteSettings& settings) {
  std::vector<api::GpuHold> all;
  if (!holds_gpus(job.state)) return all;
  for (const auto& detail : job.details) {
    const auto node = std::ranges::find(nodes, detail.node, &SlurmNode::name);
    if (node == nodes.end()) continue;
    const NodeGpus gpus = node_gpus(*node, settings);
    const auto grant = slurm_grant(job, gpus);
    if (!grant) continue;  // `aliquot slurm check` says why
    for (const core::GrantedGpu& held : grant->gpus) {
      const auto number = gpus.number_of(held.gpu).value();
      all.push_back({.index = number,
                     .uuid = {},
                     .model = gpus.devices[static_cast<std::size_t>(number)].gpu.model,
                     .memory = held.portion.memory.value(),
                     .compute = held.portion.compute.value(),
                     .whole = held.whole,
                     .node = node->name});
    }
  }
  return all;
}

std::vector<api::JobInfo> job_infos(const Snapshot& snapshot, const SiteSettings& settings,
                                    const UserName& user_name) {
  std::vector<api::JobInfo> all;
  std::unordered_map<std::uint32_t, std::string> names;
  const auto name_once = [&](std::uint32_t uid) {
    auto& name = names[uid];
    if (name.empty()) name = user_name(uid);
    return name;
  };
  const auto uses = uses_in(snapshot);
  for (const auto& job : snapshot.jobs) {
    all.push_back(job_info(job, settings, name_once));
    if (is_waiting(job)) all.back().reason_detail = reason_sentence(snapshot, job);
    all.back().gpus = holds_of(job, snapshot.nodes, settings);
    all.back().gpu_utilisation = utilisation_of(all.back(), uses);
  }
  return all;
}

api::ClusterInfo cluster_info(const Snapshot& snapshot, const SiteSettings& settings) {
  api::ClusterInfo info;
  info.engine = "slurm";
  info.daemon_version = snapshot.version;
  info.cluster = snapshot.cluster;
  std::map<std::string, std::size_t> places;
  for (const auto& node : snapshot.nodes) {
    places[node.name] = info.nodes.size();
    info.nodes.push_back(node_info(node, settings));
  }
  for (const auto& job : snapshot.jobs) {
    for (const auto& hold : holds_of(job, snapshot.nodes, settings)) {
      auto& gpus = info.nodes[places.at(hold.node)].gpus;
      add_hold(gpus[static_cast<std::size_t>(hold.index)], hold, job.id);
    }
  }
  for (const auto& partition : snapshot.partitions) {
    api::PartitionInfo shown;
    shown.name = partition.name;
    shown.is_default = partition.is_default;
    shown.up = partition.up;
    info.partitions.push_back(std::move(shown));
  }
  info.config["SLURM_VERSION"] = snapshot.version;
  return info;
}

}  // namespace aliquot::slurm
