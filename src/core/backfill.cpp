#include "core/backfill.hpp"

#include <algorithm>
#include <cstdlib>

namespace aliquot::core {
namespace {

void must(const Result<void>& result) {
  if (!result) std::abort();  // the snapshot disagrees with itself
}

}  // namespace

void Endings::add(std::optional<Millis> at, Use use, std::size_t who) {
  if (!at) return unlimited_.push_back(std::move(use));
  // Of those at one time the first to come is the first to go.
  const auto place = std::ranges::lower_bound(limited_, *at, std::greater<>(), &Ending::at);
  limited_.insert(place, {*at, std::move(use), who});
}

Endings::Ending Endings::take_next() {
  Ending next = std::move(limited_.back());
  limited_.pop_back();
  return next;
}

void Backfill::begin(Millis now, std::size_t shapes) {
  at_ = now;
  reserved_at_.reset();
  full_.assign(shapes, 0);
  delaying_.assign(shapes, 0);
}

std::optional<Placement> Backfill::start(const Candidate& candidate) {
  const Shape& shape = candidate.shape;
  if (!may_start(candidate.number, candidate.limit)) return std::nullopt;
  const bool over_in_time = is_over_in_time(candidate.limit);
  auto placement = place(now_, shape);
  if (!placement) {
    full_[candidate.number] = 1;
    return std::nullopt;
  }
  if (!over_in_time && !then_.can_take(*placement)) {
    placement = place_elsewhere(shape);
    if (!placement || !then_.can_take(*placement)) {
      delaying_[candidate.number] = 1;
      return std::nullopt;
    }
  }
  must(now_.take(*placement));
  if (!over_in_time) must(then_.take(*placement));
  std::optional<Millis> end;
  if (candidate.limit) end = at_ + *candidate.limit;
  running_.add(end, *placement, candidate.who);
  return placement;
}

bool Backfill::reserve_for(const Shape& shape) {
  then_ = now_;
  running_.walk(at_, [&](Millis at, const Use& use, bool last_of_its_time) {
    must(then_.give_back(use));
    if (!last_of_its_time) return false;
    auto placement = place(then_, shape);
    if (!placement) return false;
    must(then_.take(*placement));
    reserved_ = std::move(*placement);
    reserved_at_ = at;
    return true;
  });
  return reserved();
}

// A policy takes its time to look at a cluster: where there is no choice, it is not asked.
std::optional<Placement> Backfill::place(const Cluster& cluster, const Shape& shape) {
  if (cluster.size() == 1) {
    if (!find_candidates(cluster, shape, 0, fit_)) return std::nullopt;
    if (fit_.gpus.size() == shape.count) return use_of(cluster, shape, 0, fit_.gpus);
  }
  return place_by_scan(cluster, shape, policy_);
}

// The policy's first choice is in the way of the reserved job: keep off its GPUs.
std::optional<Placement> Backfill::place_elsewhere(const Shape& shape) {
  if (shape.kind == Shape::Kind::no_gpu) return std::nullopt;
  Cluster masked = now_;
  for (const GpuUse& gpu : reserved_.gpus) {
    must(masked.set_health(reserved_.node, gpu.gpu, Health::draining));
  }
  return place(masked, shape);
}

}  // namespace aliquot::core
