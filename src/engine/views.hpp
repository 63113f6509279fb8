// What is shown, and to whom. Everybody may see who uses the machine and why a job waits; what a
// job does is its owner's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/json.hpp"
#include "api/types.hpp"
#include "core/enforcement.hpp"
#include "engine/lookup.hpp"
#include "engine/state.hpp"
#include "node/monitor.hpp"
#include "node/share_meter.hpp"
#include "show/history.hpp"
#include "show/job_metrics.hpp"
#include "show/picture.hpp"

namespace aliquot::engine {

// What jobs do on their GPUs, beside what the driver says.
struct Measures {
  std::vector<node::ShareUse> uses = {};
  std::int64_t mps_restarts = 0;
};

class Clients;
class Forecast;
class Queue;
class Runs;

class Views {
 public:
  // What never changes.
  struct Facts {
    bool simulated = false;
    std::vector<core::Backend> backends = {};
    std::string state = {};   // the folder
    std::string driver = {};  // its version
  };
  Views(State& state, Queue& queue, Forecast& forecast, const Runs& runs, const Clients& clients,
        Facts facts)
      : state_(state),
        queue_(queue),
        forecast_(forecast),
        runs_(runs),
        clients_(clients),
        names_(state),
        facts_(std::move(facts)),
        started_(state.clock.wall()) {}

  struct ListQuery {
    std::string id = {};     // a job, or all of an array
    std::string user = {};   // by name
    bool brief = false;      // without the sentence that says why a job waits
    bool live = false;       // without what is over
    std::int64_t after = 0;  // JobList::next of the list before
  };
  // Hands every job that waits, runs or was over lately to `show`, one after the other: the queue
  // may be long, and no copy of it is made. What is over comes in pages, with the queue on the
  // first and, since what is over may come back meanwhile, on the last. The answer is
  // JobList::next.
  using ShowJob = std::function<void(const api::JobInfo&)>;
  Answer<std::optional<std::int64_t>> list(const Caller& caller, const ListQuery& wanted,
                                           const ShowJob& show);
  Answer<api::JobInfo> show(const Caller& caller, const std::string& id);
  Answer<std::string> script(const Caller& caller, const std::string& id);
  // Where a job writes, and whose rights that takes.
  struct LogFile {
    Uid user;
    Gid group;
    std::string path;
  };
  Answer<LogFile> log_of(const Caller& caller, const std::string& id);
  Answer<api::WhyInfo> why(const Caller& caller, const std::string& id);
  // In pages, with the steps.
  Answer<api::JobList> accounting(const Caller& caller, AccountingQuery query);
  [[nodiscard]] api::ClusterInfo cluster_info() const;
  [[nodiscard]] api::Statistics statistics() const;
  // What waiting jobs' priorities are made of, and how users stand: for sprio and sshare.
  [[nodiscard]] api::PriorityList priorities() const;
  // With whoever asks among them.
  [[nodiscard]] api::ShareList shares(const std::optional<Caller>& caller = {}) const;

  // Who waits for the end of a job, of an array, or of one of its elements.
  struct WaiterId {
    JobId job;
    std::uint64_t number = 0;
  };
  using Ended = std::function<void(Answer<api::JobInfo>)>;
  // Nothing where it is answered at once.
  std::optional<WaiterId> wait(const Caller& caller, const std::string& id, Ended ended);
  // The same, of one job, for when its processes begin to be ended: its client says so.
  std::optional<WaiterId> wait_for_ending(const Caller& caller, const std::string& id, Ended told);
  void ending(const Job& job);
  // Nobody is there any more to be told.
  void stop_waiting(const WaiterId& waiter);
  // A job is over: those who wait for it are told, once that is on record.
  void over(const Job& job);

  // What the monitor saw; nothing: it could not look.
  void observe(std::optional<std::vector<node::GpuView>> views, const Measures& measures = {});
  void started(const Job& job);
  // What was seen before the daemon was started.
  Result<void> recall();
  // What has not been kept of it yet: before the daemon goes.
  void keep_history();

  // For the page: as anybody may see it, cut to what a page shows.
  [[nodiscard]] show::Picture picture();
  [[nodiscard]] const show::History& history() const { return history_; }
  // For /metrics.
  [[nodiscard]] show::JobFigures figures() const;
  // Those that hold something, with what they hold.
  [[nodiscard]] std::vector<api::JobInfo> holders() const;
  // Of GPUs as a whole, not of slices.
  [[nodiscard]] std::map<std::int64_t, std::vector<std::string>> jobs_by_gpu() const;
  [[nodiscard]] std::string driver() const { return facts_.driver; }

 private:
  void redact(const Caller& caller, api::JobInfo& info) const;
  [[nodiscard]] std::string wait_sentence(const Job& job) const;
  [[nodiscard]] std::string partition_sentence(const Job& job) const;
  void show_start(const Job& job, api::JobInfo& shown) const;
  void say_who_is_before(const Job& job, api::WhyInfo& why);
  static void say_default_time(const Job& job, api::WhyInfo& why);
  void tell_waiters(JobId waited, const api::JobInfo& last);
  void show_gpus(api::NodeInfo& shown_node) const;
  void remember();
  [[nodiscard]] api::JobInfo seen_by_all(const Job& job) const;

  State& state_;
  Queue& queue_;
  Forecast& forecast_;
  const Runs& runs_;
  const Clients& clients_;
  Lookup names_;
  Facts facts_;
  WallTime started_;
  struct Waiter {
    std::optional<std::int64_t> task;
    Ended ended;
  };
  std::unordered_map<JobId, std::map<std::uint64_t, Waiter>> waiting_;  // by what they named
  std::unordered_map<JobId, std::map<std::uint64_t, Ended>> watching_;  // for its beginning
  std::uint64_t last_waiter_ = 0;
  std::vector<node::GpuView> views_;
  Measures measures_;
  bool stale_ = false;
  show::History history_;
  WallTime remembered_ = {};
  std::optional<std::int64_t> kept_;  // History::version() that is on record
  MonoTime foretold_ = {};            // when a page last asked for expected starts
};

}  // namespace aliquot::engine
