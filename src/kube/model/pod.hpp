// A pod as the API server shows it, of which only what matters to GPUs is kept: who it is, where it
// is bound, how far it has come, what its containers ask for, and our annotations.
//
// What its resources mean is pod_request.hpp's to say, what its annotations mean
// grant_annotation.hpp's.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "kube/model/names.hpp"

namespace aliquot::kube {

// When a container runs: `init` ones one after another and before the others; a sidecar (an init
// container that is always restarted) from its turn on to the end.
enum class Role : std::uint8_t { init, sidecar, app };

struct Container {
  std::string name;
  Role role = Role::app;
  CpuMilli cpus;  // requests, which the scheduler counts
  Bytes memory;
  // Limits of the resources that mean GPUs, by name; none is zero.
  std::map<std::string, std::int64_t> gpu_limits = {};
  friend bool operator==(const Container&, const Container&) = default;
};

struct PodName {
  std::string space;  // its namespace
  std::string name;
  std::string uid;
  friend auto operator<=>(const PodName&, const PodName&) = default;
};

struct Pod {
  PodName id;
  std::string resource_version;
  std::string node;          // where it is bound; empty: nowhere yet
  std::string phase;         // Pending, Running, Succeeded, Failed, Unknown
  bool terminating = false;  // told to end, and perhaps still running
  CpuMilli overhead_cpus;    // of its runtime class
  Bytes overhead_memory;
  std::vector<Container> containers;               // init containers first, each in its order
  std::map<std::string, std::string> annotations;  // ours and gpushare's

  // It has ended for good and holds nothing.
  [[nodiscard]] bool over() const { return phase == "Succeeded" || phase == "Failed"; }
  [[nodiscard]] const std::string* annotation(const std::string& name) const {
    const auto found = annotations.find(name);
    return found == annotations.end() ? nullptr : &found->second;
  }
  friend bool operator==(const Pod&, const Pod&) = default;
};

// An error says what is wrong with it; it names the pod where there is a name.
Result<Pod> read_pod(const boost::json::value& value, const Names& names);

}  // namespace aliquot::kube
