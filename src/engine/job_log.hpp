// The last of what a job has written, for its owner on the page. The file is named by the job's
// user, may be anybody's by now, and reading it may hang: so a process with that user's rights
// reads it, and is given up after a while. The engine's thread waits for none of it, and no user
// for another one's files. A reader that cannot even be killed is the last one of its user until it
// has gone: it costs a process, and no thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "node/lanes.hpp"

namespace aliquot::engine {

// The processes that read, children of ours; tests have their own.
class LogReaders {
 public:
  LogReaders() = default;
  LogReaders(const LogReaders&) = delete;
  LogReaders& operator=(const LogReaders&) = delete;
  virtual ~LogReaders() = default;

  struct Order {
    Uid user;
    Gid group;
    std::string path;
    std::int64_t begin = 0;
  };
  // Writes to `out` where it begins, in a line, and then what there is.
  virtual Result<Pid> start(const Order& order, int out) = 0;
  virtual void kill(Pid reader) = 0;
};

class JobLog {
 public:
  // Brings a result back to the loop.
  using Post = std::function<void(std::function<void()>)>;
  struct Patience {
    Millis reading = seconds(3);
    Millis ending = seconds(1);  // of a reader that was killed
  };
  explicit JobLog(Post post);
  JobLog(Post post, std::unique_ptr<LogReaders> readers, Patience patience);

  // From `begin` on, and so much at most, the last of it.
  static constexpr std::int64_t kMost = 64 << 10;
  struct Part {
    std::string text;
    std::int64_t begin = 0;  // in the file
  };
  // Of each user one is read at a time, and so many wait for that, with it, at most; of all users
  // so many are read at once.
  static constexpr std::size_t kMostAsked = 4;
  static constexpr std::size_t kMostReaders = 32;
  using Done = std::function<void(Result<Part>)>;
  // `unavailable`: not now.
  void read(Uid user, Gid group, const std::string& path, std::int64_t begin, Done done);

 private:
  Result<Part> read_now(const LogReaders::Order& order);
  Result<void> admit(Uid user);
  void let_go(Uid user, Pid reader);

  Post post_;
  std::unique_ptr<LogReaders> readers_;
  Patience patience_;
  std::map<Uid, std::size_t> asked_;  // in the loop's thread alone
  std::mutex mutex_;
  std::map<Uid, std::optional<Pid>> reading_;  // with a number: killed, and still there
  node::Lanes lanes_{"aq-logs"};               // the last member: its threads use the others
};

}  // namespace aliquot::engine
