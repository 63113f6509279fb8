// MPS servers for jobs that share a GPU: one control daemon for each GPU and fault domain, started
// when the first job needs it, watched, started again when it dies, stopped when the last job has
// gone. Servers outlive the daemon: it finds them again by their folders.
//
// MpsControl is the program nvidia-cuda-mps-control: open_mps() gives the real one (or the
// stand-in's), FakeMps (fake_mps.hpp) is for tests. It blocks for as long as starting a process
// takes, and longer where a user has stopped his server. It may be called from several threads, for
// each folder from one at a time.
//
// MpsServers may be called from any thread. Who does something to a server has that server's turn
// and no lock of others: only bring_up() and what tick() gives out wait, each for one server.
//
// Run by root, control daemons run as root and each server as the user it serves, so that no job
// can change its server's settings. Every folder has a name that cannot be guessed, and can be
// walked through but not listed: who was not told the name cannot connect. The driver keeps at
// most 48 processes on a server; the next job gets a further server.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "gpu/devices.hpp"
#include "gpu/mps_pipe.hpp"

namespace aliquot::gpu {

class MpsControl {
 public:
  MpsControl() = default;
  MpsControl(const MpsControl&) = delete;
  MpsControl& operator=(const MpsControl&) = delete;
  virtual ~MpsControl() = default;

  // Starts a control daemon for this GPU with its pipes in folder/p and its log in folder/l, which
  // are there. Returns when it takes clients.
  virtual Result<void> start(const std::filesystem::path& folder, const GpuId& gpu,
                             bool all_users) = 0;
  virtual bool alive(const std::filesystem::path& folder) = 0;
  // What a client of it may hold of the GPU, from the next client on.
  virtual Result<void> limit(const std::filesystem::path& folder, Bytes each) = 0;
  // Starts a server for all users now, not when the first client comes.
  virtual Result<void> start_server(const std::filesystem::path& folder) = 0;
  // For part_clients().
  [[nodiscard]] virtual MpsPipe pipe(const std::filesystem::path& folder) const = 0;
  // With its servers, whatever runs there.
  virtual void stop(const std::filesystem::path& folder) = 0;
};

// The program's path; unsupported where there is none.
Result<std::filesystem::path> find_mps_control(const std::optional<StandIn>& standin);
std::unique_ptr<MpsControl> open_mps(std::filesystem::path program, std::vector<std::string> extra);

// Whom a server is for.
struct MpsKey {
  GpuId gpu;
  std::optional<Uid> user = {};  // none: all users of the GPU
  friend auto operator<=>(const MpsKey&, const MpsKey&) = default;
};

class MpsServers {
 public:
  // root is ours alone to write; it is made where it is not there.
  MpsServers(MpsControl& control, std::filesystem::path root);

  // After a start of the daemon: takes up what runs. Folders whose control daemon has gone are
  // removed. Jobs are told by adopt(); a server without any is stopped by tick() like others.
  Result<void> recover();

  // A place for a job: so many clients, each with this limit; 0: none.
  struct Place {
    HolderId job;
    MpsKey key;
    std::int64_t clients = 1;
    Bytes limit = Bytes(0);
    // The server is started with its control daemon, and has the GPU before anybody else
    // (EXCLUSIVE_PROCESS).
    bool early = false;
  };
  // The pipe directory for this job. Whether its server runs is for bring_up() to see to.
  std::filesystem::path reserve(const Place& place);
  // A job that ran before, with the pipe directory it was given then.
  Result<void> adopt(const Place& place, const std::filesystem::path& pipes);
  // After either of them: starts the server where it does not run, in its place, and sets its
  // limits. What there is to say of it, for the log. After an error the job has no place: also
  // where the server would hold a new job to less than it has, and does not take its limit.
  struct Up {
    std::vector<std::string> remarks = {};
    bool early = false;  // it was to be, and is
  };
  Result<Up> bring_up(const HolderId& job, const std::filesystem::path& pipes);
  void release(const HolderId& job, MonoTime now);
  // Whether reserve() would find a server that is there.
  [[nodiscard]] bool has_room(const MpsKey& key, std::int64_t clients) const;

  // Something to be done to one server; what happened, for the log.
  struct Chore {
    MpsKey key;
    std::filesystem::path folder;
    std::function<std::vector<std::string>()> run;
  };
  // Starting again what has died, setting limits, stopping what has been empty for a while. No
  // server is given out a second time before its chore is done.
  std::vector<Chore> tick(MonoTime now);
  // The daemon ends: servers without a job go now. The others serve their jobs on.
  std::vector<Chore> take_empty();

  struct View {
    MpsKey key;
    std::filesystem::path pipes;
    std::vector<HolderId> jobs;
    bool leaving = false;  // it is being stopped, and is for nobody any more
  };
  [[nodiscard]] std::vector<View> view() const;
  // How many died and were started again.
  [[nodiscard]] std::int64_t restarts() const { return restarts_; }

 private:
  struct Client {
    std::int64_t count = 0;
    Bytes limit = Bytes(0);  // 0: none
    bool runs = false;       // on this server, whatever it takes
  };
  struct Server {
    const MpsKey key;
    const std::filesystem::path folder;

    // Under mutex_.
    std::map<HolderId, Client> clients = {};
    std::optional<MonoTime> empty_since = {};
    bool given_out = false;  // as a chore
    bool due = false;        // its limits are to be looked at by a chore
    bool deaf = false;       // it took no limit when it was last told
    bool early = false;
    bool leaving = false;
    int failures = 0;  // in a row

    // Who has the turn speaks to its control daemon, and has what follows.
    std::mutex turn = {};
    std::vector<std::shared_ptr<Server>> before = {};  // that have to be gone when it starts
    bool up = false;  // was, at least once; not: so far it is a place in the list
    bool gone = false;
    bool has_server = false;  // by `early`
    Bytes limit = Bytes(0);   // that is in force
  };
  using Shared = std::shared_ptr<Server>;

  // Under mutex_.
  [[nodiscard]] Shared find_room(const MpsKey& key, std::int64_t clients) const;
  [[nodiscard]] Shared find(const std::filesystem::path& folder) const;
  Shared add(const MpsKey& key, std::filesystem::path folder);
  static void put(Server& server, const Place& place);

  // In the server's turn.
  Result<void> start(Server& server);
  enum class Patience : std::uint8_t { once, again };  // with one that took no limit
  Result<std::vector<std::string>> put_right(Server& server, Patience patience);
  std::optional<std::string> set_limit(Server& server);

  void end(Server& server);
  std::vector<std::string> mend(Server& server);
  Chore stopping(const Shared& server);  // under mutex_
  static std::string describe(const Server& server);

  MpsControl& control_;
  const std::filesystem::path root_;
  mutable std::mutex mutex_;  // never held while a program runs
  std::vector<Shared> servers_;
  std::atomic<std::int64_t> restarts_ = 0;
};

}  // namespace aliquot::gpu
