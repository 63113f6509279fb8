#include "cli/machine/page_options.hpp"

#include <fmt/format.h>

namespace aliquot::cli {

void add_page_options(CLI::App& command, PageOptions& options) {
  command
      .add_option("--host", options.listen.host, "Listen there; beyond this machine with TLS alone")
      ->capture_default_str();
  command.add_option("--port", options.listen.port, "The port")
      ->check(CLI::Range(1, 65'535))
      ->capture_default_str();
  command.add_option("--certificate", options.listen.certificate, "For TLS: a file in PEM");
  command.add_option("--key", options.listen.key, "Its key");
  command.add_option("--name", options.listen.names,
                     "Another name by which browsers call this host");
  command.add_option("--every", options.every, "Seconds between two looks at the cluster")
      ->check(CLI::Range(0.5, 3600.0))
      ->capture_default_str();
  add_kube_options(command, options.kube, true);
}

std::vector<std::string> words_of(const PageOptions& options) {
  const show::Listen& listen = options.listen;
  std::vector<std::string> words{"--host=" + listen.host, fmt::format("--port={}", listen.port),
                                 fmt::format("--every={}", options.every)};
  if (!listen.certificate.empty()) words.push_back("--certificate=" + listen.certificate);
  if (!listen.key.empty()) words.push_back("--key=" + listen.key);
  for (const std::string& name : listen.names) words.push_back("--name=" + name);
  for (std::string& word : options.kube.words()) words.push_back(std::move(word));
  return words;
}

}  // namespace aliquot::cli
