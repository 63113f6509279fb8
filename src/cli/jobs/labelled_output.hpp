// --label: what tasks write, line by line, each with its task's number in front. It passes through
// srun, which polls the ends of the pipes.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <vector>

#include "sys/fd.hpp"

namespace aliquot::cli {

class LabelledOutput {
 public:
  explicit LabelledOutput(std::size_t tasks) : tasks_(tasks) {}

  // What `task` writes into the pipe goes to `to`, which stays the caller's.
  void add(std::size_t task, sys::Fd from, int to);
  [[nodiscard]] bool empty() const { return streams_.empty(); }

  void poll_for(std::vector<pollfd>& polled) const;
  // As poll left them, from this one on.
  void read(const std::vector<pollfd>& polled, std::size_t first);
  // Lines that have not ended, and no more: a task's children may hold its output open.
  void flush();

 private:
  struct Stream {
    std::size_t task = 0;
    sys::Fd from;
    int to = -1;
    std::string line;  // not ended yet
  };
  void read_one(std::size_t index);
  void write_lines(Stream& stream, bool all) const;

  const std::size_t tasks_;
  std::vector<Stream> streams_;
};

}  // namespace aliquot::cli
