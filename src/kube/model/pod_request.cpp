#include "kube/model/pod_request.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace aliquot::kube {
namespace {

// The most that containers take at one time, of anything that can be added: init containers one
// after another, each beside the sidecars that were started before it, and in the end all others.
template <class Amount>
class Peak {
 public:
  void add(Role role, Amount amount) {
    if (role == Role::init) {
      most_ = std::max(most_, lasting_ + amount);
    } else {
      lasting_ += amount;
    }
  }
  [[nodiscard]] Amount value() const { return std::max(most_, lasting_); }
  // Where what comes next begins, if each is put behind those it runs beside.
  [[nodiscard]] Amount start() const { return lasting_; }

 private:
  Amount most_{};
  Amount lasting_{};
};

std::int64_t limit_of(const Container& container, std::string_view name) {
  const auto found = container.gpu_limits.find(std::string(name));
  return found == container.gpu_limits.end() ? 0 : found->second;
}

Result<std::optional<ContainerNeed>> read_need(const Container& container, const Names& names,
                                               Bytes unit, bool nvidia) {
  const auto wrong = [&](std::string_view why) {
    return fail(Error::Code::invalid_argument, "container {}: {}", quote(container.name), why);
  };
  struct Asked {
    std::string name;
    std::int64_t amount;
    bool whole;
  };
  std::vector<Asked> asked = {{names.gpu_mem(), 0, false},
                              {std::string(kGpushareMem), 0, false},
                              {names.gpu(), 0, true},
                              {std::string(kGpushareCount), 0, true}};
  if (nvidia) asked.push_back({std::string(kNvidiaGpu), 0, true});
  for (Asked& one : asked) one.amount = limit_of(container, one.name);
  std::erase_if(asked, [](const Asked& one) { return one.amount == 0; });
  const std::int64_t percent = limit_of(container, names.gpu_share());
  if (asked.empty()) {
    if (percent == 0) return std::optional<ContainerNeed>();
    return wrong(fmt::format("{} is only for a container that asks for {}, too", names.gpu_share(),
                             names.gpu_mem()));
  }
  if (asked.size() > 1) {
    return wrong(fmt::format("it asks for {} and for {}: one of them, please", asked[0].name,
                             asked[1].name));
  }
  const Asked& one = asked[0];
  ContainerNeed need{.container = container.name,
                     .role = container.role,
                     .gpus = {},
                     .units = 0,
                     .resource = one.name};
  if (one.whole) {
    if (percent > 0) return wrong(fmt::format("whole GPUs have no {}", names.gpu_share()));
    if (one.amount > static_cast<std::int64_t>(core::kMaxGpusPerNode)) {
      return wrong(fmt::format("no node has {} GPUs", one.amount));
    }
    need.gpus = {.count = one.amount, .what = core::WholeGpu(), .models = {}};
    return std::optional(std::move(need));
  }
  const auto memory = checked_mul(unit, one.amount);
  if (!memory || *memory > kMostMemory) {
    return wrong(fmt::format("no GPU has {} units of memory", one.amount));
  }
  if (percent > 100) {
    return wrong(fmt::format("{} is percent of one GPU, not {}", names.gpu_share(), percent));
  }
  core::Amounts amounts{.memory = *memory, .compute = {}};
  if (percent > 0) amounts.compute = scale_down(kWholeGpu, percent, 100);
  need.gpus = {.count = 1, .what = amounts, .models = {}};
  need.units = one.amount;
  return std::optional(std::move(need));
}

const core::Amounts& amounts_of(const ContainerNeed& need) {
  return std::get<core::Amounts>(need.gpus.what);
}

// All shares as one, for a pod whose init containers have some.
Result<ShareNeed> join_shares(const PodRequest& request) {
  ShareNeed all;
  Peak<Bytes> memory;
  Peak<Compute> compute;
  std::size_t said = 0;
  for (std::size_t i = 0; i < request.needs.size(); ++i) {
    const ContainerNeed& need = request.needs[i];
    if (need.whole()) continue;
    all.needs.push_back(i);
    memory.add(need.role, *amounts_of(need).memory);
    if (amounts_of(need).compute) {
      ++said;
      compute.add(need.role, *amounts_of(need).compute);
    }
  }
  if (said != 0 && said != all.needs.size()) {
    return fail(Error::Code::invalid_argument,
                "where init containers have shares, each container says its part of the compute or "
                "none does");
  }
  all.amounts.memory = std::min(memory.value(), kMostMemory);
  if (said != 0) all.amounts.compute = compute.value();
  return all;
}

Result<void> gather(PodRequest& request) {
  Peak<std::int64_t> whole;
  bool joined = false;
  for (const ContainerNeed& need : request.needs) {
    if (need.whole()) {
      whole.add(need.role, need.gpus.count);
    } else if (need.role == Role::init) {
      joined = true;
    }
  }
  request.whole = whole.value();
  if (joined) {
    request.shares.push_back(TRY(join_shares(request)));
    return {};
  }
  for (std::size_t i = 0; i < request.needs.size(); ++i) {
    const ContainerNeed& need = request.needs[i];
    if (!need.whole()) request.shares.push_back({amounts_of(need), {i}});
  }
  return {};
}

}  // namespace

Result<PodRequest> read_request(const Pod& pod, const Names& names, Bytes unit, bool nvidia) {
  PodRequest request;
  Peak<CpuMilli> cpus;
  Peak<Bytes> memory;
  for (const Container& container : pod.containers) {
    cpus.add(container.role, std::min(container.cpus, kMostCpus));
    memory.add(container.role, std::min(container.memory, kMostMemory));
    auto need = TRY(read_need(container, names, unit, nvidia));
    if (!need) continue;
    request.gpushare |= need->resource == kGpushareMem || need->resource == kGpushareCount;
    request.needs.push_back(std::move(*need));
  }
  request.cpus = std::min(cpus.value() + std::min(pod.overhead_cpus, kMostCpus), kMostCpus);
  request.memory =
      std::min(memory.value() + std::min(pod.overhead_memory, kMostMemory), kMostMemory);
  TRY(gather(request));
  return request;
}

PodRequest odd_request(const Pod& pod, const Names& names) {
  PodRequest request;
  request.odd = true;
  for (const Container& container : pod.containers) {
    for (const std::string& name :
         {names.gpu_mem(), names.gpu(), std::string(kGpushareMem), std::string(kGpushareCount)}) {
      if (limit_of(container, name) == 0) continue;
      request.whole = 1;
      request.needs.push_back({.container = container.name,
                               .role = container.role,
                               .gpus = {.count = 1, .what = core::WholeGpu(), .models = {}},
                               .units = 0,
                               .resource = name});
      break;
    }
  }
  return request;
}

bool asks_nvidia(const Pod& pod) {
  return std::ranges::any_of(pod.containers, [](const Container& container) {
    return limit_of(container, kNvidiaGpu) > 0;
  });
}

std::map<GpuId, core::GrantedGpu> held_by(const PodRequest& request,
                                          const ContainerGrants& grants) {
  struct Held {
    Peak<Bytes> memory;
    Peak<Compute> compute;
    bool whole = false;
  };
  std::map<GpuId, Held> sums;
  for (const ContainerNeed& need : request.needs) {
    const auto found = grants.find(need.container);
    if (found == grants.end()) continue;
    for (const core::GrantedGpu& part : found->second) {
      Held& held = sums[part.gpu];
      held.memory.add(need.role, part.portion.memory);
      held.compute.add(need.role, part.portion.compute);
      held.whole |= part.whole;
    }
  }
  std::map<GpuId, core::GrantedGpu> all;
  for (const auto& [gpu, held] : sums) {
    all.emplace(
        gpu,
        core::GrantedGpu{
            gpu, {std::min(held.memory.value(), kMostMemory), held.compute.value()}, held.whole});
  }
  return all;
}

bool covers(const ContainerGrants& grants, const PodRequest& request) {
  return std::ranges::all_of(request.needs, [&](const ContainerNeed& need) {
    const auto found = grants.find(need.container);
    if (request.odd) return found != grants.end() && !found->second.empty();
    return found != grants.end() && std::cmp_equal(found->second.size(), need.gpus.count) &&
           std::ranges::all_of(found->second, [&](const core::GrantedGpu& part) {
             return part.whole == need.whole();
           });
  });
}

std::vector<std::pair<std::int64_t, std::int64_t>> whole_places(const PodRequest& request) {
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  Peak<std::int64_t> whole;
  for (const ContainerNeed& need : request.needs) {
    const std::int64_t count = need.whole() ? need.gpus.count : 0;
    places.emplace_back(whole.start(), count);
    whole.add(need.role, count);
  }
  return places;
}

}  // namespace aliquot::kube
