// Every job there is and was, in SQLite. One connection, one thread. Changes gather in a
// transaction that commit() ends: whatever is told to a user or done to the machine comes after it.
//
// Errors of the disk are fatal for the caller: what is in memory is then ahead of what is on
// record, and only a fresh start from the record is sure to be right.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/job.hpp"

namespace aliquot::engine {

struct AccountingQuery {
  std::optional<WallTime> start = {};  // not ended before
  std::optional<WallTime> end = {};    // submitted before
  std::optional<Uid> uid = {};
  std::optional<std::int64_t> id = {};  // a job, or all of an array
  std::optional<std::string> name = {};
  bool only_over = false;
};

class Store {
 public:
  // Creates what is missing; refuses a file of a newer version. Empty path: in memory, for tests.
  static Result<Store> open(const std::filesystem::path& path);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  [[nodiscard]] Result<std::int64_t> last_id();
  Result<void> save(const Job& job);
  Result<void> save_payload(std::int64_t id, const Payload& payload);
  Result<void> save_step(const api::StepInfo& step);
  Result<void> drop_steps(JobId id);

  // How long it has run; dropped with nothing.
  Result<void> save_run(JobId id, const std::optional<RunTime>& run);

  // A row that is no job: damaged, or written by nobody we know. It is moved as it is to the table
  // `unreadable`, where it harms nobody, and the log names it.
  struct Unreadable {
    JobId id;
    Uid uid;
    bool active = false;  // something of it may run
    std::string mark;
    std::string why;
  };
  struct Live {
    std::vector<Job> jobs;
    std::vector<Unreadable> unreadable;
  };
  // What is not over, by id, as it was saved; parts that are read from the spec are not filled in.
  Result<Live> load_live();
  // One that is over, to requeue it.
  Result<Job> load(JobId id);
  Result<Payload> payload(std::int64_t id);
  Result<std::vector<api::StepInfo>> steps(JobId id);

  // By id. Steps are added where asked.
  Result<std::vector<api::JobInfo>> query(const AccountingQuery& query, bool with_steps);
  Result<std::optional<JobId>> find_task(std::int64_t array, std::int64_t task);
  Result<std::optional<JobId>> last_of(Uid uid);
  // Of a job, of an array as a whole, or of one element; nothing if there never was such a job.
  Result<std::optional<core::DependencyFacts>> facts(JobId id, std::optional<std::int64_t> task);
  // Whether an earlier job of this user and name is left.
  Result<bool> has_earlier(Uid uid, const std::string& name, JobId before);

  // What is no job's: a text under a name; nothing removes it.
  Result<void> save_note(const std::string& name, const std::optional<std::string>& text);
  Result<std::optional<std::string>> note(const std::string& name);

  // Scripts and environments of what has been over since then.
  Result<void> drop_payloads(WallTime over_since);

  [[nodiscard]] bool dirty() const;
  Result<void> commit();

 private:
  struct Database;
  explicit Store(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace aliquot::engine
