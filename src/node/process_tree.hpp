// The processes of a job, told apart from all others by what the kernel says of them in /proc:
// their parent, their session, and the mark in the environment they were started with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "sys/process.hpp"

namespace aliquot::node {

// ALIQUOT_JOB=<id>:<random>, in the environment of everything a job starts.
inline constexpr std::string_view kMarkVariable = "ALIQUOT_JOB";
std::string make_mark(JobId job);

// What to look for. Zombies never count.
struct Search {
  std::optional<Pid> ancestor = {};       // all that descend from it; not itself
  std::optional<Pid> session = {};        // all of this session
  std::string mark = {};                  // all that carry it; empty: none. It proves nothing, so:
  std::optional<Uid> marked_uid = {};     // only those of this user
  bool steps_only = false;                // of these, only those that a step started
  std::optional<std::int64_t> step = {};  // or only those of this step
};
// And all descendants of what is found.
std::vector<sys::ProcessRef> find_processes(const Search& search);

struct Killed {
  int count = 0;         // processes that were there and were killed
  bool all_gone = true;  // false: some would not die within the time
};
// Stops, kills and looks again until nothing is left, so that nothing escapes by forking.
Killed kill_tree(const Search& search, Millis patience);

}  // namespace aliquot::node
