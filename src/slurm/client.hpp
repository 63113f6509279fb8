// What we ask of Slurm and tell it: jobs, nodes, partitions, the two fields of a node that the
// balancer sets, and what the node agent says of its node and its jobs. open_client() gives the
// real one, through aliquot_slurm.so (plugins/client.h), which is built for each Slurm major and
// found by trying; FakeSlurm (fake_client.hpp) is for tests.
//
// Calls wait for slurmctld: on a worker, one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"

namespace aliquot::slurm {

struct SlurmJob {
  std::int64_t id = 0;
  std::optional<std::int64_t> array_job_id = {};
  std::optional<std::int64_t> array_task_id = {};
  std::string array_tasks = {};  // "4-40%3": of the record that stands for elements that wait
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t submit_s = 0;  // since the epoch; 0: none
  std::int64_t start_s = 0;   // expected, while it waits
  std::int64_t end_s = 0;
  std::optional<std::int64_t> time_limit_s = {};
  std::int64_t priority = 0;
  std::int64_t tasks = 1;
  std::int64_t cpus = 1;
  std::int64_t restarts = 0;
  std::int64_t exit_status = 0;  // as wait() has it
  std::string name = {};
  std::string account = {};
  std::string partition = {};
  std::string qos = {};
  std::string state = {};   // "RUNNING"
  std::string reason = {};  // "Resources"
  std::string state_desc = {};
  std::string tres_per_node = {};
  std::string tres_requested = {};
  std::string admin_comment = {};
  std::string comment = {};
  std::string command = {};
  std::string work_dir = {};
  std::string std_out = {};
  std::string std_err = {};
  bool exclusive = false;        // it takes its nodes whole
  std::string reservation = {};  // "course,lab"; not slurmctld's here: who needs it asks squeue
  std::string nodes = {};        // "n[1-4]"
  std::vector<std::string> required_nodes = {};
  std::vector<std::string> excluded_nodes = {};
  struct Detail {
    std::string node;
    std::string gres;  // "gpu:h200:1(IDX:2)"
    friend bool operator==(const Detail&, const Detail&) = default;
  };
  std::vector<Detail> details = {};
};

struct SlurmNode {
  std::string name = {};
  std::string state = {};  // "IDLE", "MIXED", "DOWN*"
  std::string gres = {};   // "gpu:h200:4,shard:h200:560"
  std::string extra = {};
  std::string reason = {};
  std::vector<std::string> partitions = {};
  std::uint32_t weight = 1;
  std::int64_t cpus = 0;
  std::int64_t cpus_allocated = 0;
  Bytes memory = Bytes(0);
  Bytes memory_allocated = Bytes(0);
  std::map<std::string, Bytes> gpu_memory = {};  // of one of each model; not slurmctld's
};

struct SlurmPartition {
  std::string name = {};
  std::string billing_weights = {};
  std::string qos = {};
  bool is_default = false;
  bool up = true;
};

class SlurmClient {
 public:
  SlurmClient() = default;
  SlurmClient(const SlurmClient&) = delete;
  SlurmClient& operator=(const SlurmClient&) = delete;
  virtual ~SlurmClient() = default;

  [[nodiscard]] virtual std::string version() const = 0;  // "22.05.8"
  // not_found where Slurm knows it no more; unavailable where slurmctld does not answer.
  virtual Result<SlurmJob> job(JobId id) = 0;
  virtual Result<std::vector<SlurmJob>> jobs() = 0;
  virtual Result<std::vector<SlurmNode>> nodes() = 0;
  virtual Result<SlurmNode> node(const std::string& name) = 0;
  virtual Result<std::vector<SlurmPartition>> partitions() = 0;
  // What is absent stays as it is.
  virtual Result<void> update_nodes(const std::vector<std::string>& names,
                                    std::optional<std::uint32_t> weight,
                                    const std::optional<std::string>& extra) = 0;
  // Takes no more jobs; those on it go on.
  virtual Result<void> drain_node(const std::string& name, const std::string& reason) = 0;
  // Takes jobs again; whatever else it is (down, failing) stays.
  virtual Result<void> undrain_node(const std::string& name) = 0;
  virtual Result<void> set_admin_comment(JobId id, const std::string& text) = 0;
};

// plugin: aliquot_slurm.so; empty: the one beside the program that loads with the libslurm that is
// installed. conf: slurm.conf; empty: as Slurm's own commands find it.
Result<std::unique_ptr<SlurmClient>> open_client(const std::filesystem::path& plugin,
                                                 const std::filesystem::path& conf);

}  // namespace aliquot::slurm
