#include "cli/view/squeue_print.hpp"

#include <algorithm>

#include "base/timestamp.hpp"
#include "cli/view/squeue_fields.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

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

template <class Record>
Result<Listing<Record>> begin_table(std::span<const ViewField<Record>> fields,
                                    const SqueueView& view, SqueueText& out) {
  auto listing = TRY(Listing<Record>::of(fields, view.format, view.by_name));
  out.unknown_fields = listing.unknown();
  if (view.date_line) out.text += format_date_line(view.context.now) + "\n";
  if (view.header) listing.append_header(out.text);
  return listing;
}

}  // namespace

void select_jobs(std::vector<JobInfo>& jobs, const SqueueView& view) {
  std::erase_if(jobs, [&](const JobInfo& job) { return !view.filter.accepts(job); });
  // Elements that were asked for by name stand by themselves.
  const auto& ids = view.filter.ids;
  const bool elements = !ids.empty() && std::ranges::all_of(ids, [](const std::string& id) {
    return id.find('_') != std::string::npos;
  });
  if (view.expand_arrays || elements) expand_arrays(jobs, view.filter);
}

Result<SqueueText> format_squeue(std::vector<JobInfo>& jobs, const SqueueView& view) {
  select_jobs(jobs, view);
  SqueueText out;
  const auto sort = parse_sort_keys(view.sort.empty() ? kSqueueSort : view.sort);
  if (sort) {
    sort_jobs(jobs, *sort);
  } else {
    out.wrong_sort = sort.error().message;
  }
  if (view.steps) {
    const auto listing = TRY(begin_table(squeue_step_fields(), view, out));
    if (!sort) return out;
    for (const auto& job : jobs) {
      for (const auto& step : job.steps) {
        if (step.state != "RUNNING" && step.state != "SUSPENDED") continue;
        listing.append_row(out.text, {&job, &step}, view.context);
      }
      // Of what has not ended only the steps that srun made are listed.
      if (!job.batch || (job.state != "RUNNING" && job.state != "SUSPENDED")) continue;
      if (std::ranges::any_of(job.steps, [](const auto& step) { return step.id == "batch"; })) {
        continue;
      }
      const api::StepInfo script{.job_id = job.id,
                                 .id = "batch",
                                 .name = "batch",
                                 .state = job.state,
                                 .start_ms = job.start_ms.value_or(0),
                                 .end_ms = std::nullopt,
                                 .cpus = job.cpus};
      listing.append_row(out.text, {&job, &script}, view.context);
    }
    return out;
  }
  out.text.reserve(256 + jobs.size() * 96);
  const auto listing = TRY(begin_table(squeue_fields(), view, out));
  if (!sort) return out;
  for (const auto& job : jobs) listing.append_row(out.text, job, view.context);
  return out;
}

}  // namespace aliquot::cli
