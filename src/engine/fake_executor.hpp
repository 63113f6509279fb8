// A machine for tests: it runs nothing, remembers what it was told, and the test says when a job
// ends. Like real processes it outlives the engine: hand the same one to the next.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor.hpp"

namespace aliquot::engine {

class FakeExecutor final : public Executor {
 public:
  struct Run {
    StartOrder order;
    std::optional<node::ExitRecord> over;  // known to the machine, perhaps not yet to the engine
    bool cancelled = false;
    bool told = false;
  };

  void listen(ExecutorEvents* events) { events_ = events; }

  void start(StartOrder order) override {
    const std::int64_t id = order.job.id.value();
    starts.push_back(id);
    if (!order.job.spec.batch) return admitted.push_back(order.job.run());
    std::erase_if(runs, [&](const auto& one) { return one.first.first == id; });
    runs[{id, order.job.restarts}] = {std::move(order), std::nullopt, false, false};
  }
  void start_step(StepOrder order) override {
    admitted_steps.emplace_back(order.job.run(), order.step);
  }
  void adopt(const Job& job) override { adopted.insert({job.id.value(), job.restarts}); }
  void command(JobId job, const node::Command& command) override {
    commands.emplace_back(job.value(), node::to_line(command));
    if (!std::holds_alternative<node::CancelCommand>(command)) return;
    for (auto& [key, run] : runs) {
      if (key.first == job.value()) run.cancelled = true;
    }
  }
  void adopt_step(const Job& job, std::int64_t step) override {
    adopted_steps.push_back(fmt::format("{}.{}", job.id, step));
  }
  void attach(const Job& job, Pid client) override {
    attached.push_back(fmt::format("{} {}", job.id, client));
  }
  void signal_allocation(const Job&, int) override {}
  void signal_step(const Job& job, std::int64_t step, int number) override {
    step_signals.push_back(fmt::format("{}.{} {}", job.id, step, number));
  }
  void forget_step(const Job& job, std::int64_t step) override {
    forgotten_steps.push_back(fmt::format("{}.{}", job.id, step));
  }
  void freeze_allocation(const Job&, bool) override {}
  void end_allocation(const Job& job, Millis) override {
    node::ExitRecord record;
    record.job_id = job.id.value();
    record.attempt = job.restarts;
    ending.push_back(record);
  }
  Result<std::vector<Leftover>> leftovers() override {
    std::vector<Leftover> left;
    for (const auto& [key, run] : runs) {
      left.push_back({{JobId(key.first), key.second}, run.order.job.owner.uid, run.order.job.mark});
    }
    return left;
  }
  // How it ended stays known until then, as exit.json does.
  void forget(const node::Run& run, Uid) override {
    forgotten.insert(run.job.value());
    forgotten_runs.push_back(run);
    runs.erase({run.job.value(), run.attempt});
  }
  [[nodiscard]] std::string fence() const override { return "none: a fake"; }

  void tell(const Notice& notice) override { told.push_back(notice); }

  // The job's processes end. The engine hears of it by deliver().
  void end(std::int64_t job, int exit_code, node::EndReason reason = node::EndReason::none) {
    for (auto& [key, run] : runs) {
      if (key.first != job || run.over) continue;
      node::ExitRecord record;
      record.job_id = job;
      record.attempt = key.second;
      record.exit_code = exit_code;
      record.reason = run.cancelled ? node::EndReason::cancelled : reason;
      run.over = record;
    }
  }
  // Whether there was any.
  bool deliver_admitted() {
    const bool any = !admitted.empty() || !admitted_steps.empty();
    for (const auto& run : std::exchange(admitted, {})) {
      if (cannot_start.empty()) {
        events_->on_admitted(run.job, run.attempt, {fmt::format("SLURM_JOB_ID={}", run.job)});
      } else {
        events_->on_never_started(run.job, run.attempt, cannot_start);
      }
    }
    for (const auto& [run, step] : std::exchange(admitted_steps, {})) {
      Result<Environment> added = Environment{fmt::format("SLURM_STEP_ID={}", step)};
      if (!cannot_start.empty()) added = fail(Error::Code::unavailable, "{}", cannot_start);
      events_->on_step_admitted(run.job, run.attempt, step, added);
    }
    return any;
  }
  // What the machine knows and the engine does not.
  void deliver() {
    deliver_admitted();
    for (const auto& key : std::exchange(adopted, {})) {
      const auto run = runs.find(key);
      if (run == runs.end()) {
        events_->on_never_started(JobId(key.first), key.second, "");
      } else {
        run->second.told = false;
      }
    }
    for (auto& [key, run] : runs) {
      if (run.over && !std::exchange(run.told, true)) events_->on_ended(*run.over);
    }
    for (const auto& record : std::exchange(ending, {})) events_->on_ended(record);
  }

  std::map<std::pair<std::int64_t, std::int64_t>, Run> runs;  // by id and attempt
  std::vector<std::int64_t> starts;
  std::vector<node::Run> admitted;  // interactive jobs, of which the engine has not heard
  std::vector<std::pair<node::Run, std::int64_t>> admitted_steps;
  std::string cannot_start;  // why none of them can be
  std::vector<std::pair<std::int64_t, std::string>> commands;
  std::set<std::pair<std::int64_t, std::int64_t>> adopted;
  std::set<std::int64_t> forgotten;
  std::vector<node::Run> forgotten_runs;
  std::vector<std::string> attached;  // "job pid"
  std::vector<std::string> adopted_steps;
  std::vector<std::string> step_signals;     // "job.step number"
  std::vector<std::string> forgotten_steps;  // "job.step"
  std::vector<node::ExitRecord> ending;
  std::vector<Notice> told;

 private:
  ExecutorEvents* events_ = nullptr;
};

}  // namespace aliquot::engine
