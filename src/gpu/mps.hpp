// MPS servers for jobs that share a GPU: one control daemon for each GPU and fault domain, started
// when the first job needs it, watched, started again when it dies, stopped when the last job has
// gone. Servers outlive the daemon: it finds them again by their folders.
//
// MpsControl is the program nvidia-cuda-mps-control: open_mps() gives the real one (or the
// stand-in's), FakeMps (fake_mps.hpp) is for tests. Both classes are for one thread at a time, and
// block for as long as starting a process takes: on a worker.
//
// Run by root, control daemons run as root and each server as the user it serves, so that no job
// can change its server's settings. Every folder has a name that cannot be guessed, and can be
// walked through but not listed: who was not told the name cannot connect. The driver keeps at
// most 48 processes on a server; the next job gets a further server.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
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
  // A job that ran before, with the pipe directory it was given then. A server that has gone
  // meanwhile is started anew in the same place.
  Result<void> adopt(const HolderId& job, const MpsKey& key, const std::filesystem::path& pipes,
                     std::int64_t clients, Bytes limit = Bytes(0));

  // The pipe directory for this job, which may bring so many clients, each with this limit; 0:
  // none.
  Result<std::filesystem::path> acquire(const HolderId& job, const MpsKey& key,
                                        std::int64_t clients, Bytes limit = Bytes(0));
  void release(const HolderId& job, MonoTime now);
  // Whether acquire() would not have to start a server.
  [[nodiscard]] bool has_room(const MpsKey& key, std::int64_t clients);
  // The server behind these pipes is started now, and again whenever its control daemon is: it has
  // the GPU before anybody else (EXCLUSIVE_PROCESS).
  Result<void> start_early(const std::filesystem::path& pipes);

  // Starts again what has died, stops what has been empty for a while. What happened, for the log.
  std::vector<std::string> tick(MonoTime now);

  struct View {
    MpsKey key;
    std::filesystem::path pipes;
    std::vector<HolderId> jobs;
  };
  [[nodiscard]] std::vector<View> view() const;
  // The daemon ends: servers without a job go now. The others serve their jobs on.
  void stop_empty();

 private:
  struct Server {
    MpsKey key;
    std::filesystem::path folder;
    struct Client {
      std::int64_t count = 0;
      Bytes limit = Bytes(0);  // 0: none
    };
    std::map<HolderId, Client> clients = {};
    Bytes limit = Bytes(0);  // that is in force
    std::optional<MonoTime> empty_since = {};
    bool early = false;    // its server is started before the first client comes
    int failures = 0;      // in a row
    bool removed = false;  // on its way out of the list
  };

  Result<Server*> start(const MpsKey& key, const std::filesystem::path& folder);
  Server* find_room(const MpsKey& key, std::int64_t clients);
  void remove(Server& server);
  // What its clients may hold, after the jobs it serves have changed.
  void set_limit(Server& server);
  void drop_removed();
  std::string describe(const Server& server) const;

  MpsControl& control_;
  std::filesystem::path root_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::string> complaints_;  // for tick()
};

}  // namespace aliquot::gpu
