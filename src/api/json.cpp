#include "api/json.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>
#include <boost/pfr/tuple_size.hpp>
#include <charconv>
#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/text.hpp"

// One table of fields for each type serves both directions. Writing goes straight to text: a list
// of ten thousand jobs is the common case, and no tree of values is built for it.

namespace aliquot::api {
namespace {

namespace json = boost::json;

// One field of a type: its name in JSON, and the member that holds it.
template <class T, class Value>
struct Field {
  using Type = Value;
  const char* name;
  Value T::*member;
  bool detail;
};
template <class T, class Value>
constexpr Field<T, Value> make_field(const char* name, Value T::*member, bool detail = false) {
  return {name, member, detail};
}

template <class T>
struct Table;

// A field that is missing here does not compile. DETAIL: one of the texts that make up half of a
// job, and that a table of jobs does not show.
#define FIELD(name) make_field(#name, &T::name)
#define DETAIL(name) make_field(#name, &T::name, true)
#define TABLE(Type, ...)                                                               \
  template <>                                                                          \
  struct Table<Type> {                                                                 \
    using T = Type;                                                                    \
    static constexpr auto kFields = std::make_tuple(__VA_ARGS__);                      \
    static_assert(std::tuple_size_v<decltype(kFields)> == boost::pfr::tuple_size_v<T>, \
                  #Type " has a field that is not in its table");                      \
  }

// clang-format off
TABLE(SignalRequest, FIELD(number), FIELD(before_s), FIELD(batch_only));
TABLE(LimitInfo, FIELD(resource), FIELD(soft), FIELD(hard));
TABLE(JobSpec, FIELD(name), FIELD(partition), FIELD(account), FIELD(qos), FIELD(comment),
  FIELD(reservation), FIELD(licenses), FIELD(wckey), FIELD(mail_type), FIELD(mail_user),
  FIELD(batch), FIELD(script), FIELD(arguments), FIELD(command), FIELD(work_dir),
  FIELD(environment), FIELD(login_environment), FIELD(std_out), FIELD(std_err), FIELD(std_in),
  FIELD(append), FIELD(umask), FIELD(propagate), FIELD(limits), FIELD(submit_host),
  FIELD(time_limit_ms), FIELD(no_time_limit), FIELD(begin_ms), FIELD(deadline_ms), FIELD(hold),
  FIELD(requeue),
  FIELD(nice), FIELD(priority), FIELD(dependency), FIELD(kill_on_invalid_dependency), FIELD(array),
  FIELD(signal), FIELD(immediate), FIELD(immediate_s), FIELD(detached), FIELD(array_throttle),
  FIELD(nodes), FIELD(ntasks), FIELD(ntasks_per_node), FIELD(cpus_per_task), FIELD(memory),
  FIELD(memory_per_cpu), FIELD(memory_per_gpu), FIELD(min_cpus), FIELD(overcommit),
  FIELD(exclusive), FIELD(oversubscribe), FIELD(nodelist), FIELD(exclude), FIELD(constraint),
  FIELD(gres),
  FIELD(gpus), FIELD(gpus_per_node), FIELD(gpus_per_task), FIELD(gpu_mem), FIELD(gpu_share));
TABLE(GpuHold, FIELD(index), FIELD(uuid), FIELD(model), FIELD(memory), FIELD(compute), FIELD(whole),
  FIELD(node), FIELD(container));
TABLE(StepInfo, FIELD(job_id), FIELD(id), FIELD(name), FIELD(state), FIELD(start_ms), FIELD(end_ms),
  FIELD(exit_code), FIELD(exit_signal), FIELD(ntasks), FIELD(cpus), FIELD(user_cpu_ms),
  FIELD(system_cpu_ms), FIELD(max_rss), FIELD(gpus));
TABLE(JobInfo, FIELD(id), FIELD(array_job_id), FIELD(array_task_id), FIELD(array_pending),
  FIELD(array_count), FIELD(array_min), FIELD(array_max), FIELD(array_step), FIELD(array_throttle),
  FIELD(name), FIELD(user), FIELD(uid), FIELD(group), FIELD(gid), FIELD(account), FIELD(partition),
  FIELD(qos), DETAIL(comment), FIELD(state), FIELD(reason), DETAIL(reason_detail),
  FIELD(cancelled_by), FIELD(priority), FIELD(nice), DETAIL(dependency), FIELD(requeue),
  FIELD(restarts), FIELD(batch), FIELD(exit_code), FIELD(exit_signal), FIELD(derived_exit_code),
  FIELD(derived_exit_signal), FIELD(submit_ms), FIELD(eligible_ms), FIELD(start_ms), FIELD(end_ms),
  FIELD(time_limit_ms), FIELD(suspend_ms), FIELD(suspended_total_ms), FIELD(deadline_ms),
  FIELD(ntasks), FIELD(ntasks_per_node), FIELD(cpus_per_task), FIELD(cpus), FIELD(memory),
  FIELD(gres), FIELD(constraint), FIELD(node), FIELD(gpus), FIELD(enforcement), FIELD(reservation),
  DETAIL(command), DETAIL(work_dir), DETAIL(std_out), DETAIL(std_err), DETAIL(std_in),
  DETAIL(submit_host), FIELD(steps), FIELD(user_cpu_ms), FIELD(system_cpu_ms), FIELD(max_rss),
  FIELD(gpu_ms), FIELD(gpu_memory_peak), FIELD(gpu_utilisation), FIELD(pod), DETAIL(wckey),
  DETAIL(nodelist), DETAIL(exclude), DETAIL(oversubscribe), DETAIL(min_cpus), DETAIL(min_memory),
  DETAIL(memory_by_cpu), DETAIL(mail_type), DETAIL(mail_user), DETAIL(kill_on_invalid_dependency),
  DETAIL(usual_limit));
TABLE(GpuProcess, FIELD(pid), FIELD(user), FIELD(command), FIELD(memory), FIELD(job_id));
TABLE(GpuUse, FIELD(job_id), FIELD(memory), FIELD(memory_peak), FIELD(utilisation), FIELD(gpu_ms),
  FIELD(waited_ms), FIELD(refusals), FIELD(container));
TABLE(GpuInfo, FIELD(index), FIELD(uuid), FIELD(model), FIELD(simulated), FIELD(health),
  FIELD(memory), FIELD(memory_granted), FIELD(memory_used), FIELD(compute_limit),
  FIELD(compute_granted), FIELD(utilisation), FIELD(stale), FIELD(whole), FIELD(jobs),
  FIELD(processes), FIELD(reason), FIELD(reason_user), FIELD(reason_ms), FIELD(mig),
  FIELD(power_mw), FIELD(temperature), FIELD(energy_mj), FIELD(uses));
TABLE(NodeInfo, FIELD(name), FIELD(state), FIELD(reason), FIELD(reason_user), FIELD(reason_ms),
  FIELD(cpus), FIELD(cpus_allocated), FIELD(memory), FIELD(memory_allocated), FIELD(boot_ms),
  FIELD(daemon_start_ms), FIELD(os), FIELD(gpus), FIELD(driver),
  FIELD(mps_restarts));
TABLE(PartitionInfo, FIELD(name), FIELD(is_default), FIELD(up), FIELD(max_time_ms),
  FIELD(default_time_ms), FIELD(users), FIELD(groups), FIELD(gpus), FIELD(gpu_count),
  FIELD(qos), FIELD(tier), FIELD(job_factor), FIELD(preempt_mode), FIELD(grace_ms));
TABLE(BackendInfo, FIELD(name), FIELD(used), FIELD(detail));
TABLE(ClusterInfo, FIELD(version), FIELD(daemon_version), FIELD(cluster), FIELD(one_user),
  FIELD(simulated), FIELD(policy), FIELD(cgroup), FIELD(enforcement), FIELD(node),
  FIELD(partitions), FIELD(config), FIELD(engine), FIELD(nodes));
TABLE(Overview, FIELD(cluster), FIELD(jobs));
TABLE(Submitted, FIELD(job_id));
TABLE(Allocation, FIELD(job_id), FIELD(step_id), FIELD(environment), FIELD(job));
TABLE(StepSpec, FIELD(name), FIELD(ntasks), FIELD(cpus_per_task), FIELD(overlap),
  FIELD(overcommit), FIELD(gres),
  FIELD(gpus), FIELD(gpus_per_node), FIELD(gpus_per_task));
TABLE(StepEnd, FIELD(exit_code), FIELD(exit_signal), FIELD(user_cpu_ms), FIELD(system_cpu_ms),
  FIELD(max_rss), FIELD(out_of_memory), FIELD(timed_out));
TABLE(CancelSpec, FIELD(signal), FIELD(batch), FIELD(full));
TABLE(Reconfigured, FIELD(changed), FIELD(needs_restart));
TABLE(DrainSpec, FIELD(reason), FIELD(gpus), FIELD(down));
TABLE(ReservationInfo, FIELD(name), FIELD(start_ms), FIELD(end_ms), FIELD(users), FIELD(accounts),
  FIELD(gpus));
TABLE(ReservationSpec, FIELD(name), FIELD(start_ms), FIELD(end_ms), FIELD(duration_ms),
  FIELD(users), FIELD(accounts), FIELD(gpu_count), FIELD(gpus), FIELD(ignore_jobs));
TABLE(ReservationList, FIELD(reservations));
TABLE(WhyInfo, FIELD(job_id), FIELD(state), FIELD(reason), FIELD(sentences),
  FIELD(earliest_start_ms), FIELD(pod));
TABLE(FactorInfo, FIELD(factor), FIELD(weighted));
TABLE(PriorityInfo, FIELD(job_id), FIELD(user), FIELD(uid), FIELD(account), FIELD(partition),
  FIELD(qos), FIELD(priority), FIELD(site), FIELD(age), FIELD(fair_share), FIELD(job_size),
  FIELD(partition_factor), FIELD(qos_factor), FIELD(nice));
TABLE(PriorityList, FIELD(weights), FIELD(jobs));
TABLE(ShareInfo, FIELD(user), FIELD(uid), FIELD(account), FIELD(shares), FIELD(norm_shares),
  FIELD(usage_ms), FIELD(norm_usage), FIELD(factor), FIELD(held), FIELD(held_cpu_min),
  FIELD(held_gpu_min));
TABLE(ShareList, FIELD(users));
TABLE(StepProcesses, FIELD(id), FIELD(pids));
TABLE(RunningProcesses, FIELD(steps), FIELD(gpu_ms), FIELD(gpu_memory_peak));
TABLE(RequestCount, FIELD(name), FIELD(count), FIELD(total_us));
TABLE(UserRequests, FIELD(user), FIELD(uid), FIELD(count), FIELD(total_us));
TABLE(Statistics, FIELD(now_ms), FIELD(since_ms), FIELD(submitted), FIELD(started),
  FIELD(completed), FIELD(canceled), FIELD(failed), FIELD(pending), FIELD(running), FIELD(cycles),
  FIELD(cycle_last_us), FIELD(cycle_max_us), FIELD(cycle_total_us), FIELD(depth_total),
  FIELD(queue_last), FIELD(backfilled), FIELD(requests), FIELD(users));
TABLE(TokenSpec, FIELD(for_s));
TABLE(TokenInfo, FIELD(token), FIELD(expires_ms), FIELD(address));
TABLE(CallerInfo, FIELD(user), FIELD(uid), FIELD(admin));
TABLE(LogPart, FIELD(path), FIELD(text), FIELD(begin), FIELD(end));
TABLE(ErrorInfo, FIELD(code), FIELD(message));
TABLE(JobList, FIELD(jobs), FIELD(next));
TABLE(TresLimit, FIELD(gpus), FIELD(cpus), FIELD(memory));
TABLE(QosInfo, FIELD(name), FIELD(description), FIELD(priority), FIELD(deny_on_limit),
  FIELD(preempt_mode), FIELD(grace_ms),
  FIELD(max_tres), FIELD(max_wall_ms), FIELD(max_tres_per_user), FIELD(max_jobs_per_user),
  FIELD(max_submit_per_user), FIELD(grp_tres), FIELD(grp_jobs), FIELD(grp_submit));
TABLE(AccountInfo, FIELD(name), FIELD(description), FIELD(organization));
TABLE(AccountUserInfo, FIELD(name), FIELD(default_account));
TABLE(AssociationInfo, FIELD(account), FIELD(user), FIELD(parent), FIELD(share), FIELD(max_tres),
  FIELD(max_wall_ms), FIELD(max_jobs), FIELD(max_submit), FIELD(grp_tres), FIELD(grp_jobs),
  FIELD(grp_submit), FIELD(qos), FIELD(default_qos));
TABLE(AccountBook, FIELD(version), FIELD(qos), FIELD(accounts), FIELD(users),
  FIELD(associations));
// clang-format on
#undef TABLE
#undef DETAIL
#undef FIELD

template <class T, class Visitor>
void each_field(Visitor&& visit) {
  std::apply([&](const auto&... one) { (visit(one), ...); }, Table<T>::kFields);
}

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
constexpr bool kIsMap = false;
template <class T>
constexpr bool kIsMap<std::map<std::string, T>> = true;
template <class T>
concept Struct = std::is_class_v<T> && std::is_aggregate_v<T>;

void write_string(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

// Sparse: a field that has its default is left out, as the reader fills it in anyway.
// Brief: besides, what a table of jobs does not show is left out.
enum class Style : std::uint8_t { full, sparse, brief };

template <Style style, class T>
void write(std::string& out, const T& value);

template <Style style, Struct T>
void write_struct(std::string& out, const T& value) {
  static const T kDefault;
  out += '{';
  bool first = true;
  each_field<T>([&](const auto& one) {
    using Value = typename std::remove_cvref_t<decltype(one)>::Type;
    const Value& field = value.*one.member;
    if constexpr (kIsOptional<Value>) {
      if (!field) return;
    }
    if constexpr (style == Style::brief) {
      if (one.detail) return;
    }
    if constexpr (style != Style::full) {
      if constexpr (kIsVector<Value> || kIsMap<Value>) {
        if (field.empty()) return;
      } else if constexpr (std::equality_comparable<Value>) {
        if (field == kDefault.*one.member) return;
      }
    }
    if (!first) out += ',';
    first = false;
    out += '"';
    out += one.name;
    out += "\":";
    write<style>(out, field);
  });
  out += '}';
}

template <Style style, class T>
void write(std::string& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::integral<T>) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    out.append(digits.data(), end);
  } else if constexpr (std::same_as<T, std::string>) {
    write_string(out, value);
  } else if constexpr (kIsOptional<T>) {
    write<style>(out, *value);
  } else if constexpr (kIsVector<T>) {
    out += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ',';
      write<style>(out, value[i]);
    }
    out += ']';
  } else if constexpr (kIsMap<T>) {
    out += '{';
    bool first = true;
    for (const auto& [key, entry] : value) {
      if (!first) out += ',';
      first = false;
      write_string(out, key);
      out += ':';
      write<style>(out, entry);
    }
    out += '}';
  } else {
    write_struct<style>(out, value);
  }
}

template <class T>
Result<void> read(const json::value& from, T& to);

template <Struct T>
Result<void> read_struct(const json::value& from, T& to) {
  const json::object* object = from.if_object();
  if (object == nullptr) return fail(Error::Code::invalid_argument, ": expected an object");
  Result<void> result;
  each_field<T>([&](const auto& one) {
    if (!result) return;
    const json::value* found = object->if_contains(one.name);
    if (found == nullptr) return;
    auto& field = to.*one.member;
    if (found->is_null()) {  // absent; in an update that is a change
      if constexpr (kIsOptional<std::remove_cvref_t<decltype(field)>>) field.reset();
      return;
    }
    if (auto done = read(*found, field); !done) {
      result = fail(done.error().code, ".{}{}", one.name, done.error().message);
    }
  });
  return result;
}

template <class T>
Result<void> read(const json::value& from, T& to) {
  if constexpr (std::same_as<T, bool>) {
    const bool* value = from.if_bool();
    if (value == nullptr) return fail(Error::Code::invalid_argument, ": expected true or false");
    to = *value;
  } else if constexpr (std::integral<T>) {
    boost::system::error_code error;
    const auto value = from.to_number<T>(error);
    if (error) return fail(Error::Code::invalid_argument, ": expected a whole number in range");
    to = value;
  } else if constexpr (std::same_as<T, std::string>) {
    const json::string* value = from.if_string();
    if (value == nullptr) return fail(Error::Code::invalid_argument, ": expected a text");
    to.assign(value->data(), value->size());
  } else if constexpr (kIsOptional<T>) {
    return read(from, to.emplace());
  } else if constexpr (kIsVector<T>) {
    const json::array* array = from.if_array();
    if (array == nullptr) return fail(Error::Code::invalid_argument, ": expected a list");
    to.clear();
    to.reserve(array->size());
    for (const json::value& entry : *array) {
      if (auto done = read(entry, to.emplace_back()); !done) {
        return fail(done.error().code, "[{}]{}", to.size() - 1, done.error().message);
      }
    }
  } else if constexpr (kIsMap<T>) {
    const json::object* object = from.if_object();
    if (object == nullptr) return fail(Error::Code::invalid_argument, ": expected an object");
    to.clear();
    for (const auto& entry : *object) {
      if (auto done = read(entry.value(), to[std::string(entry.key())]); !done) return done;
    }
  } else {
    return read_struct(from, to);
  }
  return {};
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out;
  write_string(out, text);
  return out;
}

std::string brief_json(const JobInfo& job) {
  std::string out;
  write<Style::brief>(out, job);
  return out;
}

JobListWriter::JobListWriter(std::size_t expected, bool brief)
    : text_("{\"jobs\":["), brief_(brief) {
  constexpr std::size_t kUsualJob = 400;
  text_.reserve(64 + expected * kUsualJob);
}

void JobListWriter::add(const JobInfo& job) {
  if (!std::exchange(first_, false)) text_ += ',';
  if (brief_) {
    write<Style::brief>(text_, job);
  } else {
    write<Style::sparse>(text_, job);
  }
}

std::string JobListWriter::take(std::optional<std::int64_t> next) {
  text_ += next ? fmt::format("],\"next\":{}}}", *next) : "]}";
  return std::move(text_);
}

template <class T>
std::string to_json(const T& value) {
  if constexpr (std::same_as<T, JobList>) {
    JobListWriter list(value.jobs.size());
    for (const JobInfo& job : value.jobs) list.add(job);
    return list.take(value.next);
  } else {
    std::string out;
    write<Style::full>(out, value);
    return out;
  }
}

template <class T>
Result<void> update_from_json(T& value, std::string_view text) {
  try {
    json::parse_options options;
    options.allow_invalid_utf8 = true;  // names of files and values of variables are bytes
    options.max_depth = 16;
    boost::system::error_code error;
    json::monotonic_resource memory;
    const json::value parsed = json::parse({text.data(), text.size()}, error, &memory, options);
    if (error) return fail(Error::Code::invalid_argument, "not JSON: {}", error.message());
    T changed = value;
    if (auto done = read(parsed, changed); !done) {
      const std::string& message = done.error().message;
      return fail(done.error().code, "{}", message.starts_with('.') ? message.substr(1) : message);
    }
    value = std::move(changed);
    return {};
  } catch (const std::exception& error) {  // out of memory
    return fail(Error::Code::internal, "cannot read JSON: {}", error.what());
  }
}

template <class T>
void make_plain(T& value) {
  if constexpr (std::same_as<T, std::string>) {
    if (!is_plain_line(value)) value = aliquot::make_plain(value);
  } else if constexpr (kIsOptional<T>) {
    if (value) make_plain(*value);
  } else if constexpr (kIsVector<T>) {
    for (auto& entry : value) make_plain(entry);
  } else if constexpr (kIsMap<T>) {
    for (auto& [key, entry] : value) make_plain(entry);
  } else if constexpr (std::is_class_v<T>) {
    each_field<T>([&](const auto& one) { make_plain(value.*one.member); });
  }
}

template <class T>
Result<T> from_json(std::string_view text) {
  T value;
  TRY(update_from_json(value, text));
  return value;
}

template Result<void> update_from_json(JobSpec&, std::string_view);
template void make_plain(JobInfo&);
template void make_plain(JobList&);
template void make_plain(ClusterInfo&);
template void make_plain(Overview&);
template void make_plain(WhyInfo&);
template void make_plain(Submitted&);
template void make_plain(PriorityList&);
template void make_plain(ShareList&);
template void make_plain(ErrorInfo&);
template void make_plain(RunningProcesses&);
template void make_plain(Statistics&);
template void make_plain(Reconfigured&);
template void make_plain(ReservationList&);
template void make_plain(AccountBook&);

#define BOTH_WAYS(Type)                      \
  template std::string to_json(const Type&); \
  template Result<Type> from_json(std::string_view)
BOTH_WAYS(SignalRequest);
BOTH_WAYS(JobSpec);
BOTH_WAYS(GpuHold);
BOTH_WAYS(StepInfo);
BOTH_WAYS(JobInfo);
BOTH_WAYS(GpuProcess);
BOTH_WAYS(GpuInfo);
BOTH_WAYS(NodeInfo);
BOTH_WAYS(PartitionInfo);
BOTH_WAYS(ClusterInfo);
BOTH_WAYS(Overview);
BOTH_WAYS(Submitted);
BOTH_WAYS(Allocation);
BOTH_WAYS(StepSpec);
BOTH_WAYS(StepEnd);
BOTH_WAYS(CancelSpec);
BOTH_WAYS(Reconfigured);
BOTH_WAYS(DrainSpec);
BOTH_WAYS(ReservationInfo);
BOTH_WAYS(ReservationSpec);
BOTH_WAYS(ReservationList);
BOTH_WAYS(WhyInfo);
BOTH_WAYS(PriorityList);
BOTH_WAYS(ShareList);
BOTH_WAYS(RunningProcesses);
BOTH_WAYS(Statistics);
BOTH_WAYS(TokenSpec);
BOTH_WAYS(TokenInfo);
BOTH_WAYS(CallerInfo);
BOTH_WAYS(LogPart);
BOTH_WAYS(ErrorInfo);
BOTH_WAYS(JobList);
BOTH_WAYS(AccountBook);
#undef BOTH_WAYS

}  // namespace aliquot::api
