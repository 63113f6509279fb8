#include "kube/model/claim.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "kube/model/json_read.hpp"
#include "kube/model/limits.hpp"
#include "kube/model/quantity.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

// "gpu" of "gpu/first-choice".
std::string main_request(std::string_view request) {
  return std::string(request.substr(0, request.find('/')));
}

// A capacity goes by its name, with the driver's before it or without.
const json::value* find_capacity(const json::object& capacities, std::string_view driver,
                                 std::string_view name) {
  if (const auto* found = find_value(capacities, name)) return found;
  return find_value(capacities, std::string(driver) + "/" + std::string(name));
}

Result<ClaimedDevice> read_device(const json::object& object, std::string_view driver) {
  ClaimedDevice device{.request = main_request(find_text(object, "request")),
                       .pool = std::string(find_text(object, "pool")),
                       .device = std::string(find_text(object, "device")),
                       .share_id = std::string(find_text(object, "shareID")),
                       .admin = find_flag(object, "adminAccess")};
  if (device.request.empty() || device.device.empty()) {
    return fail(Error::Code::invalid_argument, "an allocated device has no request or no name");
  }
  const auto* consumed = find_object(object, "consumedCapacity");
  if (consumed == nullptr) return device;
  if (const auto* memory = find_capacity(*consumed, driver, kMemoryCapacity)) {
    device.memory = std::min(Bytes(TRY(read_quantity(*memory, 1))), kMostMemory);
  }
  if (const auto* compute = find_capacity(*consumed, driver, kComputeCapacity)) {
    device.compute = TRY(read_quantity(*compute, 1));
  }
  return device;
}

// Parameters are for a driver, by its name.
bool has_parameters(const json::object& devices, std::string_view driver) {
  const auto* all = find_array(devices, "config");
  return all != nullptr && std::ranges::any_of(*all, [&](const json::value& value) {
           const auto* one = value.if_object();
           const auto* opaque = one == nullptr ? nullptr : find_object(*one, "opaque");
           return opaque != nullptr && find_text(*opaque, "driver") == driver;
         });
}

Result<void> read_allocation(const json::object& object, std::string_view driver, Claim& claim) {
  const auto* status = find_object(object, "status");
  const auto* allocation = status == nullptr ? nullptr : find_object(*status, "allocation");
  const auto* devices = allocation == nullptr ? nullptr : find_object(*allocation, "devices");
  if (devices == nullptr) return fail(Error::Code::not_found, "it is not allocated");
  claim.configured = has_parameters(*devices, driver);
  if (const auto* results = find_array(*devices, "results")) {
    for (const json::value& value : *results) {
      const auto* result = value.if_object();
      if (result == nullptr || find_text(*result, "driver") != driver) continue;
      claim.devices.push_back(TRY(read_device(*result, driver)));
    }
  }
  const auto* reserved = find_array(*status, "reservedFor");
  if (reserved == nullptr) return {};
  for (const json::value& value : *reserved) {
    const auto* one = value.if_object();
    if (one == nullptr || find_text(*one, "resource") != "pods") continue;
    claim.pods.push_back({claim.id.space, std::string(find_text(*one, "name")),
                          std::string(find_text(*one, "uid"))});
  }
  return {};
}

// The objects' names by those that the pod's spec has for them.
std::map<std::string, std::string> claim_names(const json::object& spec,
                                               const json::object* status) {
  std::map<std::string, std::string> names;
  if (const auto* claims = find_array(spec, "resourceClaims")) {
    for (const json::value& value : *claims) {
      const auto* one = value.if_object();
      if (one == nullptr || find_text(*one, "resourceClaimName").empty()) continue;
      names[std::string(find_text(*one, "name"))] = find_text(*one, "resourceClaimName");
    }
  }
  const auto* made = status == nullptr ? nullptr : find_array(*status, "resourceClaimStatuses");
  if (made == nullptr) return names;
  for (const json::value& value : *made) {
    const auto* one = value.if_object();
    if (one == nullptr || find_text(*one, "resourceClaimName").empty()) continue;
    names[std::string(find_text(*one, "name"))] = find_text(*one, "resourceClaimName");
  }
  return names;
}

}  // namespace

Result<Claim> read_claim(const json::object& object, std::string_view driver) {
  Claim claim{.id = {std::string(meta_text(object, "namespace")),
                     std::string(meta_text(object, "name")), std::string(meta_text(object, "uid"))},
              .pods = {},
              .devices = {}};
  if (auto read = read_allocation(object, driver, claim); !read) {
    return fail(read.error().code, "claim {}: {}", quote(claim.id.space + "/" + claim.id.name),
                read.error().message);
  }
  return claim;
}

std::map<std::string, std::vector<ClaimUse>> claims_of(const json::object& pod) {
  std::map<std::string, std::vector<ClaimUse>> all;
  const auto* spec = find_object(pod, "spec");
  if (spec == nullptr) return all;
  const auto names = claim_names(*spec, find_object(pod, "status"));
  for (const std::string_view list : {"initContainers", "containers"}) {
    const auto* containers = find_array(*spec, list);
    if (containers == nullptr) continue;
    for (const json::value& value : *containers) {
      const auto* container = value.if_object();
      const auto* resources = container == nullptr ? nullptr : find_object(*container, "resources");
      const auto* claims = resources == nullptr ? nullptr : find_array(*resources, "claims");
      if (claims == nullptr) continue;
      for (const json::value& named : *claims) {
        const auto* use = named.if_object();
        const auto name =
            use == nullptr ? names.end() : names.find(std::string(find_text(*use, "name")));
        if (name == names.end()) continue;
        all[std::string(find_text(*container, "name"))].push_back(
            {name->second, std::string(find_text(*use, "request"))});
      }
    }
  }
  return all;
}

}  // namespace aliquot::kube
