#include "engine/settings.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "base/toml_reader.hpp"
#include "core/policy.hpp"

namespace aliquot::engine {
namespace {

// As in Slurm.
constexpr std::int64_t kMostShares = 65'533;
constexpr std::int64_t kMostFirstId = 60'000'000;
constexpr std::int64_t kMostWeight = 4'294'967'295;

// What goes into LD_PRELOAD, where spaces and colons part names.
TomlReader library_into(std::string& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    to = TRY(place.text());
    if (!to.starts_with('/') || to.find_first_of(" :\t\n$") != std::string::npos) {
      return place.complain("expected a full path without spaces, colons and '$'");
    }
    return {};
  };
}
template <class T>  // Bytes, or an optional of them
TomlReader size_into(T& to) {
  return read_into(to, &TomlPlace::size);
}

// `4`, `0.5`: parts of a GPU count as parts.
TomlReader gpus_into(std::optional<Compute>& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    constexpr double kMost = 1'000'000;
    const auto number = place.node().value<double>();
    if (!place.node().is_number() || !number || !(*number > 0) || !(*number <= kMost)) {
      return place.complain("expected a number of GPUs above 0, as 4 or 0.5");
    }
    to = Compute(
        std::max<std::int64_t>(std::llround(*number * static_cast<double>(kWholeGpu.value())), 1));
    return {};
  };
}

TomlReader limits_into(Settings& settings) {
  Limits& limits = settings.limits;
  return toml_table(
      {{"max_job_count", number_into(limits.job_count, 1'000'000)},
       {"max_submit_jobs_per_user", number_into(limits.jobs_per_user, 1'000'000)},
       {"max_array_size", number_into(limits.array_size, 100'001)},
       {"max_dependencies", number_into(limits.dependencies, 1'000)},
       {"max_script_size", size_into(limits.script)},
       {"max_environment_size", size_into(limits.environment)},
       {"max_stored_per_user", size_into(limits.stored_per_user)},
       {"max_records_per_user", number_into(limits.records_per_user, 1'000'000'000)},
       {"max_step_count", number_into(limits.steps, 1'000'000)},
       {"max_connections", number_into(settings.connections, 1'000'000)},
       {"max_connections_per_user", number_into(settings.connections_per_user, 1'000'000)}});
}

// [priority.shares]: a line for each user.
Result<void> read_shares(const TomlPlace& place, PrioritySettings& priority) {
  const toml::table* table = place.node().as_table();
  if (table == nullptr) return place.complain("write it as [priority.shares]");
  priority.shares.clear();
  for (const auto& [user, shares] : *table) {
    const std::string name(user.str());
    const TomlPlace one(shares, place.file(), "priority.shares." + name);
    priority.shares[name] = TRY(one.number(0, kMostShares));
  }
  return {};
}

TomlReader priority_into(PrioritySettings& priority) {
  core::PriorityWeights& weights = priority.weights;
  return toml_table(
      {{"decay_half_life", span_into(priority.half_life)},
       {"max_age", span_into(weights.max_age)},
       {"weight_age", number_into(weights.age, kMostWeight, 0)},
       {"weight_fair_share", number_into(weights.fair_share, kMostWeight, 0)},
       {"weight_job_size", number_into(weights.job_size, kMostWeight, 0)},
       {"weight_partition", number_into(weights.partition, kMostWeight, 0)},
       {"weight_qos", number_into(weights.qos, kMostWeight, 0)},
       {"shares", [&](const TomlPlace& place) { return read_shares(place, priority); }}});
}

}  // namespace

bool contains(const std::vector<ExitRange>& ranges, int code) {
  return std::ranges::any_of(
      ranges, [code](const ExitRange& one) { return code >= one.first && code <= one.last; });
}

namespace {

// "1-9,18", as in slurm.conf.
TomlReader exits_into(std::vector<ExitRange>& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    to.clear();
    const std::string text = TRY(place.text());
    for (const std::string_view word : split(text, ',')) {
      const auto dash = word.find('-');
      const auto first = parse_digits(word.substr(0, dash));
      const auto last = dash == word.npos ? first : parse_digits(word.substr(dash + 1));
      if (!first || !last || *first < 1 || *last < *first || *last > 255) {
        return place.complain("expected exit codes from 1 to 255, as \"1-9,18\"");
      }
      to.push_back({static_cast<int>(*first), static_cast<int>(*last)});
    }
    return {};
  };
}

// A program by its full path, or nothing.
TomlReader program_into(std::string& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    to = TRY(place.text());
    if (!to.empty() && (!to.starts_with('/') || to.find('\0') != std::string::npos)) {
      return place.complain("expected the full path of a program, without arguments");
    }
    return {};
  };
}

TomlReader jobs_into(Settings& settings) {
  return toml_table({{"default_time", read_into(settings.default_time, &TomlPlace::time)},
                     {"first_id", number_into(settings.first_id, kMostFirstId)},
                     {"memory_per_cpu", size_into(settings.memory_per_cpu)},
                     {"gpus_per_user", gpus_into(settings.gpus_per_user)},
                     {"shares_only_in_reservations", truth_into(settings.shares_in_reservations)},
                     {"processes", number_into(settings.processes, 4'194'304, 0)},
                     {"requeue_exit", exits_into(settings.requeue_exit)},
                     {"requeue_exit_hold", exits_into(settings.requeue_exit_hold)},
                     {"kill_wait", span_into(settings.kill_wait)},
                     {"min_job_age", span_into(settings.min_job_age)},
                     {"purge_after", read_into(settings.purge_after, &TomlPlace::span)}});
}

}  // namespace

Result<Settings> parse_settings(std::string_view text, std::string_view name) {
  Settings settings;
  std::vector<std::string> policies;
  for (const core::PolicyInfo& policy : core::policies()) policies.emplace_back(policy.name);
  auto enforce = node::enforce_readers(settings.enforce);
  enforce.emplace("enabled", truth_into(settings.enforce.enabled));
  enforce.emplace("library", library_into(settings.library));
  enforce.emplace("watch_ms", [&](const TomlPlace& place) -> Result<void> {
    settings.watch_interval = Millis(TRY(place.number(20, 60'000)));
    return {};
  });
  TRY(read_toml(
      text, name,
      {
          {"cluster", toml_table({{"name", text_into(settings.cluster)}})},
          {"node", toml_table({{"name", text_into(settings.node)},
                               {"memory", size_into(settings.memory)},
                               {"cpus", number_into(settings.cpus, 1'000'000)}})},
          {"gpu", toml_table({{"simulate", text_into(settings.simulate)},
                              {"mps_per_gpu", number_into(settings.mps_per_gpu, 1'000'000)},
                              {"shards_per_gpu", number_into(settings.shards_per_gpu, 1'000'000)},
                              {"compute_overcommit",
                               [&](const TomlPlace& place) -> Result<void> {
                                 settings.compute_limit = kWholeGpu * TRY(place.number(1, 100));
                                 return {};
                               }}})},
          {"enforce", toml_table(std::move(enforce))},
          {"schedule", toml_table({{"policy", one_of(settings.policy, policies)}})},
          {"jobs", jobs_into(settings)},
          {"priority", priority_into(settings.priority)},
          {"limits", limits_into(settings)},
          {"monitor", toml_table({{"interval", span_into(settings.sample_interval)},
                                  {"idle_interval", span_into(settings.idle_sample_interval)},
                                  {"stale_after", span_into(settings.stale_after)}})},
          {"mail", toml_table({{"program", program_into(settings.mail_program)},
                               {"domain", text_into(settings.mail_domain)}})},
          {"events", toml_table({{"command", program_into(settings.events_command)},
                                 {"user", text_into(settings.events_user)}})},
          {"page", show::listen_into(settings.page)},
          {"metrics", toml_table({{"users", truth_into(settings.user_metrics)},
                                  {"job_mapping", text_into(settings.job_mapping)}})},
          {"log",
           toml_table({{"level", one_of(settings.log_level, {"debug", "info", "warning", "error"})},
                       {"file", text_into(settings.log_file)}})},
          {"partition",
           [&](const TomlPlace& place) -> Result<void> {
             settings.partitions = TRY(read_partitions(place));
             return {};
           }},
      }));
  if (const auto page = show::check_listen(settings.page); !page) {
    return fail(page.error().code, "{}: {}", name, page.error().message);
  }
  for (Partition& one : settings.partitions) {
    one.default_time = one.own_default_time.value_or(
        is_longer(settings.default_time, one.max_time) ? one.max_time : settings.default_time);
  }
  return settings;
}

Reloaded reload_settings(Settings& current, const Settings& next) {
  Reloaded reloaded;
  const auto live = [&](std::string_view name, auto member) {
    if (current.*member == next.*member) return;
    current.*member = next.*member;
    reloaded.changed.emplace_back(name);
  };
  const auto fixed = [&](std::string_view name, auto member) {
    if (current.*member != next.*member) reloaded.needs_restart.emplace_back(name);
  };
  fixed("cluster.name", &Settings::cluster);
  fixed("node.name", &Settings::node);
  fixed("node.cpus", &Settings::cpus);
  fixed("node.memory", &Settings::memory);
  live("partition", &Settings::partitions);
  fixed("schedule.policy", &Settings::policy);
  fixed("gpu.compute_overcommit", &Settings::compute_limit);
  fixed("gpu.mps_per_gpu", &Settings::mps_per_gpu);
  fixed("gpu.shards_per_gpu", &Settings::shards_per_gpu);
  fixed("gpu.simulate", &Settings::simulate);
  for (const std::string& key : node::differences(current.enforce, next.enforce)) {
    reloaded.needs_restart.push_back("enforce." + key);
  }
  live("enforce.watch_ms", &Settings::watch_interval);
  fixed("enforce.library", &Settings::library);
  live("jobs.default_time", &Settings::default_time);
  live("jobs.memory_per_cpu", &Settings::memory_per_cpu);
  live("jobs.gpus_per_user", &Settings::gpus_per_user);
  live("jobs.shares_only_in_reservations", &Settings::shares_in_reservations);
  fixed("jobs.first_id", &Settings::first_id);
  fixed("jobs.kill_wait", &Settings::kill_wait);
  fixed("jobs.processes", &Settings::processes);
  live("jobs.min_job_age", &Settings::min_job_age);
  live("jobs.purge_after", &Settings::purge_after);
  live("jobs.requeue_exit", &Settings::requeue_exit);
  live("jobs.requeue_exit_hold", &Settings::requeue_exit_hold);
  live("mail.program", &Settings::mail_program);
  live("mail.domain", &Settings::mail_domain);
  live("events.command", &Settings::events_command);
  live("events.user", &Settings::events_user);
  live("limits", &Settings::limits);
  live("priority", &Settings::priority);
  fixed("limits.max_connections", &Settings::connections);
  fixed("limits.max_connections_per_user", &Settings::connections_per_user);
  live("monitor.interval", &Settings::sample_interval);
  live("monitor.idle_interval", &Settings::idle_sample_interval);
  live("monitor.stale_after", &Settings::stale_after);
  fixed("page", &Settings::page);
  live("metrics.users", &Settings::user_metrics);
  fixed("metrics.job_mapping", &Settings::job_mapping);
  live("log.level", &Settings::log_level);
  fixed("log.file", &Settings::log_file);
  return reloaded;
}

Result<Settings> load_settings(const std::string& path) {
  const std::string text = TRY(read_settings_file(path));
  return parse_settings(text, path);
}

}  // namespace aliquot::engine
