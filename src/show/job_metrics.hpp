// A queue of jobs as figures for Prometheus: under our own names, and under those that Slurm's
// slurmctld has for the same (from 25.11 on, MetricsType=metrics/openmetrics), so that dashboards
// made for Slurm show a machine without Slurm as well. Counting is the engine's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "api/types.hpp"
#include "base/exposition.hpp"
#include "show/gpu_metrics.hpp"

namespace aliquot::show {

struct JobCounts {
  std::int64_t jobs = 0;
  std::map<std::string, std::int64_t, std::less<>> states = {};  // by Slurm's long name
  std::int64_t held = 0;                                         // of those that wait
  std::int64_t cpus = 0;                                         // that running jobs hold
  std::int64_t gpu_parts = 0;                                    // 1/10,000 of a GPU
  std::int64_t memory = 0;
  std::int64_t nodes = 0;
};

// What is counted of passes over the queue.
struct PassCounts {
  Histogram seconds = quick_histogram();
  double last = 0;
  double longest = 0;
  std::int64_t waiting = 0;  // in the queue now
};

struct JobFigures {
  JobCounts all;  // with what was over lately
  std::map<std::string, JobCounts> partitions;
  std::map<std::string, JobCounts> users;
  std::map<std::string, JobCounts> accounts;
  // Since the daemon was started:
  std::uint64_t submitted = 0;
  std::map<std::string, std::uint64_t> finished = {};  // by Slurm's long name
  std::map<std::string, std::uint64_t> refused = {};   // submissions, by the error's name
  std::uint64_t started = 0;
  Histogram waited = patient_histogram();
  PassCounts passes;
  // By user and account.
  std::map<std::pair<std::string, std::string>, double> gpu_seconds = {};
};

void write_jobs(Exposition& out, const JobFigures& figures, const Detail& detail);

// Slurm's: /metrics/jobs, /metrics/nodes, /metrics/partitions, /metrics/scheduler and
// /metrics/jobs-users-accts. Empty: there is none of that name.
std::string slurm_metrics(std::string_view name, const JobFigures& figures,
                          const api::ClusterInfo& cluster, const Detail& detail);

}  // namespace aliquot::show
