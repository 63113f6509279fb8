// The embedded engine with ten thousand waiting jobs of twenty users: one turn, in which a job ends
// and the next one starts, and the answer to somebody who asks when each of them will. The machine
// and its disk are not there: what is measured is what the engine does itself.
#include <benchmark/benchmark.h>

#include "engine/engine.hpp"
#include "engine/fake_executor.hpp"
#include "gpu/fake_devices.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::engine {
namespace {

constexpr std::uint32_t kUsers = 20;

class ManyUsers final : public Users {
 public:
  Result<User> find(Uid uid) override { return User{"u" + std::to_string(uid.value()), "g", 100}; }
  void learn(Uid, std::function<void()> then) override { then(); }
};

class Busy {
 public:
  explicit Busy(std::int64_t waiting) {
    Settings settings;
    settings.limits.job_count = waiting + 1'000;
    settings.limits.jobs_per_user = waiting + 1'000;
    settings.limits.stored_per_user = gib(8);
    Machine machine{.name = "host", .os = "bench", .cpus = 256, .memory = gib(2'048)};
    machine.boot_id = "first";
    machine.gpus = gpu::fake_gpus(8, "h200", gib(140));
    engine_ = std::move(*Engine::create({settings, std::move(machine), clock_, executor_, users_,
                                         std::move(*Store::open("")), Uid(0)}));
    executor_.listen(&engine_->runs());
    const std::vector<std::string> gres{"gpu:1", "gpu:1", "gpu:2", "gpu:4", "mps:10", "mps:25"};
    const std::vector<std::int64_t> limits{10, 60, 120, 240, 720, 1'440};
    for (std::int64_t i = 0; i < waiting + 8; ++i) {
      api::JobSpec spec;
      spec.name = "job";
      spec.script = "#!/bin/sh\n";
      spec.work_dir = "/tmp";
      spec.gres = i < 8 ? "gpu:1" : gres[static_cast<std::size_t>(i * 7 % std::ssize(gres))];
      spec.time_limit_ms =
          minutes(limits[static_cast<std::size_t>(i * 5 % std::ssize(limits))]).value();
      (void)engine_->queue().submit({Uid(1'000 + static_cast<std::uint32_t>(i) % kUsers)}, spec);
    }
    settle();
  }

  void settle() {
    engine_->settle();
    executor_.deliver();
    engine_->settle();
  }
  void end_one() { executor_.end(executor_.runs.begin()->first.first, 0); }
  Engine& engine() { return *engine_; }
  FakeExecutor& executor() { return executor_; }

 private:
  sys::SystemClock clock_;
  FakeExecutor executor_;
  ManyUsers users_;
  std::unique_ptr<Engine> engine_;
};

void turn(benchmark::State& state) {
  Busy busy(state.range(0));
  for ([[maybe_unused]] auto one : state) {
    state.PauseTiming();
    busy.end_one();
    busy.executor().deliver();
    // A long pass is followed by a pause, which is not what is measured.
    while (busy.engine().queue().next_pass() > sys::SystemClock().mono()) {
    }
    state.ResumeTiming();
    busy.engine().settle();
  }
}

// All that somebody who asks waits for at once, and the longest piece after that.
void ask(benchmark::State& state) {
  Busy busy(state.range(0));
  std::int64_t told = 0;
  for ([[maybe_unused]] auto one : state) {
    state.PauseTiming();
    busy.end_one();
    busy.settle();
    while (busy.engine().forecast().unfinished()) busy.engine().settle();
    state.ResumeTiming();
    told = 0;
    (void)busy.engine().views().list({Uid(0)}, {.live = true}, [&](const api::JobInfo& job) {
      if (job.start_ms) ++told;
    });
  }
  state.counters["told"] = static_cast<double>(told);
}

BENCHMARK(turn)->Name("cycle/turn")->Arg(10'000)->Unit(benchmark::kMillisecond)->Iterations(50);
BENCHMARK(ask)->Name("cycle/ask")->Arg(10'000)->Unit(benchmark::kMillisecond)->Iterations(20);

}  // namespace
}  // namespace aliquot::engine
