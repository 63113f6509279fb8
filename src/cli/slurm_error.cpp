#include "cli/slurm_error.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace aliquot::cli {
namespace {

struct KnownError {
  std::string_view code;
  int number;
  std::string_view text;
};

// Errors whose number never becomes an exit status have 1.
// clang-format off
constexpr auto kErrors = std::to_array<KnownError>({
    {kUnreachable, 1800, "Unable to contact slurm controller (connect failure)"},
    {"ESLURM_INVALID_PARTITION_NAME", 2000, "Invalid partition name specified"},
    {"ESLURM_DEFAULT_PARTITION_NOT_SET", 2001, "No partition specified or system default partition"},
    {"ESLURM_ACCESS_DENIED", 2002, "Access/permission denied"},
    {"ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP", 2003, "User's group not permitted to use this partition"},
    {"ESLURM_TOO_MANY_REQUESTED_CPUS", 2005, "More processors requested than permitted"},
    {"ESLURM_INVALID_NODE_COUNT", 2006, "Node count specification invalid"},
    {"ESLURM_JOB_SCRIPT_MISSING", 2009, "Job script not specified"},
    {"ESLURM_USER_ID_MISSING", 2010, "Invalid user id"},
    {"ESLURM_NOT_TOP_PRIORITY", 2013, "Immediate execution impossible, insufficient priority"},
    {"ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", 2014, "Requested node configuration is not available"},
    {"ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", 2015, "Requested partition configuration not available now"},
    {"ESLURM_NODES_BUSY", 2016, "Requested nodes are busy"},
    {"ESLURM_INVALID_JOB_ID", 2017, "Invalid job id specified"},
    {"ESLURM_INVALID_NODE_NAME", 2018, "Invalid node name specified"},
    {"ESLURM_TRANSITION_STATE_NO_UPDATE", 2020, "Job can not be altered now, try again later"},
    {"ESLURM_ALREADY_DONE", 2021, "Job/step already completing or completed"},
    {"ESLURM_BAD_TASK_COUNT", 2025, "Task count specification invalid"},
    {"ESLURM_JOB_PENDING", 2024, "Job is pending execution"},
    {"ESLURM_INVALID_FEATURE", 2029, "Invalid feature specification"},
    {"ESLURM_INVALID_NODE_STATE", 2028, "Invalid node state specified"},
    {"ESLURM_DEPENDENCY", 2038, "Job dependency problem"},
    {"ESLURM_CIRCULAR_DEPENDENCY", 2071, "Circular job dependency"},
    {"ESLURM_BATCH_ONLY", 2039, "Only batch jobs are accepted or processed"},
    {"ESLURM_INVALID_ACCOUNT", 2045, "Invalid account or account/partition combination specified"},
    {"ESLURM_INVALID_LICENSES", 2048, "Invalid license specification"},
    {"ESLURM_ACCOUNTING_POLICY", 2050, "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"},
    {"ESLURM_INVALID_TIME_LIMIT", 2051, "Requested time limit is invalid (missing or exceeds some limit)"},
    {"ESLURM_RESERVATION_ACCESS", 2052, "Access denied to requested reservation"},
    {"ESLURM_RESERVATION_INVALID", 2053, "Requested reservation is invalid"},
    {"ESLURM_RESERVATION_NAME_DUP", 1, "Duplicate reservation name"},
    {"ESLURM_INVALID_QOS", 2066, "Invalid qos specification"},
    {"ESLURM_DISABLED", 1, "Requested operation is presently disabled"},
    {"ESLURM_INVALID_TASK_MEMORY", 1, "Memory required by task is not available"},
    {"ESLURM_JOB_NOT_SUSPENDED", 1, "Job is not suspended"},
    {"ESLURM_JOB_HELD", 1, "Job is in held state, pending scheduler release"},
    {"ESLURM_JOB_NOT_PENDING", 1, "Job is no longer pending execution"},
    {"ESLURM_PATHNAME_TOO_LONG", 2012, "Pathname of a file, directory or other parameter too long"},
    {"ESLURM_STEP_LIMIT", 1, "Step limit reached for this job"},
    {"ESLURM_INVALID_GRES", 2072, "Invalid generic resource (gres) specification"},
    {"ESLURM_INVALID_ARRAY", 2094, "Invalid job array specification"},
});
// clang-format on

const KnownError* find_error(std::string_view code) {
  const auto* const found = std::ranges::find(kErrors, code, &KnownError::code);
  return found == kErrors.end() ? nullptr : found;
}

}  // namespace

bool is_passing(const api::ErrorInfo& error) {
  return error.code == kUnreachable || error.code == "EAGAIN";
}

std::string error_text(const api::ErrorInfo& error) {
  const auto* known = find_error(error.code);
  // Beside a Slurm the text that scripts know would be taken for its slurmctld.
  const char* engine = std::getenv("ALIQUOT_ENGINE");
  if (error.code == kUnreachable && engine != nullptr && std::string_view(engine) == "embedded") {
    return std::string(known->text) + ": Aliquot's own, as ALIQUOT_ENGINE is embedded";
  }
  if (known != nullptr) return std::string(known->text);
  if (!error.message.empty()) return error.message;
  return error.code.empty() ? "Unspecified error" : error.code;
}

int error_number(std::string_view code) {
  const auto* known = find_error(code);
  return known == nullptr ? 1 : known->number;
}

}  // namespace aliquot::cli
