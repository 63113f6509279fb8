#include "cli/view/kube_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

namespace aliquot::cli {

std::vector<std::string> KubeOptions::words() const {
  std::vector<std::string> words;
  for (const auto& [name, value] :
       {std::pair("--kubeconfig=", &kubeconfig), std::pair("--context=", &context),
        std::pair("--namespace=", &name_space)}) {
    if (!value->empty()) words.push_back(name + *value);
  }
  if (all_namespaces) words.emplace_back("--all-namespaces");
  return words;
}

std::optional<std::string> KubeOptions::misplaced(Engine engine) const {
  const auto given = words();
  if (engine == Engine::kubernetes || given.empty()) return std::nullopt;
  return fmt::format("{} is for Kubernetes: say 'kubectl aliquot', or set ALIQUOT_ENGINE=kube",
                     given.front().substr(0, given.front().find('=')));
}

void add_kube_options(CLI::App& command, KubeOptions& options, bool namespaces) {
  command.add_option("--kubeconfig", options.kubeconfig, "On Kubernetes: the file that says where")
      ->type_name("FILE");
  command.add_option("--context", options.context, "On Kubernetes: which context of that file")
      ->type_name("NAME");
  if (!namespaces) return;
  auto* one = command
                  .add_option("-n,--namespace", options.name_space,
                              "On Kubernetes: whose pods are yours (the context's)")
                  ->type_name("NAME");
  command.add_flag("-A,--all-namespaces", options.all_namespaces, "On Kubernetes: all pods are")
      ->excludes(one);
}

}  // namespace aliquot::cli
