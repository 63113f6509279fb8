// Test support: a simulated machine of its own for each test, and children that use the driver on
// it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "standin/state/state.hpp"

namespace aliquot::standin::test {

// Sets the environment for the children to come, and removes the machine at the end.
class Machine {
 public:
  explicit Machine(const std::string& gpus, double speed = 1);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] State& state() { return *state_; }
  [[nodiscard]] std::uint64_t used(unsigned gpu = 0);
  [[nodiscard]] std::uint64_t used_by(pid_t pid, unsigned gpu = 0);

 private:
  std::string path_;
  std::unique_ptr<State> state_;
};

using Settings = std::map<std::string, std::string>;

// Runs the body in a child; what it returns is the child's exit code. Checks inside use CHECK_CU.
pid_t start_child(const std::function<int()>& body, const Settings& environment = {});
int finish(pid_t child);  // its exit code, or 128 + the signal
int in_child(const std::function<int()>& body, const Settings& environment = {});

}  // namespace aliquot::standin::test

// For children: leaves with the line that did not hold, which the parent's EXPECT_EQ(…, 0) then
// shows.
#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                          \
    }                                                                                    \
  } while (false)
#define CHECK_CU(call, expected)                                                    \
  do {                                                                              \
    const int result = (call);                                                      \
    if (result != (expected)) {                                                     \
      std::fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, result); \
      return 1;                                                                     \
    }                                                                               \
  } while (false)
