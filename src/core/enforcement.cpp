#include "core/enforcement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace aliquot::core {
namespace {

constexpr std::array<std::string_view, 3> kDomains = {"gpu", "user", "job"};
// Since r615 the driver itself can cap GPU memory per cgroup.
constexpr std::int64_t kDriverLimits = 615;
// MPS of Pascal and older has neither percentages nor limits, and one fault domain for everybody.
constexpr int kVolta = 7;

std::int64_t major_of(std::string_view version) {
  return parse_digits(version.substr(0, version.find('.'))).value_or(0);
}

bool may_use_mps(const EnforcementFacts& node, const Grant& grant) {
  if (!node.no_mps.empty() || node.domain == FaultDomain::job) return false;
  // A client has one MPS server, and each of our servers has one GPU.
  if (grant.gpus.size() != 1) return false;
  // A GPU whose driver does not tell its capability is Volta or newer: drivers of older ones tell.
  const auto capability = node.capabilities.find(grant.gpus.front().gpu);
  if (capability != node.capabilities.end() && capability->second < kVolta) return false;
  return grant.processes <= kMpsClients;
}

}  // namespace

std::optional<FaultDomain> parse_fault_domain(std::string_view word) {
  const auto* const found = std::ranges::find(kDomains, word);
  if (found == kDomains.end()) return std::nullopt;
  return static_cast<FaultDomain>(found - kDomains.begin());
}

std::string_view to_string(FaultDomain domain) {
  return kDomains.at(static_cast<std::size_t>(domain));
}

std::string words_of(const EnforcementPlan& plan) {
  std::string words;
  const auto add = [&](bool wanted, std::string_view word) {
    if (!wanted) return;
    if (!words.empty()) words += '+';
    words += word;
  };
  add(plan.mps, fmt::format("mps({})", to_string(plan.domain)));
  add(plan.library, "library");
  add(plan.lease, "leases");
  add(plan.watchdog, "watchdog");
  return words.empty() ? std::string(kNotHeld) : words;
}

EnforcementPlan plan_enforcement(const EnforcementFacts& node, const Grant& grant) {
  EnforcementPlan plan{.domain = node.domain};
  if (grant.gpus.empty()) return plan;  // no GPU: nothing to enforce and nothing to show
  if (std::ranges::all_of(grant.gpus, &GrantedGpu::whole)) {
    plan.words = "exclusive";
    return plan;
  }
  if (!node.enabled) {
    plan.words = kNotHeld;
    return plan;
  }
  plan.watchdog = true;
  plan.library = node.no_library.empty();
  plan.mps = may_use_mps(node, grant);
  if (plan.mps) {
    const Portion& share = grant.gpus.front().portion;
    // A percentage wastes SMs: between servers always, and within one server whatever the others
    // leave idle. With the library, leases enforce the shares instead.
    if (node.domain == FaultDomain::gpu && (node.strict || !plan.library)) {
      const Compute scaled = scale_up(share.compute, node.compute_limit.value(), kWholeGpu.value());
      plan.thread_percentage = std::clamp<std::int64_t>((scaled.value() + 99) / 100, 1, 100);
    }
    // The limit counts for each process alone, so with the library it is only a second line of
    // defence: it must leave room for what a client costs beside its allocations.
    plan.pinned_limit = plan.library ? share.memory + gib(1) : share.memory;
  }
  plan.lease = plan.library && !plan.thread_percentage;
  plan.words = words_of(plan);
  return plan;
}

void drop_mps(EnforcementPlan& plan) {
  plan.mps = false;
  plan.thread_percentage.reset();
  plan.pinned_limit.reset();
  plan.lease = plan.library;
  plan.words = words_of(plan);
}

std::vector<Backend> list_backends(const EnforcementFacts& node) {
  std::vector<Backend> all;
  const std::int64_t driver = major_of(node.driver_version);
  if (driver >= kDriverLimits) {
    all.push_back(
        {"driver", false,
         fmt::format("driver {} can limit memory per cgroup; not used yet", node.driver_version)});
  } else {
    all.push_back({"driver", false,
                   driver == 0
                       ? "there is no driver"
                       : fmt::format("driver {} has no limits per cgroup: those came with r{}",
                                     node.driver_version, kDriverLimits)});
  }
  const auto off = [&](std::string reason) {
    return node.enabled ? std::move(reason) : std::string("switched off: enforce.enabled = false");
  };
  if (!node.no_mps.empty()) {
    all.push_back({"mps", false, off(node.no_mps)});
  } else if (node.domain == FaultDomain::job) {
    all.push_back({"mps", false, off("fault domain 'job': jobs take turns on the GPU")});
  } else {
    all.push_back(
        {"mps", node.enabled,
         off(fmt::format("one server for each {}, up to {} processes; for one share on "
                         "one GPU, Volta and newer",
                         node.domain == FaultDomain::gpu ? "GPU" : "user and GPU", kMpsClients))});
  }
  const bool library = node.enabled && node.no_library.empty();
  all.push_back(
      {"library", library,
       off(node.no_library.empty() ? "memory held exactly, GPU time measured" : node.no_library)});
  const bool leases =
      library && (node.domain != FaultDomain::gpu || !node.strict || !node.no_mps.empty());
  all.push_back({"leases", leases,
                 off(!node.no_library.empty() ? "they need the library"
                     : leases ? "jobs on one GPU take turns in proportion to their shares"
                              : "thread percentages of MPS hold the shares; leases for jobs "
                                "outside of it")});
  all.push_back({"watchdog", node.enabled,
                 off(node.kill_escapes ? "ends processes that hold more than their job was granted"
                                       : "reports processes that hold more than their job was "
                                         "granted, and leaves them (enforce.escape)")});
  return all;
}

}  // namespace aliquot::core
