// The options of `aliquot page`, which it hands on to aliquot-page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/view/kube_options.hpp"
#include "show/door.hpp"

namespace aliquot::cli {

struct PageOptions {
  show::Listen listen{.port = 9834};
  double every = 2;
  KubeOptions kube;
};

void add_page_options(CLI::App& command, PageOptions& options);
// As they are added.
std::vector<std::string> words_of(const PageOptions& options);

}  // namespace aliquot::cli
