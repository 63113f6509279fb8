#include "kube/model/claim_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "kube/model/claim.hpp"
#include "kube/model/json_read.hpp"
#include "kube/model/pod_request.hpp"
#include "kube/model/quantity.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr const char* kRequest = "gpu";
constexpr std::string_view kInit = "initContainers";
constexpr std::string_view kApp = "containers";

bool names_claims(const json::object& spec) {
  const auto* claims = find_array(spec, "resourceClaims");
  return claims != nullptr && !claims->empty();
}

ClaimTemplate template_for(const ContainerNeed& need, const Names& names) {
  if (need.whole()) {
    return {.name = fmt::format("aliquot-gpu-{}", need.gpus.count),
            .device_class = "gpu." + names.domain,
            .count = need.gpus.count};
  }
  const auto& amounts = std::get<core::Amounts>(need.gpus.what);
  const Bytes memory = mib(1) * ((*amounts.memory + mib(1) - Bytes(1)) / mib(1));
  ClaimTemplate made{
      .name = {}, .device_class = "gpu-share." + names.domain, .count = 1, .memory = memory};
  if (amounts.compute) made.compute = amounts.compute->value() / (kWholeGpu.value() / 100);
  made.name = fmt::format("aliquot-gpu-mem-{}mi", memory / mib(1));
  if (made.compute > 0) made.name += fmt::format("-share-{}", made.compute);
  return made;
}

// As a step of a JSON pointer.
std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

json::object change(const char* op, const std::string& path) {
  return {{"op", op}, {"path", path}};
}

// Its limits go, and it names the claim.
void patch_container(const json::object& container, const std::string& path, const Names& names,
                     const std::string& claim, json::array& patch) {
  const auto* resources = find_object(container, "resources");
  if (resources == nullptr) return;  // then it asks for nothing
  for (const std::string_view list : {"limits", "requests"}) {
    const auto* amounts = find_object(*resources, list);
    if (amounts == nullptr) continue;
    for (const std::string& name : {names.gpu_mem(), names.gpu_share(), names.gpu()}) {
      if (!amounts->contains(name)) continue;
      patch.push_back(
          change("remove", fmt::format("{}/resources/{}/{}", path, list, escaped(name))));
    }
  }
  patch.push_back(change("add", path + "/resources/claims"));
  patch.back().as_object()["value"] = json::array{json::object{{"name", claim}}};
}

// A copy with the name that the API server gives later.
json::object named(const json::object& pod) {
  json::object copy = pod;
  json::object metadata;
  if (const auto* own = find_object(pod, "metadata")) metadata = *own;
  for (const char* key : {"name", "uid"}) {
    if (find_text(metadata, key).empty()) metadata[key] = "new";
  }
  copy["metadata"] = std::move(metadata);
  return copy;
}

}  // namespace

Result<std::optional<ClaimPlan>> plan_claims(const json::object& pod, const Names& names,
                                             Bytes unit) {
  const std::optional<ClaimPlan> nothing;
  const auto* spec = find_object(pod, "spec");
  if (spec == nullptr || names_claims(*spec)) return nothing;
  const Pod read = TRY(read_pod(json::value(named(pod)), names));
  const PodRequest request = TRY(read_request(read, names, unit, false));
  if (!request.asks() || request.gpushare) return nothing;

  ClaimPlan plan;
  std::map<std::string, std::string> claims;             // by container
  std::map<ClaimTemplate, std::string> free_beforehand;  // what init containers may use, too
  json::array named_claims;
  const auto add = [&](const ContainerNeed& need) {
    ClaimTemplate wanted = template_for(need, names);
    // Init containers are over before the others start, and before the next one does.
    const auto known = free_beforehand.find(wanted);
    if (need.role == Role::init && known != free_beforehand.end()) {
      claims[need.container] = known->second;
      return;
    }
    const std::string name = fmt::format("aliquot-{}", named_claims.size());
    named_claims.push_back(
        json::object{{"name", name}, {"resourceClaimTemplateName", wanted.name}});
    claims[need.container] = name;
    if (std::ranges::find(plan.templates, wanted) == plan.templates.end()) {
      plan.templates.push_back(wanted);
    }
    if (need.role != Role::sidecar) free_beforehand.emplace(std::move(wanted), name);
  };
  for (const bool init : {false, true}) {
    for (const ContainerNeed& need : request.needs) {
      if ((need.role == Role::init) == init) add(need);
    }
  }
  plan.patch.push_back(change("add", "/spec/resourceClaims"));
  plan.patch.back().as_object()["value"] = std::move(named_claims);
  for (const std::string_view list : {kInit, kApp}) {
    const auto* containers = find_array(*spec, list);
    for (std::size_t i = 0; containers != nullptr && i < containers->size(); ++i) {
      const auto* container = (*containers)[i].if_object();
      if (container == nullptr) continue;
      const auto claim = claims.find(std::string(find_text(*container, "name")));
      if (claim == claims.end()) continue;
      patch_container(*container, fmt::format("/spec/{}/{}", list, i), names, claim->second,
                      plan.patch);
    }
  }
  return std::optional(std::move(plan));
}

json::object write_template(const ClaimTemplate& wanted, const std::string& space) {
  json::object exactly{{"deviceClassName", wanted.device_class},
                       {"allocationMode", "ExactCount"},
                       {"count", wanted.count}};
  if (wanted.memory) {
    json::object requests{{kMemoryCapacity, fmt::format("{}Mi", *wanted.memory / mib(1))}};
    if (wanted.compute > 0) requests[kComputeCapacity] = std::to_string(wanted.compute);
    exactly["capacity"] = json::object{{"requests", std::move(requests)}};
  }
  json::object request{{"name", kRequest}, {"exactly", std::move(exactly)}};
  return {
      {"apiVersion", "resource.k8s.io/v1"},
      {"kind", "ResourceClaimTemplate"},
      {"metadata", json::object{{"name", wanted.name},
                                {"namespace", space},
                                {"labels", json::object{{"app.kubernetes.io/managed-by",
                                                         "aliquot-kube-scheduler"}}}}},
      {"spec",
       json::object{
           {"spec", json::object{{"devices",
                                  json::object{{"requests", json::array{std::move(request)}}}}}}}}};
}

bool is_template(const json::object& object, const ClaimTemplate& wanted) {
  const auto* outer = find_object(object, "spec");
  const auto* spec = outer == nullptr ? nullptr : find_object(*outer, "spec");
  const auto* devices = spec == nullptr ? nullptr : find_object(*spec, "devices");
  const auto* requests = devices == nullptr ? nullptr : find_array(*devices, "requests");
  if (requests == nullptr || requests->size() != 1 || devices->size() != 1) return false;
  const auto* request = requests->front().if_object();
  const auto* exactly = request == nullptr ? nullptr : find_object(*request, "exactly");
  if (exactly == nullptr || find_text(*request, "name") != kRequest) return false;
  // Nothing else that would ask for more, or for other devices.
  for (const auto& entry : *exactly) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (key != "deviceClassName" && key != "allocationMode" && key != "count" &&
        key != "capacity") {
      return false;
    }
  }
  const auto* capacity = find_object(*exactly, "capacity");
  const auto* amounts = capacity == nullptr ? nullptr : find_object(*capacity, "requests");
  const auto amount = [&](std::string_view name) -> std::int64_t {
    const auto* value = amounts == nullptr ? nullptr : find_value(*amounts, name);
    return value == nullptr ? 0 : read_quantity(*value, 1).value_or(-1);
  };
  const std::size_t said = (wanted.memory ? 1U : 0U) + (wanted.compute > 0 ? 1U : 0U);
  return find_text(*exactly, "deviceClassName") == wanted.device_class &&
         find_text(*exactly, "allocationMode") == "ExactCount" &&
         find_number(*exactly, "count") == wanted.count &&
         (amounts == nullptr ? 0 : amounts->size()) == said &&
         amount(kMemoryCapacity) == wanted.memory.value_or(Bytes(0)).value() &&
         amount(kComputeCapacity) == wanted.compute;
}

}  // namespace aliquot::kube
