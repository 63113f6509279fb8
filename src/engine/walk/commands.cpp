// What users do to jobs, theirs and others'.
#include <fmt/format.h>

#include <array>

#include "api/json.hpp"
#include "core/array_spec.hpp"
#include "engine/walk/throw.hpp"
#include "engine/walk/world.hpp"
#include "net/http.hpp"

namespace aliquot::engine::walk {
namespace {

std::string json_text(const std::string& text) {
  api::ErrorInfo wrapped{text, ""};
  const std::string json = api::to_json(wrapped);  // {"code":"…","message":""}
  return json.substr(8, json.rfind(",\"message\"") - 8);
}

}  // namespace

void World::update(Throw& dice, std::uint32_t uid, const std::string& id) {
  std::string change;
  switch (dice.roll(12)) {
    case 0:
      change = fmt::format(R"("time_limit_ms":{})", 1'000 * (1 + dice.roll(200)));
      break;
    case 1:
      change = R"("time_limit_ms":null)";
      break;
    case 2:
      change = fmt::format(R"("gres":"{}")", dice.one_of(kGpus));
      break;
    case 3:
      change = fmt::format(R"("dependency":"afterok:{}")", make_id(dice));
      break;
    case 4:
      change = fmt::format(R"("cpus_per_task":{})", dice.roll(20));
      break;
    case 5:
      change = fmt::format(R"("priority":{})", dice.roll(20'000));
      break;
    case 6:
      change = fmt::format(R"("begin_ms":{})", (clock_.wall() + seconds(dice.roll(50))).ms());
      break;
    case 7:
      change = fmt::format(R"("array_throttle":{})", static_cast<int>(dice.roll(5)) - 1);
      break;
    case 8:
      change = fmt::format(R"("nice":{})", dice.roll(100));
      break;
    case 9:
      change = fmt::format(R"("name":{})", json_text(dice.one_of(kBadTexts)));
      break;
    case 10:
      change = fmt::format(R"("std_out":{})", json_text(dice.one_of(kBadTexts)));
      break;
    default:
      change = R"("exclusive":true,"hold":false,"batch":false,"array":"1-9")";
  }
  const auto sent =
      ask(uid, "POST", "/v1/jobs/" + net::percent_encode(id) + "/update", "{" + change + "}");
  if (sent->response && sent->response->status == 200) throw Violation("answered too early");
}

void World::command(Throw& dice, std::uint32_t uid) {
  if (due_) {  // the model knows whom a text names after every commit
    settle();
    check();
  }
  const std::string id = make_id(dice);
  // Mostly somebody who may.
  if (const auto jobs = named(id, uid); !jobs.empty() && !dice.one_in(4)) {
    if (uid != 0) uid = known_.at(jobs.front()).uid;
  }
  const std::string target = "/v1/jobs/" + net::percent_encode(id) + "/";
  const bool allowed = may_command(id, uid);
  const auto asked_for = [&](auto what) {
    if (!allowed) return;
    for (const std::int64_t one : named(id, uid)) what(*submission_of(known_.at(one)));
  };
  std::shared_ptr<Connection> sent;
  const std::uint32_t verb = dice.roll(30);
  if (verb < 4) {
    asked_for([](Submission& one) { one.cancelled = true; });
    constexpr std::array<int, 8> kSignals{0, 0, 0, 10, 15, 9, 99, -1};
    sent = ask(uid, "POST", target + "cancel",
               fmt::format(R"({{"signal":{},"batch":{},"full":{}}})", dice.one_of(kSignals),
                           dice.one_in(2), dice.one_in(2)));
  } else if (verb < 7) {
    sent = ask(uid, "POST", target + "hold");
    if (uid == 0 && allowed) {
      // Those of its elements that wait now: all that the engine does not say run.
      std::set<WalkMachine::Unit> waiting;
      for (const std::int64_t one : named(id, uid)) {
        const api::JobInfo& job = known_.at(one);
        if (job.state != "PENDING") continue;
        auto unit = WalkMachine::unit_of(job);
        if (job.array_pending.empty()) {
          waiting.insert(unit);
          continue;
        }
        const auto line = id.find('_');
        const auto pending = core::parse_array(job.array_pending).value();
        for (const std::int64_t task : pending.tasks) {
          unit.second = task;
          if (line == std::string::npos || id.substr(line + 1) == std::to_string(task)) {
            waiting.insert(unit);
          }
        }
      }
      const auto line = id.find('_');
      if (line != std::string::npos) {
        std::erase_if(waiting, [&](const WalkMachine::Unit& unit) {
          return std::to_string(unit.second) != id.substr(line + 1);
        });
      }
      sent->answered = [this, waiting](const net::Response& response) {
        if (response.status == 200) machine_.held_back.insert(waiting.begin(), waiting.end());
      };
    }
  } else if (verb < 10) {
    if (uid == 0 && allowed) {
      for (const std::int64_t one : named(id, uid)) {
        const auto array = WalkMachine::unit_of(known_.at(one)).first;
        std::erase_if(machine_.held_back, [&](const auto& unit) { return unit.first == array; });
      }
    }
    sent = ask(uid, "POST", target + "release");
  } else if (verb < 14) {
    asked_for([](Submission& one) { ++one.requeues; });
    sent = ask(uid, "POST", target + (dice.one_in(2) ? "requeue?hold=1" : "requeue"));
  } else if (verb < 16) {
    asked_for([](Submission& one) { one.suspended = true; });
    sent = ask(uid, "POST", target + "suspend");
  } else if (verb < 18) {
    asked_for([](Submission& one) { one.resumed = true; });
    sent = ask(uid, "POST", target + "resume");
  } else if (verb < 20) {
    update(dice, uid, id);
    return;
  } else if (verb < 21) {
    const std::string ids = id + "," + make_id(dice);
    sent = ask(uid, "POST", "/v1/jobs/" + net::percent_encode(ids) + "/top");
  } else if (verb < 24) {
    api::StepSpec spec{.name = "step", .ntasks = 1 + dice.roll(2), .overlap = dice.one_in(2)};
    if (dice.one_in(2)) spec.gres = dice.one_of(kGpus);
    sent = ask(uid, "POST", target + "steps", api::to_json(spec));
  } else if (verb < 27) {
    constexpr std::array<const char*, 6> kSteps{"0", "1", "2", "batch", "77", "x"};
    const std::string step = dice.one_of(kSteps);
    sent = ask(uid, "POST", target + "steps/" + step + (dice.one_in(2) ? "/end" : "/cancel"));
    if (step == "77" && sent->response && sent->response->status == 200) {
      throw Violation("a step that there is not took a command");
    }
  } else if (verb < 28) {
    sent = ask(uid, "POST", target + "end", fmt::format(R"({{"exit_code":{}}})", dice.roll(3)));
  } else {
    sent = ask(uid, "POST", target + "attach");
    const auto jobs = named(id, uid);
    if (jobs.size() == 1) {
      // It changes nothing on record, and so is answered at once.
      if (sent->response && sent->response->status == 200) holders_[jobs.front()] = sent;
    }
  }
  if (allowed) return;
  if (sent->response && sent->response->status == 200) {
    throw Violation(fmt::format("u{} may not, or there is none: {}", uid, sent->request));
  }
  sent->answered = [request = sent->request, uid](const net::Response& response) {
    if (response.status != 200) return;
    throw Violation(fmt::format("u{} may not, or there is none: {}", uid, request));
  };
}

}  // namespace aliquot::engine::walk
