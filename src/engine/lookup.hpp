// Which jobs a text names, and whether they are the caller's to command. A task that its array does
// not have is no job, whatever is asked of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/state.hpp"

namespace aliquot::engine {

class Lookup {
 public:
  explicit Lookup(State& state) : state_(state) {}

  // A job that there is or was.
  struct Named {
    JobId head;    // the job, or the array
    JobId record;  // which has it on record: of an element that waits, its array
    std::optional<std::int64_t> task;
  };
  // `7`, `7_3` or `last`.
  Answer<Named> parse_id(const Caller& caller, const std::string& id);
  Result<std::optional<JobId>> find_task(JobId array, std::int64_t task);
  // The live jobs of that name, all of them the caller's to command; at least one. `denied` is
  // what is said of those that are not: a stranger's cancel and a stranger's update differ.
  struct Found {
    std::vector<Job*> jobs;
    // Of an array that waits, which is the one job here, only this element is meant.
    std::optional<std::int64_t> task = {};
  };
  Answer<Found> find_owned(const Caller& caller, const std::string& id,
                           Why denied = Why::access_denied);
  // From here on such an element goes its own way: for who has nothing left to refuse.
  void single_out(Found& found);

 private:
  State& state_;
};

}  // namespace aliquot::engine
