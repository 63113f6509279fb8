#include "kube/model/pod.hpp"

#include <boost/json.hpp>

#include "base/text.hpp"
#include "kube/model/json_read.hpp"
#include "kube/model/quantity.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMilli = 1'000;

bool means_gpus(std::string_view resource, const Names& names) {
  if (resource.starts_with(names.domain + "/")) return true;
  return resource == kNvidiaGpu || resource == kGpushareMem || resource == kGpushareCount;
}

// `cpu` or `memory` of a list of resources; zero where it says nothing.
Result<std::int64_t> read_amount(const json::object* resources, std::string_view name,
                                 std::int64_t denominator) {
  const json::value* found = resources == nullptr ? nullptr : find_value(*resources, name);
  if (found == nullptr) return 0;
  return read_quantity(*found, denominator);
}

Result<Container> read_container(const json::value& value, bool init, const Names& names) {
  const json::object* object = value.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "a container is no object");
  Container container;
  container.name = find_text(*object, "name");
  if (container.name.empty()) {
    return fail(Error::Code::invalid_argument, "a container has no name");
  }
  if (init) {
    container.role = find_text(*object, "restartPolicy") == "Always" ? Role::sidecar : Role::init;
  }
  const json::object* resources = find_object(*object, "resources");
  if (resources == nullptr) return container;
  const json::object* limits = find_object(*resources, "limits");
  const json::object* requests = find_object(*resources, "requests");
  // The API server writes requests where only limits were given.
  container.cpus = CpuMilli(TRY(read_amount(requests, "cpu", kMilli)));
  container.memory = Bytes(TRY(read_amount(requests, "memory", 1)));
  if (limits == nullptr) return container;
  for (const auto& entry : *limits) {
    const std::string_view name(entry.key().data(), entry.key().size());
    if (!means_gpus(name, names)) continue;
    const std::int64_t amount = TRY(read_quantity(entry.value(), 1));
    if (amount > 0) container.gpu_limits.emplace(name, amount);
  }
  return container;
}

Result<void> read_containers(const json::object& spec, std::string_view key, bool init,
                             const Names& names, std::vector<Container>& out) {
  const json::array* list = find_array(spec, key);
  if (list == nullptr) return {};
  for (const json::value& value : *list) out.push_back(TRY(read_container(value, init, names)));
  return {};
}

Result<void> read_into(const json::object& object, const Names& names, Pod& pod) {
  const json::object* metadata = find_object(object, "metadata");
  if (metadata == nullptr) return fail(Error::Code::invalid_argument, "it has no metadata");
  pod.id.space = find_text(*metadata, "namespace");
  pod.id.name = find_text(*metadata, "name");
  pod.id.uid = find_text(*metadata, "uid");
  pod.resource_version = find_text(*metadata, "resourceVersion");
  if (pod.id.name.empty()) return fail(Error::Code::invalid_argument, "it has no name");
  if (pod.id.uid.empty()) return fail(Error::Code::invalid_argument, "it has no uid");
  pod.terminating = !find_text(*metadata, "deletionTimestamp").empty();
  if (const json::object* all = find_object(*metadata, "annotations")) {
    for (const auto& entry : *all) {
      const std::string_view name(entry.key().data(), entry.key().size());
      if (!name.starts_with(names.domain + "/") && !name.starts_with(kGpusharePrefix)) continue;
      if (const auto* text = entry.value().if_string()) {
        pod.annotations.emplace(name, std::string_view(text->data(), text->size()));
      }
    }
  }
  if (const json::object* status = find_object(object, "status")) {
    pod.phase = find_text(*status, "phase");
  }
  const json::object* spec = find_object(object, "spec");
  if (spec == nullptr) return fail(Error::Code::invalid_argument, "it has no spec");
  pod.node = find_text(*spec, "nodeName");
  if (const json::object* overhead = find_object(*spec, "overhead")) {
    pod.overhead_cpus = CpuMilli(TRY(read_amount(overhead, "cpu", kMilli)));
    pod.overhead_memory = Bytes(TRY(read_amount(overhead, "memory", 1)));
  }
  TRY(read_containers(*spec, "initContainers", true, names, pod.containers));
  return read_containers(*spec, "containers", false, names, pod.containers);
}

}  // namespace

Result<Pod> read_pod(const json::value& value, const Names& names) {
  const json::object* object = value.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, "a pod is no object");
  Pod pod;
  if (auto read = read_into(*object, names, pod); !read) {
    return fail(read.error().code, "pod {}: {}", quote(pod.id.space + "/" + pod.id.name),
                read.error().message);
  }
  return pod;
}

}  // namespace aliquot::kube
