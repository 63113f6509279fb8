// Which processes of a job hold more of a GPU than the job was granted. Pure: what the driver
// counts and who has registered goes in, who must go comes out; the node looks and kills.
//
// What is over goes, and nothing else: first processes that the library is not in, the largest
// first, then those that hold more than they say. Who stays within what it says, in a job that says
// no more than it was granted, is never among them.
//
// Once seen may be a moment's overlap of a process that ends with the one that follows it: only
// what is over in two looks in a row is acted on. A job that was acted on before gets no second
// look any more.
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
};

// Beside what a process allocates the driver takes a little for it that nobody can tell beforehand.
inline constexpr Bytes kDriverSlack = mib(256);

// Between two looks: what is over is ended well within two seconds, also while its memory is still
// on its way back.
inline constexpr Millis kWatchInterval{250};

// The processes that must go, so that those that stay fit into the limit. Empty: all fit.
std::vector<std::int64_t> over_the_limit(Bytes limit, const std::vector<WatchedProcess>& processes);

class Watchdog {
 public:
  struct Verdict {
    Bytes held = Bytes(0);
    std::vector<std::int64_t> condemned = {};  // now
    std::int64_t times = 0;                    // that something of the job was condemned, with this
    // Without the library in two looks in a row, within the limit, and not told of before.
    std::vector<std::int64_t> strangers = {};
  };

  // A job's processes on one GPU, as just sampled; every job and GPU once in each look.
  Verdict look(JobId job, const std::string& gpu, Bytes limit,
               const std::vector<WatchedProcess>& processes);
  void forget(JobId job);

 private:
  struct Seen {
    bool over = false;  // in the last look
    std::set<std::int64_t> strangers = {};
    std::set<std::int64_t> told = {};
  };
  std::map<std::pair<JobId, std::string>, Seen> seen_;
  std::map<JobId, std::int64_t> times_;
};

}  // namespace aliquot::core
