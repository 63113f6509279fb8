// One walk: a real engine behind the real API on a database of its own, three users with clients
// that come and go, and the machine of machine.hpp. It takes steps, each made of a few dice, and
// after every one compares what the engine believes with what runs and with what was promised:
//
// - nothing is granted twice, and the ledger holds what the running jobs hold;
// - no process without a running job, no running job without its processes or its client;
// - what was accepted is never lost, what is over stays over, what must run once does;
// - what starts keeps the limits that there are;
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

 private:
  struct Submission {
    std::uint32_t uid = 0;
    std::set<std::int64_t> tasks;
    bool requeue = true;
    int requeues = 0;  // that were asked for
    std::string account;
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
  void administer(Throw& dice, std::uint32_t uid);
  api::JobSpec make_spec(Throw& dice);
  std::string make_id(Throw& dice);

  // --- commands.cpp
  void command(Throw& dice, std::uint32_t uid);
  void update(Throw& dice, std::uint32_t uid, const std::string& id);

  // --- checks.cpp
  void check();
  void check_grants();
  void check_limits();
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
  // For each limit of the QOS `normal` the higher of what it was and is: nobody looks in between.
  std::int64_t most_gpus_ = INT64_MAX;
  std::int64_t most_jobs_ = INT64_MAX;
  std::set<std::string> marks_;  // of what ran after the last step
  int serial_ = 0;

  // What was promised, by the comment that every submission has for itself.
  std::map<std::string, Submission> submissions_;
  std::set<std::int64_t> accepted_;
  std::map<std::int64_t, api::JobInfo> known_;                   // as they were after the last step
  std::map<std::int64_t, std::shared_ptr<Connection>> holders_;  // of interactive jobs
};

}  // namespace aliquot::engine::walk
