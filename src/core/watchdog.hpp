// Finds the processes of a job that must end because the job holds more of a GPU than it was
// granted. Pure: it is told what the driver counts and which processes have the library, and it
// names those that must end; the node looks and kills.
//
// It names no more processes than needed: first those without the library, the largest first; then
// those that hold more than they say, the largest difference first. A process that holds no more
// than it says, in a job whose processes say no more than the job was granted, is never named.
//
// A process that ends may overlap for a moment with the one that follows it. So a job is acted on
// only when it is over its limit in two looks in a row; a job that was acted on before, at once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace aliquot::core {

struct WatchedProcess {
  std::int64_t pid = 0;
  Bytes memory = Bytes(0);   // as the driver counts
  bool registered = false;   // the library is in it
  Bytes charged = Bytes(0);  // what it says it holds, if it registered
  bool stopped = false;      // it is stopped, and so takes no GPU time
};

// The driver takes a little memory for each process beside what the process allocates, and nobody
// knows beforehand how much. The library sees it right after, and keeps room for it within the
// limit: only what was just loaded comes on top. So a job gets the slack of two processes, however
// many it has: with a slack for each process, a job could start so many that there is no limit.
inline constexpr Bytes kDriverSlack = mib(256);
inline constexpr std::int64_t kMostSlacks = 2;

// Between two looks. A job over its limit is acted on well within two seconds, even while memory of
// an ended process is still being given back.
inline constexpr Millis kWatchInterval{250};

// A process without the library may take any amount of GPU time. While another job computes on that
// GPU this is tolerated for kStrangerTime, which is enough for a query of the driver. The time
// counts for the user, over all his processes and jobs, and is forgotten four times as slowly as it
// was taken.
inline constexpr Millis kStrangerTime = seconds(5);
inline constexpr std::int64_t kForgottenIn = 4;
inline constexpr Millis kMostStrangerTime = kStrangerTime * 2;
// A job with so many condemned processes, for memory or for time, is ended itself.
inline constexpr std::int64_t kMostCondemned = 64;
// A look that comes later than this says nothing about the time before it.
inline constexpr Millis kLongestLook = seconds(1);

// The processes that must go, so that those that stay fit into the limit. Empty: all fit.
std::vector<std::int64_t> over_the_limit(Bytes limit, const std::vector<WatchedProcess>& processes);

class Watchdog {
 public:
  struct Verdict {
    Bytes held = Bytes(0);
    std::vector<std::int64_t> condemned = {};  // now
    std::int64_t times = 0;  // how often processes of the job were condemned, this time included
    // Processes without the library in two looks in a row, in a job within its limit, that were not
    // reported before.
    std::vector<std::int64_t> strangers = {};
    // Processes without the library that ran beside another job for too long. Each comes with the
    // number of such processes that the job has had, or with 0 if it was reported before.
    std::vector<std::pair<std::int64_t, std::int64_t>> unheld = {};
    // kMostCondemned is reached: the job starts processes faster than they can be ended.
    bool hopeless = false;
  };

  // To be called before each look. elapsed: since the look before.
  void pass(Millis elapsed);
  // A job's processes on one GPU, as just sampled; to be called once in each look for every job and
  // GPU. beside: another job uses that GPU.
  Verdict look(const HolderId& job, Uid owner, const std::string& gpu, Bytes limit,
               const std::vector<WatchedProcess>& processes, bool beside = false);
  void forget(const HolderId& job);

 private:
  struct Seen {
    bool over = false;  // the limit, in the last look
    std::set<std::int64_t> strangers = {};
    std::set<std::int64_t> told = {};    // the strangers that were reported
    std::set<std::int64_t> unheld = {};  // those that were reported as unheld
  };
  std::map<std::pair<HolderId, std::string>, Seen> seen_;
  std::map<HolderId, std::int64_t> times_;
  std::map<HolderId, std::int64_t> unheld_;
  struct Taken {
    Millis time;
    bool now = false;  // a stranger computed in the last look
  };
  std::map<Uid, Taken> taken_;
};

// Finds memory of a GPU that is in use although no process and no job accounts for it: a descriptor
// may hold it after all processes that used it have ended.
class Residue {
 public:
  // True once, when a GPU has had for kStrangerTime more than 1 GiB beyond the least such memory
  // that was ever seen on it; true again after that was gone in between. elapsed: since the look
  // before. shared: a job has a share of the GPU; otherwise only the least is kept.
  bool look(const std::string& gpu, Bytes unexplained, Millis elapsed, bool shared = true);

 private:
  struct Seen {
    Bytes least;
    Millis time = {};  // how long there has been too much
    bool told = false;
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace aliquot::core
