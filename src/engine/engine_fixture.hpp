// For the tests of the engine: one with a fake machine and a clock that is set, on a database of
// its own, which can be dropped at any moment and taken up again.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/json.hpp"
#include "engine/api_errors.hpp"
#include "engine/engine.hpp"
#include "engine/fake_executor.hpp"
#include "gpu/fake_devices.hpp"

namespace aliquot::engine {

// As the API says it.
inline std::string code_of(const Refused& refused) { return to_api(refused).info.code; }
inline int status_of(const Refused& refused) { return to_api(refused).status; }

class FakeUsers final : public Users {
 public:
  Result<User> find(Uid uid) override {
    if (asking.contains(uid)) return fail(Error::Code::unavailable, "not asked for yet");
    if (uid == Uid(999)) return fail(Error::Code::not_found, "no user 999");
    const auto more = groups.find(uid);
    return User{"u" + std::to_string(uid.value()), "g", 100,
                more == groups.end() ? std::vector<std::string>{"g"} : more->second};
  }
  void learn(Uid uid, std::function<void()> then) override {
    const auto waiting = asking.find(uid);
    if (waiting == asking.end()) return then();
    waiting->second.push_back(std::move(then));
  }
  std::map<Uid, std::vector<std::string>> groups;            // who has other ones
  std::map<Uid, std::vector<std::function<void()>>> asking;  // whose names are long in coming
};

class EngineFixture {
 public:
  EngineFixture() {
    std::string pattern = testing::TempDir() + "aliquot-engine-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    machine.gpus = gpu::fake_gpus(4, "h200", gib(140));
    open();
  }
  EngineFixture(const EngineFixture&) = delete;
  EngineFixture& operator=(const EngineFixture&) = delete;
  ~EngineFixture() {
    engine.reset();
    std::filesystem::remove_all(folder_);
  }

  void open() {
    auto store = Store::open(database());
    EXPECT_TRUE(store) << store.error().message;
    auto made =
        Engine::create({settings, machine, clock, executor, users, std::move(*store), owner});
    EXPECT_TRUE(made) << made.error().message;
    engine = std::move(*made);
    executor.listen(&engine->runs());
  }
  [[nodiscard]] std::string database() const { return folder_ + "/state.db"; }
  // As kill -9 does: whatever is not committed is gone.
  void crash() {
    engine.reset();
    open();
  }
  void settle() {
    engine->settle();
    executor.deliver();
    engine->settle();
    while (executor.deliver_admitted()) engine->settle();
  }

  api::JobSpec spec(const std::string& gres = "") const {
    api::JobSpec spec;
    spec.name = "job";
    spec.script = "#!/bin/sh\n";
    spec.work_dir = "/tmp";
    if (!gres.empty()) spec.gres = gres;
    return spec;
  }
  std::int64_t submit(const api::JobSpec& wanted, Uid uid = Uid(1000)) {
    const auto answer = engine->queue().submit({uid}, wanted);
    EXPECT_TRUE(answer) << answer.error().message;
    settle();
    return answer ? answer->value() : 0;
  }
  std::string refusal(const api::JobSpec& wanted, Uid uid = Uid(1000)) {
    const auto answer = engine->queue().submit({uid}, wanted);
    settle();
    return answer ? "accepted" : code_of(answer.error());
  }
  api::JobInfo job(const std::string& id) {
    const auto info = engine->views().show({Uid(0)}, id);
    return info ? *info : api::JobInfo{};
  }
  api::JobInfo job(std::int64_t id) { return job(std::to_string(id)); }
  Answer<api::Allocation> begin_step(const Caller& caller, const std::string& id,
                                     const api::StepSpec& wanted) {
    std::optional<Answer<api::Allocation>> granted;
    const auto begun =
        engine->clients().begin_step(caller, id, wanted, [&](auto answer) { granted = answer; });
    settle();
    if (!begun) return tl::make_unexpected(begun.error());
    EXPECT_TRUE(granted) << "nobody was answered";
    return *granted;
  }
  Answer<api::JobInfo> test(const Caller& caller, const api::JobSpec& wanted) {
    std::optional<Answer<api::JobInfo>> told;
    engine->queue().test(caller, wanted, [&](auto answer) { told = std::move(answer); });
    while (!told) settle();
    return *told;
  }
  // `changes` is JSON.
  Answer<void> update(const Caller& caller, const std::string& id, const std::string& changes) {
    return engine->queue().update(
        caller, id, [&](api::JobSpec& one) { return api::update_from_json(one, changes); });
  }
  Answer<api::JobList> list(const Caller& caller, const Views::ListQuery& wanted) {
    api::JobList list;
    const auto next = engine->views().list(
        caller, wanted, [&](const api::JobInfo& one) { list.jobs.push_back(one); });
    if (!next) return tl::make_unexpected(next.error());
    list.next = *next;
    return list;
  }
  std::string state(std::int64_t id) { return job(id).state; }
  void end(std::int64_t id, int code = 0, node::EndReason reason = node::EndReason::none) {
    executor.end(id, code, reason);
    settle();
  }

  Machine machine{
      .name = "host", .os = "test", .cpus = 64, .memory = gib(512), .boot = {}, .boot_id = "first"};
  Settings settings;
  ManualClock clock{WallTime(1'800'000'000'000)};
  FakeExecutor executor;
  FakeUsers users;
  Uid owner = Uid(0);
  std::unique_ptr<Engine> engine;

 private:
  std::string folder_;
};

}  // namespace aliquot::engine
