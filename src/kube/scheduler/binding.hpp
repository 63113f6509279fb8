// One pod on its way to a node: decided, written to the pod, bound, each step after the API
// server's answer to the one before, and undone where a step fails. It keeps itself alive until it
// has answered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "kube/api/api.hpp"
#include "kube/model/grant_annotation.hpp"
#include "kube/scheduler/cluster_state.hpp"

namespace aliquot::kube {

struct ExtenderCounts {
  std::uint64_t filters = 0;
  std::uint64_t priorities = 0;
  std::uint64_t bound = 0;
  std::uint64_t bind_failures = 0;
  std::uint64_t binding = 0;    // under way
  std::uint64_t conflicts = 0;  // patches that came too late, and were tried again
};

struct ExtenderHooks {
  // Why nothing can be decided now; empty: it can. Reflectors that have not seen everything yet.
  std::function<std::string()> not_ready = {};
  // Why nothing may be bound by us now; empty: it may. Who is not the leader must not.
  std::function<std::string()> not_leading = {};
  // For people, about a pod: a word and a sentence.
  std::function<void(const PodName&, bool warning, std::string reason, std::string message)> tell =
      {};
};

// What all bindings share. What it refers to outlives it, or it is closed before.
struct BindingHost {
  ClusterState& state;
  Api& api;
  const SealKey& key;
  const Clock& clock;
  ExtenderHooks hooks;
  ExtenderCounts counts = {};
  bool closed = false;
};

class Binding final : public std::enable_shared_from_this<Binding> {
 public:
  // Empty: it is bound.
  using Answer = std::function<void(const std::string& error)>;

  static void start(std::shared_ptr<BindingHost> host, PodName pod, std::string node,
                    Answer answer);

  Binding(std::shared_ptr<BindingHost> host, PodName pod, std::string node, Answer answer);
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;
  ~Binding() = default;

 private:
  using Object = Result<boost::json::object>;
  using Next = void (Binding::*)(Object);

  void begin();
  void decide_new(Object answered);
  void decide();
  void write_grant();
  void grant_written(Object answered);
  void look_again(Object answered);
  void bind();
  void bound(Object answered);
  void find_out(Object answered);
  // Takes the grant off the pod again, then fails.
  void withdraw(std::string why);
  void withdrawn(Object answered);

  [[nodiscard]] std::string why_not(const KnownPod& pod) const;
  [[nodiscard]] std::string pod_path(std::string_view subresource = {}) const;
  void send(ApiRequest request, Next next);
  void get(Next next);
  void succeed();
  void fail_with(const std::string& why);
  void finish(const std::string& error);

  const std::shared_ptr<BindingHost> host_;
  const PodName pod_;
  const std::string node_;
  const Answer answer_;
  KnownPod known_ = {};
  Asked asked_ = {};
  PodGrant grant_ = {};
  bool written_ = false;  // the grant is on the pod, or may be
  int conflicts_ = 0;
  std::string why_ = {};  // it is being withdrawn
};

}  // namespace aliquot::kube
