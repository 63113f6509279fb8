#include "kube/model/node_gpus.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/text.hpp"
#include "kube/model/json_read.hpp"
#include "kube/model/limits.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr std::array<std::pair<std::string_view, core::Health>, 3> kHealths = {{
    {"ok", core::Health::ok},
    {"draining", core::Health::draining},
    {"lost", core::Health::lost},
}};
// The name of a node's health states only here: core prints none.
std::string_view name_of_health(core::Health health) {
  return std::ranges::find(kHealths, health, &decltype(kHealths)::value_type::second)->first;
}

bool is_one_word(std::string_view text) {
  return !text.empty() && text.size() <= 253 && std::ranges::none_of(text, [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code <= ' ' || code >= 0x7f || letter == '/';
  });
}

Result<NodeGpu> read_gpu(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "a GPU is no object");
  NodeGpu gpu;
  gpu.uuid = GpuId(std::string(find_text(*object, "uuid")));
  if (!is_one_word(gpu.uuid.value())) {
    return fail(Error::Code::invalid_argument, "{} is no UUID", quote(gpu.uuid.value()));
  }
  gpu.index = find_number(*object, "index").value_or(0);
  gpu.model = find_text(*object, "model");
  if (!is_one_word(gpu.model)) {
    return fail(Error::Code::invalid_argument, "GPU {}: {} is no model", gpu.uuid,
                quote(gpu.model));
  }
  gpu.mig = find_text(*object, "mig");
  gpu.memory = Bytes(find_number(*object, "memory").value_or(-1));
  gpu.foreign = Bytes(find_number(*object, "foreign").value_or(0));
  if (gpu.memory < Bytes(0) || gpu.memory > kMostMemory || gpu.foreign < Bytes(0)) {
    return fail(Error::Code::invalid_argument, "GPU {}: its memory is no size", gpu.uuid);
  }
  // A word of a later version: not well, by all we know.
  gpu.health = core::Health::draining;
  for (const auto& [name, health] : kHealths) {
    if (find_text(*object, "health") == name) gpu.health = health;
  }
  return gpu;
}

}  // namespace

std::string write_node_gpus(const NodeGpus& gpus) {
  json::array list;
  for (const NodeGpu& gpu : gpus.gpus) {
    list.push_back(json::object{{"uuid", gpu.uuid.value()},
                                {"index", gpu.index},
                                {"model", gpu.model},
                                {"memory", gpu.memory.value()},
                                {"units", units_of(gpu, gpus.unit)},
                                {"health", as_json(name_of_health(gpu.health))},
                                {"foreign", gpu.foreign.value()},
                                {"mig", gpu.mig}});
  }
  json::object all{{"v", 1},
                   {"unit", gpus.unit.value()},
                   {"over_commit", gpus.over_commit.value()},
                   {"gpus", std::move(list)}};
  if (gpus.nvidia) all["nvidia"] = true;
  return json::serialize(all);
}

Result<NodeGpus> read_node_gpus(std::string_view text) {
  const json::value parsed = TRY(parse_json(text));
  const json::object* object = parsed.if_object();
  if (object == nullptr || find_number(*object, "v") != 1) {
    return fail(Error::Code::invalid_argument, "it is not of version 1");
  }
  NodeGpus all;
  all.unit = Bytes(find_number(*object, "unit").value_or(0));
  if (all.unit <= Bytes(0) || all.unit > kMostMemory)
    return fail(Error::Code::invalid_argument, "its unit is no size");
  all.over_commit = Compute(find_number(*object, "over_commit").value_or(kWholeGpu.value()));
  if (all.over_commit < kWholeGpu || all.over_commit > 100 * kWholeGpu) {
    return fail(Error::Code::invalid_argument, "its over-commit is not between 1 and 100");
  }
  all.nvidia = find_flag(*object, "nvidia");
  const json::array* list = find_array(*object, "gpus");
  if (list == nullptr) return fail(Error::Code::invalid_argument, "it has no list of GPUs");
  if (list->size() > core::kMaxGpusPerNode) {
    return fail(Error::Code::out_of_range, "it has more than {} GPUs", core::kMaxGpusPerNode);
  }
  for (const json::value& value : *list) {
    NodeGpu gpu = TRY(read_gpu(value));
    if (std::ranges::find(all.gpus, gpu.uuid, &NodeGpu::uuid) != all.gpus.end()) {
      return fail(Error::Code::already_exists, "GPU {} is there twice", gpu.uuid);
    }
    all.gpus.push_back(std::move(gpu));
  }
  return all;
}

std::string device_id(const GpuId& gpu, std::int64_t unit) {
  return fmt::format("{}/{}", gpu, unit);
}

std::optional<std::pair<GpuId, std::optional<std::int64_t>>> parse_device_id(std::string_view id) {
  const auto slash = id.find('/');
  const std::string_view uuid = id.substr(0, slash);
  if (!is_one_word(uuid)) return std::nullopt;
  GpuId gpu{std::string(uuid)};
  if (slash == std::string_view::npos) return std::pair(std::move(gpu), std::nullopt);
  const auto unit = parse_digits(id.substr(slash + 1));
  if (!unit || device_id(gpu, *unit) != id) return std::nullopt;
  return std::pair(std::move(gpu), unit);
}

}  // namespace aliquot::kube
