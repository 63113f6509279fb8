#include "cli/view/usage_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/table.hpp"
#include "base/timestamp.hpp"
#include "cli/view/json_writer.hpp"

namespace aliquot::cli {
namespace {

constexpr double kHourMs = 3'600'000;
constexpr std::string_view kNoAccount = "(none)";

std::string hours_text(double ms) { return fmt::format("{:.2f}", ms / kHourMs); }

std::string_view word(UsageBy by) { return by == UsageBy::user ? "user" : "account"; }

// So much of a GPU, and of several the sum.
double gpu_parts(const api::JobInfo& job, const std::map<std::string, std::int64_t>& memory) {
  double sum = 0;
  for (const api::GpuHold& hold : job.gpus) {
    const auto total = memory.find(hold.uuid);
    const double part = total == memory.end() || total->second <= 0
                            ? 0
                            : static_cast<double>(hold.memory) / static_cast<double>(total->second);
    sum += hold.whole ? 1 : std::max(part, static_cast<double>(hold.compute) / 10'000);
  }
  return sum;
}

// Of a job that is not over: as the library in it says.
double used_so_far(const api::JobInfo& job, const api::NodeInfo& node) {
  double sum = 0;
  for (const api::GpuInfo& gpu : node.gpus) {
    for (const api::GpuUse& use : gpu.uses) {
      if (use.job_id == job.id) sum += static_cast<double>(use.gpu_ms.value_or(0));
    }
  }
  return sum;
}

// A field that has a comma, a quote or a line of its own is quoted.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::vector<UsageRow> count_usage(const std::vector<api::JobInfo>& jobs, const api::NodeInfo& node,
                                  const UsageWanted& wanted) {
  std::map<std::string, std::int64_t> memory;
  for (const api::GpuInfo& gpu : node.gpus) memory[gpu.uuid] = gpu.memory;
  std::map<std::string, UsageRow> rows;
  for (const api::JobInfo& job : jobs) {
    if (job.gpus.empty() || !job.start_ms || job.state == "PENDING") continue;
    const bool runs =
        job.state == "RUNNING" || job.state == "SUSPENDED" || job.state == "COMPLETING";
    const std::int64_t end = runs ? wanted.until.ms() : job.end_ms.value_or(*job.start_ms);
    const std::int64_t length = end - *job.start_ms;
    const std::int64_t inside =
        std::min(end, wanted.until.ms()) - std::max(*job.start_ms, wanted.since.ms());
    if (inside <= 0 || length <= 0) continue;
    const std::string& whose = wanted.by == UsageBy::user ? job.user : job.account;
    const std::string name = whose.empty() ? std::string(kNoAccount) : whose;
    if (!wanted.name.empty() && name != wanted.name) continue;
    UsageRow& row = rows[name];
    row.name = name;
    ++row.jobs;
    row.granted_ms += gpu_parts(job, memory) * static_cast<double>(inside);
    const double used = runs ? used_so_far(job, node) : static_cast<double>(job.gpu_ms);
    row.used_ms += used * static_cast<double>(inside) / static_cast<double>(length);
  }
  std::vector<UsageRow> sorted;
  for (auto& [name, row] : rows) sorted.push_back(std::move(row));
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &UsageRow::granted_ms);
  return sorted;
}

std::string usage_table(const std::vector<UsageRow>& rows, const UsageWanted& wanted) {
  const std::string since = format_timestamp(wanted.since);
  if (rows.empty()) return fmt::format("No job has held a GPU since {}.\n", since);
  std::size_t width = 8;
  for (const UsageRow& row : rows) width = std::max(width, row.name.size());
  const std::vector<Column> columns{{wanted.by == UsageBy::user ? "User" : "Account", width},
                                    {"Jobs", 8, Align::right},
                                    {"Granted", 12, Align::right},
                                    {"Used", 12, Align::right},
                                    {"Wasted", 12, Align::right},
                                    {"Used%", 7, Align::right}};
  std::vector<Row> lines;
  UsageRow sum{.name = "all"};
  const auto line = [](const UsageRow& row) -> Row {
    const double part = row.granted_ms > 0 ? 100 * row.used_ms / row.granted_ms : 0;
    return {row.name,
            std::to_string(row.jobs),
            hours_text(row.granted_ms),
            hours_text(row.used_ms),
            hours_text(row.wasted_ms()),
            fmt::format("{:.0f}%", part)};
  };
  for (const UsageRow& row : rows) {
    sum.jobs += row.jobs;
    sum.granted_ms += row.granted_ms;
    sum.used_ms += row.used_ms;
    lines.push_back(line(row));
  }
  if (rows.size() > 1) lines.push_back(line(sum));
  return fmt::format("GPU hours since {}\n", since) + render_table(columns, lines);
}

std::string usage_csv(const std::vector<UsageRow>& rows, const UsageWanted& wanted) {
  std::string out =
      fmt::format("{},jobs,granted_gpu_hours,used_gpu_hours,wasted_gpu_hours\n", word(wanted.by));
  for (const UsageRow& row : rows) {
    out += fmt::format("{},{},{:.4f},{:.4f},{:.4f}\n", csv_field(row.name), row.jobs,
                       row.granted_ms / kHourMs, row.used_ms / kHourMs, row.wasted_ms() / kHourMs);
  }
  return out;
}

std::string usage_json(const std::vector<UsageRow>& rows, const UsageWanted& wanted) {
  JsonWriter json;
  json.begin_object().field("since_ms", wanted.since.ms()).field("until_ms", wanted.until.ms());
  json.key("rows").begin_array();
  for (const UsageRow& row : rows) {
    json.begin_object()
        .field(std::string(word(wanted.by)).c_str(), row.name)
        .field("jobs", row.jobs);
    json.field("granted_gpu_ms", static_cast<std::int64_t>(row.granted_ms));
    json.field("used_gpu_ms", static_cast<std::int64_t>(row.used_ms));
    json.field("wasted_gpu_ms", static_cast<std::int64_t>(row.wasted_ms())).end_object();
  }
  return json.end_array().end_object().text();
}

}  // namespace aliquot::cli
