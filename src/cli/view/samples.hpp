// The jobs and the machine of the transcripts that the formats are tested against: a node of 16
// CPUs and four GPUs, at 06:44:35 on 15 November 2026, UTC.
#pragma once

#include <time.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "api/types.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace aliquot::cli::samples {

inline constexpr std::int64_t kSubmit = 1'794'725'045'000;  // 06:44:05
inline constexpr WallTime kNow{kSubmit + 30'000};

inline void use_utc() {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
}

inline api::JobInfo job(std::int64_t id, std::string name, std::string reason) {
  api::JobInfo job;
  job.id = id;
  job.name = std::move(name);
  job.user = job.group = job.account = "root";
  job.qos = "normal";
  job.partition = "gpu";
  job.state = "PENDING";
  job.reason = std::move(reason);
  job.priority = 10'625;
  job.submit_ms = job.eligible_ms = kSubmit;
  job.time_limit_ms = 600'000;
  job.cpus = job.cpus_per_task = 4;
  job.memory = gib(4).value();
  job.gres = "gpu:1";
  job.command = "/srv/lab/srv.sh 30";
  job.work_dir = "/srv/lab/work";
  job.std_out = "/srv/lab/srv-" + std::to_string(id) + ".out";
  job.submit_host = "localhost";
  return job;
}

// Running for 29 seconds.
inline api::JobInfo running(std::int64_t id, std::string name) {
  auto one = job(id, std::move(name), "None");
  one.state = "RUNNING";
  one.node = "localhost";
  one.start_ms = kSubmit + 1'000;
  one.end_ms = *one.start_ms + 600'000;
  one.gpus = {{id - 1, "GPU-" + std::to_string(id), "h100", gib(80).value(), 10'000, true}};
  api::StepInfo step;
  step.job_id = id;
  step.id = step.name = "batch";
  step.state = "RUNNING";
  step.start_ms = *one.start_ms;
  one.steps = {step};
  return one;
}

inline api::JobInfo small(std::int64_t id, std::string name, std::string reason) {
  auto one = job(id, std::move(name), std::move(reason));
  one.priority = 10'531;
  one.time_limit_ms.reset();
  one.cpus = one.cpus_per_task = 1;
  one.memory = gib(1).value();
  one.gres = "none";
  return one;
}

inline api::JobInfo array(std::int64_t id, std::string elements) {
  auto one = small(id, "arr", "Priority");
  one.array_job_id = id;
  one.array_pending = std::move(elements);
  return one;
}

// Over within the second; with its batch step.
inline api::JobInfo ended(api::JobInfo job, std::string state, std::string reason, int code,
                          int signal) {
  job.state = std::move(state);
  job.reason = std::move(reason);
  job.exit_code = code;
  job.exit_signal = signal;
  job.node = "localhost";
  job.start_ms = kSubmit + 1'000;
  job.end_ms = kSubmit + 31'000;
  api::StepInfo step;
  step.job_id = job.id;
  step.id = step.name = "batch";
  step.state = job.state;
  step.start_ms = *job.start_ms;
  step.end_ms = job.end_ms;
  step.exit_code = code;
  step.exit_signal = signal;
  job.steps = {step};
  return job;
}

inline api::ClusterInfo cluster() {
  api::ClusterInfo info;
  info.daemon_version = "22.05.8";
  info.cluster = "lab";
  info.node.name = "localhost";
  info.node.state = "mixed";
  info.node.os = "Linux 6.18.44-fc-v445 #1 SMP PREEMPT_DYNAMIC @0";
  info.node.cpus = 16;
  info.node.cpus_allocated = 8;
  info.node.memory = mib(20'000).value();
  info.node.memory_allocated = gib(8).value();
  info.node.boot_ms = 1'794'723'615'000;
  info.node.daemon_start_ms = 1'794'725'003'000;
  for (int i = 0; i < 4; ++i) {
    api::GpuInfo gpu;
    gpu.index = i;
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.model = "h100";
    gpu.health = "ok";
    gpu.memory = gib(80).value();
    if (i < 2) {
      gpu.whole = true;
      gpu.jobs = {i + 1};
      gpu.memory_granted = gpu.memory;
      gpu.compute_granted = 10'000;
    }
    info.node.gpus.push_back(gpu);
  }
  info.partitions = {{"gpu", true, true, std::nullopt, std::nullopt},
                     {"debug", false, true, 1'800'000, std::nullopt}};
  return info;
}

}  // namespace aliquot::cli::samples
