#include "slurm/slurm_grant.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "core/request_words.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/gres.hpp"

namespace aliquot::slurm {
namespace {

// Of no GPUs yet.
core::Grant grant_to(const SlurmJob& job) {
  return {.holder = holder_of(JobId(job.id)),
          .attempt = job.restarts,
          .owner = Uid(job.uid),
          .group = Gid(job.gid),
          .processes = std::max<std::int64_t>(job.tasks, 1)};
}

Result<core::GrantedGpu> whole_gpu(const NodeGpus& node, std::int64_t number) {
  if (number < 0 || number >= std::ssize(node.devices)) {
    return fail(Error::Code::failed_state,
                "Slurm gave the job GPU {} of node {}, which has {}: compare gres.conf with "
                "'aliquot slurm check'",
                number, node.node, node.devices.size());
  }
  const core::Gpu& gpu = node.devices[static_cast<std::size_t>(number)].gpu;
  return core::GrantedGpu{gpu.id, {gpu.memory, kWholeGpu}, true};
}

Compute at_least_some(Compute compute) { return std::clamp(compute, Compute(1), kWholeGpu); }

// So many shards of a whole GPU: memory shard by shard, compute in proportion.
void take_shards(core::GrantedGpu& held, std::int64_t shards, const ShareSettings& share) {
  const Bytes memory = held.portion.memory;
  const std::int64_t all = shards_of(memory, share.unit);
  held.whole = false;
  held.portion = {shard_memory(memory, all, shards),
                  at_least_some(Compute(share.overcommit.value() * std::min(shards, all) / all))};
}

void take_request(core::GrantedGpu& held, const core::GpuRequest& request, std::int64_t booked,
                  const ShareSettings& share) {
  const Bytes memory = held.portion.memory;
  const std::int64_t all = shards_of(memory, share.unit);
  take_shards(held, booked, share);
  if (std::holds_alternative<core::WholeGpu>(request.what)) {
    // Where Slurm mixes whole GPUs with shards, a whole GPU is booked as all of its shards.
    held.whole = booked >= all;
    if (held.whole) held.portion.compute = kWholeGpu;
    return;
  }
  const auto portion = booked_portion(request.what, booked, memory, all,
                                      {.compute_limit = share.overcommit,
                                       .mps = share.mps_per_gpu,
                                       .shards = share.shards_per_gpu});
  if (portion) held.portion = {portion->memory, at_least_some(portion->compute)};
}

}  // namespace

std::optional<std::int64_t> NodeGpus::number_of(const GpuId& gpu) const {
  const auto found = std::ranges::find(
      devices, gpu, [](const auto& device) -> const GpuId& { return device.gpu.id; });
  if (found == devices.end()) return std::nullopt;
  return found - devices.begin();
}

std::vector<gpu::Device> in_gres_order(std::vector<gpu::Device> devices) {
  std::ranges::stable_sort(devices, {}, [](const gpu::Device& device) {
    return device.minor ? static_cast<std::int64_t>(*device.minor) : device.index;
  });
  return devices;
}

std::optional<core::Portion> booked_portion(const decltype(core::GpuRequest::what)& part,
                                            std::int64_t booked, Bytes gpu_memory,
                                            std::int64_t shards, const core::GpuUnits& units) {
  auto portion = core::portion_of(part, gpu_memory, units);
  if (!portion) return std::nullopt;
  portion->memory = std::min(portion->memory, shard_memory(gpu_memory, shards, booked));
  portion->compute = std::min(
      portion->compute, Compute(units.compute_limit.value() * std::min(booked, shards) / shards));
  return portion;
}

Result<core::Grant> slurm_grant(const SlurmJob& job, const NodeGpus& node) {
  core::Grant grant = grant_to(job);
  const auto detail = std::ranges::find(job.details, node.node, &SlurmJob::Detail::node);
  if (detail == job.details.end()) return grant;
  std::optional<core::GpuRequest> request;
  if (const auto words = asked_words(job.admin_comment)) {
    // Words that cannot be read do not keep a job from running: it gets what was booked.
    if (auto read = core::parse_request(*words)) request = std::move(read->gpus);
  }
  const ShareSettings share = node.share.in(job.partition);
  for (const GresHold& hold : TRY(parse_gres_detail(detail->gres))) {
    if (hold.name != "gpu" && hold.name != "shard") continue;
    for (const auto& [number, count] : hold.on) {
      core::GrantedGpu held = TRY(whole_gpu(node, number));
      if (hold.name == "shard" && request) {
        take_request(held, *request, count, share);
      } else if (hold.name == "shard") {
        take_shards(held, count, share);
      }
      grant.gpus.push_back(std::move(held));
    }
  }
  return grant;
}

Result<StepFacts> parse_step_facts(std::string_view text) {
  std::map<std::string_view, std::string_view> lines;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const auto [at, first] = lines.emplace(line.substr(0, equals), line.substr(equals + 1));
    if (!first) return fail(Error::Code::invalid_argument, "{} comes twice", quote(at->first));
  }
  const auto number = [&](std::string_view name) -> Result<std::int64_t> {
    const auto found = lines.find(name);
    if (found == lines.end() || found->second.empty()) return 0;
    const auto digits = parse_digits(found->second);
    if (!digits) {
      return fail(Error::Code::invalid_argument, "{} is no number: {}", name, quote(found->second));
    }
    return *digits;
  };
  StepFacts facts;
  facts.job = TRY(number("job"));
  facts.step = TRY(number("step"));
  facts.stepd = TRY(number("stepd"));
  facts.uid = static_cast<std::uint32_t>(TRY(number("uid")));
  facts.gid = static_cast<std::uint32_t>(TRY(number("gid")));
  facts.tasks = std::max<std::int64_t>(1, TRY(number("tasks")));
  facts.restarts = TRY(number("restarts"));
  facts.shards = TRY(number("shards"));
  facts.job_gpus = TRY(parse_index_list(lines["job_gpus"]));
  facts.visible = std::string(lines["visible"]);
  facts.step_gpus = TRY(parse_index_list(lines["step_gpus"]));
  facts.words = std::string(lines["words"]);
  if (facts.job <= 0) return fail(Error::Code::invalid_argument, "there is no job's number");
  return facts;
}

const std::vector<std::int64_t>& given_gpus(const StepFacts& step) {
  return step.step == kBatchStep ? step.job_gpus : step.step_gpus;
}

Result<core::Grant> booked_grant(const StepFacts& step, const NodeGpus& node) {
  core::Grant grant = grant_to({.id = step.job,
                                .uid = step.uid,
                                .gid = step.gid,
                                .tasks = step.tasks,
                                .restarts = step.restarts});
  const std::vector<std::int64_t>& gpus = given_gpus(step);
  if (gpus.empty() && step.shards > 0) {
    return fail(Error::Code::unavailable,
                "slurmctld does not answer, and Slurm does not say which GPU its step has");
  }
  for (const std::int64_t number : gpus) {
    core::GrantedGpu held = TRY(whole_gpu(node, number));
    if (step.shards > 0) take_shards(held, step.shards / std::ssize(gpus), node.share);
    grant.gpus.push_back(std::move(held));
  }
  return grant;
}

std::int64_t booked_shards(const SlurmJob& job, const NodeGpus& node) {
  std::int64_t shards = 0;
  const auto detail = std::ranges::find(job.details, node.node, &SlurmJob::Detail::node);
  const auto holds = detail == job.details.end() ? Result<std::vector<GresHold>>()
                                                 : parse_gres_detail(detail->gres);
  for (const GresHold& hold : holds.value_or(std::vector<GresHold>())) {
    if (hold.name != "shard") continue;
    for (const auto& [number, count] : hold.on) shards += count;
  }
  return shards;
}

Result<core::Grant> part_grant(const StepFacts& step, const NodeGpus& node) {
  core::Grant grant = TRY(booked_grant(step, node));
  const auto read = core::parse_request(step.words);
  if (!read || grant.gpus.size() != 1) return grant;
  const auto number = given_gpus(step).front();
  core::GrantedGpu held = TRY(whole_gpu(node, number));
  if (read->gpus) take_request(held, *read->gpus, step.shards, node.share);
  if (read->gpus && !held.whole) grant.gpus.front() = held;
  return grant;
}

}  // namespace aliquot::slurm
