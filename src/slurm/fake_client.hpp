// A Slurm that is a few values, for tests.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "slurm/client.hpp"

namespace aliquot::slurm {

class FakeSlurm final : public SlurmClient {
 public:
  std::vector<SlurmJob> known_jobs;
  std::vector<SlurmNode> known_nodes;
  std::vector<SlurmPartition> known_partitions;
  bool away = false;  // slurmctld does not answer
  int updates = 0;    // calls of update_nodes
  int questions = 0;  // calls of job()
  int node_questions = 0;
  int drains = 0;
  std::function<void()> takes_time;  // at each call

  [[nodiscard]] std::string version() const override { return "22.05.8"; }
  Result<SlurmJob> job(JobId id) override {
    ++questions;
    TRY(reach());
    for (const SlurmJob& job : known_jobs) {
      if (job.id == id.value()) return job;
    }
    return fail(Error::Code::not_found, "Slurm does not know job {}", id);
  }
  Result<std::vector<SlurmJob>> jobs() override {
    TRY(reach());
    return known_jobs;
  }
  Result<std::vector<SlurmNode>> nodes() override {
    TRY(reach());
    return known_nodes;
  }
  Result<SlurmNode> node(const std::string& name) override {
    ++node_questions;
    TRY(reach());
    for (const SlurmNode& node : known_nodes) {
      if (node.name == name) return node;
    }
    return fail(Error::Code::not_found, "Slurm does not know node {}", name);
  }
  Result<std::vector<SlurmPartition>> partitions() override {
    TRY(reach());
    return known_partitions;
  }
  Result<void> update_nodes(const std::vector<std::string>& names,
                            std::optional<std::uint32_t> weight,
                            const std::optional<std::string>& extra) override {
    TRY(reach());
    ++updates;
    for (const std::string& name : names) {
      for (SlurmNode& node : known_nodes) {
        if (node.name != name) continue;
        if (weight) node.weight = *weight;
        if (extra) node.extra = *extra;
      }
    }
    return {};
  }
  Result<void> drain_node(const std::string& name, const std::string& reason) override {
    TRY(reach());
    ++drains;
    for (SlurmNode& node : known_nodes) {
      if (node.name != name) continue;
      node.state = "IDLE+DRAIN";
      node.reason = reason;
    }
    return {};
  }
  Result<void> undrain_node(const std::string& name) override {
    TRY(reach());
    for (SlurmNode& node : known_nodes) {
      if (node.name != name) continue;
      node.state = "IDLE";
      node.reason.clear();
    }
    return {};
  }
  Result<void> set_admin_comment(JobId id, const std::string& text) override {
    TRY(reach());
    for (SlurmJob& job : known_jobs) {
      if (job.id == id.value()) job.admin_comment = text;
    }
    return {};
  }

 private:
  [[nodiscard]] Result<void> reach() const {
    if (takes_time) takes_time();
    if (away) return fail(Error::Code::unavailable, "slurmctld does not answer");
    return {};
  }
};

}  // namespace aliquot::slurm
