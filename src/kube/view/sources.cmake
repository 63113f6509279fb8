set(kube_view_sources
  view/cluster_look.cpp
  view/figures.cpp
  view/overview.cpp
  view/questions.cpp
  view/seen_pod.cpp
  view/wanted_claims.cpp
  view/why.cpp)
