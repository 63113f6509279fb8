// What the three users, their clients, the clock and fate may do.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/json.hpp"
#include "core/array_spec.hpp"
#include "core/job_state.hpp"
#include "engine/walk/throw.hpp"
#include "engine/walk/world.hpp"
#include "gpu/fake_devices.hpp"
#include "net/http.hpp"

namespace aliquot::engine::walk {

namespace {

constexpr std::array<const char*, 6> kArrays{"1-3", "0-6:2", "3-4,7%1", "1-4%2", "5", "9-1"};
constexpr std::array<const char*, 4> kAccounts{"lab", "team", "team", "label"};
constexpr std::array<const char*, 3> kQos{"high", "high", "normal"};
constexpr std::array<const char*, 6> kKinds{"after",      "afterany",  "afterok",
                                            "afternotok", "aftercorr", "singleton"};
// What it says beyond the usual: the walk is read by people.
std::string body_of(const api::JobSpec& spec) {
  const std::string usual = api::to_json(api::JobSpec());
  const std::string all = api::to_json(spec);
  std::string body = "{";
  for (std::size_t at = 1; at < all.size();) {
    std::size_t end = all.find(",\"", at);
    if (end == std::string::npos) end = all.size() - 1;
    const std::string field = all.substr(at, end - at);
    if (usual.find(field + ",") == std::string::npos &&
        usual.find(field + "}") == std::string::npos) {
      body += (body.size() > 1 ? "," : "") + field;
    }
    at = end + 1;
  }
  return body + "}";
}

}  // namespace

// Mostly of jobs there are, in every form there is; sometimes of none.
std::string World::make_id(Throw& dice) {
  std::int64_t id = 1 + dice.roll(40);
  if (!known_.empty() && !dice.one_in(8)) {
    // The youngest are the most alive.
    const auto back = std::min<std::size_t>(dice.roll(dice.one_in(3) ? 100 : 8), known_.size() - 1);
    id = std::prev(known_.end(), static_cast<std::ptrdiff_t>(back) + 1)->first;
  }
  switch (dice.roll(16)) {
    case 0:
      return "last";
    case 1:
    case 2:
    case 3:
    case 4:
      return fmt::format("{}_{}", id, dice.roll(9));
    case 5: {
      const auto job = known_.find(id);
      const auto array = job == known_.end() ? id : job->second.array_job_id.value_or(id);
      return dice.one_in(2) ? fmt::format("{}", array) : fmt::format("{}_{}", array, dice.roll(9));
    }
    case 6: {
      constexpr std::array<const char*, 12> kOdd{"99999",
                                                 "99999_1",
                                                 "0",
                                                 "-1",
                                                 "",
                                                 "batch",
                                                 "7_",
                                                 "_3",
                                                 "7_3_1",
                                                 "x",
                                                 "9223372036854775807",
                                                 "18446744073709551616"};
      return dice.one_of(kOdd);
    }
    case 7:
      return fmt::format("{}_99", id);
    default:
      return std::to_string(id);
  }
}

api::JobSpec World::make_spec(Throw& dice) {
  api::JobSpec spec;
  spec.name = dice.one_in(4) ? "same" : fmt::format("job{}", serial_);
  spec.comment = fmt::format("w{}", ++serial_);
  spec.script = "#!/bin/sh\n";
  spec.work_dir = "/tmp";
  const std::string gpus = dice.one_of(kGpus);
  if (!gpus.empty()) spec.gres = gpus;
  if (dice.one_in(2)) spec.partition = dice.one_in(3) ? "main,besteffort" : "besteffort";
  if (dice.one_in(6)) spec.reservation = fmt::format("r{}", dice.roll(3));
  if (dice.one_in(4)) spec.account = dice.one_of(kAccounts);
  if (dice.one_in(4)) spec.qos = dice.one_of(kQos);
  if (dice.one_in(3)) spec.cpus_per_task = 1 + dice.roll(20);
  if (dice.one_in(4)) spec.time_limit_ms = 1'000 * (1 + dice.roll(100));
  if (dice.one_in(6)) spec.memory = gib(1 + dice.roll(70)).value();
  if (dice.one_in(8)) spec.begin_ms = (clock_.wall() + seconds(dice.roll(100))).ms();
  if (dice.one_in(12)) spec.deadline_ms = (clock_.wall() + seconds(dice.roll(100))).ms();
  if (dice.one_in(8)) spec.hold = true;
  if (dice.one_in(3)) spec.requeue = false;
  if (dice.one_in(10)) spec.nice = dice.roll(50);
  if (dice.one_in(20)) spec.exclusive = true;
  if (dice.one_in(4)) {
    const std::string kind = dice.one_of(kKinds);
    spec.dependency = kind == "singleton" ? kind : fmt::format("{}:{}", kind, make_id(dice));
    spec.kill_on_invalid_dependency = dice.one_in(2);
  }
  if (dice.one_in(30)) spec.work_dir = dice.one_of(kBadTexts);
  if (dice.one_in(30)) spec.std_out = dice.one_of(kBadTexts);
  if (dice.one_in(30)) spec.name = dice.one_of(kBadTexts);
  return spec;
}

void World::submit(Throw& dice, std::uint32_t uid) {
  api::JobSpec spec = make_spec(dice);
  if (dice.one_in(3)) spec.array = dice.one_of(kArrays);
  Submission submission{
      .uid = uid, .tasks = {}, .requeue = spec.requeue, .account = account_of(spec, uid)};
  if (const auto array = core::parse_array(spec.array.empty() ? "0" : spec.array);
      array && !spec.array.empty()) {
    submission.tasks = {array->tasks.begin(), array->tasks.end()};
  }
  submissions_[spec.comment] = submission;
  if (dice.one_in(12)) {
    ask(uid, "POST", "/v1/jobs?test=1", body_of(spec));
    return;
  }
  const auto sent = ask(uid, "POST", "/v1/jobs", body_of(spec));
  const auto heard = [this](const net::Response& response) {
    if (response.status != 200) return;
    accepted_.insert(api::from_json<api::Submitted>(response.body)->job_id);
  };
  if (sent->response) {
    heard(*sent->response);
  } else {
    sent->answered = heard;
  }
}

void World::allocate(Throw& dice, std::uint32_t uid) {
  api::JobSpec spec = make_spec(dice);
  spec.batch = false;
  spec.detached = dice.one_in(6);
  spec.name = spec.detached ? "detached" : "interactive";
  spec.immediate = dice.one_in(6);
  spec.immediate_s = dice.roll(10);
  submissions_[spec.comment] = {
      .uid = uid, .tasks = {}, .requeue = false, .account = account_of(spec, uid)};
  const auto sent = ask(uid, "POST", "/v1/allocations", body_of(spec));
  // Who will hold it is known when it starts, and before that to nobody but the daemon.
  sent->answered = [this, weak = std::weak_ptr(sent)](const net::Response& response) {
    if (response.status != 200) return;
    const auto granted = api::from_json<api::Allocation>(response.body);
    holders_[granted->job_id] = weak.lock();
  };
}

void World::look(Throw& dice, std::uint32_t uid) {
  const std::string id = make_id(dice);
  const std::string target = "/v1/jobs/" + net::percent_encode(id);
  switch (dice.roll(8)) {
    case 0:
      ask(uid, "GET", target + "/wait");
      break;
    case 1:
      ask(uid, "GET", target + "/why");
      break;
    case 2:
      ask(uid, "GET", target + "?script=1");
      break;
    case 3:
      ask(uid, "GET", "/v1/jobs?id=" + net::percent_encode(id));
      break;
    case 4:
      ask(uid, "GET", "/v1/accounting?id=" + net::percent_encode(id));
      break;
    case 5:
      ask(uid, "GET", "/v1/cluster");
      break;
    default: {
      const bool fresh = !due_;
      const auto sent = ask(uid, "GET", target);
      if (fresh && sent->response->status == 200 && named(id, uid).empty()) {
        throw Violation("there is no such job, and it is shown: " + id);
      }
    }
  }
}

void World::nonsense(Throw& dice, std::uint32_t uid) {
  constexpr std::array<const char*, 8> kTargets{"/",
                                                "/v1",
                                                "/v1/",
                                                "/v1/jobs/",
                                                "/v1/jobs//cancel",
                                                "/v1/nothing",
                                                "/v1/jobs/1/steps/1/2/3",
                                                "/v1/jobs/1/fly"};
  constexpr std::array<const char*, 8> kBodies{
      "",
      "[]",
      "nonsense",
      "{\"name\":7}",
      "{\"array\":[1]}",
      "{\"time_limit_ms\":1e999}",
      "{\"nodes\":-1}",
      "{\"dependency\":\"after:1:2:3\",\"gres\":\"gpu:-1\"}"};
  constexpr std::array<const char*, 4> kMethods{"GET", "POST", "PUT", "DELETE"};
  if (dice.one_in(2)) {
    ask(uid, dice.one_of(kMethods), dice.one_of(kTargets), dice.one_of(kBodies));
  } else if (dice.one_in(2)) {
    const bool drain = dice.one_in(2);
    ask(uid, "POST", drain ? "/v1/node/drain" : "/v1/node/resume", R"({"reason":"x"})");
    if (uid == 0) machine_drained_ = drain;
  } else {
    constexpr std::array<const char*, 4> kVerbs{"cancel", "update", "steps", "end"};
    if (due_) {  // the model knows whom a text names after every commit
      settle();
      check();
    }
    const std::string id = make_id(dice);
    const std::string verb = dice.one_of(kVerbs);
    if (verb == "cancel") {
      for (const std::int64_t one : named(id, uid)) submission_of(known_.at(one))->cancelled = true;
    }
    ask(uid, "POST", fmt::format("/v1/jobs/{}/{}", net::percent_encode(id), verb),
        dice.one_of(kBodies));
  }
}

void World::disturb(Throw& dice) {
  const auto& runs = machine_.runs();
  switch (dice.roll(21)) {
    case 20:
      change_settings(dice);
      break;
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
      if (runs.empty()) return;
      told("a job's processes end");
      machine_.end(dice.roll(static_cast<std::uint32_t>(runs.size())), dice.one_in(4) ? 1 : 0);
      break;
    case 6:
      if (runs.empty()) return;
      told("a stepd is killed");
      machine_.lose(dice.roll(static_cast<std::uint32_t>(runs.size())));
      break;
    case 7:
    case 8:
    case 9: {
      const Millis by(1'000 * static_cast<std::int64_t>(dice.roll(40)));
      told(fmt::format("{} ms pass", by));
      clock_.advance(by);
      machine_.time_passes(by);
      break;
    }
    case 10: {
      const std::int64_t by = (static_cast<std::int64_t>(dice.roll(200)) - 100) * 60'000;
      told(fmt::format("the clock is set by {} ms", by));
      clock_.set_wall(clock_.wall() + Millis(by));
      break;
    }
    case 11:
    case 12:
    case 13: {
      if (connections_.empty()) return;
      const auto one = connections_[dice.roll(static_cast<std::uint32_t>(connections_.size()))];
      told("hangs up: " + one->request);
      one->close();
      break;
    }
    case 14:
      told("the daemon is killed");
      crash(false, dice.roll(1U << 20U));
      break;
    case 15:
      told("the daemon will be killed soon");
      fuse_.light(1 + static_cast<int>(dice.roll(12)));
      break;
    case 16:
      if (!dice.one_in(3)) return;
      told("the power goes");
      crash(true, dice.roll(1U << 20U));
      break;
    case 17: {
      if (!dice.one_in(3)) return;
      host_.cpus = 4 + dice.roll(16);
      settings_.compute_limit = dice.one_in(2) ? kWholeGpu : kWholeGpu * 2;
      host_.gpus.resize(3, host_.gpus.front());
      host_.gpus = gpu::fake_gpus(1 + static_cast<int>(dice.roll(3)), "h200", gib(100));
      told(fmt::format("the daemon is killed, and finds {} CPUs, {} GPUs, {} of compute",
                       host_.cpus, host_.gpus.size(), settings_.compute_limit));
      crash(false, dice.roll(1U << 20U));
      break;
    }
    case 18: {
      told("the GPUs are looked at");
      std::vector<node::GpuView> views(host_.gpus.size());
      for (std::size_t i = 0; i < views.size(); ++i) {
        views[i].sample.id = host_.gpus[i].gpu.id;
        if (!dice.one_in(4)) continue;
        views[i].processes = {
            {.pid = 1, .user = "x", .command = "\033[2J", .memory = Bytes(1'000'000)}};
      }
      engine_->observe(views);
      break;
    }
    default:
      told("the daemon stops, and starts");
      api_->stop();
      engine_->settle();
      for (const auto& one : connections_) one->close();
      crash(false, dice.roll(1U << 20U));
  }
}

void World::step(const Dice& given) {
  Throw dice(given);
  constexpr std::array<std::uint32_t, 4> kUsers{0, 1'000, 1'001, 1'000};
  const std::uint32_t uid = dice.one_of(kUsers);
  const std::uint32_t later = dice.roll(1U << 20U);
  guarded(
      [&] {
        const std::uint32_t what = dice.roll(20);
        if (what < 4) {
          submit(dice, uid);
        } else if (what < 5) {
          allocate(dice, uid);
        } else if (what < 11) {
          command(dice, uid);
        } else if (what < 12) {
          look(dice, uid);
        } else if (what < 14) {
          if (dice.one_in(3)) {
            nonsense(dice, uid);
          } else {
            administer(dice, dice.one_in(4) ? uid : 0);
          }
        } else {
          disturb(dice);
        }
        // Requests that come together share a commit, and news take their time.
        if (later % 4 == 0) return;
        settle();
        if (later % 4 == 1) return;
        machine_.go_on(engine_->runs(), later);
        settle();
      },
      later);
  if (due_) return;
  guarded([&] { settle(); }, later);
  check();
}

void World::wind_up() {
  told("everything comes to its end");
  fuse_.put_out();
  ask(0, "POST", "/v1/node/resume");
  machine_drained_ = false;
  machine_.held_back.clear();
  settle();
  for (int round = 0; engine_->live() > 0; ++round) {
    if (round == 20) throw Violation(fmt::format("{} jobs never end", engine_->live()));
    for (const api::JobInfo& job : snapshot()) {
      if (core::is_final(*core::parse_job_state(job.state))) continue;
      submission_of(job)->cancelled = true;
      ask(0, "POST", fmt::format("/v1/jobs/{}/cancel", job.id));
    }
    settle();
    machine_.go_on(engine_->runs(), 1U << 30U);
    settle();
  }
  check();
  for (const Run& run : machine_.runs()) {
    if (run.alive()) throw Violation(fmt::format("job {} is over and runs", run.job.id));
  }
  if (engine_->ledger().size() != 0) throw Violation("nobody runs, and something is held");
  for (const auto& one : connections_) {
    if (!one->response) throw Violation("never answered: " + one->request);
  }
}

}  // namespace aliquot::engine::walk
