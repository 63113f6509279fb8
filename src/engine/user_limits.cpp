#include "engine/user_limits.hpp"

#include "base/toml_reader.hpp"
#include "core/placement.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {
namespace {

// A share is the part of a GPU that its compute is.
std::int64_t count_gpus(const Job& job, const core::Node& node) {
  if (!job.request.gpus || node.gpus.empty()) return 0;
  const auto each = core::portion_on(job.request.gpus->what, node, node.gpus.front());
  const bool whole = std::holds_alternative<core::WholeGpu>(job.request.gpus->what) || !each;
  return ((whole ? kWholeGpu : each->compute) * job.request.gpus->count).value();
}

}  // namespace

const std::vector<UserLimit>& user_limits() {
  static const std::vector<UserLimit> limits{
      {.setting = "gpus_per_user",
       .reason = "QOSMaxGRESPerUser",
       .config = "MaxGpusPerUser",
       .sentence = "its user may hold {} GPUs at once",
       .read = [](const TomlPlace& place) -> Result<std::int64_t> {
         return (kWholeGpu * TRY(place.number(1, 1'000'000))).value();
       },
       .show = [](std::int64_t most) { return std::to_string(Compute(most) / kWholeGpu); },
       .count = count_gpus},
  };
  return limits;
}

std::optional<std::int64_t> UserLimit::most(const Settings& settings) const {
  const auto set = settings.user_limits.find(setting);
  return set == settings.user_limits.end() ? std::nullopt : std::optional(set->second);
}

const UserLimit* user_limit_of(Reason reason) {
  if (reason < Reason::user_limit) return nullptr;
  return &user_limits().at(static_cast<std::size_t>(reason) -
                           static_cast<std::size_t>(Reason::user_limit));
}

UserRules::UserRules(const State& state) {
  for (const UserLimit& limit : user_limits()) {
    if (const auto most = limit.most(state.settings)) counts_.push_back({&limit, *most, {}});
  }
  if (counts_.empty()) return;
  const core::Node& node = state.ledger.cluster().node(0);
  for (const auto& [id, job] : state.jobs) {
    Wanted wanted{job.owner.uid, {}};
    for (const Count& count : counts_) wanted.amounts.push_back(count.limit->count(job, node));
    wanted_.emplace(id, std::move(wanted));
  }
  for (const JobId id : state.ledger.jobs()) add(id, 1);
}

void UserRules::add(JobId job, std::int64_t times) {
  const auto wanted = wanted_.find(job);
  if (wanted == wanted_.end()) return;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    counts_[i].held[wanted->second.user] += times * wanted->second.amounts[i];
  }
}

std::optional<std::string_view> UserRules::hold_back(const core::QueueEntry& entry) {
  const auto job = wanted_.find(entry.job);
  if (job == wanted_.end()) return std::nullopt;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const std::int64_t wanted = job->second.amounts[i];
    if (wanted > 0 && counts_[i].held[job->second.user] + wanted > counts_[i].most) {
      return counts_[i].limit->reason;
    }
  }
  return std::nullopt;
}

void UserRules::started(const core::QueueEntry& entry) { add(entry.job, 1); }
void UserRules::ended(JobId job) { add(job, -1); }

}  // namespace aliquot::engine
