// Any order of what can happen on a node, against a model that says who holds what.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kube/node/fake_kubelet.hpp"

namespace aliquot::kube {
namespace {

struct ModelPod {
  NodePodPtr pod;
  std::vector<Ask> asks;
  bool admitted = false;
  std::set<std::string> started = {};
};

class Model {
 public:
  void run(int steps) {
    node_.pods().set_synced();
    for (int i = 0; i < steps; ++i) {
      step();
      check();
    }
    settle();
  }

 private:
  // As the scheduler sees it: by the annotations of pods that are there, or of those alone that the
  // kubelet has admitted.
  std::map<GpuId, std::int64_t> booked(bool admitted_only = false) {
    std::map<GpuId, std::int64_t> units;
    for (const auto& pod : node_.pods().all()) {
      if (!pod->grant || pod->pod.over()) continue;
      const bool admitted = std::ranges::any_of(pods_, [&](const ModelPod& one) {
        return one.admitted && one.pod->pod.id.uid == pod->pod.id.uid;
      });
      if (admitted_only && !admitted) continue;
      for (const auto& [name, granted] : pod->grant->containers) {
        for (const auto& gpu : granted) {
          units[gpu.gpu] += gpu.whole ? node_.units() : gpu.portion.memory / gib(1);
        }
      }
    }
    return units;
  }

  void place() {
    const auto count = *rc::gen::inRange(1, 4);
    std::vector<Ask> asks;
    std::map<std::string, std::vector<int>> grants;
    auto used = booked();
    for (int i = 0; i < count; ++i) {
      Ask ask{.name = fmt::format("c{}", i)};
      const bool whole = *rc::gen::inRange(0, 6) == 0;
      ask.units = whole ? 0 : *rc::gen::element(1, 2, 2, 3);
      ask.whole = whole ? 1 : 0;
      const std::int64_t needs = whole ? node_.units() : ask.units;
      std::vector<int> fitting;
      for (int gpu = 0; gpu < static_cast<int>(node_.gpus().size()); ++gpu) {
        if (used[GpuId(fake_uuid(gpu))] + needs <= node_.units()) fitting.push_back(gpu);
      }
      if (fitting.empty()) return;
      const int gpu = *rc::gen::elementOf(fitting);
      used[GpuId(fake_uuid(gpu))] += needs;
      grants[ask.name] = {gpu};
      asks.push_back(std::move(ask));
    }
    // Names come again, as a stateful set's do.
    std::string name;
    for (int i = 0; name.empty(); ++i) {
      const auto candidate = fmt::format("p{}", i);
      if (std::ranges::none_of(
              pods_, [&](const ModelPod& one) { return one.pod->pod.id.name == candidate; })) {
        name = candidate;
      }
    }
    auto pod = node_.add_pod(name, asks, grants);
    pods_.push_back({.pod = std::move(pod), .asks = std::move(asks)});
  }

  void step() {
    const auto what = *rc::gen::inRange(0, 20);
    if (what < 4 || pods_.empty()) return place();
    ModelPod& one = pods_[*rc::gen::inRange<std::size_t>(0, pods_.size())];
    if (what < 9) {
      if (!one.admitted) admit(one);
    } else if (what < 13) {
      if (one.admitted) start(one, (*rc::gen::elementOf(one.asks)).name);
    } else if (what < 15) {
      node_.plugin().look();
    } else if (what < 16) {
      node_.plugin().look();
      node_.correct();
    } else if (what < 17) {
      node_.kill();
    } else if (what < 18) {
      // The kubelet starts anew, and lists nobody for a moment.
      const auto listed = std::exchange(node_.kubelet().listed, {});
      node_.plugin().look();
      node_.kubelet().listed = listed;
    } else {
      remove(one);
    }
  }

  // Pods are never turned away by us: what the scheduler has placed there is room for, once what is
  // gone has been noticed.
  void admit(ModelPod& one) {
    if (!node_.admit(one.pod)) {
      one.pod = node_.make_again(one.pod);
      RC_ASSERT(node_.admit(one.pod));
    }
    one.admitted = true;
    for (const Ask& ask : one.asks) {
      std::set<GpuId> gpus;
      for (const std::string& id : node_.ids(one.pod, ask.name)) {
        gpus.insert(parse_device_id(id)->first);
      }
      RC_ASSERT(gpus.size() == 1U);  // no mixture
    }
  }

  void start(ModelPod& one, const std::string& container) {
    auto started = node_.start_container(one.pod, container);
    if (!started) {
      RC_ASSERT(started.error().code == Error::Code::unavailable);
      node_.plugin().look();  // what is over is noticed; the kubelet tries again
      started = node_.start_container(one.pod, container);
    }
    RC_ASSERT(started.has_value());
    one.started.insert(container);
  }

  void remove(ModelPod& one) {
    const bool forced = *rc::gen::arbitrary<bool>();
    if (forced) node_.pods().remove(one.pod->pod.id);
    if (forced) node_.plugin().look();
    node_.forget(one.pod);
    node_.pods().remove(one.pod->pod.id);
    if (*rc::gen::arbitrary<bool>()) node_.plugin().look();
    const auto uid = one.pod->pod.id.uid;
    std::erase_if(pods_, [&](const ModelPod& other) { return other.pod->pod.id.uid == uid; });
  }

  void check() {
    std::set<std::string> ids;
    std::map<GpuId, Bytes> memory;
    std::map<GpuId, int> whole;
    std::map<GpuId, int> holders;
    for (const Allocation& one : node_.allocations().list()) {
      for (const std::string& id : one.ids) RC_ASSERT(ids.insert(id).second);
      for (const core::GrantedGpu& gpu : one.grant.gpus) {
        memory[gpu.gpu] += gpu.portion.memory;
        whole[gpu.gpu] += gpu.whole ? 1 : 0;
        ++holders[gpu.gpu];
      }
    }
    for (const gpu::Device& gpu : node_.gpus()) {
      RC_ASSERT(memory[gpu.gpu.id] <= gpu.gpu.memory);
      RC_ASSERT(whole[gpu.gpu.id] == 0 || holders[gpu.gpu.id] == 1);
    }
    // Who was started holds what the kubelet gave it.
    for (const ModelPod& one : pods_) {
      for (const std::string& container : one.started) {
        const auto held =
            node_.allocations().find(HolderId("pod:" + one.pod->pod.id.uid + "/" + container));
        RC_ASSERT(held.has_value());
        RC_ASSERT(held->ids == node_.ids(one.pod, container));
        RC_ASSERT(node_.enforcer().of(held->grant, true).has_value());
      }
    }
  }

  // Everything gets its time: annotations say what is, and nothing is left of what is gone.
  void settle() {
    for (int i = 0; i < 4; ++i) {
      node_.plugin().look();
      node_.correct();
    }
    node_.plugin().look();
    RC_ASSERT(node_.plugin().corrections().empty());
    std::set<std::string> expected;
    std::size_t folders = 0;
    for (const ModelPod& one : pods_) {
      for (const std::string& container : one.started) {
        expected.insert("pod:" + one.pod->pod.id.uid + "/" + container);
        ++folders;
      }
      if (!one.admitted) continue;
      for (const Ask& ask : one.asks) {
        const auto says = node_.says(one.pod).at(ask.name);
        RC_ASSERT(says == std::vector<GpuId>{node_.gpu(one.pod, ask.name)});
      }
    }
    RC_ASSERT(node_.holders() == expected);
    RC_ASSERT(node_.folders("pods") == folders);
    // What a pod is to have that has not come yet may be another's by now: it is put right when it
    // comes.
    for (const auto& [gpu, units] : booked(true)) RC_ASSERT(units <= node_.units());
    while (!pods_.empty()) remove(pods_.front());
    node_.plugin().look();
    RC_ASSERT(node_.holders().empty());
    RC_ASSERT(node_.folders("pods") == 0U);
    RC_ASSERT(node_.folders("grants") == 0U);
  }

  FakeNode node_;
  std::vector<ModelPod> pods_;
};

RC_GTEST_PROP(PluginProperty, HoldsWhatTheKubeletGave, ()) {
  Model model;
  model.run(*rc::gen::inRange(1, 60));
}

}  // namespace
}  // namespace aliquot::kube
