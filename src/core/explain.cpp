#include "core/explain.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/percent.hpp"
#include "base/text.hpp"

namespace aliquot::core {
namespace {

// Up to here GPUs and nodes are told one by one.
constexpr std::size_t kFew = 8;
constexpr std::size_t kMaxJobsNamed = 5;

enum class Round { down, up };

std::string decimal(std::int64_t tenths) {
  return tenths % 10 == 0 ? fmt::format("{}", tenths / 10)
                          : fmt::format("{}.{}", tenths / 10, tenths % 10);
}

// `8 GiB`, `2.5 GiB`, `300 MiB`. What is missing rounds up, what is there rounds down, so that the
// figures never promise more than there is.
std::string human(Bytes size, Round round) {
  struct Unit {
    Bytes bytes;
    std::string_view name;
  };
  static constexpr std::array kUnits{Unit{gib(1), "GiB"}, Unit{mib(1), "MiB"}, Unit{kib(1), "KiB"}};
  for (const auto& [bytes, name] : kUnits) {
    if (size < bytes) continue;
    const auto tenths = round == Round::up
                            ? scale_up(Bytes(10), size.value(), bytes.value()).value()
                            : scale_down(Bytes(10), size.value(), bytes.value()).value();
    return fmt::format("{} {}", decimal(tenths), name);
  }
  return fmt::format("{} B", size);
}

std::string human(CpuMilli cpus) {
  auto text = fmt::format("{}.{:03}", cpus / kOneCpu, cpus.value() % kOneCpu.value());
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return fmt::format("{} {}", text, cpus == kOneCpu ? "CPU" : "CPUs");
}

std::string plural(std::size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

// `a`, `a and b`, `a, b and c`.
std::string enumerate(std::span<const std::string> parts, std::string_view last = "and") {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? fmt::format(" {} ", last) : ", ";
    text += parts[i];
  }
  return text;
}

// `job 4`, `jobs 4 and 7`, `jobs 1, 2, 3, 4, 5 and 12 more`.
std::string name_jobs(const std::vector<JobId>& jobs) {
  std::vector<std::string> names;
  for (const auto job : jobs) {
    if (names.size() == kMaxJobsNamed && jobs.size() > kMaxJobsNamed + 1) {
      names.push_back(fmt::format("{} more", jobs.size() - kMaxJobsNamed));
      break;
    }
    names.push_back(fmt::format("{}", job));
  }
  return fmt::format("{} {}", jobs.size() == 1 ? "job" : "jobs", enumerate(names));
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

struct GpuRef {
  NodeIndex node;
  GpuLack lack;
};

class Explainer {
 public:
  Explainer(const Ledger& ledger, const Request& request, const Refusal& refusal)
      : ledger_(ledger), cluster_(ledger.cluster()), request_(request), refusal_(refusal) {}

  [[nodiscard]] Explanation run() const {
    if (!refusal_.curable) return never();
    const auto head = headline();
    const auto wait = cure();
    Explanation result{.summary = fmt::format("{}; {}", head, wait), .sentences = {head + '.'}};
    tell_gpus(result.sentences);
    tell_nodes(result.sentences);
    result.sentences.push_back(capitalised(wait) + '.');
    return result;
  }

 private:
  [[nodiscard]] const Gpu& device(const GpuRef& gpu) const {
    return cluster_.node(gpu.node).gpus[gpu.lack.gpu];
  }
  [[nodiscard]] const GpuState& state(const GpuRef& gpu) const {
    return cluster_.gpus(gpu.node)[gpu.lack.gpu];
  }
  [[nodiscard]] std::string name(const GpuRef& gpu) const {
    return fmt::format("gpu{} on {}", gpu.lack.gpu, cluster_.node(gpu.node).id);
  }
  [[nodiscard]] std::size_t count() const {
    return request_.gpus ? static_cast<std::size_t>(request_.gpus->count) : 0;
  }
  [[nodiscard]] std::string models() const { return enumerate(request_.gpus->models, "or"); }
  // `GPU`, `titanrtx GPUs`.
  [[nodiscard]] std::string noun(std::size_t n) const {
    const auto* what = n == 1 ? "GPU" : "GPUs";
    return request_.gpus->models.empty() ? what : fmt::format("{} {}", models(), what);
  }

  // What one GPU must have free, for a share: `8 GiB of memory and 25% of its compute`.
  [[nodiscard]] std::string portion() const {
    if (const auto* tickets = std::get_if<Tickets>(&request_.gpus->what)) {
      return fmt::format("{}:{}", name_of(tickets->kind), tickets->count);
    }
    const auto* amounts = std::get_if<Amounts>(&request_.gpus->what);
    if (amounts == nullptr) return "all of it";
    std::vector<std::string> parts;
    if (amounts->memory) parts.push_back(human(*amounts->memory, Round::up) + " of memory");
    if (amounts->compute) {
      parts.push_back(format_percent(*amounts->compute) +
                      (amounts->memory ? " of its compute" : " of its compute and memory"));
    }
    return enumerate(parts);
  }

  [[nodiscard]] std::string cpus_and_memory() const {
    std::vector<std::string> parts;
    if (request_.cpus > CpuMilli(0)) parts.push_back(human(request_.cpus));
    if (request_.memory > Bytes(0))
      parts.push_back(human(request_.memory, Round::up) + " of memory");
    return parts.empty() ? "room" : enumerate(parts);
  }

  [[nodiscard]] std::string headline() const {
    if (!request_.gpus) return fmt::format("No node has {} free", cpus_and_memory());
    const bool gpus_are_there = std::ranges::any_of(
        refusal_.nodes, [&](const auto& node) { return node.gpus_fitting >= count(); });
    if (gpus_are_there) {
      return fmt::format("No node with {} for this has {} free",
                         count() == 1 ? "a GPU" : "the GPUs", cpus_and_memory());
    }
    const bool whole = std::holds_alternative<WholeGpu>(request_.gpus->what);
    if (count() == 1) {
      return whole ? fmt::format("No {} is free", noun(1))
                   : fmt::format("No {} has {} free", noun(1), portion());
    }
    return whole ? fmt::format("No node has {} {} free", count(), noun(count()))
                 : fmt::format("No node has {} {} with {} free on each", count(), noun(count()),
                               portion());
  }

  // The least that has to happen on some node.
  [[nodiscard]] std::string cure() const {
    bool foreign = false;
    for (const auto& node : refusal_.nodes) {
      if (!node.curable) continue;
      std::size_t with_jobs = 0;
      std::size_t with_foreign = 0;
      for (const auto& gpu : node.gpus) {
        const auto lack = gpu.lack;
        if (lack == Lack::nothing || lack == Lack::held_whole || lack == Lack::shared ||
            lack == Lack::memory || lack == Lack::compute) {
          ++with_jobs;
        }
        if (lack == Lack::foreign) ++with_foreign;
      }
      if (with_jobs >= count()) return "this can start when jobs end";
      foreign = foreign || with_jobs + with_foreign >= count();
    }
    return foreign ? "this can start when the processes outside every job leave the GPU"
                   : "this can start when a GPU is back in service: ask the administrator";
  }

  [[nodiscard]] std::string model_of(const GpuRef& gpu) const {
    const auto& profile = device(gpu).mig_profile;
    return profile.empty() ? "a " + device(gpu).model : "a MIG slice " + profile;
  }

  [[nodiscard]] std::string lacking(const GpuRef& gpu) const {
    const auto& device_here = device(gpu);
    const auto& state_here = state(gpu);
    const auto jobs = ledger_.jobs_on(gpu.node, gpu.lack.gpu);
    const auto holders = jobs.empty() ? std::string("jobs") : name_jobs(jobs);
    const auto* const hold = jobs.size() == 1 ? "holds" : "hold";
    switch (gpu.lack.lack) {
      case Lack::nothing:
        return "would do";
      case Lack::model:
        if (request_.gpus->models.empty()) {
          return fmt::format("is {}, which has to be asked for by that name", model_of(gpu));
        }
        return fmt::format("is {}, not {}", model_of(gpu), models());
      case Lack::closed:
        return "is not for this job: it is of another partition, or reserved for others";
      case Lack::unhealthy:
        return device_here.health == Health::lost ? "is lost: the driver reports it broken"
                                                  : "is draining and takes no new jobs";
      case Lack::too_small:
        return too_small(gpu);
      case Lack::held_whole:
        return fmt::format("is held whole by {}", holders);
      case Lack::shared:
        return fmt::format("is shared by {}", holders);
      case Lack::memory: {
        const auto held = device_here.memory - state_here.memory_free;
        return fmt::format("lacks {} of memory: {} {} {} of its {}",
                           human(gpu.lack.memory_missing, Round::up), holders, hold,
                           human(held, Round::down), human(device_here.memory, Round::down));
      }
      case Lack::compute:
        return fmt::format("lacks {} of compute: {} {} all but {}",
                           format_percent(gpu.lack.compute_missing), holders, hold,
                           format_percent(state_here.compute_free));
      case Lack::foreign:
        return fmt::format("has processes outside every job, which hold {} of its {}",
                           human(state_here.foreign_memory, Round::down),
                           human(device_here.memory, Round::down));
    }
    return "does not fit";
  }

  [[nodiscard]] std::string too_small(const GpuRef& gpu) const {
    if (const auto* tickets = std::get_if<Tickets>(&request_.gpus->what)) {
      return fmt::format("is too small: it counts as {}:{}", name_of(tickets->kind),
                         tickets_of(units_of(cluster_.node(gpu.node)), tickets->kind));
    }
    return fmt::format("is too small: it has {} of memory", human(device(gpu).memory, Round::down));
  }

  [[nodiscard]] std::string sentence(const GpuRef& gpu) const {
    const auto& seen = state(gpu);
    // Only where the sample decides, or may soon.
    const bool sample_matters = gpu.lack.lack == Lack::foreign || gpu.lack.lack == Lack::nothing;
    return fmt::format("{} {}{}.", name(gpu), lacking(gpu),
                       seen.stale && sample_matters
                           ? " (its last sample is too old to trust: it counts as busy)"
                           : "");
  }

  // GPUs one by one where they are few; else those that could serve, if these are few; else groups.
  void tell_gpus(std::vector<std::string>& sentences) const {
    std::vector<GpuRef> all;
    for (const auto& node : refusal_.nodes) {
      for (const auto& gpu : node.gpus) all.push_back({node.node, gpu});
    }
    const auto hopeless = [](const GpuRef& gpu) {
      return gpu.lack.lack == Lack::model || gpu.lack.lack == Lack::too_small ||
             gpu.lack.lack == Lack::closed;
    };
    auto told = all;
    if (told.size() > kFew) std::erase_if(told, hopeless);
    if (told.size() <= kFew) {
      for (const auto& gpu : told) sentences.push_back(sentence(gpu));
      if (told.size() < all.size()) {
        std::erase_if(all, [&](const GpuRef& gpu) { return !hopeless(gpu); });
        sentences.push_back(grouped(all, told.empty() ? "" : "The others do not matter here: "));
      }
      return;
    }
    sentences.push_back(grouped(all, fmt::format("Of {} GPUs ", all.size())));
    if (const auto closest = closest_gpu(told)) {
      sentences.push_back("Closest: " + sentence(*closest));
    }
    tell_best_node(sentences);
  }

  // `412 are held whole, 38 lack memory and 3 are out of service.`
  [[nodiscard]] std::string grouped(const std::vector<GpuRef>& gpus,
                                    std::string_view opening) const {
    struct Group {
      Lack lack;
      std::string_view one;
      std::string_view many;
    };
    static constexpr std::array kGroups{
        Group{Lack::nothing, "would do", "would do"},
        Group{Lack::held_whole, "is held whole by a job", "are held whole by jobs"},
        Group{Lack::shared, "is shared by jobs", "are shared by jobs"},
        Group{Lack::memory, "lacks memory", "lack memory"},
        Group{Lack::compute, "lacks compute", "lack compute"},
        Group{Lack::foreign, "has processes outside every job", "have processes outside every job"},
        Group{Lack::unhealthy, "is out of service", "are out of service"},
        Group{Lack::too_small, "is too small", "are too small"},
        Group{Lack::model, "is of another model", "are of another model"},
        Group{Lack::closed, "is not for this job", "are not for this job"},
    };
    std::vector<std::string> parts;
    for (const auto& group : kGroups) {
      const auto n = static_cast<std::size_t>(std::ranges::count_if(
          gpus, [&](const GpuRef& gpu) { return gpu.lack.lack == group.lack; }));
      if (n > 0) parts.push_back(plural(n, group.one, group.many));
    }
    return fmt::format("{}{}.", opening, enumerate(parts));
  }

  // The one that lacks least memory, else least compute.
  [[nodiscard]] static std::optional<GpuRef> closest_gpu(const std::vector<GpuRef>& gpus) {
    std::optional<GpuRef> best;
    for (const auto& gpu : gpus) {
      if (gpu.lack.lack != Lack::memory && gpu.lack.lack != Lack::compute) continue;
      const auto missing = [](const GpuLack& lack) {
        return std::pair(lack.memory_missing, lack.compute_missing);
      };
      if (!best || missing(gpu.lack) < missing(best->lack)) best = gpu;
    }
    return best;
  }

  void tell_best_node(std::vector<std::string>& sentences) const {
    if (count() < 2) return;
    const auto best = std::ranges::max_element(refusal_.nodes, {}, &NodeRefusal::gpus_fitting);
    if (best == refusal_.nodes.end() || best->gpus_fitting == 0) return;
    sentences.push_back(fmt::format("{} comes closest with {} of the {} GPUs.",
                                    cluster_.node(best->node).id, best->gpus_fitting, count()));
  }

  // CPUs and memory, on the nodes whose GPUs would do or that were asked for nothing else.
  void tell_nodes(std::vector<std::string>& sentences) const {
    std::vector<const NodeRefusal*> lacking;
    for (const auto& node : refusal_.nodes) {
      if (node.gpus_fitting >= count() &&
          (node.cpus_missing > CpuMilli(0) || node.memory_missing > Bytes(0))) {
        lacking.push_back(&node);
      }
    }
    if (lacking.size() > kFew) {
      const auto without = [&](auto member, auto zero) {
        return static_cast<std::size_t>(
            std::ranges::count_if(lacking, [&](const auto* node) { return node->*member > zero; }));
      };
      std::vector<std::string> parts;
      if (const auto n = without(&NodeRefusal::cpus_missing, CpuMilli(0)); n > 0) {
        parts.push_back(fmt::format("{} too few CPUs free", plural(n, "has", "have")));
      }
      if (const auto n = without(&NodeRefusal::memory_missing, Bytes(0)); n > 0) {
        parts.push_back(fmt::format("{} too little memory free", plural(n, "has", "have")));
      }
      sentences.push_back(fmt::format("Of {} nodes {}{}.", lacking.size(),
                                      count() > 0 ? "with the GPUs " : "", enumerate(parts)));
      return;
    }
    for (const auto* node : lacking) {
      const auto& host = cluster_.node(node->node);
      std::vector<std::string> parts;
      if (node->cpus_missing > CpuMilli(0)) {
        parts.push_back(fmt::format("{} (it has {})", human(node->cpus_missing), human(host.cpus)));
      }
      if (node->memory_missing > Bytes(0)) {
        parts.push_back(fmt::format("{} of host memory (it has {})",
                                    human(node->memory_missing, Round::up),
                                    human(host.memory, Round::down)));
      }
      sentences.push_back(fmt::format("{} lacks {}.", host.id, enumerate(parts)));
    }
  }

  [[nodiscard]] Explanation never() const {
    const auto reasons = never_reasons();
    Explanation result;
    result.summary = fmt::format("Never on this cluster: {}", fmt::join(reasons, "; "));
    for (const auto& reason : reasons) {
      result.sentences.push_back(fmt::format("Never on this cluster: {}.", reason));
    }
    result.sentences.emplace_back("Waiting does not help.");
    return result;
  }

  [[nodiscard]] std::vector<std::string> never_reasons() const {
    if (refusal_.nodes.empty()) return {"it has no nodes"};
    std::vector<std::string> reasons;
    if (request_.gpus) {
      if (auto reason = never_gpus()) reasons.push_back(std::move(*reason));
    }
    CpuMilli cpus;
    Bytes memory;
    for (const auto& node : refusal_.nodes) {
      cpus = std::max(cpus, cluster_.node(node.node).cpus);
      memory = std::max(memory, cluster_.node(node.node).memory);
    }
    if (request_.cpus > cpus) {
      reasons.push_back(fmt::format("no node has more than {}", human(cpus)));
    }
    if (request_.memory > memory) {
      reasons.push_back(
          fmt::format("no node has more than {} of host memory", human(memory, Round::up)));
    }
    if (reasons.empty()) {
      reasons.push_back(fmt::format("no node has {} together with {}",
                                    count() == 1 ? "such a GPU" : "such GPUs", cpus_and_memory()));
    }
    return reasons;
  }

  // Why the GPUs alone are never enough, if so.
  [[nodiscard]] std::optional<std::string> never_gpus() const {
    std::size_t gpus = 0;
    std::size_t of_model = 0;
    std::size_t closed = 0;
    std::size_t most = 0;
    NodeIndex best = 0;
    Bytes memory;
    std::int64_t tickets_per_gpu = 0;
    const auto* tickets = std::get_if<Tickets>(&request_.gpus->what);
    for (const auto& node : refusal_.nodes) {
      const auto& host = cluster_.node(node.node);
      std::size_t serving = 0;
      gpus += node.gpus.size();
      for (const auto& gpu : node.gpus) {
        if (gpu.lack == Lack::model) continue;
        if (gpu.lack == Lack::closed) {
          ++closed;
          continue;
        }
        ++of_model;
        memory = std::max(memory, host.gpus[gpu.gpu].memory);
        if (tickets != nullptr) {
          tickets_per_gpu = std::max(tickets_per_gpu, tickets_of(units_of(host), tickets->kind));
        }
        if (gpu.lack != Lack::too_small) ++serving;
      }
      if (serving > most) {
        most = serving;
        best = node.node;
      }
    }
    if (gpus == 0) return "it has no GPU";
    if (most < count() && closed > 0) {
      return fmt::format("this job may have {} of the GPUs that would do", most);
    }
    if (of_model == 0) {
      if (!request_.gpus->models.empty()) return fmt::format("no GPU is a {}", models());
      return "every GPU is a MIG slice, which has to be asked for by its profile";
    }
    if (most == 0 && tickets != nullptr) {
      return fmt::format("no {} counts more than {}:{}", noun(1), name_of(tickets->kind),
                         tickets_per_gpu);
    }
    if (most == 0) {
      return fmt::format("no {} has more than {} of memory", noun(1), human(memory, Round::up));
    }
    if (most < count()) {
      return fmt::format(
          "no node has {} {}{}; the most are {}, on {}", count(),
          tickets != nullptr || !std::holds_alternative<WholeGpu>(request_.gpus->what)
              ? "large enough "
              : "",
          noun(count()), most, cluster_.node(best).id);
    }
    return std::nullopt;
  }

  const Ledger& ledger_;
  const Cluster& cluster_;
  const Request& request_;
  const Refusal& refusal_;
};

}  // namespace

Explanation explain(const Ledger& ledger, const Request& request, const Refusal& refusal) {
  return Explainer(ledger, request, refusal).run();
}

}  // namespace aliquot::core
