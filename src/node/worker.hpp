// A named thread that does one thing after the other, for calls that may block. Results go back to
// the loop by whatever the task itself posts. Where it is given a look, it takes one whenever it
// has nothing else to do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace aliquot::node {

// With this name (15 characters, as the kernel has it), and deaf to signals: those are for the
// loop's thread.
std::thread start_thread(const std::string& name, std::function<void()> run);

class Worker {
 public:
  // Takes the look and says after how long to take the next, without tasks; nothing: after the next
  // task.
  using Look = std::function<std::optional<std::chrono::nanoseconds>()>;

  explicit Worker(const std::string& name, Look look = {});  // at most 15 characters
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { stop(); }

  void post(std::function<void()> task);
  // Finishes what it is doing; what waits is dropped, and whatever is posted from now on. Workers
  // that post to each other are stopped before the first of them is gone.
  void stop();

 private:
  void run();

  Look look_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace aliquot::node
