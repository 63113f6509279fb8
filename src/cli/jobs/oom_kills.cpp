#include "cli/jobs/oom_kills.hpp"

#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "sys/file.hpp"

namespace aliquot::cli {
namespace {

// `oom_kill 3`, in memory.events (v2) and memory.oom_control (v1).
std::optional<std::int64_t> read_count(const std::string& file) {
  const auto text = sys::read_whole(file);
  if (!text) return std::nullopt;
  constexpr std::string_view kWord = "oom_kill ";
  for (const auto line : split(*text, '\n')) {
    if (line.starts_with(kWord)) return parse_digits(line.substr(kWord.size())).value_or(0);
  }
  return 0;
}

}  // namespace

std::int64_t count_oom_kills(const std::string& membership, const std::string& mounts) {
  const auto text = sys::read_whole(membership);
  if (!text) return 0;
  for (const auto line : split(*text, '\n')) {  // 4:memory:/aliquot/job_7/step_0, 0::/…
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::string path(parts[2]);
    if (parts[1] == "memory") {
      if (const auto count = read_count(mounts + "/memory" + path + "/memory.oom_control")) {
        return *count;
      }
    }
    if (!parts[1].empty()) continue;
    // A step's own group counts nothing there: its job's does.
    for (std::string group = path; group.size() > 1; group.resize(group.rfind('/'))) {
      if (const auto count = read_count(mounts + group + "/memory.events")) return *count;
      if (group.rfind('/') == group.npos) break;
    }
  }
  return 0;
}

}  // namespace aliquot::cli
