// A cluster in the words of our API, from which `aliquot status`, `gpus` and `top` print: its nodes
// with their GPUs, and as jobs the pods that hold or ask for GPUs, with what each container has of
// which. Pure.
//
// Jobs have numbers there, and pods do not: theirs hold for one answer only.
#pragma once

#include "api/types.hpp"
#include "kube/view/cluster_look.hpp"

namespace aliquot::kube {

Result<api::Overview> overview_of(const ClusterLook& look, const Clock& clock);

// In the words for jobs: PENDING; CONFIGURING while its containers are being made; RUNNING, …
std::string pod_state(const Pod& pod);

// `8G`, `8G,25%`, `gpu:2`, of several containers with a + between them; empty: it asks for none.
std::string asked_text(const Asked& asked);

}  // namespace aliquot::kube
