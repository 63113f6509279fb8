// For the tests of kube: pods and nodes as the API server shows them, in few words.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <string>
#include <vector>

#include "kube/model/grant_annotation.hpp"
#include "kube/model/node_gpus.hpp"
#include "kube/model/pod.hpp"

namespace aliquot::kube::test {

struct ContainerSpec {
  std::string name = "c";
  Role role = Role::app;
  std::map<std::string, std::string> limits = {};
  std::string cpus = "1";
};

inline ContainerSpec share(int units, std::string name = "c", Role role = Role::app) {
  return {std::move(name), role, {{"aliquot.dev/gpu-mem", std::to_string(units)}}};
}
inline ContainerSpec whole(int count, std::string name = "c", Role role = Role::app) {
  return {std::move(name), role, {{"aliquot.dev/gpu", std::to_string(count)}}};
}

inline boost::json::object pod_object(const std::string& name,
                                      const std::vector<ContainerSpec>& containers) {
  namespace json = boost::json;
  json::array inits;
  json::array apps;
  for (const ContainerSpec& spec : containers) {
    json::object limits;
    for (const auto& [resource, amount] : spec.limits) limits[resource] = amount;
    json::object requests = limits;
    requests["cpu"] = spec.cpus;
    json::object container{{"name", spec.name},
                           {"resources", json::object{{"limits", std::move(limits)},
                                                      {"requests", std::move(requests)}}}};
    if (spec.role == Role::sidecar) container["restartPolicy"] = "Always";
    (spec.role == Role::app ? apps : inits).push_back(std::move(container));
  }
  json::object spec{{"containers", std::move(apps)}};
  if (!inits.empty()) spec["initContainers"] = std::move(inits);
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", json::object{{"namespace", "ns"}, {"name", name}, {"uid", "uid-" + name}}},
          {"spec", std::move(spec)},
          {"status", json::object{{"phase", "Pending"}}}};
}

inline Pod pod(const std::string& name, const std::vector<ContainerSpec>& containers) {
  return read_pod(boost::json::value(pod_object(name, containers)), Names()).value();
}

inline GpuId gpu_id(const std::string& node, int index) {
  return GpuId("GPU-" + node + "-" + std::to_string(index));
}

inline NodeGpus node_gpus(const std::string& node, const std::vector<Bytes>& memories) {
  NodeGpus gpus;
  for (int i = 0; i < static_cast<int>(memories.size()); ++i) {
    gpus.gpus.push_back({.uuid = gpu_id(node, i),
                         .index = i,
                         .model = "h100",
                         .memory = memories[static_cast<std::size_t>(i)],
                         .foreign = Bytes(0)});
  }
  return gpus;
}

inline boost::json::object node_object(const std::string& name, const NodeGpus& gpus,
                                       const std::string& cpus = "64") {
  namespace json = boost::json;
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata", json::object{{"name", name},
                                    {"uid", "uid-" + name},
                                    {"annotations",
                                     json::object{{"aliquot.dev/gpus", write_node_gpus(gpus)}}}}},
          {"status", json::object{{"allocatable", json::object{{"cpu", cpus}}}}}};
}

inline SealKey key() { return SealKey::parse("a key of the tests, long enough").value(); }

}  // namespace aliquot::kube::test
