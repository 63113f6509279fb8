#include "engine/api_errors.hpp"

#include <array>

#include "api/json.hpp"

namespace aliquot::engine {
namespace {

struct Name {
  Why why;
  int status;
  const char* code;
};
constexpr std::array kNames{
    Name{Why::too_long, 400, "ESLURM_PATHNAME_TOO_LONG"},
    Name{Why::bad_text, 400, "ESLURM_INVALID_JOB_TEXT"},
    Name{Why::bad_environment, 400, "ESLURM_ENVIRONMENT_MISSING"},
    Name{Why::bad_task_count, 400, "ESLURM_BAD_TASK_COUNT"},
    Name{Why::bad_memory, 400, "ESLURM_INVALID_TASK_MEMORY"},
    Name{Why::bad_time, 400, "ESLURM_INVALID_TIME_VALUE"},
    Name{Why::bad_time_limit, 400, "ESLURM_INVALID_TIME_LIMIT"},
    Name{Why::bad_node_count, 400, "ESLURM_INVALID_NODE_COUNT"},
    Name{Why::bad_feature, 400, "ESLURM_INVALID_FEATURE"},
    Name{Why::no_such_node, 400, "ESLURM_INVALID_NODE_NAME"},
    Name{Why::bad_priority, 400, "ESLURM_INVALID_PRIORITY"},
    Name{Why::bad_signal, 400, "ESLURM_INVALID_SIGNAL"},
    Name{Why::bad_dependency, 400, "ESLURM_DEPENDENCY"},
    Name{Why::circular_dependency, 400, "ESLURM_CIRCULAR_DEPENDENCY"},
    Name{Why::bad_gpus, 400, "ESLURM_INVALID_GRES"},
    Name{Why::bad_array, 400, "ESLURM_INVALID_ARRAY"},
    Name{Why::bad_script, 400, "ESLURM_JOB_SCRIPT_MISSING"},
    Name{Why::no_such_partition, 400, "ESLURM_INVALID_PARTITION_NAME"},
    Name{Why::not_in_partition, 403, "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP"},
    Name{Why::bad_account, 400, "ESLURM_INVALID_ACCOUNT"},
    Name{Why::bad_qos, 400, "ESLURM_INVALID_QOS"},
    Name{Why::bad_change, 400, "ALIQUOT_BAD_CHANGE"},
    Name{Why::no_such_reservation, 400, "ESLURM_RESERVATION_INVALID"},
    Name{Why::bad_reservation_name, 400, "ESLURM_RESERVATION_NAME_DUP"},
    Name{Why::not_in_reservation, 403, "ESLURM_RESERVATION_ACCESS"},
    Name{Why::never_fits, 400, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"},
    Name{Why::too_many_cpus, 400, "ESLURM_TOO_MANY_REQUESTED_CPUS"},
    Name{Why::access_denied, 403, "ESLURM_ACCESS_DENIED"},
    Name{Why::not_yours, 403, "ESLURM_USER_ID_MISSING"},
    Name{Why::unknown_user, 403, "ESLURM_USER_ID_MISSING"},
    Name{Why::over_limit, 403, "ESLURM_ACCOUNTING_POLICY"},
    Name{Why::too_many_steps, 403, "ESLURM_STEP_LIMIT"},
    Name{Why::no_such_job, 404, "ESLURM_INVALID_JOB_ID"},
    Name{Why::no_such_step, 404, "ESLURM_ALREADY_DONE"},
    Name{Why::no_script, 404, "ESLURM_JOB_SCRIPT_MISSING"},
    Name{Why::already_over, 409, "ESLURM_ALREADY_DONE"},
    Name{Why::ended_before_start, 410, "ESLURM_ALREADY_DONE"},
    Name{Why::pending, 409, "ESLURM_JOB_PENDING"},
    Name{Why::not_pending, 409, "ESLURM_JOB_NOT_PENDING"},
    Name{Why::held, 409, "ESLURM_JOB_HELD"},
    Name{Why::not_suspended, 409, "ESLURM_JOB_NOT_SUSPENDED"},
    Name{Why::batch_only, 409, "ESLURM_BATCH_ONLY"},
    Name{Why::is_ending, 409, "ESLURM_TRANSITION_STATE_NO_UPDATE"},
    Name{Why::not_now, 409, "ESLURM_DISABLED"},
    Name{Why::busy, 409, "ESLURM_NODES_BUSY"},
    Name{Why::launch_failed, 500, "ESLURM_JOB_LAUNCH"},
    Name{Why::try_again, 503, "EAGAIN"},
};

// Each at its own place.
constexpr bool is_complete() {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (static_cast<std::size_t>(kNames[i].why) != i) return false;
  }
  return kNames.size() == static_cast<std::size_t>(Why::try_again) + 1;
}
static_assert(is_complete());

}  // namespace

net::Response error_response(const Refused& refused) {
  const ApiError error = to_api(refused);
  return {error.status, api::to_json(error.info)};
}

net::Response misuse(int status, const std::string& message) {
  return {status, api::to_json(api::ErrorInfo{"", message})};
}

ApiError to_api(const Refused& refused) {
  const Name& name = kNames[static_cast<std::size_t>(refused.why)];
  return {name.status, {name.code, refused.message}};
}

}  // namespace aliquot::engine
