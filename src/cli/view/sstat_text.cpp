#include "cli/view/sstat_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/format_spec.hpp"
#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace aliquot::cli {
namespace {

using Text = std::string;
using Member = std::int64_t TaskUse::*;

std::size_t most_at(const StepUse& step, Member member) {
  const auto most = std::ranges::max_element(step.tasks, {}, member);
  return static_cast<std::size_t>(most - step.tasks.begin());
}
std::size_t least_at(const StepUse& step, Member member) {
  const auto least = std::ranges::min_element(step.tasks, {}, member);
  return static_cast<std::size_t>(least - step.tasks.begin());
}
std::int64_t sum_of(const StepUse& step, Member member) {
  std::int64_t sum = 0;
  for (const TaskUse& task : step.tasks) sum += task.*member;
  return sum;
}
std::int64_t average_of(const StepUse& step, Member member) {
  return sum_of(step, member) / std::max<std::int64_t>(std::ssize(step.tasks), 1);
}
std::int64_t most_of(const StepUse& step, Member member) {
  return step.tasks.empty() ? 0 : step.tasks[most_at(step, member)].*member;
}
std::int64_t least_of(const StepUse& step, Member member) {
  return step.tasks.empty() ? 0 : step.tasks[least_at(step, member)].*member;
}

Text size_of(std::int64_t bytes, bool convert) {
  return convert ? format_size(Bytes(bytes)) : fmt::format("{}", bytes);
}
Text time_of(std::int64_t ms) {
  return format_duration(Millis(ms / 1'000 * 1'000), TimeStyle::scontrol);
}
Text plain(std::int64_t number) { return fmt::format("{}", number); }

enum class Which : std::uint8_t { average, most, least, total };

std::int64_t pick(const StepUse& step, Member member, Which which) {
  switch (which) {
    case Which::average:
      return average_of(step, member);
    case Which::most:
      return most_of(step, member);
    case Which::least:
      return least_of(step, member);
    case Which::total:
      break;
  }
  return sum_of(step, member);
}

Text tres_in(const StepUse& step, Which which, bool convert) {
  Text text =
      fmt::format("cpu={},energy=0,fs/disk={}", time_of(pick(step, &TaskUse::cpu_ms, which)),
                  pick(step, &TaskUse::read, which));
  // What the GPU does for one of several tasks is not known.
  if (which == Which::total || step.tasks.size() == 1) {
    if (step.gpu_memory) text += ",gres/gpumem=" + size_of(*step.gpu_memory, convert);
    if (step.gpu_percent) text += fmt::format(",gres/gpuutil={}", *step.gpu_percent);
  }
  return text + fmt::format(",mem={},pages={},vmem={}",
                            size_of(pick(step, &TaskUse::rss, which), convert),
                            pick(step, &TaskUse::pages, which),
                            size_of(pick(step, &TaskUse::vm, which), convert));
}
Text tres_out(const StepUse& step, Which which) {
  return fmt::format("energy=0,fs/disk={}", pick(step, &TaskUse::written, which));
}
Text tres_nodes(const StepUse& step) {
  return fmt::format("cpu={0},energy={0},fs/disk={0},mem={0},pages={0},vmem={0}", step.node);
}
Text tres_tasks(const StepUse& step, bool most) {
  const auto at = [&](Member member) {
    return step.tasks.empty() ? 0 : most ? most_at(step, member) : least_at(step, member);
  };
  return fmt::format("cpu={},fs/disk={},mem={},pages={},vmem={}", at(&TaskUse::cpu_ms),
                     at(&TaskUse::read), at(&TaskUse::rss), at(&TaskUse::pages), at(&TaskUse::vm));
}

struct SstatField {
  std::string_view name;
  std::size_t width;
  Text (*text)(const StepUse& step, bool convert);
};

// clang-format off
#define TEXT(expression) [](const StepUse& step, bool convert) -> Text { (void)step; (void)convert; return expression; }
#define MOST(member) TEXT(plain(static_cast<std::int64_t>(most_at(step, &TaskUse::member))))
constexpr auto kSstatFields = std::to_array<SstatField>({
    {"AveCPU", 10, TEXT(time_of(average_of(step, &TaskUse::cpu_ms)))},
    {"AveCPUFreq", 10, TEXT("0")},
    {"AveDiskRead", 12, TEXT(plain(average_of(step, &TaskUse::read)))},
    {"AveDiskWrite", 12, TEXT(plain(average_of(step, &TaskUse::written)))},
    {"AvePages", 10, TEXT(plain(average_of(step, &TaskUse::pages)))},
    {"AveRSS", 10, TEXT(size_of(average_of(step, &TaskUse::rss), convert))},
    {"AveVMSize", 10, TEXT(size_of(average_of(step, &TaskUse::vm), convert))},
    {"ConsumedEnergy", 14, TEXT("0")},
    {"ConsumedEnergyRaw", 17, TEXT("0")},
    {"JobID", 12, TEXT(step.id)},
    {"MaxDiskRead", 12, TEXT(plain(most_of(step, &TaskUse::read)))},
    {"MaxDiskReadNode", 15, TEXT(step.node)},
    {"MaxDiskReadTask", 15, MOST(read)},
    {"MaxDiskWrite", 12, TEXT(plain(most_of(step, &TaskUse::written)))},
    {"MaxDiskWriteNode", 16, TEXT(step.node)},
    {"MaxDiskWriteTask", 16, MOST(written)},
    {"MaxPages", 8, TEXT(plain(most_of(step, &TaskUse::pages)))},
    {"MaxPagesNode", 12, TEXT(step.node)},
    {"MaxPagesTask", 14, MOST(pages)},
    {"MaxRSS", 10, TEXT(size_of(most_of(step, &TaskUse::rss), convert))},
    {"MaxRSSNode", 10, TEXT(step.node)},
    {"MaxRSSTask", 10, MOST(rss)},
    {"MaxVMSize", 10, TEXT(size_of(most_of(step, &TaskUse::vm), convert))},
    {"MaxVMSizeNode", 14, TEXT(step.node)},
    {"MaxVMSizeTask", 14, MOST(vm)},
    {"MinCPU", 10, TEXT(time_of(least_of(step, &TaskUse::cpu_ms)))},
    {"MinCPUNode", 10, TEXT(step.node)},
    {"MinCPUTask", 10, TEXT(plain(static_cast<std::int64_t>(least_at(step, &TaskUse::cpu_ms))))},
    {"Nodelist", 20, TEXT(step.node)},
    {"NTasks", 8, TEXT(plain(std::ssize(step.tasks)))},
    {"Pids", 20, TEXT(fmt::format("{}", fmt::join(step.pids, ",")))},
    {"ReqCPUFreq", 10, TEXT(step.batch ? "0" : "Unknown")},
    {"ReqCPUFreqMin", 13, TEXT(step.batch ? "0" : "Unknown")},
    {"ReqCPUFreqMax", 13, TEXT(step.batch ? "0" : "Unknown")},
    {"ReqCPUFreqGov", 13, TEXT(step.batch ? "0" : "Unknown")},
    {"TRESUsageInAve", 14, TEXT(tres_in(step, Which::average, convert))},
    {"TRESUsageInMax", 14, TEXT(tres_in(step, Which::most, convert))},
    {"TRESUsageInMaxNode", 18, TEXT(tres_nodes(step))},
    {"TRESUsageInMaxTask", 18, TEXT(tres_tasks(step, true))},
    {"TRESUsageInMin", 14, TEXT(tres_in(step, Which::least, convert))},
    {"TRESUsageInMinNode", 18, TEXT(tres_nodes(step))},
    {"TRESUsageInMinTask", 18, TEXT(tres_tasks(step, false))},
    {"TRESUsageInTot", 14, TEXT(tres_in(step, Which::total, convert))},
    {"TRESUsageOutAve", 15, TEXT(tres_out(step, Which::average))},
    {"TRESUsageOutMax", 15, TEXT(tres_out(step, Which::most))},
    {"TRESUsageOutMaxNode", 19, TEXT(fmt::format("energy={0},fs/disk={0}", step.node))},
    {"TRESUsageOutMaxTask", 19, TEXT(fmt::format("fs/disk={}", most_at(step, &TaskUse::written)))},
    {"TRESUsageOutMin", 15, TEXT(tres_out(step, Which::least))},
    {"TRESUsageOutMinNode", 19, TEXT(fmt::format("energy={0},fs/disk={0}", step.node))},
    {"TRESUsageOutMinTask", 19, TEXT(fmt::format("fs/disk={}", least_at(step, &TaskUse::written)))},
    {"TRESUsageOutTot", 15, TEXT(tres_out(step, Which::total))},
});
#undef TEXT
#undef MOST
// clang-format on

}  // namespace

Result<SstatTable> SstatTable::of(const SstatView& view) {
  SstatTable table;
  table.view_ = view;
  for (const AccountingField& one : TRY(parse_accounting_format(view.format))) {
    const auto* const field = std::ranges::find_if(kSstatFields, [&](const SstatField& known) {
      return known.name.size() >= one.name.size() &&
             equals_ignoring_case(known.name.substr(0, one.name.size()), one.name);
    });
    if (field == kSstatFields.end()) {
      return fail(Error::Code::invalid_argument, "Invalid field requested: \"{}\"", one.name);
    }
    table.fields_.push_back(static_cast<std::size_t>(field - kSstatFields.begin()));
    table.widths_.push_back(one.width.value_or(field->width));
    table.left_.push_back(one.align.value_or(field->name == "JobID" ? Align::left : Align::right) ==
                          Align::left);
  }
  return table;
}

std::string SstatTable::header() const {
  if (!view_.header) return "";
  std::string names;
  std::string dashes;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const Text name(kSstatFields.at(fields_[i]).name);
    if (!view_.delimiter.empty()) {
      names += name;
      if (view_.trailing || i + 1 < fields_.size()) names += view_.delimiter;
    } else {
      append_cell(names, name, {name, widths_[i], left_[i] ? Align::left : Align::right, " "});
      dashes += Text(widths_[i], '-') + " ";
    }
  }
  return names + "\n" + (dashes.empty() ? "" : dashes + "\n");
}

std::string SstatTable::row(const StepUse& step) const {
  std::string out;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const auto text = kSstatFields.at(fields_[i]).text(step, view_.convert);
    if (!view_.delimiter.empty()) {
      out += text;
      if (view_.trailing || i + 1 < fields_.size()) out += view_.delimiter;
    } else {
      append_cell(out, text, {"", widths_[i], left_[i] ? Align::left : Align::right, " "},
                  TooLong::plus);
    }
  }
  return out + "\n";
}

std::string list_sstat_fields() {
  std::string out;
  std::size_t in_line = 0;
  for (const SstatField& field : kSstatFields) {
    out += fmt::format("{:<19}", field.name);
    out += ++in_line % 4 == 0 ? "\n" : " ";
  }
  if (in_line % 4 != 0) out.back() = '\n';
  return out;
}

}  // namespace aliquot::cli
