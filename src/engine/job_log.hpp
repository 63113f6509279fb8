// The last of what a job has written, for its owner on the page. The file is named by the job's
// user, may be anybody's by now, and reading it may hang: so a process with that user's rights
// reads it, and is given up after a while. The engine's thread waits for none of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "node/lanes.hpp"

namespace aliquot::engine {

class JobLog {
 public:
  // Brings a result back to the loop.
  using Post = std::function<void(std::function<void()>)>;
  explicit JobLog(Post post) : post_(std::move(post)) {}

  // From `begin` on, and so much at most, the last of it.
  static constexpr std::int64_t kMost = 64 << 10;
  struct Part {
    std::string text;
    std::int64_t begin = 0;  // in the file
  };
  using Done = std::function<void(Result<Part>)>;
  void read(Uid user, Gid group, const std::string& path, std::int64_t begin, Done done);

 private:
  Post post_;
  node::Lanes lanes_{"aq-logs"};
};

}  // namespace aliquot::engine
