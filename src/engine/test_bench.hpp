// For the tests of the engine: one with a fake machine and a clock that is set, on a database of
// its own, which can be dropped at any moment and taken up again.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "engine/engine.hpp"
#include "engine/fake_executor.hpp"
#include "gpu/fake_devices.hpp"

namespace aliquot::engine {

class FakeUsers final : public Users {
 public:
  Result<User> find(Uid uid) override {
    if (uid == Uid(999)) return fail(Error::Code::not_found, "no user 999");
    return User{"u" + std::to_string(uid.value()), "g", 100};
  }
};

class Bench {
 public:
  Bench() {
    std::string pattern = testing::TempDir() + "aliquot-engine-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    machine.gpus = gpu::fake_gpus(4, "h200", gib(140));
    open();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    engine.reset();
    std::filesystem::remove_all(folder_);
  }

  void open() {
    auto store = Store::open(database());
    EXPECT_TRUE(store) << store.error().message;
    auto made = Engine::create(
        {settings, machine, clock, executor, users, std::move(*store), owner, false});
    EXPECT_TRUE(made) << made.error().message;
    engine = std::move(*made);
    executor.listen(engine.get());
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
    const auto answer = engine->submit({uid}, wanted);
    EXPECT_TRUE(answer) << answer.error().error.message;
    settle();
    return answer ? answer->job_id : 0;
  }
  std::string refusal(const api::JobSpec& wanted, Uid uid = Uid(1000)) {
    const auto answer = engine->submit({uid}, wanted);
    settle();
    return answer ? "accepted" : answer.error().error.code;
  }
  api::JobInfo job(const std::string& id) {
    const auto info = engine->show({Uid(0)}, id);
    return info ? *info : api::JobInfo{};
  }
  api::JobInfo job(std::int64_t id) { return job(std::to_string(id)); }
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
