// Messages for the job's user, on the job's own stderr. That may be a pipe that nobody reads or a
// file system that hangs. So each message is written by a process of its own, with the user's
// rights. It is not our child, and the job can end before it does.
#pragma once

#include <string>
#include <vector>

#include "base/time.hpp"
#include "node/spawn.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {

class Voice {
 public:
  explicit Voice(sys::Identity user) : user_(std::move(user)) {}

  // From now on, words go here; before, there is nobody to hear them.
  void set_file(sys::Fd std_err) { std_err_ = std::move(std_err); }
  // Never waits.
  void say(const std::string& line);
  // Until all is said, or patience runs out: a job's output should be whole when the job is over.
  void finish(Millis patience);

 private:
  sys::Identity user_;
  sys::Fd std_err_;
  std::vector<sys::Fd> speaking_;  // each ends when its speaker does
};

}  // namespace aliquot::node
