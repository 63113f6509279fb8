#include "kube/view/figures.hpp"

#include <cmath>
#include <cstdlib>

#include "base/text.hpp"

namespace aliquot::kube {
namespace {

// What no GPU can have would not fit into an integer.
constexpr double kMost = 1e18;

// One line: `name{label="value",…} number`.
struct Sample {
  std::string_view name;
  std::map<std::string, std::string, std::less<>> labels = {};
  double value = 0;

  [[nodiscard]] std::string label(std::string_view key) const {
    const auto found = labels.find(key);
    return found == labels.end() ? std::string() : found->second;
  }
};

// From behind the opening quote to behind the closing one. False: there is none.
bool read_value(std::string_view& text, std::string& out) {
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c == '"') return true;
    if (c != '\\') {
      out += c;
      continue;
    }
    if (text.empty()) return false;
    out += text.front() == 'n' ? '\n' : text.front();
    text.remove_prefix(1);
  }
  return false;
}

// Behind the closing brace.
bool read_labels(std::string_view& text, Sample& sample) {
  while (!text.empty() && text.front() != '}') {
    const auto equals = text.find("=\"");
    if (equals == std::string_view::npos) return false;
    const std::string_view key = text.substr(0, equals);
    text.remove_prefix(equals + 2);
    std::string value;
    if (!read_value(text, value)) return false;
    sample.labels.insert_or_assign(std::string(key), std::move(value));
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  if (text.empty()) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<Sample> read_sample(std::string_view line) {
  const auto end = line.find_first_of("{ ");
  if (line.starts_with('#') || end == 0 || end == std::string_view::npos) return std::nullopt;
  Sample sample{.name = line.substr(0, end)};
  line.remove_prefix(end);
  if (line.starts_with('{')) {
    line.remove_prefix(1);
    if (!read_labels(line, sample)) return std::nullopt;
  }
  const std::string number(line);
  char* stop = nullptr;
  sample.value = std::strtod(number.c_str(), &stop);
  if (stop == number.c_str() || !(sample.value >= 0) || sample.value > kMost) return std::nullopt;
  return sample;
}

std::int64_t rounded(double value) { return std::llround(value); }

// One of several GPUs' figures of a container: whatever a text says, their sum fits.
template <class Amount>
void add_to(std::optional<Amount>& sum, double value) {
  const auto before = static_cast<double>(sum.value_or(Amount(0)).value());
  sum = Amount(rounded(std::min(before + value, kMost)));
}

}  // namespace

NodeFigures read_figures(std::string_view metrics) {
  NodeFigures figures;
  for (const auto line : split(metrics, '\n')) {
    const auto sample = read_sample(line);
    if (!sample) continue;
    const auto gpu = [&]() -> GpuFigures& { return figures.gpus[GpuId(sample->label("uuid"))]; };
    const auto container = [&]() -> ContainerFigures& {
      return figures.containers[{sample->label("namespace"), sample->label("pod"),
                                 sample->label("container")}];
    };
    if (sample->name == "aliquot_gpu_memory_used_bytes") {
      gpu().used = Bytes(rounded(sample->value));
    } else if (sample->name == "aliquot_gpu_utilization_ratio") {
      gpu().utilisation = Compute(std::min(rounded(sample->value * 10'000), kWholeGpu.value()));
    } else if (sample->name == "aliquot_share_memory_used_bytes") {
      add_to(container().used, sample->value);
    } else if (sample->name == "aliquot_share_gpu_seconds_total") {
      constexpr double kMillis = 1'000;
      add_to(container().gpu_time, sample->value * kMillis);
    }
  }
  return figures;
}

}  // namespace aliquot::kube
