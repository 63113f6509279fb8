// One walk: a real engine behind the real API on a database of its own, three users with clients
// that come and go, and the machine of machine.hpp. It takes steps, each made of a few dice, and
// after every one compares what the engine believes with what runs and with what was promised:
//
// - nothing is granted twice, and the ledger holds what the running jobs hold;
// - no process without a running job, no running job without its processes or its client;
// - what was accepted is never lost, what is over stays over, what must run once does;
// - no job changes its state in a way that Slurm's documentation does not know or that nobody asked
//   for, and what starts keeps every limit that there is, at the instant of it (Parts::witness);
// - what an administrator holds stays held, whose job it is stays so, and nobody commands
// another's;
// - who names what is not there is refused, and every request gets one answer.
//
// The same dice make the same walk, also with steps left out: so a violation can be made short.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/api_server.hpp"
#include "engine/engine.hpp"
#include "engine/walk/machine.hpp"

namespace aliquot::engine::walk {

using Dice = std::array<std::uint32_t, 8>;

// One request of one client, and its connection. It lives until the client or the daemon hangs up.
class Connection final : public net::Exchange {
 public:
  Connection(Fuse& fuse, std::uint32_t who, std::string what)
      : uid(who), request(std::move(what)), fuse_(fuse) {}

  void answer(net::Response response) override;
  void on_close(std::function<void()> hook) override { hooks.push_back(std::move(hook)); }
  // The client hangs up, and the daemon notices.
  void close();
  // The daemon is gone: nobody is there to notice.
  void break_off();

  std::uint32_t uid;
  std::string request;
  std::optional<net::Response> response;
  std::function<void(const net::Response&)> answered;
  std::function<void(int)> heard;
  std::vector<std::function<void()>> hooks;
  bool open = true;
  bool dropped = false;  // by a daemon that lives and has no answer

 private:
  Fuse& fuse_;
};

class Throw;

// What is counted of the walk.
enum class Deed : std::uint8_t {
  submission,
  cancel,
  hold,
  update,
  requeue,
  suspension,
  limits,
  reservation,
  drain,
  question,
  other,
  preemption,
  kill
};
inline constexpr std::size_t kDeeds = 13;
struct Deeds {
  std::array<std::uint64_t, kDeeds> all = {};
  std::uint64_t& operator[](Deed deed) { return all[static_cast<std::size_t>(deed)]; }
};

// What a running job counts, and where.
struct Held {
  std::string user;
  std::string account;  // as it says
  std::string qos;
  std::string partition;
  std::int64_t gpus = 0;  // in 1/10,000
  std::int64_t cpus = 0;
  std::int64_t memory = 0;
  std::int64_t jobs = 1;
  std::vector<std::string> accounts = {};  // from its own up to the root
  bool in_book = false;                    // its own is kept there
};

class World {
 public:
  explicit World(std::string folder);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  // Throws Violation. `told` hears in words what is done.
  void step(const Dice& dice);
  // Everything comes to its end: nothing may be left.
  void wind_up();
  std::function<void(const std::string&)> told = [](const std::string&) {};
  Deeds deeds;

 private:
  struct Submission {
    std::uint32_t uid = 0;
    std::set<std::int64_t> tasks;
    bool requeue = true;
    std::string account;
    // What was asked for, of one of its jobs at least.
    int requeues = 0;
    bool cancelled = false;
    bool suspended = false;
    bool resumed = false;
  };
  // --- world.cpp
  void open();
  void close_all();
  void crash(bool power, std::uint32_t dice);
  void guarded(const std::function<void()>& body, std::uint32_t dice);
  void settle();
  std::shared_ptr<Connection> ask(std::uint32_t uid, const std::string& method,
                                  const std::string& target, const std::string& body = "{}");

  // --- steps.cpp
  void submit(Throw& dice, std::uint32_t uid);
  void allocate(Throw& dice, std::uint32_t uid);
  void look(Throw& dice, std::uint32_t uid);
  void disturb(Throw& dice);
  void nonsense(Throw& dice, std::uint32_t uid);
  api::JobSpec make_spec(Throw& dice);
  std::string make_id(Throw& dice);

  // --- commands.cpp
  void command(Throw& dice, std::uint32_t uid);
  void update(Throw& dice, std::uint32_t uid, const std::string& id);

  // --- administer.cpp
  void administer(Throw& dice, std::uint32_t uid);
  void change_limits(Throw& dice, std::uint32_t uid);
  void change_settings(Throw& dice);
  [[nodiscard]] std::string account_of(const api::JobSpec& spec, std::uint32_t uid) const;

  // --- transitions.cpp
  void heard(const Job& job, core::JobState next);
  std::string uncalled_for(const Job& job, core::JobState next);
  void check_states(const std::vector<api::JobInfo>& jobs);
  void take_stock();

  // --- limits.cpp
  [[nodiscard]] Held held_by(const Job& job) const;
  void check_start(const Job& job);
  void check_gpus(const Job& job);

  // --- checks.cpp
  void check();
  void check_grants();
  void check_processes();
  void check_clients();
  void check_records(const std::vector<api::JobInfo>& jobs);
  std::vector<api::JobInfo> snapshot();
  // Which jobs the text names, as far as the model knows.
  [[nodiscard]] std::vector<std::int64_t> named(const std::string& id, std::uint32_t uid) const;
  [[nodiscard]] bool may_command(const std::string& id, std::uint32_t uid) const;
  Submission* submission_of(const api::JobInfo& job);

  std::string folder_;
  Fuse fuse_;
  WalkClock clock_;
  WalkMachine machine_;
  std::unique_ptr<Users> users_;
  Settings settings_;
  Machine host_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ApiServer> api_;
  bool due_ = false;  // a request changed something, and nobody has settled
  std::vector<std::shared_ptr<Connection>> connections_;
  MonoTime restarted_ = {};
  MonoTime frozen_until_ = {};  // when an interactive job was last seen suspended
  int boots_ = 1;
  int serial_ = 0;

  // By what was heard of each change.
  std::map<JobId, core::JobState> states_;
  std::map<JobId, Held> holding_;
  std::set<std::int64_t> drained_;  // GPUs, as nvidia-smi counts
  bool machine_drained_ = false;

  // What was promised, by the comment that every submission has for itself.
  std::map<std::string, Submission> submissions_;
  std::set<std::int64_t> accepted_;
  std::map<std::int64_t, api::JobInfo> known_;                   // as they were after the last step
  std::map<std::int64_t, std::shared_ptr<Connection>> holders_;  // of interactive jobs
};

}  // namespace aliquot::engine::walk
