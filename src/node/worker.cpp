#include "node/worker.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace aliquot::node {

std::thread start_thread(const std::string& name, std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(run));
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  return thread;
}

Worker::Worker(const std::string& name, Look look)
    : look_(std::move(look)), thread_(start_thread(name, [this] { run(); })) {}

void Worker::stop() {
  std::deque<std::function<void()>> dropped;  // without the lock: they may post
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(tasks_);
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  const auto called = [this] { return stop_ || !tasks_.empty(); };
  while (!stop_) {
    if (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      continue;
    }
    std::optional<std::chrono::nanoseconds> pause;
    if (look_) {
      lock.unlock();
      pause = look_();
      lock.lock();
    }
    if (pause) {
      wake_.wait_for(lock, *pause, called);
    } else {
      wake_.wait(lock, called);
    }
  }
}

}  // namespace aliquot::node
