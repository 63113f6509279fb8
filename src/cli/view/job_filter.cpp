#include "cli/view/job_filter.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

template <class T, class U>
bool any_or_one_of(const std::vector<T>& wanted, const U& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

// A waiting job may name several partitions: `main,besteffort`.
bool in_any(const std::vector<std::string>& wanted, std::string_view partitions) {
  return wanted.empty() || std::ranges::any_of(split(partitions, ','), [&](std::string_view one) {
           return std::ranges::find(wanted, one) != wanted.end();
         });
}

}  // namespace

bool JobFilter::only_unfinished() const {
  return !all_states && std::ranges::none_of(states, [](const std::string& state) {
    api::JobInfo job;
    job.state = state;
    return is_finished(job);
  });
}

bool JobFilter::accepts(const api::JobInfo& job) const {
  if (none) return false;
  if (!all_states && (states.empty() ? is_finished(job) : !any_or_one_of(states, job.state))) {
    return false;
  }
  return any_or_one_of(uids, job.uid) && in_any(partitions, job.partition) &&
         any_or_one_of(names, job.name) && any_or_one_of(accounts, job.account) &&
         any_or_one_of(qos, job.qos) && any_or_one_of(reservations, job.reservation) &&
         licenses.empty() && any_or_one_of(nodes, job.node) &&
         (ids.empty() ||
          std::ranges::any_of(ids, [&](const auto& id) { return matches_job_id(job, id); }));
}

}  // namespace aliquot::cli
