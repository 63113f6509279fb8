#include "kube/view/wanted_claims.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "kube/model/json_read.hpp"
#include "kube/model/limits.hpp"
#include "kube/model/quantity.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// A capacity that cannot be read was not asked for.
std::optional<std::int64_t> capacity(const json::object& exactly, std::string_view name,
                                     const Names& names) {
  const auto* capacities = find_object(exactly, "capacity");
  const auto* requests = capacities == nullptr ? nullptr : find_object(*capacities, "requests");
  if (requests == nullptr) return std::nullopt;
  const auto* found = find_value(*requests, name);
  if (found == nullptr) found = find_value(*requests, names.domain + "/" + std::string(name));
  if (found == nullptr) return std::nullopt;
  const auto amount = read_quantity(*found, 1);
  if (!amount || *amount <= 0) return std::nullopt;
  return *amount;
}

// On one GPU as much of it as was said; all of it where nothing was.
core::GpuPart part_of(const WantedPart& part) {
  if (part.whole) return core::WholeGpu();
  core::Amounts amounts{.memory = part.memory, .compute = part.compute};
  if (!amounts.memory && !amounts.compute) amounts.compute = kWholeGpu;
  return amounts;
}

void add(const std::string& container, const WantedPart& part, PodRequest& request) {
  ContainerNeed need;
  need.container = container;
  need.gpus = core::GpuRequest{.count = part.count, .what = part_of(part), .models = {}};
  if (part.whole) {
    request.whole += part.count;
  } else {
    const auto& amounts = std::get<core::Amounts>(need.gpus.what);
    for (std::int64_t i = 0; i < part.count; ++i) {
      request.shares.push_back({amounts, {request.needs.size()}});
    }
  }
  request.needs.push_back(std::move(need));
}

}  // namespace

std::vector<WantedPart> read_wanted_parts(const json::object& claim, const Names& names) {
  std::vector<WantedPart> parts;
  const auto* spec = find_object(claim, "spec");
  const auto* devices = spec == nullptr ? nullptr : find_object(*spec, "devices");
  const auto* requests = devices == nullptr ? nullptr : find_array(*devices, "requests");
  if (requests == nullptr) return parts;
  for (const json::value& value : *requests) {
    const auto* one = value.if_object();
    const auto* exactly = one == nullptr ? nullptr : find_object(*one, "exactly");
    if (exactly == nullptr) continue;
    const std::string_view device_class = find_text(*exactly, "deviceClassName");
    const bool whole = device_class == "gpu." + names.domain;
    if (!whole && device_class != "gpu-share." + names.domain) continue;
    WantedPart part{.request = std::string(find_text(*one, "name")), .whole = whole};
    part.count = std::clamp<std::int64_t>(find_number(*exactly, "count").value_or(1), 1,
                                          core::kMaxGpusPerNode);
    if (const auto memory = capacity(*exactly, kMemoryCapacity, names)) {
      part.memory = std::min(Bytes(*memory), kMostMemory);
    }
    if (const auto percent = capacity(*exactly, kComputeCapacity, names)) {
      part.compute = scale_down(kWholeGpu, std::min<std::int64_t>(*percent, 100), 100);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Asked asked_by_claims(const SeenPod& seen, const WantedClaims& claims) {
  Asked asked;
  std::set<std::pair<std::string, std::string>> counted;  // claim and request
  for (const auto& [container, uses_of_it] : seen.claims) {
    for (const ClaimUse& use : uses_of_it) {
      const auto claim = claims.find({seen.pod.id.space, use.claim});
      if (claim == claims.end()) continue;
      for (const WantedPart& part : claim->second) {
        if (!uses(use, use.claim, part.request)) continue;
        if (counted.emplace(use.claim, part.request).second) add(container, part, asked.ours);
      }
    }
  }
  return asked;
}

}  // namespace aliquot::kube
