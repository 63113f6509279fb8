// The options by which `aliquot status`, `gpus`, `top` and `why` are told which Kubernetes cluster
// is meant and whose pods, with kubectl's names. Elsewhere than on Kubernetes they are refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/engine_choice.hpp"

namespace CLI {
class App;
}

namespace aliquot::cli {

struct KubeOptions {
  std::string kubeconfig = {};
  std::string context = {};
  std::string name_space = {};
  bool all_namespaces = false;

  // As `aliquot-kube view` takes them.
  [[nodiscard]] std::vector<std::string> words() const;
  // The one that cannot mean anything on that engine; nothing: all is well.
  [[nodiscard]] std::optional<std::string> misplaced(Engine engine) const;
};

// namespaces: also -n and -A, where pods of one namespace are picked.
void add_kube_options(CLI::App& command, KubeOptions& options, bool namespaces);

}  // namespace aliquot::cli
