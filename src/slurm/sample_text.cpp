#include "slurm/sample_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/percent.hpp"
#include "base/text.hpp"
#include "gpu/trouble.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::int64_t kMostMib = 1 << 30;
constexpr Compute kFivePoints{500};
constexpr std::string_view kVersionMark = "v=";

// `12000M`
std::optional<Bytes> parse_mib(std::string_view text) {
  if (!text.ends_with('M')) return std::nullopt;
  const auto count = parse_digits(text.substr(0, text.size() - 1));
  return count && *count <= kMostMib ? std::optional(mib(*count)) : std::nullopt;
}

// `35%`, `0.25%`
std::optional<Compute> parse_utilisation(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  const auto value = parse_decimal(text.substr(0, text.size() - 1), kWholeGpu.value() / 100);
  return value && *value <= kWholeGpu.value() ? std::optional(Compute(*value)) : std::nullopt;
}

// `4711:eve:2048M`
std::optional<ForeignProcess> parse_process(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() != 3 || !is_plain_name(parts[1])) return std::nullopt;
  const auto pid = parse_digits(parts[0]);
  const auto memory = parse_mib(parts[2]);
  if (!pid || !memory) return std::nullopt;
  return ForeignProcess{*pid, std::string(parts[1]), *memory};
}

// `@7:12%:2048M`
std::optional<JobUse> parse_job(std::string_view text) {
  const auto parts = split(text.substr(1), ':');
  if (parts.size() != 3) return std::nullopt;
  const auto job = parse_digits(parts[0]);
  const auto utilisation = parse_utilisation(parts[1]);
  const auto memory = parse_mib(parts[2]);
  if (!job || !utilisation || !memory) return std::nullopt;
  return JobUse{*job, *utilisation, *memory};
}

// Whether it is one of the things behind a GPU's figures.
bool add_part(GpuLoad& gpu, std::string_view text) {
  if (text.starts_with('!')) {
    gpu.trouble = text.substr(1);
    return gpu::is_trouble(gpu.trouble);
  }
  if (text.starts_with('@')) {
    const auto job = parse_job(text);
    if (job) gpu.jobs.push_back(*job);
    return job && gpu.jobs.size() <= kMostJobs;
  }
  const auto process = parse_process(text);
  if (process) gpu.foreign.push_back(*process);
  return process && gpu.foreign.size() <= kMostForeign;
}

// `0=35%/12000M/143771M/4711:eve:2048M`
std::optional<GpuLoad> parse_gpu(std::string_view text) {
  const auto equals = text.find('=');
  const auto parts = split(equals == text.npos ? "" : text.substr(equals + 1), '/');
  if (parts.size() < 3) return std::nullopt;
  const auto index = parse_digits(text.substr(0, equals));
  const auto utilisation = parse_utilisation(parts[0]);
  const auto used = parse_mib(parts[1]);
  const auto memory = parse_mib(parts[2]);
  if (!index || !utilisation || !used || !memory) return std::nullopt;
  GpuLoad gpu{*index, *utilisation, *used, *memory};
  for (std::size_t i = 3; i < parts.size(); ++i) {
    if (!add_part(gpu, parts[i])) return std::nullopt;
  }
  return gpu;
}

// Moved by so much, or to or from nothing.
template <class Amount>
bool moved(Amount before, Amount after, Amount by) {
  return std::max(before, after) - std::min(before, after) >= by ||
         (before == Amount(0)) != (after == Amount(0));
}

bool gpus_differ(const GpuLoad& was, const GpuLoad& is) {
  return was.index != is.index || was.memory != is.memory || was.trouble != is.trouble ||
         !std::ranges::equal(was.jobs, is.jobs,
                             [](const JobUse& a, const JobUse& b) {
                               return a.job == b.job && !moved(a.memory, b.memory, mib(256)) &&
                                      !moved(a.utilisation, b.utilisation, kFivePoints);
                             }) ||
         moved(was.utilisation, is.utilisation, kFivePoints) ||
         moved(was.memory_used, is.memory_used, mib(256)) ||
         !std::ranges::equal(was.foreign, is.foreign, {}, &ForeignProcess::pid,
                             &ForeignProcess::pid);
}

}  // namespace

std::string format_sample_text(const std::vector<GpuLoad>& gpus, std::string_view version) {
  std::string text(kSampleMark);
  for (const auto& gpu : gpus) {
    if (text.size() > kSampleMark.size()) text += ',';
    text += fmt::format("{}={}/{}M/{}M", gpu.index, format_percent(gpu.utilisation),
                        gpu.memory_used / mib(1), gpu.memory / mib(1));
    for (const auto& process : gpu.foreign) {
      text += fmt::format("/{}:{}:{}M", process.pid, process.user, process.memory / mib(1));
    }
    if (!gpu.trouble.empty()) text += "/!" + gpu.trouble;
    for (const auto& use : gpu.jobs) {
      text +=
          fmt::format("/@{}:{}:{}M", use.job, format_percent(use.utilisation), use.memory / mib(1));
    }
  }
  if (!version.empty() && version != own_version()) {
    text +=
        fmt::format("{}{}{}", text.size() > kSampleMark.size() ? "," : "", kVersionMark, version);
  }
  return text;
}

std::string_view sample_version(std::string_view text) {
  if (!text.starts_with(kSampleMark)) return "";
  const auto last = text.substr(text.find_last_of(":,") + 1);
  return last.starts_with(kVersionMark) ? last.substr(kVersionMark.size()) : "";
}

std::optional<std::vector<GpuLoad>> parse_sample_text(std::string_view text) {
  if (!text.starts_with(kSampleMark) || text == kNoSamples) return std::nullopt;
  text.remove_prefix(kSampleMark.size());
  std::vector<GpuLoad> gpus;
  if (text.empty()) return gpus;
  for (const auto part : split(text, ',')) {
    if (part.starts_with(kVersionMark)) continue;
    auto gpu = parse_gpu(part);
    if (!gpu) return std::nullopt;
    gpus.push_back(std::move(*gpu));
  }
  return gpus;
}

bool may_hold_samples(std::string_view text) {
  return text.empty() || text.starts_with(kSampleMark);
}

bool sample_texts_differ(std::string_view before, std::string_view after) {
  const auto was = parse_sample_text(before);
  const auto is = parse_sample_text(after);
  if (!was || !is || sample_version(before) != sample_version(after)) return before != after;
  return !std::ranges::equal(*was, *is,
                             [](const auto& a, const auto& b) { return !gpus_differ(a, b); });
}

}  // namespace aliquot::slurm
