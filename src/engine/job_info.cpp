#include "engine/job_info.hpp"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <boost/pfr/tuple_size.hpp>
#include <string_view>
#include <utility>

#include "base/text.hpp"

namespace aliquot::engine {
namespace {

// Whoever adds a field to one of them decides here whether the other one has it, in both functions
// below, and counts it. The test fills every field of JobInfo and expects it back.
static_assert(boost::pfr::tuple_size_v<Job> == 49);
static_assert(boost::pfr::tuple_size_v<api::JobInfo> == 76);
static_assert(boost::pfr::tuple_size_v<api::GpuHold> == 8);

std::optional<std::int64_t> ms_of(const std::optional<WallTime>& time) {
  return time ? std::optional(time->ms()) : std::nullopt;
}
std::optional<WallTime> time_of(const std::optional<std::int64_t>& ms) {
  return ms ? std::optional(WallTime(*ms)) : std::nullopt;
}

// RaisedSignal:9(Killed)
std::string signal_reason(int number) {
  const char* text = ::sigdescr_np(number);
  std::string name = text == nullptr ? "Unknown" : text;
  std::ranges::replace(name, ' ', '_');
  return fmt::format("{}:{}({})", to_string(Reason::raised_signal), number, name);
}

}  // namespace

core::Grant Job::grant() const {
  core::Grant grant{.holder = holder_of(id),
                    .attempt = restarts,
                    .owner = owner.uid,
                    .group = owner.gid,
                    .processes = std::max<std::int64_t>(ntasks(), 1)};
  for (const HeldGpu& held : gpus) grant.gpus.push_back(held.granted);
  return grant;
}

std::vector<api::GpuHold> to_holds(const std::vector<HeldGpu>& gpus) {
  std::vector<api::GpuHold> holds;
  for (const HeldGpu& held : gpus) {
    holds.push_back({.index = held.index,
                     .uuid = held.granted.gpu.value(),
                     .model = held.model,
                     .memory = held.granted.portion.memory.value(),
                     .compute = held.granted.portion.compute.value(),
                     .whole = held.granted.whole});
  }
  return holds;
}

void write_info(const Job& job, api::JobInfo& info) {
  const api::JobSpec& spec = job.spec;
  info.id = job.id.value();
  info.array_job_id.reset();
  if (job.array) info.array_job_id = job.array->value();
  info.array_task_id = job.task;
  info.array_pending = job.waiting_text;
  info.array_count = job.extent.count;
  info.array_min = job.extent.first;
  info.array_max = job.extent.last;
  info.array_step = job.extent.step;
  info.array_throttle = job.throttle;

  info.name = spec.name;
  info.user = job.owner.user;
  info.uid = job.owner.uid.value();
  info.group = job.owner.group;
  info.gid = job.owner.gid.value();
  info.account = spec.account.empty() ? job.owner.user : spec.account;
  info.partition = job.partition;
  info.qos = spec.qos.empty() ? std::string_view("normal") : std::string_view(spec.qos);
  info.comment = spec.comment;

  info.state = core::long_name(job.state);
  info.reason = to_string(job.reason);
  if (job.reason == Reason::none && job.ending == Ending::timeout) {
    info.reason = to_string(Reason::time_limit);
  }
  if (job.reason == Reason::raised_signal) info.reason = signal_reason(job.exit.signal);
  info.reason_detail = job.detail;
  info.cancelled_by.reset();
  if (job.cancelled_by) info.cancelled_by = job.cancelled_by->value();
  info.priority = job.priority;
  info.nice = spec.nice;
  info.dependency = job.dependency_text;
  info.requeue = spec.requeue;
  info.restarts = job.restarts;
  info.batch = spec.batch;
  info.exit_code = job.exit.code;
  info.exit_signal = job.exit.signal;
  info.derived_exit_code = job.derived_exit.code;
  info.derived_exit_signal = job.derived_exit.signal;

  info.submit_ms = job.submitted.ms();
  info.eligible_ms = job.eligible.ms();
  info.start_ms = ms_of(job.start);
  info.end_ms = ms_of(job.end);
  info.time_limit_ms.reset();
  if (job.time_limit) info.time_limit_ms = job.time_limit->value();
  info.suspend_ms = ms_of(job.suspended);
  info.suspended_total_ms = job.suspended_total.value();
  info.deadline_ms = spec.deadline_ms;

  info.ntasks = job.ntasks();
  info.ntasks_per_node = spec.ntasks_per_node.value_or(0);
  info.cpus_per_task = spec.cpus_per_task.value_or(1);
  info.cpus = job.cpus / kOneCpu;
  info.memory = job.memory.value();
  info.gres = job.gres;
  info.constraint = spec.constraint;
  info.node = job.node;
  info.gpus = to_holds(job.gpus);
  info.enforcement = job.enforcement;
  info.reservation = spec.reservation;
  info.pod.clear();
  info.wckey = spec.wckey;
  info.nodelist = spec.nodelist;
  info.exclude = spec.exclude;
  info.oversubscribe = spec.exclusive ? "NO" : spec.oversubscribe ? "YES" : "OK";
  info.min_cpus = std::max(spec.min_cpus.value_or(1), info.cpus_per_task);
  info.memory_by_cpu = spec.memory_per_cpu.has_value();
  info.min_memory = spec.memory_per_cpu ? spec.memory_per_cpu
                    : spec.memory       ? spec.memory
                                        : std::optional(info.memory);
  info.mail_type = spec.mail_type;
  info.mail_user = spec.mail_user;
  info.kill_on_invalid_dependency = spec.kill_on_invalid_dependency;
  info.usual_limit = !spec.time_limit_ms && !spec.no_time_limit;

  info.command = spec.command;
  info.work_dir = spec.work_dir;
  info.std_out = job.std_out;
  info.std_err = job.std_err;
  info.std_in = job.std_in;
  info.submit_host = spec.submit_host;
  info.steps.clear();

  info.user_cpu_ms = job.usage.user_cpu.value();
  info.system_cpu_ms = job.usage.system_cpu.value();
  info.max_rss = job.usage.max_rss.value();
  info.gpu_ms = job.usage.gpu_time.value();
  info.gpu_memory_peak = job.usage.gpu_memory_peak.value();
  info.gpu_utilisation = job.usage.gpu_utilisation.value();
}

api::JobInfo to_info(const Job& job) {
  api::JobInfo info;
  write_info(job, info);
  return info;
}

Result<Job> from_record(const api::JobInfo& info, api::JobSpec spec) {
  const auto state = core::parse_job_state(info.state);
  if (!state) return fail(Error::Code::invalid_argument, "no state {}", quote(info.state));
  Job job{.id = JobId(info.id), .spec = std::move(spec)};
  job.state = *state;
  if (info.array_job_id) job.array = JobId(*info.array_job_id);
  job.task = info.array_task_id;
  job.extent = {info.array_count, info.array_min, info.array_max, info.array_step};
  job.throttle = info.array_throttle;
  if (!info.array_pending.empty()) {
    job.set_waiting(TRY(core::parse_array(info.array_pending)));
    job.throttle = job.waiting.limit;  // versions before did not keep it
  }
  job.owner = {info.user, Uid(info.uid), info.group, Gid(info.gid)};
  job.partition = info.partition;
  job.priority = info.priority;
  if (info.time_limit_ms) job.time_limit = Millis(*info.time_limit_ms);

  job.reason = parse_reason(info.reason);
  job.detail = info.reason_detail;
  if (info.cancelled_by) job.cancelled_by = Uid(*info.cancelled_by);
  job.restarts = info.restarts;
  job.exit = {info.exit_code, info.exit_signal};
  job.derived_exit = {info.derived_exit_code, info.derived_exit_signal};
  job.dependency_text = info.dependency;

  job.submitted = WallTime(info.submit_ms);
  job.eligible = WallTime(info.eligible_ms);
  job.start = time_of(info.start_ms);
  job.end = time_of(info.end_ms);
  job.suspended = time_of(info.suspend_ms);
  job.suspended_total = Millis(info.suspended_total_ms);

  job.cpus = checked_mul(kOneCpu, info.cpus).value_or(CpuMilli(0));
  job.memory = Bytes(info.memory);
  job.gres = info.gres;
  job.node = info.node;
  for (const api::GpuHold& held : info.gpus) {
    job.gpus.push_back({{GpuId(held.uuid), {Bytes(held.memory), Compute(held.compute)}, held.whole},
                        held.index,
                        held.model});
  }
  job.enforcement = info.enforcement;
  job.std_out = info.std_out;
  job.std_err = info.std_err;
  job.std_in = info.std_in;
  job.usage = {.user_cpu = Millis(info.user_cpu_ms),
               .system_cpu = Millis(info.system_cpu_ms),
               .max_rss = Bytes(info.max_rss),
               .gpu_time = Millis(info.gpu_ms),
               .gpu_memory_peak = Bytes(info.gpu_memory_peak),
               .gpu_utilisation = Compute(info.gpu_utilisation)};
  return job;
}

}  // namespace aliquot::engine
