#include "slurm/agent/found_grant.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "core/request_parse.hpp"
#include "core/request_words.hpp"
#include "slurm/booking.hpp"
#include "slurm/gres.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::string_view kMark = "aliquot:";
constexpr std::string_view kEscape = "; escape on ";

Result<api::GpuHold> hold_of(const NodeGpus& node, std::int64_t index) {
  if (index < 0 || index >= std::ssize(node.devices)) {
    return fail(Error::Code::failed_state,
                "Slurm gave the job GPU {} of node {}, which has {}: compare gres.conf with "
                "'aliquot slurm check'",
                index, node.node, node.devices.size());
  }
  const gpu::Device& device = node.devices[static_cast<std::size_t>(index)];
  return api::GpuHold{.index = device.index,
                      .uuid = device.gpu.id.value(),
                      .model = device.gpu.model,
                      .memory = device.gpu.memory.value(),
                      .compute = kWholeGpu.value(),
                      .whole = true};
}

// What so many shards are of a GPU: memory unit by unit, compute in proportion.
void take_shards(api::GpuHold& hold, std::int64_t shards, const ShareSettings& share) {
  const std::int64_t all = shards_of(Bytes(hold.memory), share.unit);
  hold.whole = false;
  hold.compute = std::max<std::int64_t>(
      1, std::min(kWholeGpu.value(), share.overcommit.value() * std::min(shards, all) / all));
  hold.memory = shard_memory(Bytes(hold.memory), all, shards).value();
}

void take_request(api::GpuHold& hold, const core::GpuRequest& request, std::int64_t booked,
                  const NodeGpus& node) {
  const Bytes memory(hold.memory);
  const std::int64_t all = shards_of(memory, node.share.unit);
  take_shards(hold, booked, node.share);
  if (std::holds_alternative<core::WholeGpu>(request.what)) {
    // Booked as all of its shards, where Slurm mixes whole GPUs with shards.
    hold.whole = booked >= all;
    if (hold.whole) hold.compute = kWholeGpu.value();
    return;
  }
  const auto portion = promised(request.what, booked, memory, all,
                                {.compute_limit = node.share.overcommit,
                                 .mps = node.share.mps_per_gpu,
                                 .shards = node.share.shards_per_gpu});
  if (!portion) return;
  hold.memory = portion->memory.value();
  hold.compute = std::clamp<std::int64_t>(portion->compute.value(), 1, kWholeGpu.value());
}

}  // namespace

std::vector<gpu::Device> in_gres_order(std::vector<gpu::Device> devices) {
  std::ranges::stable_sort(devices, {}, [](const gpu::Device& device) {
    return device.minor ? static_cast<std::int64_t>(*device.minor) : device.index;
  });
  return devices;
}

std::optional<std::string> asked_words(const std::string& admin_comment) {
  const std::size_t at = admin_comment.rfind(kMark);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t from = at + kMark.size();
  const std::size_t end = admin_comment.find(';', from);
  std::string words = admin_comment.substr(from, end == std::string::npos ? end : end - from);
  words.erase(0, words.find_first_not_of(' '));
  words.erase(words.find_last_not_of(' ') + 1);
  return words;
}

std::string note_escape(const std::string& admin_comment, const std::string& node) {
  return fmt::format("{}{}{}", admin_comment, kEscape, node);
}

std::optional<std::string> escaped_on(const std::string& admin_comment) {
  const std::size_t at = admin_comment.find(kEscape);
  if (at == std::string::npos) return std::nullopt;
  const std::string rest = admin_comment.substr(at + kEscape.size());
  return rest.substr(0, rest.find(';'));
}

Result<api::JobInfo> found_grant(const SlurmJob& job, const NodeGpus& node) {
  api::JobInfo info;
  info.id = job.id;
  info.uid = job.uid;
  info.gid = job.gid;
  info.name = job.name;
  info.ntasks = std::max<std::int64_t>(job.tasks, 1);
  info.restarts = job.restarts;
  const auto detail = std::ranges::find(job.details, node.node, &SlurmJob::Detail::node);
  if (detail == job.details.end()) return info;
  std::optional<core::GpuRequest> request;
  if (const auto words = asked_words(job.admin_comment)) {
    // What is not ours to read is no reason to keep a job from running: it gets what was booked.
    if (auto read = core::parse_request(*words)) request = std::move(read->gpus);
    info.gres = *words;
  }
  for (const GresHold& held : TRY(parse_gres_detail(detail->gres))) {
    if (held.name != "gpu" && held.name != "shard") continue;
    for (const auto& [index, count] : held.on) {
      api::GpuHold hold = TRY(hold_of(node, index));
      if (held.name == "shard") {
        if (request) {
          take_request(hold, *request, count, node);
        } else {
          take_shards(hold, count, node.share);
        }
      }
      info.gpus.push_back(std::move(hold));
    }
  }
  return info;
}

Result<StepFacts> parse_step_facts(std::string_view text) {
  std::map<std::string_view, std::string_view> lines;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) lines[line.substr(0, equals)] = line.substr(equals + 1);
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
  if (facts.job <= 0) return fail(Error::Code::invalid_argument, "there is no job's number");
  return facts;
}

Result<api::JobInfo> booked_grant(const StepFacts& step, const NodeGpus& node) {
  api::JobInfo info;
  info.id = step.job;
  info.uid = step.uid;
  info.gid = step.gid;
  info.ntasks = step.tasks;
  info.restarts = step.restarts;
  for (const std::int64_t index : step.job_gpus) {
    api::GpuHold hold = TRY(hold_of(node, index));
    if (step.shards > 0) take_shards(hold, step.shards / std::ssize(step.job_gpus), node.share);
    info.gpus.push_back(std::move(hold));
  }
  return info;
}

}  // namespace aliquot::slurm
