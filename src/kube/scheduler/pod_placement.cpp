#include "kube/scheduler/pod_placement.hpp"

#include <algorithm>
#include <numeric>

#include "base/percent.hpp"

namespace aliquot::kube {
namespace {

// What a search may cost on one node: a pod of many unequal containers could take for ever, and is
// somebody's who may want just that. Beyond this it does not fit.
constexpr int kMostSteps = 500;

// One GPU while parts of the pod are tried on it.
struct Room {
  Bytes total;
  Bytes memory;
  Compute compute;
  bool open = false;       // takes shares
  bool untouched = false;  // could be given whole
  std::uint8_t model = 0;
  friend bool operator==(const Room&, const Room&) = default;
};

std::vector<Room> rooms_of(std::span<const core::GpuState> gpus) {
  std::vector<Room> rooms;
  rooms.reserve(gpus.size());
  for (const core::GpuState& gpu : gpus) {
    rooms.push_back({gpu.memory, gpu.memory_available(), gpu.compute_free, gpu.usable && !gpu.whole,
                     gpu.free(), gpu.model});
  }
  return rooms;
}

bool model_fits(const core::Shape& shape, const Room& room) {
  return ((shape.models >> room.model) & 1U) != 0;
}

// The largest first: what is hardest to place.
std::vector<std::size_t> by_size(const PodShapes& shapes) {
  std::vector<std::size_t> order(shapes.shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) {
    return std::get<core::Amounts>(shapes.shares[i].what).memory.value_or(Bytes(0));
  });
  return order;
}

// Every way to put the shares into the rooms, the tightest first.
class Search {
 public:
  Search(const PodShapes& shapes, std::vector<Room> rooms, const core::GpuUnits& units)
      : shapes_(shapes), rooms_(std::move(rooms)), units_(units), order_(by_size(shapes)) {
    placement_.shares.resize(shapes.shares.size());
  }

  std::optional<PodPlacement> run() {
    if (!go_on(0)) return std::nullopt;
    return placement_;
  }

 private:
  bool go_on(std::size_t at) {
    if (at == order_.size()) return place_whole();
    const core::Shape& shape = shapes_.shares[order_[at]];
    std::vector<core::GpuIndex> ways;
    for (core::GpuIndex gpu = 0; gpu < rooms_.size(); ++gpu) {
      const Room& room = rooms_[gpu];
      if (!room.open || !model_fits(shape, room)) continue;
      const auto portion = portion_of(shape.what, room.total, units_);
      if (!portion || portion->memory > room.memory || portion->compute > room.compute) continue;
      // GPUs in the same state are one way.
      const bool known =
          std::ranges::any_of(ways, [&](core::GpuIndex other) { return rooms_[other] == room; });
      if (!known) ways.push_back(gpu);
    }
    std::ranges::stable_sort(ways, {}, [&](core::GpuIndex gpu) {
      return std::pair(rooms_[gpu].untouched, rooms_[gpu].memory);
    });
    for (const core::GpuIndex gpu : ways) {
      if (++steps_ > kMostSteps) return false;
      const Room before = rooms_[gpu];
      const core::Portion portion = *portion_of(shape.what, before.total, units_);
      rooms_[gpu].memory -= portion.memory;
      rooms_[gpu].compute -= portion.compute;
      rooms_[gpu].untouched = false;
      placement_.shares[order_[at]] = gpu;
      if (go_on(at + 1)) return true;
      rooms_[gpu] = before;
    }
    return false;
  }

  bool place_whole() {
    if (!shapes_.whole) return true;
    placement_.whole.clear();
    for (core::GpuIndex gpu = 0; gpu < rooms_.size(); ++gpu) {
      if (placement_.whole.size() == shapes_.whole->count) break;
      if (rooms_[gpu].untouched && model_fits(*shapes_.whole, rooms_[gpu])) {
        placement_.whole.push_back(gpu);
      }
    }
    return placement_.whole.size() == shapes_.whole->count;
  }

  const PodShapes& shapes_;
  std::vector<Room> rooms_;
  const core::GpuUnits units_;
  const std::vector<std::size_t> order_;
  PodPlacement placement_;
  int steps_ = 0;
};

// Takes parts of one node for a while.
class Trial {
 public:
  explicit Trial(core::Cluster& cluster) : cluster_(cluster) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    for (auto use = taken_.rbegin(); use != taken_.rend(); ++use) {
      if (!cluster_.give_back(*use)) std::abort();  // it was just taken
    }
  }
  bool take(core::Use use) {
    if (!cluster_.take(use)) return false;
    taken_.push_back(std::move(use));
    return true;
  }

 private:
  core::Cluster& cluster_;
  std::vector<core::Use> taken_;
};

// One after the other, each as the policy likes it.
std::optional<RankedPlacement> place_in_turn(core::Cluster& cluster, core::Policy& policy,
                                             core::NodeIndex node, const PodShapes& shapes) {
  RankedPlacement ranked;
  ranked.placement.shares.resize(shapes.shares.size());
  Trial trial(cluster);
  core::Candidates fit;
  CpuMilli cpus = shapes.cpus;  // those of the pod come with its first part
  const auto place = [&](const core::Shape& shape) -> std::optional<std::vector<core::GpuIndex>> {
    if (!find_candidates(cluster, shape, node, fit)) return std::nullopt;
    core::Shape with_cpus = shape;
    with_cpus.cpus = std::exchange(cpus, CpuMilli(0));
    ranked.score += policy.score(cluster, with_cpus, fit);
    auto chosen = policy.choose(cluster, with_cpus, fit);
    if (!trial.take(use_of(cluster, shape, node, chosen))) return std::nullopt;
    return chosen;
  };
  for (const std::size_t i : by_size(shapes)) {
    const auto chosen = place(shapes.shares[i]);
    if (!chosen) return std::nullopt;
    ranked.placement.shares[i] = chosen->front();
  }
  if (shapes.whole) {
    auto chosen = place(*shapes.whole);
    if (!chosen) return std::nullopt;
    ranked.placement.whole = std::move(*chosen);
    std::ranges::sort(ranked.placement.whole);
  }
  return ranked;
}

}  // namespace

const core::Shape* PodShapes::only() const {
  if (shares.empty()) return whole ? &*whole : nullptr;
  return shares.size() == 1 && !whole ? &shares.front() : nullptr;
}

Result<PodShapes> shapes_of(const core::Cluster& cluster, const PodRequest& request) {
  PodShapes shapes;
  shapes.cpus = request.cpus;
  for (const ShareNeed& share : request.shares) {
    core::Request wanted;
    wanted.gpus = core::GpuRequest{.count = 1, .what = share.amounts, .models = {}};
    shapes.shares.push_back(TRY(cluster.shape(wanted)));
  }
  if (request.whole > 0) {
    core::Request wanted;
    wanted.gpus = core::GpuRequest{.count = request.whole, .what = core::WholeGpu(), .models = {}};
    shapes.whole = TRY(cluster.shape(wanted));
  }
  return shapes;
}

bool fits(const core::Cluster& cluster, core::NodeIndex node, const PodShapes& shapes) {
  if (const core::Shape* only = shapes.only()) {
    core::Candidates fit;
    return find_candidates(cluster, *only, node, fit);
  }
  return Search(shapes, rooms_of(cluster.gpus(node)), cluster.state(node).units).run().has_value();
}

std::optional<RankedPlacement> place_pod(core::Cluster& cluster, core::Policy& policy,
                                         core::NodeIndex node, const PodShapes& shapes) {
  if (auto ranked = place_in_turn(cluster, policy, node, shapes)) return ranked;
  if (shapes.only() != nullptr) return std::nullopt;
  auto found = Search(shapes, rooms_of(cluster.gpus(node)), cluster.state(node).units).run();
  if (!found) return std::nullopt;
  // It fits, but not as the policy would have it: better anywhere else.
  return RankedPlacement{std::move(*found), -1e30};
}

ContainerGrants grants_of(const core::Cluster& cluster, core::NodeIndex node,
                          const PodRequest& request, const PodPlacement& placement) {
  ContainerGrants grants;
  const core::Node& host = cluster.node(node);
  const auto grant = [&](const ContainerNeed& need, core::GpuIndex gpu) {
    const auto portion = portion_on(need.gpus.what, host, host.gpus[gpu]);
    if (!portion) std::abort();  // it was found to fit there
    grants[need.container].push_back({host.gpus[gpu].id, *portion, need.whole()});
  };
  for (std::size_t i = 0; i < request.shares.size(); ++i) {
    for (const std::size_t need : request.shares[i].needs) {
      grant(request.needs[need], placement.shares[i]);
    }
  }
  const auto places = whole_places(request);
  for (std::size_t i = 0; i < request.needs.size(); ++i) {
    for (std::int64_t n = 0; n < places[i].second; ++n) {
      grant(request.needs[i], placement.whole[static_cast<std::size_t>(places[i].first + n)]);
    }
  }
  return grants;
}

std::string size_for_people(Bytes size) {
  if (size < gib(1)) return fmt::format("{} MiB", size / mib(1));
  const std::int64_t tenths = scale_down(size, 10, gib(1).value()).value();
  if (tenths % 10 == 0) return fmt::format("{} GiB", tenths / 10);
  return fmt::format("{}.{} GiB", tenths / 10, tenths % 10);
}

PodRefusal explain_pod(const core::Cluster& cluster, core::NodeIndex node,
                       const PodShapes& shapes) {
  std::vector<Room> rooms = rooms_of(cluster.gpus(node));
  const core::GpuUnits& units = cluster.state(node).units;
  std::vector<Room> empty = rooms;
  for (Room& room : empty) {
    room = {room.total, room.total, units.compute_limit, true, true, room.model};
  }
  PodRefusal refusal{.why = {}, .curable = Search(shapes, empty, units).run().has_value()};

  if (shapes.whole && shapes.shares.empty()) {
    const auto free = std::ranges::count_if(
        rooms, [&](const Room& room) { return room.untouched && model_fits(*shapes.whole, room); });
    refusal.why = fmt::format("GPUs that nobody is on: {} of {}, asked {}", free, rooms.size(),
                              shapes.whole->count);
    return refusal;
  }
  // Of the largest share: the others are smaller.
  const core::Shape& shape = shapes.shares[by_size(shapes).front()];
  const auto asked = std::get<core::Amounts>(shape.what).memory.value_or(Bytes(0));
  Bytes largest = Bytes(0);
  Bytes largest_total = Bytes(0);
  Compute compute = Compute(0);
  bool memory_fits = false;
  bool fits_alone = false;
  for (const Room& room : rooms) {
    if (!model_fits(shape, room)) continue;
    largest_total = std::max(largest_total, room.total);
    if (!room.open) continue;
    largest = std::max(largest, room.memory);
    const auto portion = portion_of(shape.what, room.total, units);
    if (!portion || portion->memory > room.memory) continue;
    memory_fits = true;
    compute = std::max(compute, room.compute);
    fits_alone |= portion->compute <= room.compute;
  }
  if (asked > largest_total) {
    refusal.why = fmt::format("the largest GPU has {}, asked {}", size_for_people(largest_total),
                              size_for_people(asked));
  } else if (!memory_fits) {
    refusal.why = fmt::format("largest free on one GPU: {}, asked {}", size_for_people(largest),
                              size_for_people(asked));
  } else if (!fits_alone) {
    refusal.why = fmt::format("no GPU with {} free has enough compute left: {} at most",
                              size_for_people(asked), format_percent(compute));
  } else {
    refusal.why =
        fmt::format("its containers do not fit together: {} shares{}; largest free on one GPU: {}",
                    shapes.shares.size(),
                    shapes.whole ? fmt::format(" and {} whole GPUs", shapes.whole->count) : "",
                    size_for_people(largest));
  }
  return refusal;
}

}  // namespace aliquot::kube
