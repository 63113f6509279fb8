// Words for the job's user, on the job's own stderr. That may be a pipe that nobody reads or a file
// system that hangs, so somebody else says them: a process of its own for each, with the user's
// rights, which is not our child and need not end for the job to end.
#pragma once

#include <string>
#include <vector>

#include "base/time.hpp"
#include "node/process.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

class Voice {
 public:
  explicit Voice(Identity user) : user_(std::move(user)) {}

  // From now on, words go here; before, there is nobody to hear them.
  void set_file(Fd std_err) { std_err_ = std::move(std_err); }
  // Never waits.
  void say(const std::string& line);
  // Until all is said, or patience runs out: a job's output should be whole when the job is over.
  void finish(Millis patience);

 private:
  Identity user_;
  Fd std_err_;
  std::vector<Fd> speaking_;  // each ends when its speaker does
};

}  // namespace aliquot::node
