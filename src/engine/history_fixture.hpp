// For tests: a random history of an engine's jobs, of rapidcheck's choosing, and what must hold at
// its end.
#pragma once

#include <rapidcheck.h>

#include <iterator>
#include <map>
#include <set>
#include <string>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {

class History {
 public:
  explicit History(EngineFixture& fixture) : fixture_(fixture) {}

  std::string any_id() const {
    if (accepted.empty()) return "1";
    const auto at = *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(accepted));
    return std::to_string(*std::next(accepted.begin(), at));
  }
  api::JobSpec any_spec() const {
    auto spec = fixture_.spec(*rc::gen::element<std::string>("", "gpu:1", "gpu:3", "mps:30"));
    if (*rc::gen::inRange(0, 5) == 0) spec.array = "1-3%2";
    return spec;
  }
  // A job ends, or its user does something to it.
  void go_on() {
    const Caller user{Uid(1000)};
    const std::string id = any_id();
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        (void)fixture_.engine->runs().cancel(user, id, {});
        break;
      case 1:
        (void)fixture_.engine->runs().requeue(user, id, false);
        break;
      case 2:
        (void)fixture_.engine->queue().hold(user, id);
        if (*rc::gen::arbitrary<bool>()) (void)fixture_.engine->queue().release(user, id);
        break;
      default:
        for (const auto& [key, run] : fixture_.executor.runs) {
          if (run.over || *rc::gen::arbitrary<bool>()) continue;
          end(key.first, *rc::gen::inRange(0, 3));
          break;
        }
    }
  }
  // Everything that can run does so: every job ends, as its processes did.
  void wind_up() {
    fixture_.settle();
    for (const std::int64_t id : accepted) {
      (void)fixture_.engine->queue().release({Uid(0)}, std::to_string(id));
    }
    for (int round = 0; round < 400 && fixture_.engine->live() > 0; ++round) {
      fixture_.settle();
      for (auto& [key, run] : fixture_.executor.runs) {
        if (!run.over) end(key.first, 0);
      }
    }
    RC_ASSERT(fixture_.engine->live() == 0U);
    RC_ASSERT(fixture_.engine->ledger().size() == 0U);
    for (const std::int64_t id : accepted) {
      const auto state = core::parse_job_state(fixture_.state(id));
      RC_ASSERT(state && core::is_final(*state));
    }
    const auto record = fixture_.engine->views().accounting({Uid(0)}, {});
    for (const auto& job : record->jobs) {
      if (job.state != "COMPLETED" && job.state != "FAILED") continue;
      RC_ASSERT(exit_codes_.contains(job.id));
      RC_ASSERT(job.exit_code == exit_codes_[job.id]);
    }
  }

  std::set<std::int64_t> accepted;

 private:
  void end(std::int64_t id, int code) {
    for (const auto& [key, run] : fixture_.executor.runs) {
      if (key.first == id && !run.over) exit_codes_[id] = run.cancelled ? -1 : code;
    }
    fixture_.executor.end(id, code);
  }

  EngineFixture& fixture_;
  std::map<std::int64_t, int> exit_codes_;
};

}  // namespace aliquot::engine
