// What may enter the queue: everything a user may write is checked here, once, before anything is
// on record.
#pragma once

#include <cstdint>
#include <string>

#include "engine/lookup.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

// Whether a text of one user may be shown to the others: short, one line, and nothing that steers a
// terminal.
Answer<void> check_shown(std::string_view text);

// As many jobs as it will become.
std::int64_t elements(const Job& job);
// What a job has on record besides script, environment and arguments.
Bytes record_size(const Job& job);

class Admission {
 public:
  explicit Admission(State& state) : state_(state), names_(state) {}

  // Of a job that is there and shall become this (`changed`) the owner stays.
  Answer<Job> check(const Caller& caller, api::JobSpec spec, const Job* changed = nullptr);
  // From what was asked to what is matched: the same for a new job, an updated one, and one that is
  // read back from the record.
  Answer<void> read_spec(Job& job) const;
  // So that nobody fills the queue, or the disk, for everybody.
  Answer<void> check_queue(const Caller& caller, const Job& job, std::int64_t more);
  // `main`, `main,besteffort`; nothing: the default. Those that there are, in that order.
  [[nodiscard]] std::vector<const Partition*> find_partitions(std::string_view names) const;
  // Which GPUs a job may have there: Shape::devices.
  [[nodiscard]] std::uint64_t devices_of(const Partition& partition) const;
  // Its own, or the partition's where it names several and says none; never over what its account
  // and QOS allow then.
  [[nodiscard]] std::optional<Millis> time_limit_in(const Partition& partition,
                                                    const Job& job) const;

 private:
  Answer<void> check_dependencies(const Job& job);
  void tidy_dependencies(Job& job) const;
  // The same names, where they are known and open to the job's owner.
  Answer<std::string> check_partitions(const Caller& caller, const Owner& owner,
                                       std::string_view names) const;
  std::unordered_map<Uid, std::int64_t>& counts();

  State& state_;
  Lookup names_;
};

}  // namespace aliquot::engine
