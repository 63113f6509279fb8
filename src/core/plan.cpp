#include "core/plan.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace aliquot::core {
namespace {

// Steps that placing one job counts for, and finding a reservation.
constexpr std::int64_t kPlacing = 10;
constexpr std::int64_t kReserving = 40;
// So many queues are looked at in one step.
constexpr std::int64_t kQueuesPerStep = 16;

// Everything by which entries may differ in what becomes of them, but their age.
using Likeness = std::tuple<std::size_t, std::int64_t, std::size_t, std::int64_t, std::int64_t,
                            std::int64_t, std::uint64_t, std::size_t>;

Likeness likeness(const PlanEntry& one, std::size_t shape, std::int64_t base) {
  return {shape,
          one.entry.time_limit.value_or(Millis(-1)).value(),
          one.urgency.sharer,
          one.urgency.fixed.value_or(-1),
          base,
          one.entry.tier,
          one.kind,
          one.group ? *one.group + 1 : 0};
}

}  // namespace

Plan::Plan(const Cluster& cluster, PriorityModel model, PlanInput input, Policy& policy,
           std::unique_ptr<Rules> rules)
    : now_(cluster),
      model_(std::move(model)),
      input_(std::move(input)),
      policy_(policy),
      rules_(std::move(rules)),
      group_runs_(input_.group_limits.size()),
      look_(now_, endings_, policy_),
      slot_of_(input_.waiting.size()) {
  for (const PlanEntry& one : input_.waiting) {
    for (const PlanGate& gate : one.gates) left_[gate.job] = 0;
  }
  add_running();
  add_waiting();
}

void Plan::add_running() {
  for (PlanRunning& one : input_.running) {
    std::optional<Millis> end;
    if (one.left) end = std::max(*one.left, Millis(0));
    if (one.group) ++group_runs_[*one.group];
    if (const auto left = left_.find(one.job); left != left_.end()) ++left->second;
    const std::size_t who = runs_.size();
    runs_.push_back({one.job, one.sharer, billed(now_, one.use), one.group});
    endings_.add(end, std::move(one.use), who);
  }
}

std::size_t Plan::new_queue(const PlanEntry& entry, std::size_t shape, std::int64_t base) {
  queues_.push_back({.shape = shape,
                     .limit = entry.entry.time_limit,
                     .sharer = entry.urgency.sharer,
                     .fixed = entry.urgency.fixed,
                     .base = base,
                     .tier = entry.entry.tier,
                     .group = entry.group});
  return queues_.size() - 1;
}

void Plan::add_waiting() {
  const auto& waiting = input_.waiting;
  std::unordered_map<Shape, std::size_t, ShapeHash> shapes;
  std::map<Likeness, std::size_t> known;
  std::vector<std::size_t> order(waiting.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return waiting[i].entry.order; });
  for (const std::size_t i : order) {
    const PlanEntry& one = waiting[i];
    const auto [slot, first] = slot_of_job_.try_emplace(one.entry.job, slots_.size());
    slot_of_[i] = slot->second;
    if (first) {
      slots_.push_back({.left = one.count});
      const auto left = left_.find(one.entry.job);
      if (left != left_.end()) left->second += one.count;
    } else {
      slots_[slot->second].several = true;
    }
    const auto [shape, fresh] = shapes.try_emplace(one.entry.shape, shapes_.size());
    if (fresh) shapes_.push_back(one.entry.shape);
    const std::int64_t base = one.urgency.fixed ? 0 : model_.fixed_part(one.urgency);
    if (one.ready > Millis(0) || !one.gates.empty()) {
      const std::size_t at = new_queue(one, shape->second, base);
      Queue& queue = queues_[at];
      queue.entries.push_back(i);
      queue.from = one.ready;
      queue.gates = one.any_gate ? 1 : one.gates.size();
      for (const PlanGate& gate : one.gates) {
        waiting_for_.emplace(gate.job, std::pair(at, gate));
      }
      if (one.gates.empty()) later_.emplace(one.ready, at);
      continue;
    }
    const Likeness like = likeness(one, shape->second, base);
    const auto found = known.find(like);
    // Who came later and has waited longer (the clock was set) is not behind.
    if (found != known.end() &&
        waiting[queues_[found->second].entries.back()].urgency.waited >= one.urgency.waited) {
      queues_[found->second].entries.push_back(i);
      continue;
    }
    const std::size_t at = new_queue(one, shape->second, base);
    queues_[at].entries.push_back(i);
    known[like] = at;
    open(at);
  }
}

std::optional<Millis> Plan::start(JobId job) const {
  const auto found = slot_of_job_.find(job);
  return found == slot_of_job_.end() ? std::nullopt : slots_[found->second].start;
}

bool Plan::advance(std::int64_t steps) {
  steps_ = steps;
  while (!done_ && steps_ > 0) {
    look();
    done_ = !go_on();
  }
  return done_;
}

void Plan::open(std::size_t at) {
  const Queue& queue = queues_[at];
  open_.push_back({.tier = queue.tier,
                   .limit = queue.limit.value_or(Millis(-1)).value(),
                   .shape = static_cast<std::uint32_t>(queue.shape),
                   .queue = static_cast<std::uint32_t>(at)});
}

void Plan::skip_started(Head& head) {
  Queue& queue = queues_[head.queue];
  while (queue.next < queue.entries.size() &&
         slots_[slot_of_[queue.entries[queue.next]]].left == 0) {
    ++queue.next;
  }
  head.tried = queue.next == queue.entries.size();
  if (!head.tried) weigh(head);
}

void Plan::weigh(Head& head) const {
  const Queue& queue = queues_[head.queue];
  head.entry = queue.entries[queue.next];
  const PlanEntry& first = input_.waiting[head.entry];
  head.order = first.entry.order;
  head.priority = queue.fixed
                      ? *queue.fixed
                      : std::max<std::int64_t>(queue.base + model_.moving_part(first.urgency), 1);
}

bool Plan::is_before(const Head& a, const Head& b) {
  if (a.tier != b.tier) return a.tier > b.tier;
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.order != b.order) return a.order < b.order;
  return a.entry < b.entry;
}

Plan::Head* Plan::best(bool full) {
  Head* found = nullptr;
  for (Head& head : open_) {
    if (head.tried || (found != nullptr && !is_before(head, *found))) continue;
    const auto limit = head.limit < 0 ? std::nullopt : std::optional(Millis(head.limit));
    if (full ? !look_.is_full(head.shape) : !look_.may_start(head.shape, limit)) continue;
    found = &head;
  }
  steps_ -= 1 + std::ssize(open_) / kQueuesPerStep;
  return found;
}

bool Plan::held_back(const Queue& queue) {
  if (queue.group) {
    const std::int64_t most = input_.group_limits[*queue.group];
    if (most > 0 && group_runs_[*queue.group] >= most) return true;
  }
  return rules_ && rules_->hold_back(input_.waiting[queue.entries[queue.next]].entry);
}

// As schedule() does, entry by entry. But whom there is no room for is looked at only when somebody
// behind could start: no reservation is in anybody's way before.
void Plan::look() {
  for (Head& head : open_) skip_started(head);
  std::erase_if(open_, [](const Head& head) { return head.tried; });
  steps_ -= std::ssize(open_) / kQueuesPerStep;
  look_.begin(at_, shapes_.size());
  while (Head* head = best(false)) {
    const Queue& queue = queues_[head->queue];
    if (!look_.reserved()) reserve_before(*head);
    if (held_back(queue)) {
      head->tried = true;
      continue;
    }
    steps_ -= kPlacing;
    const auto placement =
        look_.start({queue.shape, shapes_[queue.shape], queue.limit, runs_.size()});
    if (placement) begin_run(*head, *placement);
  }
}

void Plan::reserve_before(const Head& candidate) {
  while (Head* blocked = best(true)) {
    if (!is_before(*blocked, candidate)) return;
    blocked->tried = true;
    const Queue& queue = queues_[blocked->queue];
    if (held_back(queue)) continue;
    steps_ -= kReserving;
    if (look_.reserve_for(shapes_[queue.shape])) return;
  }
}

void Plan::begin_run(Head& head, const Use& use) {
  Queue& queue = queues_[head.queue];
  const std::size_t at = head.entry;
  const PlanEntry& one = input_.waiting[at];
  Slot& slot = slots_[slot_of_[at]];
  if (!slot.start) slot.start = at_;
  if (rules_) rules_->started(one.entry);
  if (queue.group) ++group_runs_[*queue.group];
  const Compute held = billed(now_, use);
  model_.hold(queue.sharer, held);
  runs_.push_back({one.entry.job, queue.sharer, held, queue.group, one.entry.partition});
  if (--slot.left > 0) return;
  if (slot.several) {
    // Its other entries may be the next ones elsewhere.
    for (Head& other : open_) {
      if (slot_of_[other.entry] == slot_of_[at]) skip_started(other);
    }
  } else {
    skip_started(head);
  }
  open_gates(one.entry.job, true);
}

void Plan::end_run(const Endings::Ending& ending) {
  const Run& run = runs_[ending.who];
  if (!now_.give_back(ending.use)) std::abort();  // the plan disagrees with itself
  model_.let_go(run.sharer, run.held);
  if (run.group) --group_runs_[*run.group];
  if (rules_) rules_->ended(run.job, run.partition);
  const auto left = left_.find(run.job);
  if (left != left_.end() && --left->second == 0) open_gates(run.job, false);
}

void Plan::open_gates(JobId job, bool at_start) {
  const auto [begin, end] = waiting_for_.equal_range(job);
  for (auto one = begin; one != end; ++one) {
    const auto& [at, gate] = one->second;
    Queue& queue = queues_[at];
    if (gate.at_start != at_start || queue.gates == 0) continue;
    queue.from = std::max(queue.from, at_ + gate.delay);
    if (--queue.gates == 0) later_.emplace(queue.from, at);
  }
}

// To the next moment at which somebody could start. False: there is none.
bool Plan::go_on() {
  if (open_.empty() && later_.empty() && waiting_for_.empty()) return false;
  const auto* const ending = endings_.next();
  if (ending == nullptr && later_.empty()) return false;
  Millis next = ending != nullptr ? ending->at : later_.begin()->first;
  if (!later_.empty()) next = std::min(next, later_.begin()->first);
  next = std::max(next, at_);
  model_.pass(next - at_);
  at_ = next;
  while (endings_.next() != nullptr && endings_.next()->at <= at_) end_run(endings_.take_next());
  while (!later_.empty() && later_.begin()->first <= at_) {
    open(later_.begin()->second);
    later_.erase(later_.begin());
  }
  return true;
}

}  // namespace aliquot::core
