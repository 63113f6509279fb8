// Which processes of a job hold more of a GPU than the job was granted. Pure: what the driver
// counts and who has registered goes in, who must go comes out; the node looks and kills.
//
// What is over goes, and nothing else: first processes that the library is not in, the largest
// first, then those that hold more than they say, by the most first. Who stays within what it says,
// in a job that says no more than it was granted, is never among them.
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
  bool stopped = false;      // it takes no time
};

// Beside what a process allocates the driver takes a little for it that nobody can tell beforehand.
// The library sees it right after, and keeps room for it within the limit: only what is loaded just
// now is on top. So a job of many processes has the slack of two: what each of them may have by
// itself, times as many as it likes to start, would be no limit.
inline constexpr Bytes kDriverSlack = mib(256);
inline constexpr std::int64_t kMostSlacks = 2;

// Between two looks: what is over is ended well within two seconds, also while its memory is still
// on its way back.
inline constexpr Millis kWatchInterval{250};

// A process without the library may take any time of the GPU. Beside another job that computes that
// is bearable for so long, which a query of the driver survives. It is the user's time, whatever
// processes and jobs it is split into, and is forgotten four times as slowly as it is taken.
inline constexpr Millis kStrangerTime = seconds(5);
inline constexpr std::int64_t kForgottenIn = 4;
inline constexpr Millis kMostStrangerTime = kStrangerTime * 2;
// In one job, by what it takes or by how long.
inline constexpr std::int64_t kMostCondemned = 64;
// A look that comes late says nothing about the time before it.
inline constexpr Millis kLongestLook = seconds(1);

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
    // Without the library beside another job for too long, each with the number of such processes
    // that the job has had, or 0 where that was told before.
    std::vector<std::pair<std::int64_t, std::int64_t>> unheld = {};
    // So many of its processes had to go that the job has to: it starts them faster than one looks.
    bool hopeless = false;
  };

  // Before each look: so much time has passed since the last one.
  void pass(Millis elapsed);
  // A job's processes on one GPU, as just sampled; every job and GPU once in each look. beside:
  // another job uses that GPU.
  Verdict look(const HolderId& job, Uid owner, const std::string& gpu, Bytes limit,
               const std::vector<WatchedProcess>& processes, bool beside = false);
  void forget(const HolderId& job);

 private:
  struct Seen {
    bool over = false;  // in the last look
    std::set<std::int64_t> strangers = {};
    std::set<std::int64_t> told = {};
    std::set<std::int64_t> unheld = {};  // of these, told of
  };
  std::map<std::pair<HolderId, std::string>, Seen> seen_;
  std::map<HolderId, std::int64_t> times_;
  std::map<HolderId, std::int64_t> unheld_;
  struct Taken {
    Millis time;
    bool now = false;  // in the last look
  };
  std::map<Uid, Taken> taken_;
};

// Memory of a GPU that is in use and that nobody accounts for, neither a process nor a job: a
// descriptor may hold it after all that used it have ended.
class Residue {
 public:
  // Once, when a GPU has had more than 1 GiB beyond the least that was seen of it for
  // kStrangerTime; again when that was gone meanwhile. elapsed: since the look before.
  // shared: somebody on the GPU has shares; else it is only seen how little there can be.
  bool look(const std::string& gpu, Bytes unexplained, Millis elapsed, bool shared = true);

 private:
  struct Seen {
    Bytes least;
    Millis time = {};  // with too much
    bool told = false;
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace aliquot::core
