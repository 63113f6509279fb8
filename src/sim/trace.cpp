#include "sim/trace.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/text.hpp"
#include "core/device.hpp"
#include "sim/csv.hpp"

namespace aliquot::sim {
namespace {

// Far above any machine, far below where sums over a million of them could overflow.
constexpr std::int64_t kMostCpuMilli = 1'000'000'000;
constexpr std::int64_t kMostMemoryMib = std::int64_t{1} << 20;
constexpr std::int64_t kMostGpusAsked = 10'000;

Result<std::string> parse_name(const CsvReader& reader, std::size_t column) {
  const auto& name = reader.field(column);
  const bool plain =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 127; });
  if (name.empty() || name.size() > 255 || !plain) {
    return reader.wrong(column, "is not a name: letters, digits and signs without blanks");
  }
  return name;
}

// `A|B`, as it is written: naming a model twice makes another kind of pod, as in published results.
Result<std::vector<std::string>> parse_models(const CsvReader& reader, std::size_t column) {
  std::vector<std::string> models;
  if (reader.field(column).empty()) return models;
  for (const auto part : split(reader.field(column), '|')) {
    if (part.empty()) return reader.wrong(column, "has an empty model: write A|B");
    models.emplace_back(part);
  }
  return models;
}

}  // namespace

Result<std::vector<TraceNode>> parse_nodes(std::string_view text, std::string_view name) {
  CsvReader reader = TRY(CsvReader::open(text, name));
  const auto [sn, cpus, memory, gpus, model] =
      TRY(reader.columns("sn", "cpu_milli", "memory_mib", "gpu", "model"));

  std::vector<TraceNode> nodes;
  std::unordered_set<std::string> names;
  while (TRY(reader.next())) {
    TraceNode node;
    node.name = TRY(parse_name(reader, sn));
    if (!names.insert(node.name).second) return reader.wrong(sn, "is there twice");
    node.cpus = CpuMilli(TRY(reader.whole_number(cpus, 0, kMostCpuMilli)));
    node.memory = mib(TRY(reader.whole_number(memory, 0, kMostMemoryMib * 1024)));
    node.gpus = TRY(reader.whole_number(gpus, 0, core::kMaxGpusPerNode));
    if (node.gpus > 0) node.model = TRY(parse_name(reader, model));
    nodes.push_back(std::move(node));
  }
  if (nodes.empty()) return fail(Error::Code::invalid_argument, "{}: no nodes in it", name);
  return nodes;
}

Result<std::vector<TracePod>> parse_pods(std::string_view text, std::string_view name) {
  CsvReader reader = TRY(CsvReader::open(text, name));
  const auto [title, cpus, memory, gpus, milli] =
      TRY(reader.columns("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"));
  const auto spec = reader.find_column("gpu_spec");

  std::vector<TracePod> pods;
  while (TRY(reader.next())) {
    TracePod pod;
    pod.name = TRY(parse_name(reader, title));
    pod.cpus = CpuMilli(TRY(reader.whole_number(cpus, 0, kMostCpuMilli)));
    pod.memory = mib(TRY(reader.whole_number(memory, 0, kMostMemoryMib * 1024)));
    pod.gpus = TRY(reader.whole_number(gpus, 0, kMostGpusAsked));
    pod.gpu_milli = TRY(reader.whole_number(milli, 0, kMilliPerGpu));
    if (pod.gpus > 0 && pod.gpu_milli == 0) {
      return reader.wrong(milli, "of a GPU is nothing, but num_gpu asks for one");
    }
    if (pod.gpus > 0 && spec) pod.models = TRY(parse_models(reader, *spec));
    if (pod.gpus == 0) pod.gpu_milli = 0;
    pods.push_back(std::move(pod));
  }
  if (pods.empty()) return fail(Error::Code::invalid_argument, "{}: no pods in it", name);
  return pods;
}

std::string format_nodes(const std::vector<TraceNode>& nodes) {
  std::string text = "sn,cpu_milli,memory_mib,gpu,model\n";
  for (const auto& node : nodes) {
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{}\n", node.name, node.cpus,
                   node.memory / mib(1), node.gpus, node.model);
  }
  return text;
}

std::string format_pods(const std::vector<TracePod>& pods) {
  std::string text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";
  for (const auto& pod : pods) {
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{}\n", pod.name, pod.cpus,
                   pod.memory / mib(1), pod.gpus, pod.gpu_milli, fmt::join(pod.models, "|"));
  }
  return text;
}

}  // namespace aliquot::sim
