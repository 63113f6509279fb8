// The payload. Sending and receiving are sample_sender.cpp's and sample_receiver.cpp's.
#include "slurm/samples.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

namespace json = boost::json;

constexpr int kVersion = 1;
constexpr std::size_t kLongestText = 16'384;
constexpr std::size_t kMostSampledGpus = 64;
constexpr std::int64_t kMostSampledMemory = std::int64_t{1} << 50U;

bool is_node_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

Result<std::int64_t> number(const json::object& object, std::string_view name, std::int64_t most) {
  const json::value* found = object.if_contains({name.data(), name.size()});
  if (found == nullptr) return fail(Error::Code::invalid_argument, "no {} in the sample", name);
  boost::system::error_code error;
  const auto value = found->to_number<std::int64_t>(error);
  if (error || found->is_double() || value < 0 || value > most) {
    return fail(Error::Code::invalid_argument, "{} in the sample is no number from 0 to {}", name,
                most);
  }
  return value;
}

Result<GpuLoad> read_gpu(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) {
    return fail(Error::Code::invalid_argument, "a GPU in the sample is no object");
  }
  GpuLoad gpu;
  gpu.index = TRY(number(*object, "index", kMostSampledGpus * 16));
  gpu.utilisation = Compute(TRY(number(*object, "utilisation", kWholeGpu.value())));
  gpu.memory_used = Bytes(TRY(number(*object, "memory_used", kMostSampledMemory)));
  gpu.memory = Bytes(TRY(number(*object, "memory", kMostSampledMemory)));
  return gpu;
}

Result<NodeSample> read_sample(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "the sample is no object");
  const auto version = TRY(number(*object, "v", std::numeric_limits<std::int32_t>::max()));
  if (version != kVersion) {
    return fail(Error::Code::unsupported, "a sample of version {}, not {}: update this side",
                version, kVersion);
  }
  const json::value* node = object->if_contains("node");
  const json::string* name = node == nullptr ? nullptr : node->if_string();
  if (name == nullptr || !is_node_name({name->data(), name->size()})) {
    return fail(Error::Code::invalid_argument, "the sample names no node");
  }
  const json::value* gpus = object->if_contains("gpus");
  const json::array* list = gpus == nullptr ? nullptr : gpus->if_array();
  if (list == nullptr || list->size() > kMostSampledGpus) {
    return fail(Error::Code::invalid_argument, "the sample has no list of at most {} GPUs",
                kMostSampledGpus);
  }
  NodeSample sample{NodeId(std::string(name->data(), name->size())), {}};
  for (const json::value& entry : *list) {
    const GpuLoad gpu = TRY(read_gpu(entry));
    if (std::ranges::any_of(sample.gpus,
                            [&](const auto& seen) { return seen.index == gpu.index; })) {
      return fail(Error::Code::invalid_argument, "GPU {} is in the sample twice", gpu.index);
    }
    sample.gpus.push_back(gpu);
  }
  return sample;
}

}  // namespace

std::string encode_sample(const NodeSample& sample) {
  json::array gpus;
  for (const auto& gpu : sample.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"utilisation", gpu.utilisation.value()},
                    {"memory_used", gpu.memory_used.value()},
                    {"memory", gpu.memory.value()}});
  }
  return json::serialize(
      json::object{{"v", kVersion}, {"node", sample.node.value()}, {"gpus", std::move(gpus)}});
}

Result<NodeSample> decode_sample(std::string_view text) {
  if (text.size() > kLongestText) {
    return fail(Error::Code::invalid_argument, "a sample of {} bytes is too long", text.size());
  }
  try {
    json::parse_options options;
    options.max_depth = 8;
    boost::system::error_code error;
    const json::value parsed = json::parse({text.data(), text.size()}, error, {}, options);
    if (error) {
      return fail(Error::Code::invalid_argument, "the sample is not JSON: {}", error.message());
    }
    return read_sample(parsed);
  } catch (const std::exception& error) {  // out of memory
    return fail(Error::Code::internal, "cannot read the sample: {}", error.what());
  }
}

}  // namespace aliquot::slurm
