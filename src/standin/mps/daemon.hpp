// The MPS control daemon: one thread, one poll loop. It gives clients a place in a server, starts
// and ends servers, and answers commands. A classic daemon serves one user at a time, and makes the
// client of another user wait until the last client of the first has gone; a multi-user one puts
// everybody into one server. Who is still alive it learns from its connections and from the
// simulated machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "standin/state/state.hpp"

namespace aliquot::standin {

class MpsDaemon {
 public:
  // `listener` and `signals` are descriptors to poll; the daemon owns neither.
  MpsDaemon(State& state, bool multiuser, int listener, int signals);
  void run();

 private:
  struct Server {
    pid_t pid;
    uid_t uid;
    int slot;
    std::uint32_t generation;
    double percent;
    std::uint64_t limit[kMaxGpus];
    bool closing = false;
  };
  struct Peer {
    int fd;
    pid_t pid = 0;
    uid_t uid = 0;
    std::string input;
    bool refused = false;
    bool waiting = false;  // for a server
    int slot = -1;
    std::uint32_t generation = 0;
    pid_t server = 0;
    unsigned id = 0;
    bool holds_for_quit = false;
    bool gone = false;
  };

  void accept_peer();
  void read_peer(Peer& peer);
  void handle(Peer& peer, const std::string& line);
  void attach(Peer& peer);
  void collect_children();
  void drop_dead_clients();
  void settle();

  std::string command(Peer& peer, const std::vector<std::string>& words);
  std::string list_clients();
  std::string thread_percentage(double& percent, const std::vector<std::string>& words,
                                std::size_t at);
  std::string memory_limit(std::uint64_t* limits, const std::vector<std::string>& words,
                           std::size_t at);
  void begin_quit(Peer& peer, const std::vector<std::string>& words);

  Server* start_server(uid_t uid);
  void end_server(Server& server, bool force);
  [[nodiscard]] Server* find_server(pid_t pid);
  [[nodiscard]] unsigned clients_of(pid_t server) const;
  [[nodiscard]] bool faulted(const Server& server);
  [[nodiscard]] int poll_timeout() const;

  State& state_;
  bool multiuser_;
  int listener_;
  int signals_;
  std::vector<unsigned> gpus_;
  unsigned client_limit_;
  double default_percent_ = 100;
  std::uint64_t default_limit_[kMaxGpus] = {};
  std::list<Server> servers_;
  std::list<Peer> peers_;
  unsigned next_id_ = 1;
  bool quitting_ = false;
  double force_quit_at_ = 0;  // seconds of the monotonic clock; 0 = wait for as long as it takes
};

}  // namespace aliquot::standin
