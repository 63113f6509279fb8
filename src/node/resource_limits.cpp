#include "node/resource_limits.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/resource_limits.hpp"
#include "base/text.hpp"
#include "sys/process.hpp"

namespace aliquot::node {
namespace {

std::uint64_t from_api(const std::optional<std::int64_t>& limit) {
  return limit && *limit >= 0 ? static_cast<std::uint64_t>(*limit) : RLIM_INFINITY;
}

// "unlimited" and what no number holds: nothing.
std::optional<std::int64_t> parse_limit(std::string_view text) {
  return parse_digits(text.substr(0, text.find(' ')));
}

}  // namespace

std::vector<ResourceLimit> own_limits() {
  std::vector<ResourceLimit> limits;
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit limit{};
    if (syscall(SYS_prlimit64, 0, resource, nullptr, &limit) != 0) continue;
    limits.push_back({resource, limit.rlim_cur, limit.rlim_max});
  }
  return limits;
}

// From /proc, where everybody may read them; prlimit wants a capability for another user's.
std::vector<api::LimitInfo> limits_of(Pid pid, Uid uid) {
  const sys::Fd process = sys::open_pid(pid);
  if (!process || !sys::runs_as(pid, uid)) return {};
  const auto text = sys::read_proc(pid, "limits");
  // It is there still: so it was it that we looked at.
  if (!text || sys::has_ended(process, Millis(0))) return {};
  // Below the heading a line for each, in the kernel's order, in columns:
  // Max open files            1024                 1048576              files
  constexpr std::size_t kSoft = 26;
  constexpr std::size_t kHard = 47;
  std::vector<api::LimitInfo> limits;
  const auto lines = split(*text, '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].size() <= kHard) continue;
    limits.push_back({static_cast<int>(i) - 1, parse_limit(lines[i].substr(kSoft)),
                      parse_limit(lines[i].substr(kHard))});
  }
  return limits;
}

std::vector<ResourceLimit> job_limits(const std::vector<ResourceLimit>& usual,
                                      const std::vector<api::LimitInfo>& submitters,
                                      const std::vector<std::string>& propagate) {
  std::vector<ResourceLimit> limits = usual;
  for (ResourceLimit& limit : limits) {
    const auto theirs = std::ranges::find(submitters, limit.resource, &api::LimitInfo::resource);
    if (theirs == submitters.end()) continue;
    const auto name = std::ranges::find(limit_names(), limit.resource, &LimitName::resource);
    const bool wanted =
        name == limit_names().end() || std::ranges::find(propagate, name->name) != propagate.end();
    limit.hard = from_api(theirs->hard);
    if (wanted) limit.soft = from_api(theirs->soft);
    limit.soft = std::min(limit.soft, limit.hard);
  }
  return limits;
}

}  // namespace aliquot::node
