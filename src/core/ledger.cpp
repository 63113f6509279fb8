#include "core/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/text.hpp"

namespace aliquot::core {

Result<void> Ledger::grant(JobId job, Use use) {
  if (job < JobId(0)) return fail(Error::Code::invalid_argument, "no job can be number {}", job);
  if (grants_.contains(job)) {
    return fail(Error::Code::already_exists, "job {} holds a grant already", job);
  }
  TRY(cluster_.take(use));
  grants_.emplace(job, std::move(use));
  return {};
}

Result<void> Ledger::take_up(JobId job, Use use) {
  if (grants_.contains(job)) {
    return fail(Error::Code::already_exists, "job {} holds a grant already", job);
  }
  TRY(cluster_.take_up(use));
  grants_.emplace(job, std::move(use));
  return {};
}

Result<Use> Ledger::release(JobId job) {
  const auto found = grants_.find(job);
  if (found == grants_.end()) return fail(Error::Code::not_found, "job {} holds no grant", job);
  TRY(cluster_.give_back(found->second));
  Use use = std::move(found->second);
  grants_.erase(found);
  return use;
}

Result<void> Ledger::resize(JobId job, Use use) {
  const auto found = grants_.find(job);
  if (found == grants_.end()) return fail(Error::Code::not_found, "job {} holds no grant", job);
  TRY(cluster_.give_back(found->second));
  if (auto taken = cluster_.take(use); !taken) {
    // What was just given back fits again, unless the ledger is broken.
    if (!cluster_.take(found->second)) std::abort();
    return taken;
  }
  found->second = std::move(use);
  return {};
}

const Use* Ledger::find(JobId job) const {
  const auto found = grants_.find(job);
  return found == grants_.end() ? nullptr : &found->second;
}

std::vector<JobId> Ledger::jobs() const {
  std::vector<JobId> jobs;
  jobs.reserve(grants_.size());
  for (const auto& [job, use] : grants_) jobs.push_back(job);
  std::ranges::sort(jobs);
  return jobs;
}

std::vector<JobId> Ledger::jobs_on(NodeIndex node, GpuIndex gpu) const {
  std::vector<JobId> jobs;
  for (const auto& [job, use] : grants_) {
    if (use.node == node &&
        std::ranges::any_of(use.gpus, [&](const GpuUse& held) { return held.gpu == gpu; })) {
      jobs.push_back(job);
    }
  }
  std::ranges::sort(jobs);
  return jobs;
}

std::string Ledger::serialise() const {
  std::string text;
  auto out = std::back_inserter(text);
  for (const JobId job : jobs()) {
    const Use& use = *find(job);
    const Node& node = cluster_.node(use.node);
    fmt::format_to(out, "job {} node {} cpus {} memory {}", job, node.id, use.cpus, use.memory);
    for (const GpuUse& gpu : use.gpus) {
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

namespace {

// The words of one line of the text form, taken off the front one by one.
class Words {
 public:
  explicit Words(std::string_view line) : words_(split(line, ' ')) {}

  [[nodiscard]] bool done() const { return next_ == words_.size(); }
  std::string_view word() { return done() ? std::string_view{} : words_[next_++]; }
  bool keyword(std::string_view expected) { return word() == expected; }
  std::optional<std::int64_t> number() { return parse_digits(word()); }

 private:
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

std::optional<GpuIndex> gpu_named(const Node& node, std::string_view id) {
  for (GpuIndex gpu = 0; gpu < node.gpus.size(); ++gpu) {
    if (node.gpus[gpu].id.value() == id) return gpu;
  }
  return std::nullopt;
}

// Nothing when the line is malformed or names a node or GPU that is not there.
std::optional<std::pair<JobId, Use>> parse_grant(const Cluster& cluster, std::string_view line) {
  Words words(line);
  if (!words.keyword("job")) return std::nullopt;
  const auto job = words.number();
  if (!job || !words.keyword("node")) return std::nullopt;
  const auto node = cluster.find(words.word());
  if (!node || !words.keyword("cpus")) return std::nullopt;
  const auto cpus = words.number();
  if (!cpus || !words.keyword("memory")) return std::nullopt;
  const auto memory = words.number();
  if (!memory) return std::nullopt;

  const Node& host = cluster.node(*node);
  Use use{*node, CpuMilli(*cpus), Bytes(*memory), {}};
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
  std::ranges::sort(use.gpus, {}, &GpuUse::gpu);
  return std::pair{JobId(*job), std::move(use)};
}

}  // namespace

Result<Ledger> Ledger::restore(Cluster cluster, std::string_view text) {
  Ledger ledger(std::move(cluster));
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    auto grant = parse_grant(ledger.cluster_, line);
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

}  // namespace aliquot::core
