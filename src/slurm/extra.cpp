#include "slurm/extra.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::int64_t kMostMib = 1 << 30;

// `12000M`
std::optional<std::int64_t> parse_mib(std::string_view text) {
  if (!text.ends_with('M')) return std::nullopt;
  text.remove_suffix(1);
  const auto mib = parse_digits(text);
  return mib && *mib <= kMostMib ? mib : std::nullopt;
}

// `0=35%/12000M/143771M`
std::optional<ExtraGpu> parse_gpu(std::string_view text) {
  const auto equals = text.find('=');
  const auto parts = split(equals == text.npos ? "" : text.substr(equals + 1), '/');
  if (parts.size() != 3 || !parts[0].ends_with('%')) return std::nullopt;
  const auto index = parse_digits(text.substr(0, equals));
  const auto percent = parse_digits(parts[0].substr(0, parts[0].size() - 1));
  const auto used = parse_mib(parts[1]);
  const auto memory = parse_mib(parts[2]);
  if (!index || !percent || !used || !memory || *percent > 100) return std::nullopt;
  return ExtraGpu{*index, *percent, *used, *memory};
}

}  // namespace

std::string format_extra(const std::vector<GpuLoad>& gpus) {
  std::string text(kExtraMark);
  for (const auto& gpu : gpus) {
    if (text.size() > kExtraMark.size()) text += ',';
    text += fmt::format("{}={}%/{}M/{}M", gpu.index, (gpu.utilisation.value() + 50) / 100,
                        gpu.memory_used / mib(1), gpu.memory / mib(1));
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
    if (was.index != is.index || was.memory_mib != is.memory_mib) return true;
    if (std::abs(was.percent - is.percent) >= 5 || (was.percent == 0) != (is.percent == 0)) {
      return true;
    }
    if (std::abs(was.used_mib - is.used_mib) >= 256 || (was.used_mib == 0) != (is.used_mib == 0)) {
      return true;
    }
  }
  return false;
}

}  // namespace aliquot::slurm
