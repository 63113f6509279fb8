#include "engine/reason.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/schedule.hpp"
#include "engine/quotas.hpp"

namespace aliquot::engine {
namespace {

constexpr std::array<std::pair<Reason, std::string_view>, 23> kReasons{{
    {Reason::none, "None"},
    {Reason::priority, core::reason::kPriority},
    {Reason::resources, core::reason::kResources},
    {Reason::dependency, "Dependency"},
    {Reason::dependency_never, "DependencyNeverSatisfied"},
    {Reason::begin_time, "BeginTime"},
    {Reason::held_user, "JobHeldUser"},
    {Reason::held_admin, "JobHeldAdmin"},
    {Reason::task_limit, "JobArrayTaskLimit"},
    {Reason::partition_time_limit, "PartitionTimeLimit"},
    {Reason::partition_down, "PartitionDown"},
    {Reason::not_available, core::reason::kNotAvailable},
    {Reason::bad_constraints, "BadConstraints"},
    {Reason::invalid_account, "InvalidAccount"},
    {Reason::invalid_qos, "InvalidQOS"},
    {Reason::reservation, "Reservation"},
    {Reason::launch_failure, "JobLaunchFailure"},
    {Reason::time_limit, "TimeLimit"},
    {Reason::deadline, "Deadline"},
    {Reason::out_of_memory, "OutOfMemory"},
    {Reason::node_down, "NodeDown"},
    {Reason::nonzero_exit, "NonZeroExitCode"},
    {Reason::raised_signal, "RaisedSignal"},
}};

}  // namespace

std::string_view to_string(Reason reason) {
  if (is_limit(reason)) {
    return limit_words().at(static_cast<std::size_t>(reason) -
                            static_cast<std::size_t>(Reason::limit));
  }
  return kReasons[static_cast<std::size_t>(reason)].second;
}

Reason parse_reason(std::string_view word) {
  word = word.substr(0, word.find(':'));  // of a signal
  const auto found =
      std::ranges::find(kReasons, word, &std::pair<Reason, std::string_view>::second);
  if (found != kReasons.end()) return found->first;
  const auto& limits = limit_words();
  const auto limit = std::ranges::find(limits, word);
  if (limit == limits.end()) return Reason::none;
  return static_cast<Reason>(static_cast<std::ptrdiff_t>(Reason::limit) + (limit - limits.begin()));
}

}  // namespace aliquot::engine
