// The processes of one run of a job, or of one of its steps: by its control group where there is
// one, and else by the mark in their environment. A group is the kernel's word, complete at every
// moment; a mark has to be read from memory that belongs to the process, which can keep its reader
// waiting for as long as it likes, so it is read only where there is no group.
//
// Before they are ended, they are parted from their MPS server (node/parting.hpp), if they have
// one.
//
// Clients (srun, salloc) sit in the groups of what they run, and are spared all but the job's end:
// they report how it went.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "gpu/mps_pipe.hpp"
#include "node/cgroup.hpp"
#include "node/process_tree.hpp"

namespace aliquot::node {

class JobProcesses {
 public:
  JobProcesses(Cgroups& cgroups, Group group, std::string mark,
               std::optional<gpu::MpsPipe> mps = {}, std::set<Pid> clients = {});

  // Without the clients.
  [[nodiscard]] std::vector<sys::ProcessRef> find() const;
  void signal(int number) const;
  // Whether there is nobody, not even a client.
  [[nodiscard]] bool gone() const;
  // Who is left, for people: "process 31 (cat, user games, in uninterruptible sleep)". Empty:
  // nobody.
  [[nodiscard]] std::string describe_left() const;
  // Kills until all are gone, or patience runs out.
  [[nodiscard]] Killed kill(bool clients, Millis patience) const;

 private:
  [[nodiscard]] Search search() const;
  void warn(const std::string& complaint) const;
  [[nodiscard]] std::vector<sys::ProcessRef> find(const std::set<Pid>& spared) const;

  Cgroups& cgroups_;
  Group group_;
  std::string mark_;
  std::optional<gpu::MpsPipe> mps_;
  std::set<Pid> clients_;
};

}  // namespace aliquot::node
