// Whom `aliquot status`, `gpus`, `why`, `top` and `logs` ask: the daemon of this machine, a Slurm
// cluster, for which `aliquot-slurm view` answers in the same words, or a Kubernetes cluster, for
// which `aliquot-kube view` does. The daemon comes first, then Slurm; $ALIQUOT_ENGINE decides
// otherwise (cli/engine_choice.hpp).
#pragma once

#include <string>

#include "api/types.hpp"
#include "cli/daemon_client.hpp"
#include "cli/view/kube_options.hpp"

namespace aliquot::cli {

// limits: also what the caller may hold. On Slurm that takes another request.
Reply<api::Overview> ask_overview(bool limits, const KubeOptions& kube);
// `job`: as users write it; on Kubernetes a pod.
Reply<api::WhyInfo> ask_why(const std::string& job, const KubeOptions& kube);
// One job, `7`, `7_3` or `last`, with its texts as they are.
Reply<api::JobInfo> ask_job(const std::string& id);

// Says on stderr why nobody answered, that there is no such job, or that this is no job's id. The
// exit status.
int refused(const api::ErrorInfo& error);
int refused(const api::ErrorInfo& error, const std::string& job);
int no_job_id(const std::string& text);

// `{"cluster": …, "jobs": […]}`
std::string overview_json(const api::Overview& overview);

}  // namespace aliquot::cli
