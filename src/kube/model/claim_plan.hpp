// Limits of a pod's containers as claims: which ResourceClaimTemplates it needs, and the patch that
// has its containers name them instead. So one pod spec works on clusters with and without DRA.
//
// A template's name says what it asks for, so that equal containers of a namespace have the same
// one, whoever made it. Pure.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "kube/model/names.hpp"

namespace aliquot::kube {

struct ClaimTemplate {
  std::string name;
  std::string device_class;
  std::int64_t count = 1;            // whole GPUs
  std::optional<Bytes> memory = {};  // of a share
  std::int64_t compute = 0;          // percent; 0: in proportion
  friend auto operator<=>(const ClaimTemplate&, const ClaimTemplate&) = default;
};

struct ClaimPlan {
  std::vector<ClaimTemplate> templates;  // each once
  boost::json::array patch;              // of the pod, RFC 6902
};

// Nothing: the pod stays as it is, for it asks for no GPUs of ours or names claims already. An
// error says which container asks for what cannot be. The pod need not have a name yet.
Result<std::optional<ClaimPlan>> plan_claims(const boost::json::object& pod, const Names& names,
                                             Bytes unit);

boost::json::object write_template(const ClaimTemplate& wanted, const std::string& space);
// Whether an object asks for just that.
bool is_template(const boost::json::object& object, const ClaimTemplate& wanted);

}  // namespace aliquot::kube
