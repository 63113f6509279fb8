#include "engine/fair_share.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "engine/accounts.hpp"

namespace aliquot::engine {
namespace {

// GPU seconds: whoever has had less, long ago, shares the machine no more.
constexpr double kLeastUsage = 1;

// Of the partitions that a job may start in the largest counts.
double job_factor(const Settings& settings, const std::string& names) {
  double largest = 0;
  for (const std::string_view name : aliquot::split(names, ',')) {
    const auto found = std::ranges::find(settings.partitions, name, &Partition::name);
    if (found != settings.partitions.end()) {
      largest = std::max(largest, static_cast<double>(found->job_factor));
    }
  }
  return largest;
}

}  // namespace

Millis held_for(const State& state, const Job& job) {
  return job.run_time.before + (state.clock.mono() - job.run_time.since) + job.suspended_total;
}

std::int64_t shares_of(const State& state, const std::string& user) {
  const auto& settings = state.settings.priority.shares;
  if (const auto found = settings.find(user); found != settings.end()) return found->second;
  const auto known = std::ranges::find(state.book.users, user, &api::AccountUserInfo::name);
  if (known == state.book.users.end()) return 1;
  const auto* own = find_association(state.book, known->default_account, user);
  return own == nullptr ? 1 : own->share;
}

Sharers::Sharers(const State& state, const Job* extra)
    : state_(state), now_(state.clock.wall()), model_(make_model(extra)) {
  for (const Partition& one : state.settings.partitions) {
    largest_partition_ = std::max(largest_partition_, static_cast<double>(one.job_factor));
  }
}

core::PriorityModel Sharers::make_model(const Job* extra) {
  std::map<Uid, core::Sharer> all;
  const auto join = [&](Uid user, const auto& name) -> core::Sharer& {
    const auto [place, fresh] = all.try_emplace(user);
    if (fresh) {
      place->second.user = user;
      place->second.usage = state_.usage.usage(user, now_);
      place->second.shares = static_cast<double>(shares_of(state_, name()));
    }
    return place->second;
  };
  const core::Cluster& cluster = state_.ledger.cluster();
  for (const auto& [id, job] : state_.jobs) {
    core::Sharer& one = join(job.owner.uid, [&]() -> const std::string& { return job.owner.user; });
    if (!core::is_active(job.state)) continue;
    const core::Use* use = state_.ledger.find(id);
    if (use == nullptr) continue;
    const Compute held = core::billed(cluster, *use);
    one.held += held;
    one.usage += core::charge_of(held, held_for(state_, job), state_.usage.half_life());
  }
  for (const auto& [user, entry] : state_.usage.entries()) {
    if (state_.usage.usage(user, now_) < kLeastUsage) continue;
    join(user, [&, uid = user] { return state_.users.name(uid); });
  }
  if (extra != nullptr) {
    join(extra->owner.uid, [&]() -> const std::string& { return extra->owner.user; });
  }
  std::vector<core::Sharer> sharers;
  for (auto& [user, one] : all) {
    places_[user] = sharers.size();
    sharers.push_back(one);
  }
  return {state_.settings.priority.weights, state_.usage.half_life(), std::move(sharers)};
}

core::Urgency Sharers::urgency(const Job& job) const {
  core::Urgency urgency{.sharer = place(job.owner.uid), .waited = now_ - job.eligible};
  if (job.spec.priority.value_or(0) > 0) urgency.fixed = job.spec.priority;
  urgency.nice = job.spec.nice;
  if (model_.weights().job_size > 0) {
    urgency.factors.job_size = core::part_of_all(state_.ledger.cluster(), job.shape);
  }
  if (const auto* qos = qos_of(state_.book, job); qos != nullptr && qos->priority > 0) {
    const auto largest = std::ranges::max(state_.book.qos, {}, &api::QosInfo::priority).priority;
    urgency.factors.qos = static_cast<double>(qos->priority) / static_cast<double>(largest);
  }
  if (largest_partition_ > 0) {
    urgency.factors.partition = job_factor(state_.settings, job.partition) / largest_partition_;
  }
  return urgency;
}

std::int64_t Sharers::priority(const Job& job) const {
  // What is held has none, as Slurm shows it.
  if (job.hold != Hold::none) return 0;
  return model_.priority(urgency(job)).total;
}

std::string figures_account(const State& state, const Job& job) {
  const bool kept = find_association(state.book, job.spec.account, "") != nullptr;
  return kept ? job.spec.account : "";
}

void charge(State& state, const Job& job) {
  const core::Use* use = state.ledger.find(job.id);
  if (use == nullptr) return;
  const auto entry = state.usage.charge(job.owner.uid, core::billed(state.ledger.cluster(), *use),
                                        held_for(state, job), state.clock.wall());
  state.require(state.store.save_usage(job.owner.uid, entry));
  const Compute gpus = core::billed(state.ledger.cluster(), *use);
  if (job.gpus.empty()) return;
  state.act([&state, user = job.owner.user, account = figures_account(state, job),
             held = gpu_seconds(gpus, held_for(state, job))] {
    state.tally->note_held(user, account, held);
  });
}

Result<void> read_usage(State& state) {
  state.usage.clear();
  for (const auto& [user, entry] : TRY(state.store.usage())) state.usage.set(user, entry);
  return {};
}

}  // namespace aliquot::engine
