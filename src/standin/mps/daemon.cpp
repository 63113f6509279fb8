#include "standin/mps/daemon.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sstream>

#include "standin/mps/server.hpp"
#include "standin/mps/wire.hpp"
#include "standin/state/visible.hpp"

namespace aliquot::standin {
namespace {

constexpr unsigned kVoltaClients = 48;
constexpr unsigned kPascalClients = 16;

double seconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

void note(const std::string& text) {
  char when[32];
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  std::strftime(when, sizeof when, "%F %T", &parts);
  std::printf("[%s Control %d] %s\n", when, getpid(), text.c_str());
  std::fflush(stdout);
}

}  // namespace

MpsDaemon::MpsDaemon(State& state, bool multiuser, int listener, int signals)
    : state_(state),
      multiuser_(multiuser),
      listener_(listener),
      signals_(signals),
      gpus_(visible_devices(state, device_order(state))) {
  const bool volta = std::all_of(gpus_.begin(), gpus_.end(),
                                 [&](unsigned g) { return state.model(g).volta_mps(); });
  client_limit_ = volta ? kVoltaClients : kPascalClients;
}

int MpsDaemon::poll_timeout() const {
  const bool waiting =
      std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.waiting; });
  const bool closing =
      std::any_of(servers_.begin(), servers_.end(), [](const Server& s) { return s.closing; });
  return waiting || closing || quitting_ ? 50 : -1;
}

void MpsDaemon::run() {
  note("Starting control daemon" + std::string(multiuser_ ? " in multi-user mode" : ""));
  while (!quitting_ || !servers_.empty()) {
    std::vector<pollfd> descriptors{{listener_, POLLIN, 0}, {signals_, POLLIN, 0}};
    for (const Peer& peer : peers_) descriptors.push_back({peer.fd, POLLIN, 0});
    poll(descriptors.data(), descriptors.size(), poll_timeout());
    if (descriptors[1].revents != 0) {
      signalfd_siginfo info{};
      while (read(signals_, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) {
          for (Server& server : servers_) end_server(server, true);
          quitting_ = true;
        }
    }
    std::size_t at = 2;
    for (Peer& peer : peers_)
      if (descriptors[at++].revents != 0) read_peer(peer);
    if (descriptors[0].revents != 0) accept_peer();
    settle();
  }
  note("Exit");
}

// Brings everything that may have changed to rest: the dead, the waiting, the ending.
void MpsDaemon::settle() {
  collect_children();
  drop_dead_clients();
  for (Peer& peer : peers_)
    if (peer.waiting) attach(peer);
  const bool force = quitting_ && force_quit_at_ > 0 && seconds() >= force_quit_at_;
  for (Server& server : servers_)
    if ((quitting_ || server.closing) && (force || clients_of(server.pid) == 0))
      end_server(server, force);
  servers_.remove_if([](const Server& s) { return s.pid == 0; });
  for (Peer& peer : peers_)
    if (peer.gone) close(peer.fd);
  peers_.remove_if([](const Peer& p) { return p.gone; });
}

void MpsDaemon::accept_peer() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  ucred who{};
  socklen_t size = sizeof who;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
  Peer peer{};
  peer.fd = fd;
  peer.pid = who.pid;
  peer.uid = who.uid;
  peers_.push_back(peer);
}

void MpsDaemon::read_peer(Peer& peer) {
  char buffer[512];
  for (;;) {
    const ssize_t n = recv(peer.fd, buffer, sizeof buffer, 0);
    if (n > 0) {
      peer.input.append(buffer, static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) peer.gone = true;
    break;
  }
  for (auto end = peer.input.find('\n'); end != std::string::npos; end = peer.input.find('\n')) {
    const std::string line = peer.input.substr(0, end);
    peer.input.erase(0, end + 1);
    handle(peer, line);
  }
  if (peer.input.size() > 4096) peer.gone = true;
}

void MpsDaemon::handle(Peer& peer, const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) return;
  if (words[0] == "client" && words.size() == 2) {
    // A client of another simulated machine is none of ours.
    std::string answer = words[1] == state_.identity() ? "gpus" : "other";
    for (const unsigned g : gpus_) answer += answer == "other" ? "" : " " + std::to_string(g);
    peer.refused = geteuid() != 0 && peer.uid != geteuid();
    if (!send_line(peer.fd, answer)) peer.gone = true;
  } else if (words[0] == "attach" && words.size() == 3) {
    peer.slot = std::atoi(words[1].c_str());
    peer.generation = static_cast<std::uint32_t>(std::strtoul(words[2].c_str(), nullptr, 10));
    peer.waiting = true;
  } else if (words[0] == "command" && words.size() >= 2) {
    words.erase(words.begin());
    const bool allowed = peer.uid == 0 || peer.uid == geteuid();
    const std::string answer = allowed ? command(peer, words) : "Permission denied";
    if (!answer.empty() && !send_line(peer.fd, answer)) peer.gone = true;
    if (!peer.holds_for_quit) peer.gone = true;
  } else {
    peer.gone = true;
  }
}

void MpsDaemon::attach(Peer& peer) {
  Server* server = nullptr;
  if (!quitting_ && !peer.refused) {
    const uid_t uid = multiuser_ || geteuid() != 0 ? geteuid() : peer.uid;
    const auto fitting = std::find_if(servers_.begin(), servers_.end(),
                                      [&](const Server& s) { return s.uid == uid && !s.closing; });
    if (fitting != servers_.end()) {
      server = &*fitting;
    } else {
      // Another user's server goes first: at once when it is empty, else the client waits.
      for (Server& other : servers_)
        if (clients_of(other.pid) == 0) end_server(other, false);
      servers_.remove_if([](const Server& s) { return s.pid == 0; });
      if (!servers_.empty()) return;
      server = start_server(uid);
    }
  }
  peer.waiting = false;
  std::ostringstream answer;
  if (server == nullptr) {
    answer << "failed";
  } else if (clients_of(server->pid) >= client_limit_) {
    answer << "full";
  } else {
    peer.server = server->pid;
    peer.id = next_id_++;
    answer << "server " << server->slot << ' ' << server->generation << ' '
           << server->percent / 100;
    for (const std::uint64_t limit : server->limit) answer << ' ' << limit;
  }
  if (!send_line(peer.fd, answer.str())) peer.gone = true;
}

void MpsDaemon::drop_dead_clients() {
  const State::Guard guard(state_);
  state_.reap();
  for (Peer& peer : peers_)
    if (peer.slot >= 0 && peer.slot < static_cast<int>(kMaxProcesses) &&
        state_.process(peer.slot).generation != peer.generation)
      peer.gone = true;
  for (Peer& peer : peers_)
    if (peer.gone) peer.server = 0;
}

void MpsDaemon::collect_children() {
  for (pid_t pid = 0; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) {
    note("Server " + std::to_string(pid) + " exited");
    servers_.remove_if([&](const Server& s) { return s.pid == pid; });
    for (Peer& peer : peers_)
      if (peer.server == pid) peer.server = 0;
  }
}

MpsDaemon::Server* MpsDaemon::start_server(uid_t uid) {
  {
    const State::Guard guard(state_);
    for (const unsigned gpu : gpus_) {
      if (state_.admits(gpu, -1)) continue;
      note("GPU " + std::to_string(gpu) + " is in exclusive use");
      return nullptr;
    }
  }
  const ServerPlace place = launch_server(state_, uid, gpus_);
  if (place.pid <= 0) {
    note("Cannot start a server for uid " + std::to_string(uid));
    return nullptr;
  }
  note("Starting new server " + std::to_string(place.pid) + " for user " + std::to_string(uid));
  Server server{place.pid, uid, place.slot, place.generation, default_percent_, {}};
  std::copy(std::begin(default_limit_), std::end(default_limit_), server.limit);
  servers_.push_back(server);
  return &servers_.back();
}

void MpsDaemon::end_server(Server& server, bool force) {
  kill(server.pid, force ? SIGKILL : SIGTERM);
  waitpid(server.pid, nullptr, 0);
  for (Peer& peer : peers_)
    if (peer.server == server.pid) peer.server = 0;
  server.pid = 0;  // settle() takes it off the list
  const State::Guard guard(state_);
  state_.reap();
}

MpsDaemon::Server* MpsDaemon::find_server(pid_t pid) {
  const auto found =
      std::find_if(servers_.begin(), servers_.end(), [&](const Server& s) { return s.pid == pid; });
  return found == servers_.end() ? nullptr : &*found;
}

unsigned MpsDaemon::clients_of(pid_t server) const {
  return static_cast<unsigned>(std::count_if(peers_.begin(), peers_.end(), [&](const Peer& p) {
    return p.server == server && server != 0 && !p.gone;
  }));
}

bool MpsDaemon::faulted(const Server& server) {
  const State::Guard guard(state_);
  state_.reap();
  return std::any_of(std::begin(state_.data().processes), std::end(state_.data().processes),
                     [&](const Process& p) {
                       return p.kind == Kind::client && p.server == server.slot && p.fault != 0 &&
                              p.server_generation == server.generation;
                     });
}

}  // namespace aliquot::standin
