// kube-scheduler's extender: which nodes can hold a pod's GPUs (filter), which of them is best
// (prioritize), and binding it there with GPUs of its own (bind). Each takes the text that
// kube-scheduler posts and gives the text it is answered. The state is ClusterState's; this is
// where it meets the API server.
//
// A bind is decided at once, and counts from then on. It is written to the pod, then the pod is
// bound; where either fails, all is undone. Where nobody can say whether it failed the grant stays
// on the pod, counts for a while, and is found again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "kube/api/api.hpp"
#include "kube/model/grant_annotation.hpp"
#include "kube/scheduler/binding.hpp"
#include "kube/scheduler/cluster_state.hpp"

namespace aliquot::kube {

class Extender {
 public:
  using Answer = std::function<void(std::string)>;

  // All of them outlive it. Answers that come after its end are dropped.
  Extender(ClusterState& state, Api& api, const SealKey& key, const Clock& clock,
           ExtenderHooks hooks);
  Extender(const Extender&) = delete;
  Extender& operator=(const Extender&) = delete;
  ~Extender();

  std::string filter(std::string_view body);
  std::string prioritize(std::string_view body);
  // Answered once, perhaps at once.
  void bind(std::string_view body, Answer answer);

  [[nodiscard]] const ExtenderCounts& counts() const;

 private:
  std::shared_ptr<BindingHost> host_;
};

}  // namespace aliquot::kube
