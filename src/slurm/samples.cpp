// The payload. Sending and receiving are sample_sender.cpp's and sample_receiver.cpp's.
#include "slurm/samples.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "gpu/trouble.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

namespace json = boost::json;

constexpr int kVersion = 1;
constexpr std::size_t kLongestText = 32'768;
constexpr std::size_t kMostSampledGpus = 64;
constexpr std::int64_t kMostSampledMemory = std::int64_t{1} << 50U;

// A host's or a user's; nothing: it is none.
std::optional<std::string> read_name(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  const json::string* name = value == nullptr ? nullptr : value->if_string();
  if (name == nullptr || name->size() > 255) return std::nullopt;
  std::string text(name->data(), name->size());
  return is_plain_name(text) ? std::optional(std::move(text)) : std::nullopt;
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

Result<ForeignProcess> read_process(const json::value& value) {
  const json::object* object = value.if_object();
  const auto user = object == nullptr ? std::nullopt : read_name(*object, "user");
  if (!user) return fail(Error::Code::invalid_argument, "a process in the sample has no user");
  return ForeignProcess{TRY(number(*object, "pid", std::numeric_limits<std::int32_t>::max())),
                        *user, Bytes(TRY(number(*object, "memory", kMostSampledMemory)))};
}

Result<JobUse> read_job(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "a job in the sample is none");
  return JobUse{TRY(number(*object, "job", std::numeric_limits<std::uint32_t>::max())),
                Compute(TRY(number(*object, "utilisation", kWholeGpu.value()))),
                Bytes(TRY(number(*object, "memory", kMostSampledMemory)))};
}

// The items of a list that may be missing.
template <class Item, class Read>
Result<std::vector<Item>> read_list(const json::object& object, std::string_view key,
                                    std::size_t most, Read read) {
  const json::value* list = object.if_contains({key.data(), key.size()});
  std::vector<Item> items;
  if (list == nullptr) return items;
  if (!list->is_array() || list->get_array().size() > most) {
    return fail(Error::Code::invalid_argument, "{} in the sample is no list of at most {}", key,
                most);
  }
  for (const json::value& item : list->get_array()) items.push_back(TRY(read(item)));
  return items;
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
  gpu.foreign = TRY(read_list<ForeignProcess>(*object, "foreign", kMostForeign, read_process));
  gpu.jobs = TRY(read_list<JobUse>(*object, "jobs", kMostJobs, read_job));
  if (const json::value* trouble = object->if_contains("trouble"); trouble != nullptr) {
    const json::string* word = trouble->if_string();
    if (word == nullptr || !gpu::is_trouble({word->data(), word->size()})) {
      return fail(Error::Code::invalid_argument, "trouble in the sample is no word");
    }
    gpu.trouble.assign(word->data(), word->size());
  }
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
  const auto name = read_name(*object, "node");
  if (!name) {
    return fail(Error::Code::invalid_argument, "the sample names no node");
  }
  const json::value* gpus = object->if_contains("gpus");
  const json::array* list = gpus == nullptr ? nullptr : gpus->if_array();
  if (list == nullptr || list->size() > kMostSampledGpus) {
    return fail(Error::Code::invalid_argument, "the sample has no list of at most {} GPUs",
                kMostSampledGpus);
  }
  NodeSample sample{NodeId(*name), {}, read_name(*object, "version").value_or("")};
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

std::string encode(const NodeSample& sample, bool with_jobs) {
  json::array gpus;
  for (const auto& gpu : sample.gpus) {
    json::object entry{{"index", gpu.index},
                       {"utilisation", gpu.utilisation.value()},
                       {"memory_used", gpu.memory_used.value()},
                       {"memory", gpu.memory.value()}};
    json::array foreign;
    for (const auto& process : gpu.foreign) {
      foreign.push_back(
          {{"pid", process.pid}, {"user", process.user}, {"memory", process.memory.value()}});
    }
    if (!foreign.empty()) entry["foreign"] = std::move(foreign);
    if (!gpu.trouble.empty()) entry["trouble"] = gpu.trouble;
    json::array jobs;
    for (const auto& use : with_jobs ? gpu.jobs : std::vector<JobUse>()) {
      jobs.push_back({{"job", use.job},
                      {"utilisation", use.utilisation.value()},
                      {"memory", use.memory.value()}});
    }
    if (!jobs.empty()) entry["jobs"] = std::move(jobs);
    gpus.push_back(std::move(entry));
  }
  json::object whole{{"v", kVersion}, {"node", sample.node.value()}, {"gpus", std::move(gpus)}};
  if (!sample.version.empty()) whole["version"] = sample.version;
  return json::serialize(whole);
}

}  // namespace

std::string_view own_version() { return ALIQUOT_VERSION; }

Bytes foreign_memory(const GpuLoad& gpu) {
  Bytes sum(0);
  for (const ForeignProcess& process : gpu.foreign) sum += process.memory;
  return sum;
}

std::string encode_sample(const NodeSample& sample) {
  std::string text = encode(sample, true);
  // Who has so many GPUs and jobs is told of the GPUs.
  return text.size() <= kLongestText ? text : encode(sample, false);
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
