#include "cli/jobs/gpu_binding.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

constexpr std::size_t kMostEntries = 100'000;

tl::unexpected<Error> invalid(std::string_view text) {
  // Slurm's words.
  return fail(Error::Code::invalid_argument, "Invalid --gpu-bind argument: gpu:{}",
              make_plain(text));
}

std::optional<std::vector<std::size_t>> parse_mask(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  if (error != std::errc() || end != text.data() + text.size() || bits == 0) return std::nullopt;
  std::vector<std::size_t> gpus;
  for (std::size_t gpu = 0; gpu < 64; ++gpu) {
    if (((bits >> gpu) & 1U) != 0) gpus.push_back(gpu);
  }
  return gpus;
}

// `0,1*4,3`: for each task.
std::optional<std::vector<std::vector<std::size_t>>> parse_lists(std::string_view text, bool mask) {
  std::vector<std::vector<std::size_t>> lists;
  for (const auto entry : split(text, ',')) {
    const auto star = entry.find('*');
    const auto times =
        star == entry.npos ? std::optional<std::int64_t>(1) : parse_digits(entry.substr(star + 1));
    const auto what = entry.substr(0, star);
    if (!times || *times < 1 || lists.size() + static_cast<std::size_t>(*times) > kMostEntries) {
      return std::nullopt;
    }
    std::optional<std::vector<std::size_t>> gpus;
    if (mask) {
      gpus = parse_mask(what);
    } else if (const auto gpu = parse_digits(what)) {
      gpus.emplace(1, static_cast<std::size_t>(*gpu));
    }
    if (!gpus) return std::nullopt;
    lists.insert(lists.end(), static_cast<std::size_t>(*times), *gpus);
  }
  return lists;
}

}  // namespace

Result<std::vector<std::size_t>> GpuBinding::gpus_of(std::size_t task, std::size_t gpus) const {
  std::vector<std::size_t> mine;
  if (gpus == 0) return mine;
  if (kind == GpuBinding::Kind::none) {
    mine.resize(gpus);
    std::iota(mine.begin(), mine.end(), std::size_t{0});
  } else if (kind == GpuBinding::Kind::single) {
    mine.push_back(task / count % gpus);
  } else if (kind == GpuBinding::Kind::per_task) {
    const auto each = std::min(count, gpus);
    for (std::size_t i = 0; i < each; ++i) mine.push_back((task * each + i) % gpus);
  } else {
    mine = lists[task % lists.size()];
    const auto last = *std::ranges::max_element(mine);
    if (last >= gpus) {
      return fail(Error::Code::invalid_argument,
                  "--gpu-bind gives task {} GPU {}: the step has {}, counted from 0", task, last,
                  gpus);
    }
  }
  return mine;
}

Result<GpuBinding> parse_gpu_binding(std::string_view text) {
  const auto whole = text;
  GpuBinding binding;
  constexpr std::string_view kVerbose = "verbose";
  if (text.starts_with(kVerbose)) {
    binding.verbose = true;
    text.remove_prefix(kVerbose.size());
    if (text.empty()) return binding;
    if (text[0] != ',') return invalid(whole);
    text.remove_prefix(1);
  }
  if (text.starts_with("gpu:")) text.remove_prefix(4);
  if (text == "none" || text == "closest") return binding;
  const auto colon = text.find(':');
  if (colon == text.npos) return invalid(whole);
  const auto type = text.substr(0, colon);
  const auto value = text.substr(colon + 1);
  if (type == "single" || type == "per_task") {
    const auto count = parse_digits(value);
    if (!count || *count < 1) return invalid(whole);
    binding.kind = type == "single" ? GpuBinding::Kind::single : GpuBinding::Kind::per_task;
    binding.count = static_cast<std::size_t>(*count);
    return binding;
  }
  if (type != "map_gpu" && type != "mask_gpu") return invalid(whole);
  auto lists = parse_lists(value, type == "mask_gpu");
  if (!lists) return invalid(whole);
  binding.kind = GpuBinding::Kind::chosen;
  binding.lists = std::move(*lists);
  return binding;
}

Parsed<GpuBinding> gpu_binding_of(const OptionSet& options) {
  if (const auto text = options.maybe("gpu-bind")) {
    auto binding = parse_gpu_binding(*text);
    if (!binding) return tl::make_unexpected(Misuse{255, binding.error().message});
    return std::move(*binding);
  }
  GpuBinding binding;
  if (const auto text = options.maybe("gpus-per-task")) {
    const auto each = parse_digits(std::string_view(*text).substr(text->rfind(':') + 1));
    if (each && *each > 0) {
      binding.kind = GpuBinding::Kind::per_task;
      binding.count = static_cast<std::size_t>(*each);
    }
  } else if (const auto tasks = options.number("ntasks-per-gpu")) {
    binding.kind = GpuBinding::Kind::single;
    binding.count = static_cast<std::size_t>(*tasks);
  }
  return binding;
}

}  // namespace aliquot::cli
