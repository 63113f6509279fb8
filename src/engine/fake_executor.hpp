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
    starts.push_back(order.job.id);
    std::erase_if(runs, [&](const auto& one) { return one.first.first == order.job.id; });
    runs[{order.job.id, order.job.restarts}] = {std::move(order), std::nullopt, false, false};
  }
  void adopt(const Job& job) override { adopted.insert({job.info.id, job.info.restarts}); }
  void command(JobId job, const node::Command& command) override {
    commands.emplace_back(job.value(), node::to_line(command));
    if (!std::holds_alternative<node::CancelCommand>(command)) return;
    for (auto& [key, run] : runs) {
      if (key.first == job.value()) run.cancelled = true;
    }
  }
  Result<std::vector<std::string>> admit(const StartOrder& order, node::Pid) override {
    starts.push_back(order.job.id);
    return std::vector<std::string>{"SLURM_JOB_ID=" + std::to_string(order.job.id)};
  }
  Result<std::vector<std::string>> admit_step(const StepOrder& order) override {
    return std::vector<std::string>{"SLURM_STEP_ID=" + std::to_string(order.step)};
  }
  void signal_allocation(const Job&, int) override {}
  void signal_step(const Job& job, std::int64_t step, int number) override {
    step_signals.push_back(fmt::format("{}.{} {}", job.info.id, step, number));
  }
  void forget_step(const Job& job, std::int64_t step) override {
    forgotten_steps.push_back(fmt::format("{}.{}", job.info.id, step));
  }
  void freeze_allocation(const Job&, bool) override {}
  void end_allocation(const Job& job, Millis) override {
    node::ExitRecord record;
    record.job_id = job.info.id;
    record.attempt = job.info.restarts;
    ending.push_back(record);
  }
  Result<std::vector<Leftover>> leftovers() override {
    std::vector<Leftover> left;
    for (const auto& [key, run] : runs) {
      left.push_back({{JobId(key.first), key.second}, Uid(run.order.job.uid), run.order.mark});
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
  // What the machine knows and the engine does not.
  void deliver() {
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
  std::vector<std::pair<std::int64_t, std::string>> commands;
  std::set<std::pair<std::int64_t, std::int64_t>> adopted;
  std::set<std::int64_t> forgotten;
  std::vector<node::Run> forgotten_runs;
  std::vector<std::string> step_signals;     // "job.step number"
  std::vector<std::string> forgotten_steps;  // "job.step"
  std::vector<node::ExitRecord> ending;

 private:
  ExecutorEvents* events_ = nullptr;
};

}  // namespace aliquot::engine
