#include "sim/ledger_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace aliquot::sim {
namespace {

// The words of one line of the text form, taken off the front one by one.
class LedgerWords {
 public:
  explicit LedgerWords(std::string_view line) : words_(split(line, ' ')) {}

  [[nodiscard]] bool done() const { return next_ == words_.size(); }
  std::string_view word() { return done() ? std::string_view{} : words_[next_++]; }
  bool keyword(std::string_view expected) { return word() == expected; }
  std::optional<std::int64_t> number() { return parse_digits(word()); }

 private:
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

std::optional<core::GpuIndex> gpu_named(const core::Node& node, std::string_view id) {
  for (core::GpuIndex gpu = 0; gpu < node.gpus.size(); ++gpu) {
    if (node.gpus[gpu].id.value() == id) return gpu;
  }
  return std::nullopt;
}

// Nothing when the line is malformed or names a node or GPU that is not there.
std::optional<std::pair<JobId, core::Use>> parse_grant(const core::Cluster& cluster,
                                                       std::string_view line) {
  LedgerWords words(line);
  if (!words.keyword("job")) return std::nullopt;
  const auto job = words.number();
  if (!job || !words.keyword("node")) return std::nullopt;
  const auto node = cluster.find(words.word());
  if (!node || !words.keyword("cpus")) return std::nullopt;
  const auto cpus = words.number();
  if (!cpus || !words.keyword("memory")) return std::nullopt;
  const auto memory = words.number();
  if (!memory) return std::nullopt;

  const core::Node& host = cluster.node(*node);
  core::Use use{*node, CpuMilli(*cpus), Bytes(*memory), {}};
  while (!words.done()) {
    const std::string_view kind = words.word();
    const auto gpu = gpu_named(host, words.word());
    if (!gpu) return std::nullopt;
    if (kind == "whole") {
      use.gpus.push_back({*gpu, {host.gpus[*gpu].memory, host.compute_limit}, true});
    } else if (kind == "share") {
      const auto bytes = words.number();
      const auto compute = words.number();
      if (!bytes || !compute) return std::nullopt;
      use.gpus.push_back({*gpu, {Bytes(*bytes), Compute(*compute)}, false});
    } else {
      return std::nullopt;
    }
  }
  // The node's GPUs may have changed places since this was written.
  std::ranges::sort(use.gpus, {}, &core::GpuUse::gpu);
  return std::pair{JobId(*job), std::move(use)};
}

}  // namespace

std::string format_ledger(const core::Ledger& ledger) {
  std::string text;
  auto out = std::back_inserter(text);
  for (const JobId job : ledger.jobs()) {
    const core::Use& use = *ledger.find(job);
    const core::Node& node = ledger.cluster().node(use.node);
    fmt::format_to(out, "job {} node {} cpus {} memory {}", job, node.id, use.cpus, use.memory);
    for (const core::GpuUse& gpu : use.gpus) {
      const GpuId& id = node.gpus[gpu.gpu].id;
      if (gpu.whole) {
        fmt::format_to(out, " whole {}", id);
      } else {
        fmt::format_to(out, " share {} {} {}", id, gpu.portion.memory, gpu.portion.compute);
      }
    }
    text += '\n';
  }
  return text;
}

Result<core::Ledger> parse_ledger(core::Cluster cluster, std::string_view text) {
  core::Ledger ledger(std::move(cluster));
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    auto grant = parse_grant(ledger.cluster(), line);
    if (!grant) {
      return fail(Error::Code::invalid_argument, "ledger line {}: cannot be restored here: {}",
                  number, quote(line));
    }
    if (auto granted = ledger.grant(grant->first, std::move(grant->second)); !granted) {
      return fail(granted.error().code, "ledger line {}: {}", number, granted.error());
    }
  }
  return ledger;
}

}  // namespace aliquot::sim
