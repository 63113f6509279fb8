// The commands of the control daemon, and their answers as the real one words them.
#include <signal.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "standin/mps/daemon.hpp"
#include "standin/mps/wire.hpp"

namespace aliquot::standin {
namespace {

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes == 0) return "";
  if (bytes % kGiB == 0) return std::to_string(bytes / kGiB) + "G";
  return std::to_string(bytes / kMiB) + "M";
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

unsigned long pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace

std::string MpsDaemon::command(Peer& peer, const std::vector<std::string>& words) {
  const std::string& name = words[0];
  if (name == "get_server_list") {
    std::vector<std::string> pids;
    for (const Server& server : servers_)
      if (server.pid != 0) pids.push_back(std::to_string(server.pid));
    return join(pids);
  }
  if (name == "ps") return list_clients();
  if (name == "quit") {
    begin_quit(peer, words);
    return "";
  }
  if (name == "start_server") {
    if (words.size() != 3 || words[1] != "-uid") return "Usage: start_server -uid <user id>";
    if (servers_.empty())
      start_server(static_cast<uid_t>(std::strtoul(words[2].c_str(), nullptr, 10)));
    return "";
  }
  if (name == "get_default_active_thread_percentage") return one_decimal(default_percent_);
  if (name == "set_default_active_thread_percentage")
    return thread_percentage(default_percent_, words, 1);
  if (name == "set_default_device_pinned_mem_limit") return memory_limit(default_limit_, words, 1);
  if (name == "get_default_device_pinned_mem_limit" && words.size() == 2) {
    const auto ordinal = std::strtoul(words[1].c_str(), nullptr, 10);
    return ordinal < gpus_.size() ? size_text(default_limit_[gpus_[ordinal]]) : "";
  }

  // The rest is about one server.
  constexpr const char* kOfServer[] = {"get_server_status",
                                       "get_client_list",
                                       "shutdown_server",
                                       "terminate_client",
                                       "get_active_thread_percentage",
                                       "set_active_thread_percentage",
                                       "get_device_pinned_mem_limit",
                                       "set_device_pinned_mem_limit"};
  bool known = false;
  for (const char* candidate : kOfServer) known |= name == candidate;
  if (!known) return "Unknown command \"" + name + "\"";
  if (words.size() < 2) return "Usage: " + name + " <server pid> ...";
  Server* server = find_server(std::atoi(words[1].c_str()));
  if (server == nullptr) return "Server " + words[1] + " not found";

  if (name == "get_server_status") return faulted(*server) ? "FAULT" : "ACTIVE";
  if (name == "get_client_list") {
    std::vector<std::string> pids;
    for (const Peer& p : peers_)
      if (p.server == server->pid) pids.push_back(std::to_string(p.pid));
    return join(pids);
  }
  if (name == "shutdown_server") {
    server->closing = true;
    if (words.size() > 2 && words[2] == "-f") end_server(*server, true);
    return "";
  }
  if (name == "terminate_client") {
    const State::Guard guard(state_);
    const char* answer = "201";  // CUDA_ERROR_INVALID_CONTEXT: it is none of its clients
    for (const Peer& p : peers_)
      if (p.server == server->pid && words.size() > 2 && p.pid == std::atoi(words[2].c_str())) {
        state_.end_work(p.slot, 810);  // CUDA_ERROR_MPS_CLIENT_TERMINATED
        answer = "0";
      }
    return answer;
  }
  if (name == "get_active_thread_percentage") return one_decimal(server->percent);
  if (name == "set_active_thread_percentage") return thread_percentage(server->percent, words, 2);
  if (name == "set_device_pinned_mem_limit") return memory_limit(server->limit, words, 2);
  const auto ordinal = words.size() > 2 ? std::strtoul(words[2].c_str(), nullptr, 10) : 0;
  return ordinal < gpus_.size() ? size_text(server->limit[gpus_[ordinal]]) : "";
}

std::string MpsDaemon::list_clients() {
  const auto row = [](const std::string& pid, const std::string& id, const std::string& server,
                      const std::string& device, const std::string& space,
                      const std::string& name) {
    char line[512];
    std::snprintf(line, sizeof line, "%-10s%-10s%-15s%-26s%-15s%-15s", pid.c_str(), id.c_str(),
                  server.c_str(), device.c_str(), space.c_str(), name.c_str());
    return std::string(line);
  };
  std::vector<std::string> lines{row("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")};
  const State::Guard guard(state_);
  for (const Peer& p : peers_) {
    if (p.server == 0 || p.slot < 0) continue;
    const Process& process = state_.process(p.slot);
    for (const unsigned g : gpus_)
      if (process.contexts[g] > 0)
        lines.push_back(row(std::to_string(p.pid), std::to_string(p.id), std::to_string(p.server),
                            uuid_text(uuid_bytes(state_.model(g), g)).substr(0, 22),
                            std::to_string(pid_namespace()), process.name));
  }
  return join(lines);
}

// A value that makes no sense changes nothing; the answer is the value in force.
std::string MpsDaemon::thread_percentage(double& percent, const std::vector<std::string>& words,
                                         std::size_t at) {
  const double wanted = words.size() > at ? std::strtod(words[at].c_str(), nullptr) : 0;
  if (wanted > 0 && wanted <= 100) percent = wanted;
  return one_decimal(percent);
}

std::string MpsDaemon::memory_limit(std::uint64_t* limits, const std::vector<std::string>& words,
                                    std::size_t at) {
  if (words.size() < at + 2) return "Usage: " + words[0] + " ... <device> <limit>";
  const auto ordinal = std::strtoul(words[at].c_str(), nullptr, 10);
  if (ordinal >= gpus_.size()) return "Invalid device " + words[at];
  limits[gpus_[ordinal]] = parse_size(words[at + 1]);
  return "";
}

void MpsDaemon::begin_quit(Peer& peer, const std::vector<std::string>& words) {
  quitting_ = true;
  peer.holds_for_quit = true;
  if (words.size() == 3 && words[1] == "-t") {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    force_quit_at_ = static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9 +
                     std::strtod(words[2].c_str(), nullptr);
  }
}

}  // namespace aliquot::standin
