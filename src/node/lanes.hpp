// Threads for calls that may block, in lanes. The tasks of one lane are done in order; no lane
// waits for another. A lane belongs to a user, and a user keeps only so many threads busy: users
// can make calls about their own jobs slow, and the calls about other users' jobs go on. A task
// that a user can make slow at will is posted with Pace::slow. Slow tasks get half of the user's
// threads, so that the other half can always end the user's jobs.
//
// A task posts its result back to the loop itself.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/ids.hpp"

namespace aliquot::node {

class Lanes {
 public:
  struct Sizes {
    std::size_t threads = 128;
    std::size_t per_user = 8;
  };
  explicit Lanes(std::string name) : Lanes(std::move(name), Sizes{}) {}
  Lanes(std::string name, Sizes sizes);  // name: at most 15 characters, as the kernel has it
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  // Waits for what is being done; what is not begun is dropped.
  ~Lanes();

  enum class Pace : std::uint8_t { usual, slow };
  void post(Uid user, std::int64_t lane, std::function<void()> task, Pace pace = Pace::usual);

 private:
  struct Task {
    std::function<void()> run;
    Pace pace;
  };
  struct Lane {
    Uid user;
    std::deque<Task> tasks;
  };
  struct User {
    // Lanes with something to do that nobody does, by the pace of what is next in them.
    std::map<Pace, std::deque<std::int64_t>> waiting = {};
    std::map<Pace, std::size_t> busy = {};
  };

  void run(bool coming = false);
  static bool is_idle(const User& user);
  // All under the mutex. How many more of a user's may go, of one pace and in all:
  [[nodiscard]] std::size_t room(const User& user, Pace pace) const;
  void wait(std::int64_t lane, const Lane& what);
  // How many lanes could be taken now:
  [[nodiscard]] std::size_t ready() const;
  // One that may go, of another user than the last one where there is any.
  std::map<std::int64_t, Lane>::iterator take();
  void grow();

  const std::string name_;
  const Sizes sizes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable gone_;
  std::map<std::int64_t, Lane> lanes_;  // that have something to do
  std::map<Uid, User> users_;           // whose they are
  Uid last_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
  std::size_t coming_ = 0;  // of the threads: those that have not looked for work yet
  bool stop_ = false;
};

}  // namespace aliquot::node
