#include "cli/control/scontrol_reservation.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/slurm_time.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/moment.hpp"

namespace aliquot::cli {
namespace {

constexpr std::int64_t kMostReserved = 1'000;

std::vector<std::string> names_listed(std::string_view text) {
  std::vector<std::string> names;
  for (const auto name : split(text, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

tl::unexpected<Error> bad_word(std::string_view word, std::string_view what) {
  return fail(Error::Code::invalid_argument, "Invalid input: {}: {}", word, what);
}

bool is_active_at(const api::ReservationInfo& one, WallTime now) {
  return one.start_ms <= now.ms() && now.ms() < one.end_ms;
}

std::string duration_of(const api::ReservationInfo& one, TimeStyle style) {
  return format_duration(Millis(one.end_ms - one.start_ms), style);
}

std::string_view or_null_list(std::string_view text) { return text.empty() ? "(null)" : text; }

}  // namespace

Result<api::ReservationSpec> parse_reservation(const std::vector<std::string_view>& words,
                                               const std::vector<std::int64_t>& all_gpus,
                                               WallTime now) {
  api::ReservationSpec spec;
  bool all_nodes = false;
  for (const auto word : words) {
    const auto equals = word.find('=');
    const auto key = word.substr(0, equals);
    const auto value = equals == word.npos ? std::string_view() : word.substr(equals + 1);
    const auto is = [&](std::string_view name) { return equals_ignoring_case(key, name); };
    if (is("ReservationName") || is("Reservation")) {
      spec.name = value;
    } else if (is("StartTime") || is("EndTime")) {
      const auto at = parse_moment(value, now);
      if (!at) return bad_word(word, "a time is now, 16:00, now+2hours or 2030-01-01T09:00");
      (is("StartTime") ? spec.start_ms : spec.end_ms) = at->ms();
    } else if (is("Duration")) {
      const auto length = parse_time_limit(value);
      if (!length || length->unlimited())
        return bad_word(word, "a duration is minutes, 2:00:00 or 1-0");
      spec.duration_ms = length->length->value();
    } else if (is("Users") || is("User")) {
      spec.users = names_listed(value);
    } else if (is("Accounts") || is("Account")) {
      spec.accounts = names_listed(value);
    } else if (is("TRES")) {
      const std::string_view gpus = "gres/gpu=";
      const bool known =
          value.size() > gpus.size() && equals_ignoring_case(value.substr(0, gpus.size()), gpus);
      const auto count = known ? parse_digits(value.substr(gpus.size())) : std::nullopt;
      if (!count || *count < 1 || *count > kMostReserved) {
        return bad_word(word, "GPUs are what is reserved: TRES=gres/gpu=2");
      }
      spec.gpu_count = *count;
    } else if (is("Gpus") || is("Gpu")) {
      spec.gpus.emplace();
      for (const auto one : split(value, ',')) {
        const auto index = parse_digits(one);
        if (!index || *index > kMostReserved) return bad_word(word, "write indexes, as Gpus=0,1");
        spec.gpus->push_back(*index);
      }
    } else if (is("Nodes") || is("NodeCnt") || is("NodeCount")) {
      all_nodes = true;  // there is one
    } else if (is("Flags") || is("Flag")) {
      for (const auto& flag : names_listed(value)) {
        if (!equals_ignoring_case(flag, "IGNORE_JOBS")) {
          return bad_word(word, "the only flag of this engine is IGNORE_JOBS");
        }
        spec.ignore_jobs = true;
      }
    } else {
      return bad_word(word,
                      "known are ReservationName, StartTime, EndTime, Duration, Users, "
                      "Accounts, TRES=gres/gpu=N, Gpus, Nodes and Flags=IGNORE_JOBS");
    }
  }
  if (all_nodes && !spec.gpu_count && !spec.gpus) spec.gpus = all_gpus;
  return spec;
}

std::string show_reservation(const api::ReservationInfo& one, const api::ClusterInfo& cluster,
                             const ShowStyle& style, WallTime now) {
  const std::string users = fmt::format("{}", fmt::join(one.users, ","));
  const std::string accounts = fmt::format("{}", fmt::join(one.accounts, ","));
  const std::vector<std::string> lines{
      fmt::format("ReservationName={} StartTime={} EndTime={} Duration={}", one.name,
                  format_timestamp(WallTime(one.start_ms)), format_timestamp(WallTime(one.end_ms)),
                  duration_of(one, TimeStyle::scontrol)),
      fmt::format("Nodes={} NodeCnt=1 CoreCnt={} Features=(null) PartitionName=(null) Flags=",
                  cluster.node.name, cluster.node.cpus),
      fmt::format("TRES=gres/gpu={}", one.gpus.size()),
      fmt::format("Users={} Groups=(null) Accounts={} Licenses=(null) State={} BurstBuffer=(null) "
                  "Watts=n/a",
                  or_null_list(users), or_null_list(accounts),
                  is_active_at(one, now) ? "ACTIVE" : "INACTIVE"),
      "MaxStartDelay=(null)",
      fmt::format("Gpus={}", fmt::join(one.gpus, ",")),
  };
  return fmt::format("{}{}", fmt::join(lines, style.one_line ? " " : "\n   "),
                     style.one_line ? "\n" : "\n\n");
}

std::string reservation_table(const std::vector<api::ReservationInfo>& all,
                              const api::ClusterInfo& cluster, bool header, WallTime now) {
  std::vector<Row> rows;
  for (const auto& one : all) {
    rows.push_back({one.name, is_active_at(one, now) ? "ACTIVE" : "INACTIVE",
                    format_timestamp(WallTime(one.start_ms)),
                    format_timestamp(WallTime(one.end_ms)), duration_of(one, TimeStyle::squeue),
                    cluster.node.name});
  }
  std::size_t name = 9;
  for (const auto& one : all) name = std::max(name, one.name.size());
  return render_table({{"RESV_NAME", name},
                       {"STATE", 8, Align::right},
                       {"START_TIME", 19, Align::right},
                       {"END_TIME", 19, Align::right},
                       {"DURATION", 11, Align::right},
                       {"NODELIST", 0, Align::left, ""}},
                      rows,
                      {.too_long = TooLong::cut, .header = header, .dashes = false, .prefix = ""});
}

}  // namespace aliquot::cli
