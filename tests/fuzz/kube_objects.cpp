// Pods, nodes, grants and kube-scheduler's requests as anybody may write them: whatever is read
// never ends the program, and what is written is read back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kube/model/grant_annotation.hpp"
#include "kube/model/json_read.hpp"
#include "kube/model/node.hpp"
#include "kube/model/pod_request.hpp"
#include "kube/model/quantity.hpp"
#include "kube/scheduler/cluster_state.hpp"
#include "kube/scheduler/extender_json.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const kube::Names names;
  static_cast<void>(kube::parse_quantity(text, 1'000));
  static_cast<void>(kube::parse_device_id(text));
  static_cast<void>(kube::read_bind_args(text));
  if (const auto args = kube::read_filter_args(text, names)) {
    if (!kube::parse_json(kube::write_filter_result(*args, args->nodes, {}))) std::abort();
  }
  if (const auto gpus = kube::read_node_gpus(text)) {
    if (kube::read_node_gpus(kube::write_node_gpus(*gpus)) != *gpus) std::abort();
  }
  if (const auto grant = kube::read_grant(text)) {
    if (kube::read_grant(kube::write_grant(*grant)) != *grant) std::abort();
  }
  const auto value = kube::parse_json(text);
  if (!value) return 0;
  const ManualClock clock;
  static const auto key = kube::SealKey::parse("a key of the fuzzer, long enough").value();
  const auto state = kube::ClusterState::create({}, key, clock).value();
  if (auto node = kube::read_node(*value, names)) state->see_node(std::move(*node));
  if (auto pod = kube::read_pod(*value, names)) {
    // On a node of its own, which is the smallest that there can be.
    kube::NodeGpus gpus;
    gpus.gpus.push_back({GpuId("GPU-1"), 0, "m", gib(8), core::Health::ok, Bytes(0), ""});
    state->see_node({pod->node, kOneCpu, gib(1), gpus, ""});
    state->see_pod(*pod);
    pod->node.clear();
    if (const auto asked = state->ask(*pod)) {
      const std::string_view nodes[] = {"n"};
      static_cast<void>(state->check(*asked, nodes));
      static_cast<void>(state->rank(*asked, nodes));
    }
  }
  static_cast<void>(state->picture());
  return 0;
}
