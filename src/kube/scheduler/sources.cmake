set(kube_scheduler_sources
  scheduler/binding.cpp
  scheduler/cluster_decisions.cpp
  scheduler/cluster_state.cpp
  scheduler/extender.cpp
  scheduler/extender_json.cpp
  scheduler/pod_placement.cpp
  scheduler/service.cpp)
