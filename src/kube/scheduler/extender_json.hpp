// What kube-scheduler says to an extender and hears from it (k8s.io/kube-scheduler/extender/v1), as
// values. Versions differ in how they spell the keys: case does not count, as in Go.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kube/model/pod.hpp"

namespace aliquot::kube {

struct FilterArgs {
  Pod pod;
  std::vector<std::string_view> nodes;  // names, in `text`
  bool by_name = true;                  // else whole nodes came, and are to go back
  boost::json::value text;              // what they were read from
};
// The same for filter and prioritize.
Result<FilterArgs> read_filter_args(std::string_view body, const Names& names);

struct FailedNode {
  std::string_view node;
  std::string why;
  bool curable = false;  // if other pods went
};
std::string write_filter_result(const FilterArgs& args,
                                const std::vector<std::string_view>& fitting,
                                const std::vector<FailedNode>& failed);
std::string write_filter_error(std::string_view error);

struct HostPriority {
  std::string_view host;
  std::int64_t score = 0;
};
inline constexpr std::int64_t kMostPriority = 10;
std::string write_priorities(const std::vector<HostPriority>& priorities);

struct BindArgs {
  PodName pod;
  std::string node;
};
Result<BindArgs> read_bind_args(std::string_view body);
// Empty: it is bound.
std::string write_bind_result(std::string_view error);

}  // namespace aliquot::kube
