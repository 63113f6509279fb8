#include "slurm/extra.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::int64_t kMostMib = 1 << 30;

// `0=35%/12000M`
std::optional<ExtraGpu> parse_gpu(std::string_view text) {
  const auto equals = text.find('=');
  const auto slash = text.find("%/");
  if (equals == text.npos || slash == text.npos || slash < equals || !text.ends_with('M')) {
    return std::nullopt;
  }
  const auto index = parse_digits(text.substr(0, equals));
  const auto percent = parse_digits(text.substr(equals + 1, slash - equals - 1));
  const auto memory = parse_digits(text.substr(slash + 2, text.size() - slash - 3));
  if (!index || !percent || !memory || *percent > 100 || *memory > kMostMib) return std::nullopt;
  return ExtraGpu{*index, *percent, *memory};
}

}  // namespace

std::string format_extra(const std::vector<GpuLoad>& gpus) {
  std::string text(kExtraMark);
  for (const auto& gpu : gpus) {
    if (text.size() > kExtraMark.size()) text += ',';
    text += fmt::format("{}={}%/{}M", gpu.index, (gpu.utilisation.value() + 50) / 100,
                        gpu.memory_used / mib(1));
  }
  return text;
}

std::optional<std::vector<ExtraGpu>> parse_extra(std::string_view text) {
  if (!text.starts_with(kExtraMark) || text == kExtraStale) return std::nullopt;
  text.remove_prefix(kExtraMark.size());
  std::vector<ExtraGpu> gpus;
  if (text.empty()) return gpus;
  for (const auto part : split(text, ',')) {
    const auto gpu = parse_gpu(part);
    if (!gpu) return std::nullopt;
    gpus.push_back(*gpu);
  }
  return gpus;
}

bool extra_is_ours(std::string_view text) { return text.empty() || text.starts_with(kExtraMark); }

bool extra_differs(std::string_view before, std::string_view after) {
  const auto old_gpus = parse_extra(before);
  const auto new_gpus = parse_extra(after);
  if (!old_gpus || !new_gpus || old_gpus->size() != new_gpus->size()) return before != after;
  for (std::size_t i = 0; i < old_gpus->size(); ++i) {
    const auto& was = (*old_gpus)[i];
    const auto& is = (*new_gpus)[i];
    if (was.index != is.index) return true;
    if (std::abs(was.percent - is.percent) >= 5 || (was.percent == 0) != (is.percent == 0)) {
      return true;
    }
    if (std::abs(was.memory_mib - is.memory_mib) >= 256 ||
        (was.memory_mib == 0) != (is.memory_mib == 0)) {
      return true;
    }
  }
  return false;
}

}  // namespace aliquot::slurm
