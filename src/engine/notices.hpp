// Who is told of what becomes of a job: its user by mail, where --mail-type says so, in the words
// of Slurm's subjects; and the site's command, of every job. Decides and words; Executor sends,
// after the commit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/state.hpp"

namespace aliquot::engine {

// The words of --mail-type.
struct MailWanted {
  bool begin = false;
  bool end = false;
  bool fail = false;
  bool requeue = false;
  bool invalid_dependency = false;
  bool each_task = false;          // ARRAY_TASKS: of each element, not of the array
  std::vector<int> percents = {};  // of the time limit: 50, 80, 90, 100

  [[nodiscard]] bool any() const {
    return begin || end || fail || requeue || invalid_dependency || !percents.empty();
  }
};
MailWanted parse_mail_types(std::string_view words);
// `ann`, `ann@example.org,bob`; where it says nothing, `user`. With the site's domain behind those
// that have none.
std::vector<std::string> mail_addresses(std::string_view mail_user, std::string_view user,
                                        std::string_view domain);
// Of one address: nothing that a program could take for an option, or a reader for two.
bool is_mail_address(std::string_view text);
// --mail-type and --mail-user of a job that shall enter the queue.
Answer<void> check_mail(const api::JobSpec& spec, const State& state);

class Notices {
 public:
  explicit Notices(State& state) : state_(state) {}

  void began(const Job& job);
  void over(const Job& job);  // on record, but still in memory
  void requeued(const Job& job);
  // What it waits for cannot happen any more.
  void never(const Job& job);
  // It runs, and did before the daemon came up.
  void taken_up(const Job& job);

  // Tells of time limits that are nearly reached.
  void enforce_times();
  [[nodiscard]] std::optional<WallTime> due() const;

 private:
  struct Mail {
    std::string type;   // "Began"
    std::string times;  // ", Queued time 00:00:05"
    std::string end = {};
  };
  void mail(const Job& job, const Mail& mail, bool summary = false);
  void happened(const Job& job, const char* event);
  [[nodiscard]] std::optional<std::int64_t> percent_of(const Job& job) const;
  [[nodiscard]] std::string run_time(const Job& job) const;
  // Nothing: some of its elements are not over.
  std::optional<std::string> array_summary(const Job& job);

  State& state_;
  std::map<JobId, std::int64_t> told_;  // how much of the time limit had passed
};

}  // namespace aliquot::engine
