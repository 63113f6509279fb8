#include "cli/view/squeue_print.hpp"

#include <algorithm>

#include "base/timestamp.hpp"
#include "cli/view/squeue_fields.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

template <class T, class U>
bool any_or_one_of(const std::vector<T>& wanted, const U& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

void expand_arrays(std::vector<JobInfo>& jobs, const JobFilter& filter) {
  std::vector<JobInfo> expanded;
  expanded.reserve(jobs.size());
  for (auto& job : jobs) {
    const auto elements = array_elements(job.array_pending);
    if (job.array_pending.empty() || elements.empty()) {
      expanded.push_back(std::move(job));
      continue;
    }
    for (const auto element : elements) {
      auto one = job;
      one.array_job_id = job.array_job_id.value_or(job.id);
      one.array_task_id = element;
      one.array_pending.clear();
      if (filter.accepts(one)) expanded.push_back(std::move(one));
    }
  }
  jobs = std::move(expanded);
}

Result<SqueueText> format_steps(const std::vector<JobInfo>& jobs, const SqueueView& view) {
  const auto listing = view.by_name
                           ? TRY(Listing<StepRow>::of_names(squeue_step_fields(), view.format))
                           : TRY(Listing<StepRow>::of_letters(squeue_step_fields(), view.format));
  SqueueText out{{}, listing.unknown()};
  if (view.date_line) out.text += format_date_line(view.context.now) + "\n";
  if (view.header) listing.append_header(out.text);
  for (const auto& job : jobs) {
    for (const auto& step : job.steps) {
      if (step.state != "RUNNING" && step.state != "SUSPENDED") continue;
      listing.append_row(out.text, {&job, &step}, view.context);
    }
  }
  return out;
}

}  // namespace

bool JobFilter::only_unfinished() const {
  return !all_states && std::ranges::none_of(states, [](const std::string& state) {
    JobInfo job;
    job.state = state;
    return is_finished(job);
  });
}

bool JobFilter::accepts(const JobInfo& job) const {
  if (!all_states && (states.empty() ? is_finished(job) : !any_or_one_of(states, job.state))) {
    return false;
  }
  if (!any_or_one_of(uids, job.uid) || !any_or_one_of(partitions, job.partition) ||
      !any_or_one_of(names, job.name) || !any_or_one_of(accounts, job.account) ||
      !any_or_one_of(qos, job.qos)) {
    return false;
  }
  return ids.empty() ||
         std::ranges::any_of(ids, [&](const auto& id) { return matches_job_id(job, id); });
}

void select_jobs(std::vector<JobInfo>& jobs, const SqueueView& view) {
  std::erase_if(jobs, [&](const JobInfo& job) { return !view.filter.accepts(job); });
  if (view.expand_arrays) expand_arrays(jobs, view.filter);
}

Result<SqueueText> format_squeue(std::vector<JobInfo>& jobs, const SqueueView& view) {
  select_jobs(jobs, view);
  sort_jobs(jobs, TRY(parse_sort_keys(view.sort.empty() ? kSqueueSort : view.sort)));
  if (view.steps) return format_steps(jobs, view);

  const auto listing = view.by_name
                           ? TRY(Listing<JobInfo>::of_names(squeue_fields(), view.format))
                           : TRY(Listing<JobInfo>::of_letters(squeue_fields(), view.format));
  SqueueText out{{}, listing.unknown()};
  out.text.reserve(256 + jobs.size() * 96);
  if (view.date_line) out.text += format_date_line(view.context.now) + "\n";
  if (view.header) listing.append_header(out.text);
  for (const auto& job : jobs) listing.append_row(out.text, job, view.context);
  return out;
}

}  // namespace aliquot::cli
