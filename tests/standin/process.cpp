#include "standin/process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace aliquot::standin::test {

Machine::Machine(const std::string& gpus, double speed) {
  static std::atomic<int> count{0};
  path_ =
      "/dev/shm/aliquot-standin-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  setenv("ALIQUOT_STANDIN", gpus.c_str(), 1);
  setenv("ALIQUOT_STANDIN_STATE", path_.c_str(), 1);
  setenv("ALIQUOT_STANDIN_SPEED", std::to_string(speed).c_str(), 1);
  // No daemon of somebody else's.
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("CUDA_DEVICE_ORDER");
  std::string why;
  state_ = State::open(&why);
  if (!state_) {
    std::fprintf(stderr, "no machine: %s\n", why.c_str());
    std::abort();
  }
}

Machine::~Machine() {
  for (const Shared& each : state_->data().shared)
    if (each.used) state_->forget_shared(each.number);
  unlink(path_.c_str());
}

std::uint64_t Machine::used(unsigned gpu) {
  const State::Guard guard(*state_);
  state_->reap();
  return state_->used(gpu);
}

std::uint64_t Machine::used_by(pid_t pid, unsigned gpu) {
  const State::Guard guard(*state_);
  state_->reap();
  const int slot = state_->find_pid(pid);
  return slot < 0 ? 0 : state_->process(slot).bytes[gpu] + state_->process(slot).managed[gpu];
}

pid_t start_child(const std::function<int()>& body, const Settings& environment) {
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    _exit(body());
  }
  return child;
}

int finish(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int in_child(const std::function<int()>& body, const Settings& environment) {
  return finish(start_child(body, environment));
}

}  // namespace aliquot::standin::test
