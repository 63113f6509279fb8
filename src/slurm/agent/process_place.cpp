#include "slurm/agent/process_place.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "slurm/agent/step_parts.hpp"
#include "sys/ancestors.hpp"
#include "sys/process.hpp"

namespace aliquot::slurm {
namespace {

// Where Slurm makes its groups, and nobody else can: 4:memory:/slurm/uid_1000/job_7/step_0/task_0,
// /slurm_n1/… where several nodes are on one machine, 0::/system.slice/slurmstepd.scope/job_7.
// Below others (…/user@1000.service/…) a user makes groups with any name.
bool is_slurms(std::string_view line) {
  const std::string_view path = line.substr(std::min(line.find(":/"), line.size() - 1) + 1);
  return path.starts_with("/slurm") ||
         (path.starts_with("/system.slice/") &&
          path.substr(0, path.find("/job_")).ends_with("slurmstepd.scope"));
}

std::optional<Place> place_by_cgroup(Pid pid) {
  const std::string groups = sys::read_proc(pid, "cgroup").value_or("");
  for (const std::string_view line : split(groups, '\n')) {
    const std::size_t at = line.find("/job_");
    if (at == std::string_view::npos || !is_slurms(line)) continue;
    std::string_view rest = line.substr(at + 5);
    const auto id = parse_digits(rest.substr(0, rest.find('/')));
    if (!id) continue;
    constexpr std::string_view kStep = "/step_";
    rest.remove_prefix(std::min(rest.find('/'), rest.size()));
    if (!rest.starts_with(kStep)) return Place{JobId(*id)};
    rest.remove_prefix(kStep.size());
    return Place{JobId(*id), parse_digits(rest.substr(0, rest.find('/')))};
  }
  return std::nullopt;
}

// Where Slurm makes no groups: slurmstepd, which is root's, has its job in its title,
// "slurmstepd: [7.batch]".
std::optional<Place> place_by_title(Pid pid) {
  constexpr std::string_view kTitle = "slurmstepd: [";
  if (!sys::runs_as(pid, Uid(0))) return std::nullopt;
  const auto title = sys::read_proc(pid, "cmdline");
  if (!title || !title->starts_with(kTitle)) return std::nullopt;
  const std::string_view rest = std::string_view(*title).substr(kTitle.size());
  const auto end = rest.find_first_of(".]");
  const auto id = parse_digits(rest.substr(0, end));
  if (!id) return std::nullopt;
  const auto step = rest.substr(std::min(end, rest.size()));
  return Place{JobId(*id), step.starts_with('.') ? parse_digits(step.substr(1, step.find(']') - 1))
                                                 : std::nullopt};
}

}  // namespace

std::optional<Place> place_of(Pid pid) {
  if (const auto place = place_by_cgroup(pid)) return place;
  return sys::ask_ancestors(pid, place_by_title);
}

node::FencedJob holders_among(const std::vector<node::RunningJob>& running) {
  return [&running](Pid pid) -> std::optional<HolderId> {
    const auto place = place_of(pid);
    if (!place) return std::nullopt;
    if (place->step) {
      const HolderId part = part_holder(place->job, *place->step);
      if (std::ranges::count(running, part, &node::RunningJob::id) > 0) return part;
    }
    return holder_of(place->job);
  };
}

}  // namespace aliquot::slurm
