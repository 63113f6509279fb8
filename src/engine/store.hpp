// Every job there is and was, in SQLite. One connection, one thread. Changes gather in a
// transaction that commit() ends: whatever is told to a user or done to the machine comes after it.
//
// The first change that fails (a full disk, an I/O error) spoils the transaction: every further
// change and commit() fail with the same error until rollback(), so that nothing of it is kept by
// halves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "core/fair_share.hpp"
#include "engine/job.hpp"

namespace aliquot::engine {

struct AccountingQuery {
  std::optional<WallTime> start = {};  // not ended before
  std::optional<WallTime> end = {};    // submitted before
  std::optional<Uid> uid = {};
  std::optional<std::int64_t> id = {};  // a job, or all of an array
  std::optional<std::string> name = {};
  bool only_over = false;
  bool steps = false;              // of each job as well
  bool earlier = false;            // its runs before it was requeued, before the last one
  std::int64_t after = 0;          // higher ids only
  std::optional<Bytes> most = {};  // of records at once; absent: all
};

// Some of the jobs asked for, by id.
struct JobPage {
  std::vector<api::JobInfo> jobs;
  std::optional<std::int64_t> next = {};  // there may be more behind this id
};

class Store {
 public:
  // Creates what is missing; refuses a file of a newer version. Empty path: in memory, for tests.
  static Result<Store> open(const std::filesystem::path& path);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  [[nodiscard]] Result<std::int64_t> last_id();
  // No job gets that number or one below, whatever becomes of the rows.
  Result<void> keep_last_id(std::int64_t id);
  Result<void> save(const Job& job);
  // `records` is what its job has besides, or all elements of its array: it counts as kept, too.
  Result<void> save_payload(std::int64_t id, Uid uid, const Payload& payload, Bytes records);
  // Such a record has grown by so much.
  Result<void> charge(std::int64_t payload, Bytes more);
  Result<void> save_step(const api::StepInfo& step);
  Result<void> drop_steps(JobId id);
  // A run that has ended, with its steps, of a job that goes back into the queue. Of the most
  // recent ones only so many are kept.
  Result<void> save_earlier(const api::JobInfo& run);

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
  // The same as it is shown, without its steps.
  Result<api::JobInfo> info(JobId id);
  Result<Payload> payload(std::int64_t id);
  Result<std::vector<api::StepInfo>> steps(JobId id);

  Result<JobPage> query(const AccountingQuery& query);
  Result<std::optional<JobId>> find_task(std::int64_t array, std::int64_t task);
  Result<std::optional<JobId>> last_of(Uid uid);
  // Of a job, of an array as a whole, or of one element; nothing if there never was such a job.
  Result<std::optional<core::DependencyFacts>> facts(JobId id, std::optional<std::int64_t> task);
  // Whether an element of the array other than this one has started, and not gone back since.
  Result<bool> other_began(JobId array, JobId but);
  // Payloads that are kept for a user, of jobs that are over too, with the records of their jobs.
  Result<Bytes> stored_for(Uid uid);

  // What is no job's: a text under a name; nothing removes it.
  Result<void> save_note(const std::string& name, const std::optional<std::string>& text);
  Result<std::optional<std::string>> note(const std::string& name);

  // What users have had, for fair share.
  Result<void> save_usage(Uid user, const core::UsageBook::Entry& entry);
  Result<std::vector<std::pair<Uid, core::UsageBook::Entry>>> usage();

  // Payloads of what has been over since then, and what was asked for beside them: at most so many
  // at once. How many.
  Result<std::int64_t> drop_payloads(WallTime over_since, std::int64_t most);
  // Jobs that were over before then, the oldest first and about so many at once, of one user or of
  // all; but none that `needed` wants to know of. An array goes as a whole, beyond that number if
  // need be. How many.
  Result<std::int64_t> purge(WallTime over_before, std::int64_t most,
                             const std::function<bool(JobId)>& needed, std::optional<Uid> uid = {});
  // Who has more jobs on record than that, and how many.
  Result<std::vector<std::pair<Uid, std::int64_t>>> crowded(std::int64_t most);

  [[nodiscard]] bool dirty() const;
  Result<void> commit();
  // Back to what was committed last; the next change begins anew.
  void rollback();

 private:
  struct Database;
  Result<JobPage> read_page(const std::vector<std::int64_t>& ids, const AccountingQuery& wanted);
  explicit Store(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace aliquot::engine
