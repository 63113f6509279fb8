#include "engine/upkeep.hpp"

#include <algorithm>
#include <set>

namespace aliquot::engine {
namespace {

// Jobs that are purged, or whose payload is dropped, in one transaction: it must not keep anybody
// waiting.
constexpr std::int64_t kPurgedAtOnce = 500;
constexpr std::int64_t kDroppedAtOnce = 500;

bool is_recent(WallTime then, WallTime now) { return now - then <= minutes(1) && now >= then; }

}  // namespace

void Upkeep::tidy() {
  const WallTime now = state_.clock.wall();
  if (state_.trouble || is_recent(tidied_, now)) return;
  tidied_ = now;
  state_.known_facts.clear();  // of what nobody waits for any more, above all
  // The script and environment of what left squeue's sight are not needed any more.
  const WallTime out_of_sight = now - state_.settings.min_job_age;
  const auto dropped =
      state_.require_value(state_.store.drop_payloads(out_of_sight, kDroppedAtOnce));
  // The rest follows a second later: who asks for something now does not wait for it.
  if (const bool purged = purge(now, out_of_sight); purged || dropped == kDroppedAtOnce) {
    tidied_ = now - minutes(1) + seconds(1);
  }
}

bool Upkeep::purge(WallTime now, WallTime out_of_sight) {
  const Settings& settings = state_.settings;
  const std::int64_t most = settings.limits.records_per_user;
  // All records are counted for it: not each time while there is more to purge.
  if (!is_recent(counted_, now)) {
    counted_ = now;
    crowded_ = state_.require_value(state_.store.crowded(most));
  }
  if (!settings.purge_after && crowded_.empty()) return false;
  std::set<JobId> needed;
  for (const auto& [id, job] : state_.jobs) {
    for (const core::Dependency& one : job.dependencies.all) needed.insert(one.job);
  }
  bool more = false;
  const auto purge = [&](WallTime before, std::int64_t at_once, std::optional<Uid> uid) {
    const auto purged = state_.require_value(state_.store.purge(
        before, at_once,
        [&](JobId id) { return needed.contains(id) || state_.find(id) != nullptr; }, uid));
    more = more || purged >= kPurgedAtOnce;
    return purged;
  };
  if (settings.purge_after) {
    purge(now - std::max(*settings.purge_after, settings.min_job_age), kPurgedAtOnce, {});
  }
  for (auto& [uid, count] : crowded_) {
    if (count > most) count -= purge(out_of_sight, std::min(count - most, kPurgedAtOnce), uid);
  }
  return more;
}

}  // namespace aliquot::engine
