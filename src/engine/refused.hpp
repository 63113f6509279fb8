// Why the engine does not do what it was asked for: a reason, and a sentence for whoever asked. How
// HTTP and Slurm name the reason is api_errors.hpp's.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/result.hpp"

namespace aliquot::engine {

enum class Why : std::uint8_t {
  // The request itself is wrong.
  too_long,
  bad_text,
  bad_environment,
  bad_task_count,
  bad_memory,
  bad_time,
  bad_time_limit,
  bad_node_count,
  bad_feature,
  no_such_node,
  bad_priority,
  bad_signal,
  bad_dependency,
  circular_dependency,
  bad_gpus,
  bad_array,
  bad_script,
  no_such_partition,
  not_in_partition,
  bad_account,
  bad_qos,
  bad_change,
  no_such_reservation,
  bad_reservation_name,
  not_in_reservation,
  never_fits,
  too_many_cpus,
  // The caller may not.
  access_denied,
  not_yours,
  unknown_user,
  over_limit,
  too_many_steps,
  // There is no such thing.
  no_such_job,
  no_such_step,
  no_script,
  // The job is in another state.
  already_over,
  ended_before_start,
  pending,
  not_pending,
  held,
  not_suspended,
  batch_only,
  is_ending,
  not_now,
  // The machine cannot.
  busy,
  launch_failed,
  try_again,
};

struct Refused {
  Why why = Why::bad_text;
  std::string message;
};
template <class T>
using Answer = tl::expected<T, Refused>;

inline tl::unexpected<Refused> refuse(Why why, std::string message) {
  return tl::unexpected<Refused>(Refused{why, std::move(message)});
}

// The record cannot be read or written now; nothing has changed.
inline tl::unexpected<Refused> try_again(const Error& error) {
  return refuse(Why::try_again, error.message + "; try again later");
}

template <class T>
Answer<T> or_try_again(Result<T> result) {
  if (!result) return try_again(result.error());
  return std::move(*result);
}

}  // namespace aliquot::engine
