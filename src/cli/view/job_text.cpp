#include "cli/view/job_text.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <iterator>
#include <map>
#include <sstream>

#include "base/number_ranges.hpp"
#include "base/percent.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/jobs/job_ids.hpp"
#include "core/job_state.hpp"
#include "core/request_words.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

// States that Slurm's jobs can be in and ours never are: they may be asked for, and a Slurm cluster
// may show them.
struct State {
  std::string_view name;
  std::string_view compact;
};
constexpr auto kSlurmStates = std::to_array<State>({
    {"BOOT_FAIL", "BF"},
    {"CONFIGURING", "CF"},
    {"RESIZING", "RS"},
    {"REVOKED", "RV"},
    {"REQUEUED", "RQ"},
    {"REQUEUE_FED", "RF"},
    {"REQUEUE_HOLD", "RH"},
    {"SIGNALING", "SI"},
    {"SPECIAL_EXIT", "SE"},
    {"STAGE_OUT", "SO"},
    {"RESV_DEL_HOLD", "RD"},
    {"STOPPED", "ST"},
});
// All states in the order in which squeue lists them.
constexpr std::string_view kStateOrder =
    "PD R S CD CA F TO NF PR BF DL OOM CG CF RS RD RQ RF RH RV SI SE SO ST";

// Either name, in any case of letters.
std::optional<State> find_names(std::string_view word) {
  if (const auto ours = core::parse_job_state(word)) {
    return State{core::long_name(*ours), core::short_name(*ours)};
  }
  for (const auto& known : kSlurmStates) {
    if (equals_ignoring_case(word, known.name) || equals_ignoring_case(word, known.compact)) {
      return known;
    }
  }
  return std::nullopt;
}

// Far beyond any array that Slurm allows: a slip must not fill the memory.
constexpr std::size_t kMostElements = 4'000'001;
using Elements = std::vector<std::int64_t>;

// One resource of the request: `gpu` 2, `gpu:h100` 2, `mps` 25, `gpumem` 8G, `gpuutil` 50.
struct Wanted {
  std::string name;
  std::string count;
};

// What the engine writes into JobInfo::gres.
std::vector<Wanted> wanted_gpus(std::string_view words) {
  const auto request = core::parse_request(words);
  if (!request || !request->gpus) return {};
  const auto& gpus = *request->gpus;
  const auto typed = [&](std::string_view name) {
    return gpus.models.size() == 1 ? fmt::format("{}:{}", name, gpus.models.front())
                                   : std::string(name);
  };
  if (const auto* tickets = std::get_if<core::Tickets>(&gpus.what)) {
    const bool mps = tickets->kind == core::Tickets::Kind::mps;
    return {{typed(mps ? "mps" : "shard"), fmt::format("{}", tickets->count * gpus.count)}};
  }
  if (const auto* amounts = std::get_if<core::Amounts>(&gpus.what)) {
    std::vector<Wanted> wanted;
    if (amounts->memory) wanted.push_back({"gpumem", format_size(*amounts->memory * gpus.count)});
    if (amounts->compute) {
      auto percent = format_percent(*amounts->compute * gpus.count);
      percent.pop_back();
      wanted.push_back({"gpuutil", std::move(percent)});
    }
    return wanted;
  }
  return {{typed("gpu"), fmt::format("{}", gpus.count)}};
}

std::string base_tres(const JobInfo& job) {
  auto text = fmt::format("cpu={}", job.cpus);
  if (job.memory > 0) text += ",mem=" + memory_text(job.memory);
  text += fmt::format(",node=1,billing={}", job.cpus);
  return text;
}

std::string put_time(const tm& when, const char* format) {
  std::ostringstream text;
  text << std::put_time(&when, format);
  return text.str();
}

// How a day is told from today in a few letters.
std::string near_text(const tm& when, const tm& today) {
  const int days = 1'000 * (when.tm_year - today.tm_year) + when.tm_yday - today.tm_yday;
  if (days == -1) return put_time(when, "Ystday %H:%M");
  if (days == 0) return put_time(when, "%H:%M:%S");
  if (days == 1) return put_time(when, "Tomorr %H:%M");
  if (days > 1 && days <= 6) return put_time(when, "%a %H:%M");
  const bool far = days < -365 || days > 365;
  return std::to_string(when.tm_mday) + put_time(when, far ? " %b %Y" : " %b %H:%M");
}

}  // namespace

std::string_view compact_state(std::string_view state) {
  const auto known = find_names(state);
  return known ? known->compact : state;
}

std::optional<std::string_view> find_state(std::string_view word) {
  const auto known = find_names(word);
  return known ? std::optional(known->name) : std::nullopt;
}

std::string all_states() {
  std::string names;
  for (const auto compact : split(kStateOrder, ' ')) {
    if (!names.empty()) names += ',';
    names += *find_state(compact);
  }
  return names;
}

bool is_pending(const JobInfo& job) {
  return job.state == "PENDING" || job.state == "REQUEUED" || job.state == "REQUEUE_HOLD";
}

bool is_active(const JobInfo& job) {
  return job.state == "RUNNING" || job.state == "SUSPENDED" || job.state == "COMPLETING" ||
         job.state == "CONFIGURING" || job.state == "STOPPED";
}

bool is_finished(const JobInfo& job) { return !is_pending(job) && !is_active(job); }

bool has_started(const JobInfo& job) {
  return !is_pending(job) && job.start_ms.has_value() && (is_active(job) || !job.node.empty());
}

void append_job_id(std::string& out, const JobInfo& job) {
  const auto end = std::back_inserter(out);
  if (!job.pod.empty()) {
    out += job.pod;
  } else if (!job.array_pending.empty()) {
    fmt::format_to(end, "{}_[{}]", job.array_job_id.value_or(job.id), job.array_pending);
  } else if (job.array_task_id) {
    fmt::format_to(end, "{}_{}", job.array_job_id.value_or(job.id), *job.array_task_id);
  } else {
    fmt::format_to(end, "{}", job.id);
  }
}

std::string job_id_text(const JobInfo& job) {
  std::string text;
  append_job_id(text, job);
  return text;
}

std::vector<std::int64_t> array_elements(std::string_view pending) {
  return parse_tasks(pending.substr(0, pending.find('%')), kMostElements).value_or(Elements());
}

std::int64_t job_count(const JobInfo& job) {
  return std::max(std::int64_t{1}, std::ssize(array_elements(job.array_pending)));
}

bool matches_job_id(const JobInfo& job, std::string_view id) {
  const auto pattern = parse_job_pattern(id);
  const auto number = pattern ? parse_digits(pattern->job) : std::nullopt;
  if (!number) return false;
  if (pattern->tasks.empty()) return job.id == *number || job.array_job_id == *number;
  if (job.array_job_id.value_or(job.id) != *number) return false;
  const auto elements = job.array_task_id ? std::vector<std::int64_t>{*job.array_task_id}
                                          : array_elements(job.array_pending);
  return std::ranges::any_of(pattern->tasks, [&](std::int64_t task) {
    return std::ranges::find(elements, task) != elements.end();
  });
}

std::optional<std::int64_t> eligible_ms(const JobInfo& job) {
  const bool kept = job.reason.starts_with("JobHeld") || job.reason.starts_with("Dependency");
  if (is_pending(job) && kept) return std::nullopt;
  return job.eligible_ms;
}

Millis time_used(const JobInfo& job, WallTime now) {
  if (!has_started(job)) return Millis(0);
  auto end = now.ms();
  if (job.state == "SUSPENDED" && job.suspend_ms) {
    end = *job.suspend_ms;
  } else if (job.end_ms &&
             (is_finished(job) || (job.state == "COMPLETING" && *job.end_ms <= now.ms()))) {
    end = *job.end_ms;
  }
  return Millis(std::max<std::int64_t>(0, end - *job.start_ms - job.suspended_total_ms));
}

TimeLimit time_limit(const JobInfo& job) {
  return job.time_limit_ms ? TimeLimit{Millis(*job.time_limit_ms)} : kUnlimited;
}

std::string requested_tres(const JobInfo& job) {
  auto text = base_tres(job);
  for (const auto& [name, count] : wanted_gpus(job.gres)) {
    if (count == "0") continue;
    // A typed request counts for the untyped resource as well.
    if (const auto colon = name.find(':'); colon != name.npos) {
      text += fmt::format(",gres/{}={}", name.substr(0, colon), count);
    }
    text += fmt::format(",gres/{}={}", name, count);
  }
  return text;
}

std::string allocated_tres(const JobInfo& job) {
  std::map<std::string, std::int64_t> models;
  std::int64_t whole = 0;
  for (const auto& gpu : job.gpus) {
    if (!gpu.whole) continue;
    ++whole;
    ++models[gres_type(gpu.model)];
  }
  if (whole == 0) return requested_tres(job);
  auto text = fmt::format("{},gres/gpu={}", base_tres(job), whole);
  for (const auto& [model, count] : models) text += fmt::format(",gres/gpu:{}={}", model, count);
  return text;
}

std::string tres_per_node(const JobInfo& job) {
  std::string text;
  for (const auto& [name, count] : wanted_gpus(job.gres)) {
    fmt::format_to(std::back_inserter(text), "{}gres/{}:{}", text.empty() ? "" : ",", name, count);
  }
  return text;
}

std::string gres_type(std::string_view model) {
  auto type = to_lower(model);
  for (char& c : type) {
    if (c == ' ' || c == ',' || c == ':' || c == '(' || c == ')') c = '_';
  }
  return type;
}

std::string gres_detail(const std::vector<api::GpuHold>& gpus) {
  std::map<std::string, std::vector<std::int64_t>> models;
  for (const auto& gpu : gpus) models[gres_type(gpu.model)].push_back(gpu.index);
  std::string text;
  for (auto& [model, indices] : models) {
    std::ranges::sort(indices);
    text += fmt::format("{}gpu:{}:{}(IDX:{})", text.empty() ? "" : ",", model, indices.size(),
                        format_ranges(indices));
  }
  return text;
}

std::string gpu_share_text(const JobInfo& job) {
  std::string text;
  for (const auto& gpu : job.gpus) {
    if (!text.empty()) text += ' ';
    if (!gpu.node.empty()) text += gpu.node + "/";
    if (gpu.whole) {
      text += fmt::format("gpu{}:whole", gpu.index);
    } else {
      text += fmt::format("gpu{}:{},{}", gpu.index, memory_text(gpu.memory),
                          format_percent(Compute(gpu.compute)));
    }
  }
  return text;
}

void append_node_or_reason(std::string& out, const JobInfo& job) {
  if (is_pending(job) || job.state == "FAILED" || job.state == "TIMEOUT" ||
      job.state == "OUT_OF_MEMORY" || job.state == "DEADLINE") {
    out += '(';
    out += job.reason;
    out += ')';
  } else {
    out += job.node;
  }
}

std::string memory_text(std::int64_t bytes, bool convert) {
  const auto whole_mib = bytes / mib(1).value();
  if (!convert) return fmt::format("{}M", whole_mib);
  if (bytes > mib(1).value()) bytes = whole_mib * mib(1).value();
  return format_size(Bytes(bytes));
}

std::string exit_code_text(int code, int signal) { return fmt::format("{}:{}", code, signal); }

std::string shown_time(WallTime time) {
  const char* variable = std::getenv("SLURM_TIME_FORMAT");
  const std::string_view format = variable == nullptr ? "" : variable;
  if (format.empty() || equals_ignoring_case(format, "standard")) return format_timestamp(time);
  const bool relative = equals_ignoring_case(format, "relative");
  const std::time_t second = time.ms() / 1'000;
  const std::time_t now = std::time(nullptr);
  tm when{};
  tm today{};
  ::localtime_r(&second, &when);
  ::localtime_r(&now, &today);
  return make_plain(relative ? near_text(when, today) : put_time(when, variable));
}

void append_time(std::string& out, std::optional<std::int64_t> ms, std::string_view otherwise) {
  if (ms && *ms > 0) {
    out += shown_time(WallTime(*ms));
  } else {
    out += otherwise;
  }
}

}  // namespace aliquot::cli
