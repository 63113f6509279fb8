#include "engine/forecast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "core/policy/used_first.hpp"
#include "engine/fair_share.hpp"
#include "engine/queue.hpp"
#include "engine/quotas.hpp"

namespace aliquot::engine {
namespace {

// Of a plan in one turn of the engine: a few milliseconds.
constexpr std::int64_t kPiece = 60'000;
// A plan that took so long is made anew after so many times that at the soonest.
constexpr Millis kLongPlan(5);
constexpr std::int64_t kPlanShare = 4;
// What waits for more than so many jobs has no known time: it would cost too much to find out.
constexpr std::size_t kMostGates = 100;

// In one of its partitions: another one may be full where this one is not.
std::uint64_t kind_of(const Job& job, std::uint32_t partition) {
  const std::hash<std::string> hash;
  return hash(fmt::format("{}\n{}\n{}\n{}", partition, job.spec.account, job.spec.qos,
                          job.spec.reservation));
}

// The jobs that others may wait for: an array with those that have gone their own ways, and, for
// singletons, those of one name.
class Named {
 public:
  explicit Named(const State& state) : state_(state) {}

  // What is to come of what a job waits for. Nothing: its time cannot be known.
  std::optional<std::vector<core::PlanGate>> gates_of(const Job& job) {
    if (members_.empty()) {
      for (const auto& [id, one] : state_.jobs) members_.emplace(one.order(), &one);
    }
    std::vector<core::PlanGate> gates;
    for (const core::Dependency& one : job.dependencies.all) {
      using Kind = core::Dependency::Kind;
      if (one.kind == Kind::after_not_ok) return std::nullopt;  // jobs end well in plans
      if (one.kind == Kind::singleton) {
        add_earlier(job, gates);
      } else {
        add_named(one, gates);
      }
      if (gates.size() > kMostGates) return std::nullopt;
    }
    return gates;
  }

 private:
  void add_named(const core::Dependency& one, std::vector<core::PlanGate>& gates) const {
    const bool at_start = one.kind == core::Dependency::Kind::after;
    const auto add = [&](const Job& named) {
      if (at_start && core::is_active(named.state)) return;
      gates.push_back({named.id, at_start, one.delay});
    };
    const auto [begin, end] = members_.equal_range(one.job);
    for (auto member = begin; member != end && gates.size() <= kMostGates; ++member) {
      const Job& named = *member->second;
      if (one.task && !named.is_array() && named.task != one.task) continue;
      add(named);
    }
    // An element that goes its own way, by the id that it has there.
    const auto element = begin == end ? state_.jobs.find(one.job) : state_.jobs.end();
    if (element != state_.jobs.end()) add(element->second);
  }

  void add_earlier(const Job& job, std::vector<core::PlanGate>& gates) {
    if (by_name_.empty()) {
      for (const auto& [order, one] : members_) {
        by_name_.emplace(std::pair(one->owner.uid, one->spec.name), one);
      }
    }
    const auto [begin, end] = by_name_.equal_range({job.owner.uid, job.spec.name});
    for (auto other = begin; other != end && gates.size() <= kMostGates; ++other) {
      if (other->second->order() < job.order()) gates.push_back({other->second->id});
    }
  }

  const State& state_;
  std::multimap<JobId, const Job*> members_;
  std::multimap<std::pair<Uid, std::string>, const Job*> by_name_;
};

}  // namespace

Result<std::unique_ptr<core::Policy>> machine_policy(const Settings& settings) {
  auto policy = TRY(core::make_policy(settings.policy, core::generic_profile()));
  // On one machine whole GPUs that are free are worth more than any rest.
  if (settings.policy == core::policies().front().name) {
    policy = core::used_first(std::move(policy));
  }
  return policy;
}

std::unique_ptr<core::Plan> Forecast::make_plan(const Job* extra) {
  if (!policy_) {
    auto made = machine_policy(state_.settings);
    if (!made) std::abort();  // the engine has one of the same name
    policy_ = std::move(*made);
  }
  const Sharers sharers(state_, extra);
  const WallTime now = state_.clock.wall();
  core::PlanInput input;
  std::map<JobId, std::size_t> groups;
  const auto group_of = [&](const Job& job) -> std::optional<std::size_t> {
    const std::int64_t most = job.is_array() ? job.waiting.limit : job.throttle;
    if (most <= 0) return std::nullopt;
    const auto [group, fresh] = groups.try_emplace(job.order(), input.group_limits.size());
    if (fresh) input.group_limits.push_back(most);
    return group->second;
  };
  Named named(state_);
  for (const JobId id : state_.ledger.jobs()) {
    const Job& job = state_.jobs.at(id);
    input.running.push_back({.job = id,
                             .use = *state_.ledger.find(id),
                             .left = queue_.left_of(job),
                             .sharer = sharers.place(job.owner.uid),
                             .group = job.array ? group_of(job) : std::nullopt});
  }
  const auto add = [&](const Job& job) {
    const auto why = queue_.not_yet(job);
    const bool opens = !why || *why == Reason::begin_time || *why == Reason::dependency;
    if (!opens || queue_.held_up()) return;
    core::PlanEntry entry{.entry = {}, .urgency = sharers.urgency(job)};
    entry.count = std::max<std::int64_t>(std::ssize(job.waiting.tasks), 1);
    entry.group = group_of(job);
    entry.ready = std::max({WallTime(job.spec.begin_ms.value_or(0)), job.not_before, now}) - now;
    // Of one that is not in the queue nobody has judged what it waits for.
    if (why == Reason::dependency || (&job == extra && !job.dependencies.empty())) {
      auto gates = named.gates_of(job);
      if (!gates) return;
      entry.gates = std::move(*gates);
      entry.any_gate = job.dependencies.any;
      if (job.dependency_state.next) {
        entry.ready = std::max(entry.ready, *job.dependency_state.next - now);
      }
    }
    // One for each partition that takes it.
    for (const core::QueueEntry& one : queue_.entries_of(job)) {
      entry.entry = one;
      entry.kind = kind_of(job, one.partition);
      input.waiting.push_back(entry);
    }
  };
  for (const auto& [id, job] : state_.jobs) {
    if (job.state == core::JobState::pending) add(job);
  }
  if (extra != nullptr) add(*extra);
  std::vector<core::QueueEntry> entries;
  for (const core::PlanEntry& one : input.waiting) entries.push_back(one.entry);
  std::unique_ptr<core::Rules> rules = Quotas(state_).rules(entries, extra);
  return std::make_unique<core::Plan>(state_.ledger.cluster(), sharers.model(), std::move(input),
                                      *policy_, std::move(rules));
}

void Forecast::look_ahead() {
  // Whatever is not on record may be taken back.
  if (state_.ahead || state_.schedule_needed || plan_) return;
  if (made_for_ == queue_.passes()) return;
  const MonoTime begun = state_.clock.mono();
  if (begun < not_before_) return;
  plan_ = make_plan(nullptr);
  made_at_ = state_.clock.wall();
  made_for_ = queue_.passes();
  took_ = state_.clock.mono() - begun;
  advance();
}

void Forecast::go_on() {
  if (plan_) return advance();
  if (!questions_.empty() && answer(questions_.front())) questions_.erase(questions_.begin());
}

void Forecast::advance() {
  const MonoTime begun = state_.clock.mono();
  const bool done = plan_->advance(kPiece);
  for (auto& [id, job] : state_.jobs) {
    if (job.state != core::JobState::pending) continue;
    const auto start = plan_->start(id);
    if (start && *start < core::kForever) {
      job.start = made_at_ + *start;
    } else if (done) {
      job.start.reset();
    }
  }
  const MonoTime now = state_.clock.mono();
  took_ += now - begun;
  if (!done) return;
  plan_.reset();
  if (took_ >= kLongPlan) not_before_ = now + took_ * kPlanShare;
}

bool Forecast::answer(Question& question) {
  const bool done = question.plan->advance(kPiece);
  const auto start = question.plan->start(question.job);
  if (!start && !done) return false;
  std::optional<WallTime> at;
  if (start && *start < core::kForever) at = question.made_at + *start;
  question.told(at);
  return true;
}

Answer<std::optional<std::uint64_t>> Forecast::ask(Uid asker, const Job& extra, Told told) {
  if (std::ranges::find(questions_, asker, &Question::asker) != questions_.end()) {
    return refuse(Why::try_again, "another --test-only of yours is being worked out: try again");
  }
  Question question{++last_question_,    asker,          extra.id, make_plan(&extra),
                    state_.clock.wall(), std::move(told)};
  if (answer(question)) return std::nullopt;
  questions_.push_back(std::move(question));
  return last_question_;
}

void Forecast::drop(std::uint64_t question) {
  std::erase_if(questions_, [&](const Question& one) { return one.number == question; });
}

}  // namespace aliquot::engine
