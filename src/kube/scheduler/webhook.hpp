// The admission webhook: pods that ask for GPUs by limits name claims instead, where the cluster
// hands out GPUs as claims. It makes the templates that these come from, in the pod's namespace; a
// dry run makes none. Whatever the API server asks, there is an answer.
//
// On the loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "kube/api/api.hpp"
#include "kube/model/names.hpp"

namespace aliquot::kube {

class Webhook {
 public:
  // The body of an AdmissionReview.
  using Answer = std::function<void(std::string)>;

  // `api` outlives it, and what it was asked.
  Webhook(Api& api, Names names, Bytes unit);

  // Answered once, perhaps at once.
  void admit(std::string_view body, Answer answer);

 private:
  Api& api_;
  const Names names_;
  const Bytes unit_;
};

}  // namespace aliquot::kube
