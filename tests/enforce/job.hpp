// Test support: a simulated machine, a job with a grant on it as the daemon would make one, and
// victims (victim.cpp) that run in the job with the library preloaded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "enforce/abi.h"
#include "standin/process.hpp"

namespace aliquot::enforce::test {

inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr std::uint64_t kGiB = 1ULL << 30;
inline constexpr std::uint64_t kContext = 526 * kMiB;  // of the simulated H200
inline constexpr int kOutOfMemory = 2;                 // of CUDA

// The folder with limits, usage and, where `lease`, a board that says "open" with a live heartbeat.
class Job {
 public:
  struct Share {
    unsigned gpu;  // on the machine
    std::uint64_t bytes;
  };
  Job(standin::test::Machine& machine, std::vector<Share> shares, bool lease = false);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] aliquot_limits& limits() { return *limits_; }
  [[nodiscard]] aliquot_usage& usage() { return *usage_; }
  [[nodiscard]] aliquot_board& board() { return *board_; }
  void beat();
  // The arbiter lives for as long as the test does: its last heartbeat lies in the future.
  void keep_beating();

  // Over the living processes, by the record locks, as the daemon sees it; without the room that is
  // kept for what the driver takes by itself.
  [[nodiscard]] std::uint64_t charged(unsigned index = 0);
  // Over all slots, dead ones and rooms included: what the library holds against the limit.
  [[nodiscard]] std::uint64_t total(unsigned index = 0);
  [[nodiscard]] aliquot_use use(unsigned index = 0);  // sums over all slots

 private:
  void beat_at(std::uint64_t seconds_ahead);

  std::string folder_;
  std::vector<Share> shares_;
  aliquot_limits* limits_ = nullptr;
  aliquot_usage* usage_ = nullptr;
  aliquot_board* board_ = nullptr;
  int fd_ = -1;
};

// A running victim. Ended, if need be by force, when it goes out of scope.
class Victim {
 public:
  using Settings = std::map<std::string, std::string>;
  explicit Victim(Job* job, const std::string& how = "dlsym", const Settings& environment = {},
                  bool linked = false);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Sends the line and waits for the answer: the driver's code, and the numbers after it.
  int tell(const std::string& line);
  void send(const std::string& line);
  int answer();
  [[nodiscard]] std::uint64_t number(const std::string& key) const;
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Kills it, and waits for it unless it should stay a zombie.
  void kill(bool reap = true);
  int finish();               // exit code
  int begin(int device = 0);  // init and ctx

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string text_;
};

// Whether these processes and this one got the CPU as soon as they wanted it while the work was
// done: where they do not, what is measured of it is not what is to be measured.
bool in_calm(std::vector<pid_t> processes, const std::function<void()>& work);

// Asks again where there was no calm, for at most two minutes. On a quiet machine the first answer
// counts.
bool holds_in_calm(const std::vector<pid_t>& processes, const std::function<bool()>& holds);

}  // namespace aliquot::enforce::test
