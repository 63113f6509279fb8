#include "kube/node/slices.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>
#include <utility>

#include "core/policy.hpp"
#include "kube/model/claim.hpp"
#include "kube/model/limits.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// What the API server takes in one ResourceSlice, and in one set of counters.
constexpr std::size_t kMostDevices = 64;
constexpr std::size_t kMostCounters = 32;

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    const bool capital = c >= 'A' && c <= 'Z';
    out += letter ? c : capital ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  return out;
}

std::string set_name(std::size_t gpu) { return fmt::format("gpus-{}", gpu / kMostCounters); }

// Kubernetes' own way to write whole MiB.
std::string quantity(Bytes size) { return fmt::format("{}Mi", size / mib(1)); }

json::object text_value(std::string_view text) { return {{"string", json::string_view(text)}}; }

// As one node, on which the claims hold what they hold.
Result<core::Cluster> cluster_of(const std::vector<SliceGpu>& gpus, const SliceSettings& settings) {
  core::Node node{.id = NodeId(settings.node),
                  .cpus = CpuMilli(0),
                  .memory = Bytes(0),
                  .gpus = {},
                  .compute_limit = settings.over_commit};
  for (const SliceGpu& gpu : gpus) node.gpus.push_back(gpu.device.gpu);
  auto cluster = TRY(core::Cluster::create({std::move(node)}));
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const auto index = static_cast<core::GpuIndex>(i);
    for (const core::GrantedGpu& part : gpus[i].held) {
      TRY(cluster.take_up({.node = 0,
                           .cpus = CpuMilli(0),
                           .memory = Bytes(0),
                           .gpus = {{index, part.portion, part.whole}}}));
    }
    TRY(cluster.observe(
        0, index, {.utilisation = Compute(0), .foreign_memory = gpus[i].foreign, .taken = {}}));
    TRY(cluster.set_health(0, index, gpus[i].health));
  }
  return cluster;
}

// Those that have room for this, in the order in which the policy takes them.
std::vector<std::size_t> chosen(const core::Cluster& cluster, core::Policy& policy,
                                const core::GpuRequest& request) {
  std::vector<std::size_t> order;
  const auto shape = cluster.shape({.gpus = request, .cpus = CpuMilli(0), .memory = Bytes(0)});
  core::Candidates fit;
  if (!shape || !core::find_candidates(cluster, *shape, 0, fit)) return order;
  policy.prepare(cluster);
  while (!fit.gpus.empty()) {
    const auto next = policy.choose(cluster, *shape, fit);
    if (next.empty()) break;
    order.push_back(next.front());
    std::erase(fit.gpus, next.front());
  }
  return order;
}

json::array taints_of(const SliceGpu& gpu, const SliceSettings& settings, bool whole) {
  json::array taints;
  const auto add = [&](std::string_view word, std::string_view value, std::string_view effect) {
    taints.push_back(json::object{{"key", settings.domain + "/" + std::string(word)},
                                  {"value", json::string_view(value)},
                                  {"effect", json::string_view(effect)}});
  };
  // What is on a GPU that is lost has lost it; what drains may end by itself.
  if (gpu.health == core::Health::lost) add("health", "lost", "NoExecute");
  if (gpu.health == core::Health::draining) add("health", "draining", "NoSchedule");
  if (gpu.resource) add("held", "resource", "NoSchedule");
  if (whole && gpu.foreign > Bytes(0)) add("held", "foreign", "NoSchedule");
  return taints;
}

json::object device_of(const SliceGpu& gpu, std::size_t at, const SliceSettings& settings,
                       bool whole) {
  const core::Gpu& facts = gpu.device.gpu;
  json::object attributes{{"kind", text_value(whole ? "whole" : "share")},
                          {"uuid", text_value(facts.id.value())},
                          {"model", text_value(facts.model)},
                          {"index", json::object{{"int", gpu.device.index}}}};
  if (!facts.mig_profile.empty()) attributes["mig"] = text_value(facts.mig_profile);
  const Bytes memory = claimable(gpu);
  json::object capacity;
  if (whole) {
    capacity = {{kMemoryCapacity, json::object{{"value", quantity(facts.memory)}}}};
  } else {
    const auto percent = settings.over_commit.value() / (kWholeGpu.value() / 100);
    capacity = {
        {kMemoryCapacity,
         json::object{{"value", quantity(memory)},
                      {"requestPolicy",
                       json::object{{"default", quantity(memory)},
                                    {"validRange", json::object{{"min", "1Mi"},
                                                                {"step", "1Mi"},
                                                                {"max", quantity(memory)}}}}}}},
        {kComputeCapacity,
         json::object{
             {"value", std::to_string(percent)},
             {"requestPolicy",
              json::object{
                  {"default", "0"},
                  {"validRange", json::object{{"min", "0"}, {"step", "1"}, {"max", "100"}}}}}}}};
  }
  const std::string counter = device_name(facts.id, false);
  json::object device{{"name", device_name(facts.id, whole)},
                      {"attributes", std::move(attributes)},
                      {"capacity", std::move(capacity)},
                      {"consumesCounters",
                       json::array{json::object{
                           {"counterSet", set_name(at)},
                           {"counters", json::object{{counter, json::object{{"value", "1"}}}}}}}}};
  if (!whole) device["allowMultipleAllocations"] = true;
  if (auto taints = taints_of(gpu, settings, whole); !taints.empty()) {
    device["taints"] = std::move(taints);
  }
  return device;
}

}  // namespace

std::string device_name(const GpuId& gpu, bool whole) {
  return plain(gpu.value()) + (whole ? "-whole" : "");
}

Bytes claimable(const SliceGpu& gpu) {
  const Bytes free = gpu.device.gpu.memory - gpu.foreign;
  return std::max(mib(1), mib(1) * (free / mib(1)));
}

std::vector<std::size_t> listing_order(const std::vector<SliceGpu>& gpus,
                                       const SliceSettings& settings, bool whole) {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t gpu) {
    if (std::ranges::find(order, gpu) == order.end()) order.push_back(gpu);
  };
  const auto cluster = cluster_of(gpus, settings);
  const auto policy = core::make_policy(settings.policy, core::generic_profile());
  if (cluster && policy) {
    // One order has to do for shares of all sizes: that for an eighth of a GPU. Where less is left
    // only smaller ones fit, and there they do least harm: those come first, the fullest before.
    constexpr std::int64_t kParts = 8;
    std::vector<std::size_t> crumbs;
    std::set<std::string> profiles = {""};
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const core::Gpu& gpu = gpus[i].device.gpu;
      profiles.insert(gpu.mig_profile);
      if (!whole && cluster->gpus(0)[i].memory_available() * kParts < gpu.memory) {
        crumbs.push_back(i);
      }
    }
    std::ranges::stable_sort(crumbs, {},
                             [&](std::size_t i) { return cluster->gpus(0)[i].memory_available(); });
    for (const std::size_t gpu : crumbs) add(gpu);
    for (const std::string& profile : profiles) {
      core::GpuRequest request{.count = 1, .what = core::WholeGpu(), .models = {}};
      if (!profile.empty()) request.models = {profile};
      Bytes least = kMostMemory;
      for (const SliceGpu& gpu : gpus) {
        if (gpu.device.gpu.mig_profile == profile) least = std::min(least, gpu.device.gpu.memory);
      }
      if (!whole)
        request.what = core::Amounts{.memory = Bytes(least.value() / kParts), .compute = {}};
      for (const std::size_t gpu : chosen(*cluster, **policy, request)) add(gpu);
    }
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) add(i);
  return order;
}

std::vector<json::object> slice_specs(const std::vector<SliceGpu>& gpus,
                                      const SliceSettings& settings) {
  json::array sets;
  for (std::size_t first = 0; first < gpus.size(); first += kMostCounters) {
    json::object counters;
    for (std::size_t i = first; i < std::min(gpus.size(), first + kMostCounters); ++i) {
      counters[device_name(gpus[i].device.gpu.id, false)] = json::object{{"value", "1"}};
    }
    sets.push_back(json::object{{"name", set_name(first)}, {"counters", std::move(counters)}});
  }
  const json::object base{{"driver", settings.domain}, {"nodeName", settings.node}};
  std::vector<json::object> specs;
  if (gpus.empty()) return specs;
  specs.push_back(base);
  specs.back()["sharedCounters"] = std::move(sets);
  json::array devices;
  const auto flush = [&] {
    if (devices.empty()) return;
    specs.push_back(base);
    specs.back()["devices"] = std::exchange(devices, {});
  };
  for (const bool whole : {false, true}) {
    for (const std::size_t at : listing_order(gpus, settings, whole)) {
      if (devices.size() == kMostDevices) flush();
      devices.push_back(device_of(gpus[at], at, settings, whole));
    }
  }
  flush();
  return specs;
}

}  // namespace aliquot::kube
