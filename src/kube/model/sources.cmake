set(kube_model_sources
  model/claim.cpp
  model/grant_annotation.cpp
  model/node.cpp
  model/node_gpus.cpp
  model/pod.cpp
  model/pod_request.cpp
  model/quantity.cpp)
