#include "cli/view/sacct_fields.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/format_spec.hpp"
#include "base/percent.hpp"
#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"

namespace aliquot::cli {
namespace {

using SacctContext = AccountingContext;
using Text = std::string;

constexpr auto kStyle = TimeStyle::scontrol;

// A size in the unit of --units; without it in the largest unit that is exact.
Text size_text(std::int64_t bytes, const SacctContext& context) {
  if (context.unit == 0) {
    return context.convert ? format_size(Bytes(bytes)) : fmt::format("{}", bytes);
  }
  constexpr std::string_view kUnits = "KMGTP";
  auto value = static_cast<double>(bytes);
  for (std::size_t i = 0; i <= kUnits.find(context.unit); ++i) value /= 1024;
  if (value == std::floor(value)) return fmt::format("{:.0f}{}", value, context.unit);
  return fmt::format("{:.2f}{}", value, context.unit);
}

Text cpu_text(std::int64_t ms) {
  // Below an hour with the fraction, as Slurm prints consumed CPU time.
  const auto total = ms / 1'000;
  if (total < 3'600) return fmt::format("{:02}:{:02}.{:03}", total / 60, total % 60, ms % 1'000);
  return format_duration(Millis(ms), kStyle);
}

Millis elapsed(const AccountingRow& row, WallTime now) {
  if (row.step == nullptr) return time_used(*row.job, now);
  return Millis(
      std::max<std::int64_t>(0, row.step->end_ms.value_or(now.ms()) - row.step->start_ms));
}

std::int64_t cpus(const AccountingRow& row) {
  if (row.step == nullptr || row.step->id == "batch") return row.job->cpus;
  return row.step->cpus;
}

// `a=1,b=2` in the order of the database: by name.
Text sorted_tres(const Text& tres) {
  auto parts = split(tres, ',');
  std::ranges::sort(parts, [](std::string_view a, std::string_view b) {
    const auto name = [](std::string_view part) { return part.substr(0, part.rfind('=')); };
    // `gres/gpu:h100` before `gres/gpu`, as `:` comes before `=`.
    return Text(name(a)) + "=" < Text(name(b)) + "=";
  });
  Text out;
  for (const auto part : parts) {
    if (!out.empty()) out += ',';
    out += part;
  }
  return out;
}

Text allocated(const AccountingRow& row, const SacctContext&) {
  if (!has_started(*row.job)) return "";
  auto tres = sorted_tres(allocated_tres(*row.job));
  if (row.step != nullptr && tres.starts_with("billing=")) tres.erase(0, tres.find(',') + 1);
  return tres;
}

Text id_of(const AccountingRow& row, bool raw) {
  auto id = raw ? fmt::format("{}", row.job->id) : job_id_text(*row.job);
  if (row.step != nullptr) id += "." + row.step->id;
  return id;
}

Text state_of(const AccountingRow& row) {
  return row.step == nullptr ? accounting_state(*row.job) : row.step->state;
}

Text start_of(const AccountingRow& row) {
  if (row.step != nullptr) return shown_time(WallTime(row.step->start_ms));
  if (has_started(*row.job)) return shown_time(WallTime(*row.job->start_ms));
  if (is_pending(*row.job)) return "Unknown";
  // What never began ends as it begins.
  return row.job->end_ms ? shown_time(WallTime(*row.job->end_ms)) : "None";
}

Text end_of(const AccountingRow& row) {
  const auto end = row.step != nullptr     ? row.step->end_ms
                   : is_finished(*row.job) ? row.job->end_ms
                                           : std::nullopt;
  return end ? shown_time(WallTime(*end)) : "Unknown";
}

Text exit_of(const AccountingRow& row) {
  // How what was cancelled ended is its steps' to say.
  if (row.step == nullptr && row.job->state == "CANCELLED") return "0:0";
  return row.step == nullptr ? exit_code_text(row.job->exit_code, row.job->exit_signal)
                             : exit_code_text(row.step->exit_code, row.step->exit_signal);
}

Text limit_of(const AccountingRow& row) {
  if (row.step != nullptr) return "";
  const bool usual = row.job->usual_limit || !row.job->time_limit_ms;
  if (usual && !has_started(*row.job)) return "Partition_Limit";
  return format_time_limit(time_limit(*row.job), kStyle);
}

api::JobInfo with_memory(api::JobInfo job, const SacctContext& context) {
  job.steps.clear();
  if (job.memory == 0) job.memory = context.node_memory;
  return job;
}

Text requested(const AccountingRow& row, const SacctContext& context) {
  if (row.step != nullptr) return "";
  auto tres = sorted_tres(requested_tres(with_memory(*row.job, context)));
  if (has_started(*row.job) && tres.starts_with("billing=")) tres.erase(0, tres.find(',') + 1);
  return tres;
}

Text memory_of(const AccountingRow& row, const SacctContext& context) {
  if (row.step != nullptr) return "";
  const auto bytes = with_memory(*row.job, context).memory;
  return context.unit == 0 ? memory_text(bytes, context.convert) : size_text(bytes, context);
}

Text eligible_of(const AccountingRow& row, const SacctContext&) {
  if (row.step != nullptr) return "";
  const auto eligible = eligible_ms(*row.job);
  return eligible ? shown_time(WallTime(*eligible)) : "Unknown";
}

// As srun lays tasks out where nobody says how.
Text layout_of(const AccountingRow& row, const SacctContext&) {
  if (row.step == nullptr) return "";
  if (row.step->id == "batch") return "Unknown";
  return row.step->ntasks > 1 ? "Block" : "Cyclic";
}

Text rss_of(const AccountingRow& row, const SacctContext& context) {
  if (row.step == nullptr || row.step->max_rss == 0) return "";
  return size_text(row.step->max_rss, context);
}

Text planned_of(const AccountingRow& row, const SacctContext& context) {
  if (row.step != nullptr) return "";
  const auto until = has_started(*row.job)  ? *row.job->start_ms
                     : is_pending(*row.job) ? context.now.ms()
                                            : row.job->end_ms.value_or(row.job->eligible_ms);
  return format_duration(Millis(std::max<std::int64_t>(0, until - row.job->eligible_ms)), kStyle);
}

Text node_of(const AccountingRow& row) {
  return row.job->node.empty() ? "None assigned" : row.job->node;
}

// clang-format off
#define TEXT(expression) [](const AccountingRow& row, const SacctContext& context) -> Text { (void)row; (void)context; return Text(expression); }
#define JOB(expression) [](const AccountingRow& row, const SacctContext& context) -> Text { (void)context; const auto& job = *row.job; (void)job; return row.step == nullptr ? Text(expression) : Text(); }
#define STEP(expression) [](const AccountingRow& row, const SacctContext& context) -> Text { (void)context; if (row.step == nullptr) return {}; const auto& step = *row.step; (void)step; return Text(expression); }
#define NONE [](const AccountingRow&, const SacctContext&) -> Text { return {}; }
constexpr auto kRight = Align::right;
constexpr auto kLeft = Align::left;

constexpr auto kSacctFields = std::to_array<AccountingView>({
    {"Account", 10, kRight, TEXT(row.job->account)},
    {"AdminComment", 19, kRight, NONE},
    {"AllocCPUS", 10, kRight, TEXT(fmt::format("{}", cpus(row)))},
    {"AllocNodes", 10, kRight, TEXT(has_started(*row.job) ? "1" : "0")},
    {"AllocTRES", 10, kRight, allocated},
    {"AssocID", 7, kRight, NONE},
    {"AveCPU", 10, kRight, STEP(format_duration(Millis((step.user_cpu_ms + step.system_cpu_ms) / std::max<std::int64_t>(1, step.ntasks)), kStyle))},
    {"AveCPUFreq", 10, kRight, NONE},
    {"AveDiskRead", 14, kRight, NONE},
    {"AveDiskWrite", 14, kRight, NONE},
    {"AvePages", 10, kRight, NONE},
    {"AveRSS", 10, kRight, rss_of},
    {"AveVMSize", 10, kRight, NONE},
    {"BlockID", 16, kRight, NONE},
    {"Cluster", 10, kRight, TEXT(context.cluster)},
    {"Comment", 14, kRight, JOB(is_pending(job) ? Text() : job.comment)},
    {"Constraints", 19, kRight, JOB(job.constraint)},
    {"ConsumedEnergy", 14, kRight, TEXT(row.step != nullptr || is_pending(*row.job) ? "0" : "")},
    {"ConsumedEnergyRaw", 17, kRight, NONE},
    {"Container", 19, kRight, NONE},
    {"CPUTime", 10, kRight, TEXT(format_duration(elapsed(row, context.now) * cpus(row), kStyle)), true},
    {"CPUTimeRAW", 10, kRight, TEXT(fmt::format("{}", elapsed(row, context.now) / seconds(1) * cpus(row)))},
    {"DBIndex", 9, kRight, TEXT(fmt::format("{}", row.job->id))},
    {"DerivedExitCode", 15, kRight, JOB(exit_code_text(job.derived_exit_code, job.derived_exit_signal))},
    {"Elapsed", 10, kRight, TEXT(format_duration(elapsed(row, context.now), kStyle)), true},
    {"ElapsedRaw", 10, kRight, TEXT(fmt::format("{}", elapsed(row, context.now) / seconds(1)))},
    {"Eligible", 19, kRight, eligible_of},
    {"End", 19, kRight, TEXT(end_of(row))},
    {"ExitCode", 8, kRight, TEXT(exit_of(row))},
    {"Flags", 19, kRight, JOB(has_started(job) ? "SchedMain,StartRecieved" : "StartRecieved")},
    {"GID", 6, kRight, JOB(fmt::format("{}", job.gid))},
    {"Group", 9, kRight, JOB(job.group)},
    {"JobID", 12, kLeft, TEXT(id_of(row, false))},
    {"JobIDRaw", 12, kLeft, TEXT(id_of(row, true))},
    {"JobName", 10, kRight, TEXT(row.step == nullptr ? row.job->name : row.step->name)},
    {"Layout", 9, kRight, layout_of},
    {"MaxDiskRead", 12, kRight, NONE},
    {"MaxDiskReadNode", 15, kRight, NONE},
    {"MaxDiskReadTask", 15, kRight, NONE},
    {"MaxDiskWrite", 12, kRight, NONE},
    {"MaxDiskWriteNode", 16, kRight, NONE},
    {"MaxDiskWriteTask", 16, kRight, NONE},
    {"MaxPages", 8, kRight, NONE},
    {"MaxPagesNode", 12, kRight, NONE},
    {"MaxPagesTask", 14, kRight, NONE},
    {"MaxRSS", 10, kRight, rss_of},
    {"MaxRSSNode", 10, kRight, STEP(row.job->node)},
    {"MaxRSSTask", 10, kRight, STEP("0")},
    {"MaxVMSize", 10, kRight, NONE},
    {"MaxVMSizeNode", 14, kRight, NONE},
    {"MaxVMSizeTask", 14, kRight, NONE},
    {"McsLabel", 9, kRight, NONE},
    {"MinCPU", 10, kRight, STEP(format_duration(Millis((step.user_cpu_ms + step.system_cpu_ms) / std::max<std::int64_t>(1, step.ntasks)), kStyle))},
    {"MinCPUNode", 10, kRight, STEP(row.job->node)},
    {"MinCPUTask", 10, kRight, STEP("0")},
    {"NCPUS", 10, kRight, TEXT(fmt::format("{}", cpus(row)))},
    {"NNodes", 8, kRight, TEXT("1")},
    {"NodeList", 15, kRight, TEXT(node_of(row))},
    {"NTasks", 8, kRight, STEP(fmt::format("{}", step.ntasks))},
    {"Partition", 10, kRight, JOB(job.partition)},
    {"Planned", 10, kRight, planned_of, true},
    {"PlannedCPU", 10, kRight, NONE},
    {"PlannedCPURAW", 13, kRight, NONE},
    {"Priority", 10, kRight, JOB(fmt::format("{}", job.priority))},
    {"QOS", 10, kRight, JOB(job.qos)},
    {"QOSRAW", 6, kRight, JOB("1")},
    {"Reason", 22, kRight, JOB(is_pending(job) ? job.reason : Text("None"))},
    {"ReqCPUFreq", 10, kRight, TEXT(row.step != nullptr && row.step->id == "batch" ? "0" : "Unknown")},
    {"ReqCPUFreqGov", 13, kRight, TEXT("Unknown")},
    {"ReqCPUFreqMax", 13, kRight, TEXT("Unknown")},
    {"ReqCPUFreqMin", 13, kRight, TEXT("Unknown")},
    {"ReqCPUS", 8, kRight, TEXT(fmt::format("{}", cpus(row)))},
    {"ReqMem", 10, kRight, memory_of},
    {"ReqNodes", 8, kRight, TEXT("1")},
    {"ReqTRES", 10, kRight, requested},
    {"Reservation", 20, kRight, NONE},
    {"ReservationId", 13, kRight, NONE},
    {"Reserved", 10, kRight, planned_of, true},
    {"ResvCPU", 10, kRight, NONE},
    {"ResvCPURAW", 10, kRight, NONE},
    {"Start", 19, kRight, TEXT(start_of(row))},
    {"State", 10, kRight, TEXT(state_of(row))},
    {"Submit", 19, kRight, TEXT(shown_time(WallTime(row.step == nullptr ? row.job->submit_ms : row.step->start_ms)))},
    {"SubmitLine", 20, kRight, JOB(job.command)},
    {"Suspended", 10, kRight, TEXT(format_duration(Millis(row.step == nullptr ? row.job->suspended_total_ms : 0), kStyle)), true},
    {"SystemCPU", 10, kRight, TEXT(cpu_text(row.step == nullptr ? row.job->system_cpu_ms : row.step->system_cpu_ms))},
    {"SystemComment", 19, kRight, NONE},
    {"Timelimit", 10, kRight, TEXT(limit_of(row))},
    {"TimelimitRaw", 12, kRight, JOB(job.time_limit_ms && (!job.usual_limit || has_started(job)) ? fmt::format("{}", *job.time_limit_ms / 60'000) : limit_of(row))},
    {"TotalCPU", 10, kRight, TEXT(cpu_text(row.step == nullptr ? row.job->system_cpu_ms + row.job->user_cpu_ms : row.step->system_cpu_ms + row.step->user_cpu_ms))},
    {"TRESUsageInAve", 14, kRight, NONE},
    {"TRESUsageInMax", 14, kRight, NONE},
    {"TRESUsageInMaxNode", 18, kRight, NONE},
    {"TRESUsageInMaxTask", 18, kRight, NONE},
    {"TRESUsageInMin", 14, kRight, NONE},
    {"TRESUsageInMinNode", 18, kRight, NONE},
    {"TRESUsageInMinTask", 18, kRight, NONE},
    {"TRESUsageInTot", 14, kRight, NONE},
    {"TRESUsageOutAve", 15, kRight, NONE},
    {"TRESUsageOutMax", 15, kRight, NONE},
    {"TRESUsageOutMaxNode", 19, kRight, NONE},
    {"TRESUsageOutMaxTask", 19, kRight, NONE},
    {"TRESUsageOutMin", 15, kRight, NONE},
    {"TRESUsageOutMinNode", 19, kRight, NONE},
    {"TRESUsageOutMinTask", 19, kRight, NONE},
    {"TRESUsageOutTot", 15, kRight, NONE},
    {"UID", 6, kRight, JOB(fmt::format("{}", job.uid))},
    {"User", 9, kRight, JOB(job.user)},
    {"UserCPU", 10, kRight, TEXT(cpu_text(row.step == nullptr ? row.job->user_cpu_ms : row.step->user_cpu_ms))},
    {"WCKey", 10, kRight, NONE},
    {"WCKeyID", 8, kRight, JOB("0")},
    {"WorkDir", 20, kRight, JOB(job.work_dir)},
    // Ours.
    {"GpuTime", 10, kRight, JOB(format_duration(Millis(job.gpu_ms), kStyle))},
    {"GpuMemPeak", 10, kRight, JOB(job.gpu_memory_peak == 0 ? Text() : size_text(job.gpu_memory_peak, context))},
    {"GpuUtil", 8, kRight, JOB(job.gpus.empty() ? Text() : format_percent(Compute(job.gpu_utilisation)))},
    {"GpuShare", 20, kRight, JOB(gpu_share_text(job))},
});

#undef TEXT
#undef JOB
#undef STEP
#undef NONE
// clang-format on

const AccountingView* find_field(std::string_view name) {
  for (const auto& field : kSacctFields) {
    if (field.name.size() >= name.size() &&
        equals_ignoring_case(field.name.substr(0, name.size()), name)) {
      return &field;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const AccountingView> sacct_fields() { return kSacctFields; }

std::string list_sacct_fields() {
  std::string out;
  std::size_t in_line = 0;
  for (const auto& field : kSacctFields) {
    out += fmt::format("{:<19}", field.name);
    out += ++in_line % 4 == 0 ? "\n" : " ";
  }
  if (in_line % 4 != 0) out.back() = '\n';
  return out;
}

Result<std::vector<ChosenField>> choose_sacct_fields(std::string_view format) {
  std::vector<ChosenField> chosen;
  std::map<const AccountingView*, Column> columns;
  for (const auto& field : TRY(parse_accounting_format(format))) {
    const auto* view = find_field(field.name);
    if (view == nullptr) {
      return fail(Error::Code::invalid_argument, "Invalid field requested: \"{}\"", field.name);
    }
    auto& column =
        columns.try_emplace(view, Column{Text(view->name), view->width, view->align, " "})
            .first->second;
    if (field.width && *field.width > 0) column.width = *field.width;
    if (field.align) column.align = *field.align;
    chosen.push_back({view, {}, field.width == 0U});
  }
  for (auto& one : chosen) one.column = columns[one.view];
  return chosen;
}

std::string accounting_state(const api::JobInfo& job) {
  if (job.state == "CANCELLED" && job.cancelled_by) {
    return fmt::format("CANCELLED by {}", *job.cancelled_by);
  }
  return job.state;
}

std::string format_sacct(const std::vector<ChosenField>& fields,
                         const std::vector<api::JobInfo>& jobs, const SacctLayout& layout,
                         const AccountingContext& context) {
  std::string out;
  const auto line = [&](auto&& text_of, TooLong too_long) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (layout.delimiter) {
        out += text_of(fields[i]);
        if (layout.trailing || i + 1 < fields.size()) out += *layout.delimiter;
      } else {
        const auto& [view, column, hidden] = fields[i];
        const auto too_far = too_long == TooLong::plus && view->whole ? TooLong::whole : too_long;
        append_cell(out, hidden ? Text() : text_of(fields[i]), hidden ? Column{} : column, too_far);
      }
    }
    out += '\n';
  };
  if (layout.header) {
    line([](const ChosenField& field) { return Text(field.view->name); }, TooLong::cut);
    if (!layout.delimiter) {
      line([](const ChosenField& field) { return Text(field.column.width, '-'); }, TooLong::cut);
    }
  }
  const auto add = [&](const AccountingRow& row) {
    line([&](const ChosenField& field) { return field.view->text(row, context); }, TooLong::plus);
  };
  for (const auto& job : jobs) {
    if (std::ranges::find(layout.steps_only, job.id) == layout.steps_only.end()) {
      add({&job, nullptr});
    }
    if (!layout.steps) continue;
    for (const auto& step : job.steps) add({&job, &step});
  }
  return out;
}

}  // namespace aliquot::cli
