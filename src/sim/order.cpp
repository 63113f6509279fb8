#include "sim/order.hpp"

#include <numeric>

#include "sim/go_random.hpp"
#include "sim/names.hpp"
#include "sim/random.hpp"
#include "sim/trace.hpp"

namespace aliquot::sim {
namespace {

Order draw_own(const Workload& workload, std::uint64_t seed, std::int64_t arrived) {
  Random random(seed);
  Order order;
  order.nodes.resize(workload.nodes.size());
  std::iota(order.nodes.begin(), order.nodes.end(), 0U);
  random.shuffle(order.nodes);
  const std::int64_t wanted = workload.gpus * kMilliPerGpu * arrived / 100;
  auto pods = workload.pods;
  random.shuffle(pods);
  std::int64_t milli = 0;
  for (std::size_t i = 0; milli < wanted; ++i) {
    const auto kind = i < pods.size() ? pods[i] : workload.pods[random.below(workload.pods.size())];
    order.arrivals.push_back(kind);
    milli += workload.kinds[kind].milli;
  }
  return order;
}

std::int64_t milli_of_one_gpu(const Workload::Kind& kind) {
  return kind.request.gpus ? kind.milli / kind.request.gpus->count : 0;
}

// The simulator draws a number for its log; shuffles the pods, sorted by name, as the lists are;
// takes some away or adds some; starts its scheduler, whose ten watches (pods, nodes, CSI nodes,
// volumes, claims, services, disruption budgets, three kinds of controllers) draw a time limit
// each; and puts a random number before the name of each node.
Order draw_published(const Workload& workload, std::uint64_t seed, std::int64_t arrived) {
  constexpr int kWatches = 10;
  GoRandom random(seed);
  random.skip();
  Order order{.nodes = {}, .arrivals = workload.pods};
  auto& pods = order.arrivals;
  random.shuffle(pods);

  const auto pick = [&random](const std::vector<std::uint32_t>& list) {
    return random.below(static_cast<std::uint32_t>(list.size()));
  };
  const std::int64_t wanted = workload.gpus * kMilliPerGpu * arrived / 100;
  std::int64_t milli = 0;
  for (const auto kind : pods) milli += workload.kinds[kind].milli;
  if (milli < wanted) {
    // The first pod that is too much, counting only one of its GPUs, is the end.
    auto kind = workload.pods[pick(workload.pods)];
    while (milli + milli_of_one_gpu(workload.kinds[kind]) <= wanted) {
      pods.push_back(kind);
      milli += workload.kinds[kind].milli;
      kind = workload.pods[pick(workload.pods)];
    }
  } else {
    while (milli > wanted) {
      const auto out = pods.begin() + pick(pods);
      milli -= workload.kinds[*out].milli;
      pods.erase(out);
    }
  }

  for (int watch = 0; watch < kWatches; ++watch) random.skip();
  const auto places = random.permutation(static_cast<std::uint32_t>(workload.nodes.size()));
  order.nodes.resize(places.size());
  for (std::uint32_t node = 0; node < places.size(); ++node) order.nodes[places[node]] = node;
  return order;
}

}  // namespace

std::string_view to_string(Draw draw) { return draw == Draw::own ? "own" : "published"; }

Result<Draw> parse_draw(std::string_view text) {
  for (const Draw draw : {Draw::own, Draw::published}) {
    if (text == to_string(draw)) return draw;
  }
  return tl::make_unexpected(unknown_name("order", text, {"own", "published"}));
}

Order draw_order(const Workload& workload, Draw draw, std::uint64_t seed, std::int64_t arrived) {
  return draw == Draw::own ? draw_own(workload, seed, arrived)
                           : draw_published(workload, seed, arrived);
}

}  // namespace aliquot::sim
