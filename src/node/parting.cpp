#include "node/parting.hpp"

#include <dirent.h>
#include <signal.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <set>

#include "base/text.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

// "SigBlk:\t0000000000010000"; bit n - 1 is signal n.
bool has(std::string_view status, std::string_view label, int signal) {
  const auto at = status.find(label);
  if (at == std::string_view::npos) return false;
  const auto text = status.substr(at + label.size(), 16);
  std::uint64_t mask = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), mask, 16);
  return read.ec == std::errc() && (mask >> (signal - 1) & 1U) != 0;
}

// A signal for a process goes to any thread that does not block it.
bool is_blocked(Pid pid, int signal) {
  const auto threads = fmt::format("/proc/{}/task", pid.value());
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(threads.c_str()), closedir);
  if (!folder) return false;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const auto status = sys::read_whole(threads + "/" + entry->d_name + "/status");
    if (status && !has(*status, "\nSigBlk:\t", signal)) return false;
  }
  return true;
}

}  // namespace

bool dies_of(Pid pid, int signal) {
  switch (signal) {
    case SIGKILL:
      return true;
    case 0:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGCONT:
    case SIGCHLD:
    case SIGURG:
    case SIGWINCH:
      return false;
    default:
      break;
  }
  if (signal < 0 || signal > 64) return false;
  const auto status = sys::read_proc(pid, "status");
  if (!status) return false;
  return !has(*status, "\nSigCgt:\t", signal) && !has(*status, "\nSigIgn:\t", signal) &&
         !is_blocked(pid, signal);
}

std::string part(const std::optional<gpu::MpsPipe>& mps,
                 const std::vector<sys::ProcessRef>& processes, int signal,
                 const gpu::MpsPatience& patience) {
  if (!mps) return "";
  std::set<pid_t> dying;
  for (const sys::ProcessRef& process : processes) {
    if (dies_of(process.pid, signal)) dying.insert(process.pid.value());
  }
  return gpu::part_clients(*mps, {dying.begin(), dying.end()}, patience);
}

std::string signal_parted(const std::optional<gpu::MpsPipe>& mps,
                          const std::vector<sys::ProcessRef>& processes, int signal,
                          const gpu::MpsPatience& patience) {
  auto complaint = part(mps, processes, signal, patience);
  sys::signal_processes(processes, signal);
  return complaint;
}

}  // namespace aliquot::node
