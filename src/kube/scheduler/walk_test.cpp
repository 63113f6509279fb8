// Random histories of a cluster: pods come, are placed, end and vanish; nodes and GPUs fail; the
// API server fails, is slow or loses answers; events come late; the scheduler is restarted. Checked
// against what the API server says at last.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <spdlog/spdlog.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "kube/api/fake_api.hpp"
#include "kube/model/testing.hpp"
#include "kube/scheduler/extender.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

constexpr int kNodes = 3;
constexpr int kGpus = 2;

// One step: numbers that are read as choices, small ones first.
using WalkStep = std::array<std::uint16_t, 8>;

class Walk {
 public:
  Walk() {
    clock_.set_wall(WallTime(1'700'000'000'000));
    for (int i = 0; i < kNodes; ++i) put_node(i);
    start();
  }

  void step(const WalkStep& dice) {
    dice_ = dice;
    next_ = 0;
    switch (roll(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        create();
        break;
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        schedule();
        break;
      case 9:
        remove();
        break;
      case 10:
        finish();
        break;
      case 11:
        fault();
        break;
      case 12:
        change_node();
        break;
      case 13:
        api_.release();
        break;
      case 14:
        restart();
        break;
      default:
        meddle();
    }
    run();
    // Often not at once.
    if (roll(3) != 0) deliver();
    check_truth();
  }

  // All is heard of, and what nobody bound has run out.
  void end() {
    api_.clear_plans();
    api_.release();
    run();
    deliver();
    clock_.advance(minutes(6));
    state_->expire();
    check_truth();
    check_state();
    // Built from nothing it is the same.
    const auto kept = state_->picture();
    restart();
    RC_ASSERT(state_->picture() == kept);
    check_state();
    for (const auto& [path, object] : api_.list("/api/v1/pods")) api_.remove(path);
    deliver();
    for (const auto& [name, gpus] : state_->picture()) {
      for (const auto& [id, gpu] : gpus) {
        RC_ASSERT(gpu.memory_free == gpu.memory);
        RC_ASSERT(gpu.pods == 0U);
      }
    }
    RC_ASSERT(state_->counts().pods == 0U);
  }

 private:
  std::uint32_t roll(std::uint32_t sides) { return dice_[next_++ % dice_.size()] % sides; }

  static std::string node_name(int i) { return "n" + std::to_string(i); }
  static std::string node_path(int i) { return object_path("api/v1", "", "nodes", node_name(i)); }
  static NodeGpus gpus_of(int i) {
    return test::node_gpus(node_name(i), std::vector<Bytes>(kGpus, gib(8 + 4 * i)));
  }
  void put_node(int i) { api_.put(node_path(i), test::node_object(node_name(i), gpus_of(i))); }

  void start() {
    state_ = ClusterState::create({.policy = "best-fit"}, key_, clock_).value();
    extender_ = std::make_unique<Extender>(*state_, api_, key_, clock_, ExtenderHooks());
    heard_.clear();
    deliver();
  }
  void restart() {
    // What is on its way arrives before anybody else decides.
    extender_.reset();
    api_.release();
    run();
    start();
  }
  void run() {
    context_.restart();
    context_.poll();
  }

  // Every change since the last time, as a reflector tells it.
  void deliver() {
    std::map<std::string, json::object> all = api_.list("/api/v1/pods");
    for (auto& [path, object] : api_.list("/api/v1/nodes")) all.emplace(path, object);
    for (auto at = heard_.begin(); at != heard_.end();) {
      const auto found = all.find(at->first);
      const bool same = found != all.end() && meta_text(found->second, "uid") == at->second.first;
      if (same) {
        ++at;
        continue;
      }
      if (at->first.find("/nodes/") != std::string::npos) {
        state_->lose_node(at->first.substr(at->first.rfind('/') + 1));
      } else {
        state_->lose_pod(at->second.first);
      }
      at = heard_.erase(at);
    }
    for (const auto& [path, object] : all) {
      const std::pair<std::string, std::string> now{meta_text(object, "uid"),
                                                    meta_text(object, "resourceVersion")};
      const auto found = heard_.find(path);
      if (found != heard_.end() && found->second == now) continue;
      heard_[path] = now;
      if (path.find("/nodes/") != std::string::npos) {
        state_->see_node(read_node(json::value(object), Names()).value());
      } else {
        state_->see_pod(read_pod(json::value(object), Names()).value());
      }
    }
  }

  void create() {
    std::vector<test::ContainerSpec> containers;
    if (roll(4) == 0) {
      const Role role = roll(2) == 0 ? Role::init : Role::sidecar;
      containers.push_back(test::share(1 + static_cast<int>(roll(6)), "i", role));
    }
    const int count = 1 + static_cast<int>(roll(3)) / 2;
    for (int i = 0; i < count; ++i) {
      const std::string name = "c" + std::to_string(i);
      if (roll(4) == 0) {
        containers.push_back(test::whole(1 + static_cast<int>(roll(2)), name));
      } else {
        containers.push_back(test::share(1 + static_cast<int>(roll(9)), name));
      }
    }
    const std::string name = "p" + std::to_string(last_pod_++);
    api_.put(object_path("api/v1", "ns", "pods", name), test::pod_object(name, containers));
  }

  std::optional<std::pair<std::string, json::object>> some_pod() {
    auto all = api_.list("/api/v1/pods");
    if (all.empty()) return std::nullopt;
    return *std::next(all.begin(),
                      static_cast<std::ptrdiff_t>(roll(static_cast<std::uint32_t>(all.size()))));
  }

  // As kube-scheduler does it.
  void schedule() {
    const auto found = some_pod();
    if (!found) return;
    const json::object& pod = found->second;
    if (!find_text(pod.at("spec").as_object(), "nodeName").empty()) return;
    json::array names;
    for (int i = 0; i < kNodes; ++i) names.emplace_back(node_name(i));
    const auto filtered =
        json::parse(
            extender_->filter(json::serialize(json::object{{"Pod", pod}, {"NodeNames", names}})))
            .as_object();
    if (filtered.at("Error") == "it is being bound already") return;
    RC_ASSERT(filtered.at("Error") == "");
    const json::array& fitting = filtered.at("NodeNames").as_array();
    RC_ASSERT(fitting.size() + filtered.at("FailedNodes").as_object().size() == kNodes);
    // Now and then one that does not fit is insisted upon.
    const bool stubborn = roll(6) == 0;
    const json::array& choice = stubborn ? names : fitting;
    if (choice.empty()) return;
    const auto scores = json::parse(
        extender_->prioritize(json::serialize(json::object{{"Pod", pod}, {"NodeNames", choice}})));
    RC_ASSERT(scores.as_array().size() == choice.size());
    const std::string node(choice.at(roll(static_cast<std::uint32_t>(choice.size()))).as_string());
    extender_->bind(json::serialize(json::object{{"PodName", std::string(meta_text(pod, "name"))},
                                                 {"PodNamespace", "ns"},
                                                 {"PodUID", std::string(meta_text(pod, "uid"))},
                                                 {"Node", node}}),
                    [](const std::string& answer) { RC_ASSERT(json::parse(answer).is_object()); });
  }

  void remove() {
    if (const auto found = some_pod()) api_.remove(found->first);
  }
  void finish() {
    const auto found = some_pod();
    if (!found || find_text(found->second.at("spec").as_object(), "nodeName").empty()) return;
    api_.patch(found->first, {{"status", {{"phase", roll(2) == 0 ? "Succeeded" : "Failed"}}}});
  }

  void fault() {
    using Fault = FakeApi::Fault;
    const std::array faults = {Fault::status, Fault::cut,  Fault::lost_answer,
                               Fault::slow,   Fault::late, Fault::garbage};
    const std::array methods = {"PATCH", "POST", "GET"};
    const std::array statuses = {409, 500, 403, 429};
    api_.plan({.fault = faults.at(roll(faults.size())),
               .status = statuses.at(roll(statuses.size())),
               .method = methods.at(roll(methods.size()))});
  }

  void change_node() {
    const int i = static_cast<int>(roll(kNodes));
    if (api_.find(node_path(i)) == nullptr) return put_node(i);
    if (roll(4) == 0) {
      api_.remove(node_path(i));
      return;
    }
    NodeGpus gpus = gpus_of(i);
    for (NodeGpu& gpu : gpus.gpus) {
      if (roll(3) == 0) gpu.health = core::Health::lost;
      if (roll(3) == 0) gpu.foreign = gib(static_cast<std::int64_t>(roll(4)));
    }
    api_.patch(node_path(i),
               {{"metadata", {{"annotations", {{"aliquot.dev/gpus", write_node_gpus(gpus)}}}}}});
  }

  // What others may do: bind without asking us, and write annotations.
  void meddle() {
    const auto found = some_pod();
    if (!found) return;
    const bool bound = !find_text(found->second.at("spec").as_object(), "nodeName").empty();
    // A grant that we gave up is binding for whoever binds the pod after all: that is not tried.
    const bool granted_once =
        read_pod(json::value(found->second), Names())->annotation("aliquot.dev/grant") != nullptr;
    if (!bound && !granted_once && roll(2) == 0) {
      const std::string node = node_name(static_cast<int>(roll(kNodes)));
      api_.patch(found->first, {{"spec", {{"nodeName", node}}}});
      return;
    }
    const std::string forged =
        write_grant({node_name(0),
                     clock_.wall(),
                     {{"c0", {{test::gpu_id("n0", 0), {Bytes(0), Compute(0)}, false}}}}});
    api_.patch(found->first, {{"metadata", {{"annotations", {{"aliquot.dev/grant", forged}}}}}});
  }

  struct Sum {
    Bytes memory;
    int pods = 0;
    int wholes = 0;
    bool vague = false;  // a pod without a grant may be there
  };
  // Of what is bound, by what stands on the pods themselves.
  std::map<GpuId, Sum> truth() const {
    std::map<GpuId, Sum> sums;
    for (const auto& [path, object] : api_.list("/api/v1/pods")) {
      const Pod pod = read_pod(json::value(object), Names()).value();
      if (pod.node.empty() || pod.over()) continue;
      const auto request = read_request(pod, Names(), gib(1), false).value();
      const auto grant = granted(pod, Names(), key_);
      if (!grant || grant->node != pod.node) {
        for (int gpu = 0; gpu < kGpus; ++gpu) sums[test::gpu_id(pod.node, gpu)].vague = true;
        continue;
      }
      for (const auto& [gpu, held] : held_by(request, grant->containers)) {
        Sum& sum = sums[gpu];
        sum.memory += held.portion.memory;
        ++sum.pods;
        if (held.whole) ++sum.wholes;
      }
    }
    return sums;
  }

  void check_truth() const {
    const auto sums = truth();
    for (int i = 0; i < kNodes; ++i) {
      for (const NodeGpu& gpu : gpus_of(i).gpus) {
        const auto found = sums.find(gpu.uuid);
        if (found == sums.end()) continue;
        RC_ASSERT(found->second.memory <= gpu.memory);
        RC_ASSERT(found->second.wholes == 0 || found->second.pods == 1);
      }
    }
  }

  void check_state() {
    const auto sums = truth();
    for (const auto& [name, gpus] : state_->picture()) {
      for (const auto& [id, gpu] : gpus) {
        const auto found = sums.find(id);
        const Sum sum = found == sums.end() ? Sum() : found->second;
        RC_ASSERT(gpu.whole == (sum.wholes > 0));
        if (sum.vague) {
          RC_ASSERT(gpu.memory_free <= gpu.memory - sum.memory);
        } else {
          RC_ASSERT(gpu.memory_free == gpu.memory - sum.memory);
          RC_ASSERT(gpu.pods == static_cast<std::uint32_t>(sum.pods));
        }
      }
    }
    RC_ASSERT(state_->counts().assumed == 0U);
  }

  ManualClock clock_;
  boost::asio::io_context context_;
  FakeApi api_{context_};
  const SealKey key_ = test::key();
  std::unique_ptr<ClusterState> state_;
  std::unique_ptr<Extender> extender_;
  std::map<std::string, std::pair<std::string, std::string>> heard_;  // uid and version, by path
  int last_pod_ = 0;
  WalkStep dice_ = {};
  std::size_t next_ = 0;
};

RC_GTEST_PROP(SchedulerWalk, KeepsEveryGpuWithinItsMemoryWhateverFails, ()) {
  const auto number = rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint16_t>(0, 65'520));
  const auto steps = *rc::gen::scale(
      1.5, rc::gen::container<std::vector<WalkStep>>(rc::gen::container<WalkStep>(number)));
  spdlog::set_level(spdlog::level::off);
  Walk walk;
  for (const WalkStep& step : steps) walk.step(step);
  walk.end();
  spdlog::set_level(spdlog::level::info);
}

}  // namespace
}  // namespace aliquot::kube
