// A named thread that does one thing after the other, for calls that may block. Results go back to
// the loop by whatever the task itself posts.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace aliquot::node {

// With this name (15 characters, as the kernel has it), and deaf to signals: those are for the
// loop's thread.
std::thread start_thread(const std::string& name, std::function<void()> run);

class Worker {
 public:
  explicit Worker(const std::string& name);  // at most 15 characters, as the kernel has it
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Finishes what it is doing; what waits is dropped.
  ~Worker();

  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace aliquot::node
