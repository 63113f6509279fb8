// In slurmstepd, as root: a job that this node cannot hold goes back to the queue, and the node
// takes no more until its agent undoes the drain. Slurm's own ways to get there are worse: a prolog
// that fails leaves the job held and the node drained for somebody to find.
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cerrno>

#include "slurm/plugins/job_number.hpp"
#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

bool allow_requeue(std::uint32_t job, bool allow) {
  job_desc_msg_t change;
  slurm_init_job_desc_msg(&change);
  slurm_plugin::set_job_number(&change, job);
  change.requeue = allow ? 1 : 0;
  return slurm_update_job(&change) == SLURM_SUCCESS;
}

// Whether slurmctld was not reached, so that it helps to try again. What it answers, or what keeps
// the two from understanding each other (a version, a key), stays as it is.
bool is_away(int error) {
  const auto among = [&](int first, int last) { return error >= first && error <= last; };
  constexpr int kLastOfTheSystems = 999;
  // In every version these hundreds have such errors alone, by whatever names.
  constexpr int kSlurmctldErrors = 1'800;
  constexpr int kSocketErrors = 5'000;
  constexpr int kWidth = 100;
  return among(1, kLastOfTheSystems) || error == ESLURM_IN_STANDBY_MODE ||
         among(SLURM_COMMUNICATIONS_CONNECTION_ERROR, SLURM_COMMUNICATIONS_SHUTDOWN_ERROR) ||
         among(kSlurmctldErrors, kSlurmctldErrors + kWidth - 1) ||
         among(kSocketErrors, kSocketErrors + kWidth - 1);
}

GivenBack outcome(int error) {
  switch (error) {
    case ESLURM_JOB_PENDING:  // another node of the job was quicker
      return GivenBack::queued;
    case ESLURM_DISABLED:
      return GivenBack::not_wanted;
    default:
      return is_away(error) ? GivenBack::unreachable : GivenBack::not_possible;
  }
}

GivenBack requeue_once(std::uint32_t job) {
  if (slurm_requeue(slurm_plugin::JobNumber{job}, 0) == SLURM_SUCCESS) return GivenBack::queued;
  return outcome(errno);
}

// What becomes of a job some of which has run: one with a script goes on, and the others, of srun
// and salloc, cannot be requeued.
GivenBack outcome_for_begun(std::uint32_t job) {
  job_info_msg_t* message = nullptr;
  if (slurm_load_job(&message, slurm_plugin::JobNumber{job}, SHOW_ALL) != SLURM_SUCCESS) {
    return is_away(errno) ? GivenBack::unreachable : GivenBack::not_possible;
  }
  bool script = false;
  for (std::uint32_t i = 0; i < message->record_count; ++i) {
    const slurm_job_info_t& each = message->job_array[i];
    script |= each.job_id == job && each.batch_flag != 0;
  }
  slurm_free_job_info_msg(message);
  return script ? GivenBack::goes_on : GivenBack::not_possible;
}

}  // namespace

std::optional<bool> SlurmController::takes_jobs(const std::string& node) {
  node_info_msg_t* message = nullptr;
  std::string name = node;
  if (slurm_load_node_single(&message, name.data(), SHOW_ALL) != SLURM_SUCCESS) {
    const int error = errno;
    say("cannot ask slurmctld about node %s: %s", node.c_str(), slurm_strerror(error));
    if (is_away(error)) return std::nullopt;
    return false;  // then it cannot be drained, either
  }
  bool takes = false;
  for (std::uint32_t i = 0; i < message->record_count; ++i) {
    takes |= (message->node_array[i].node_state & NODE_STATE_DRAIN) == 0;
  }
  slurm_free_node_info_msg(message);
  return takes;
}

void SlurmController::drain(const std::string& node, const char* why) {
  update_node_msg_t change;
  slurm_init_update_node_msg(&change);
  std::string name = node;
  std::string reason = why;
  change.node_names = name.data();
  change.node_state = NODE_STATE_DRAIN;
  change.reason = reason.data();
  if (slurm_update_node(&change) == SLURM_SUCCESS) return;
  say("cannot drain node %s: %s", node.c_str(), slurm_strerror(errno));
}

// --no-requeue means that nothing of the job may run twice. Where nothing of it has run, it may
// still start elsewhere; then the option is as it was.
GivenBack SlurmController::give_back(std::uint32_t job, bool began) {
  if (began) return outcome_for_begun(job);
  const GivenBack given = requeue_once(job);
  if (given != GivenBack::not_wanted) return given;
  if (!allow_requeue(job, true)) {
    return is_away(errno) ? GivenBack::unreachable : GivenBack::not_possible;
  }
  const GivenBack again = requeue_once(job);
  if (!allow_requeue(job, false)) {
    say("job %u may now be requeued, which its user did not want: %s", job, slurm_strerror(errno));
  }
  return again;
}

}  // namespace aliquot::spank
