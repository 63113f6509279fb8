#include "node/node.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

namespace aliquot::node {
namespace {

// Looks for the library and for MPS, and says in the log what there is.
EnforcerOptions find_backends(const NodeOptions& options, gpu::Devices& devices,
                              const std::vector<gpu::Device>& gpus) {
  EnforcerOptions found{.run = options.run,
                        .library = options.library,
                        .facts = {.enabled = options.enforce.enabled,
                                  .driver_version = devices.driver_version(),
                                  .domain = options.enforce.domain,
                                  .compute_limit = options.compute_limit,
                                  .strict = options.enforce.strict,
                                  .kill_escapes = options.enforce.kill_escapes},
                        .mps = nullptr,
                        .devices = &devices,
                        .cgroups = options.cgroups,
                        .walled = options.walled};
  core::EnforcementFacts& facts = found.facts;
  for (const gpu::Device& device : gpus) {
    if (device.capability) facts.capabilities.emplace(device.gpu.id, *device.capability);
  }
  const std::string library = options.library;
  if (::access(library.c_str(), R_OK) != 0) {
    facts.no_library = fmt::format("there is no {}", library);
  } else if (library.find_first_of(" :$") != std::string::npos) {
    facts.no_library = fmt::format("{} has a space, a colon or a '$' in its name", library);
  }
  if (const auto program = gpu::find_mps_control(options.standin)) {
    std::vector<std::string> variables;
    if (options.standin) {
      variables = gpu::environment(*options.standin);
      variables.push_back("LD_LIBRARY_PATH=" + options.standin->directory.string());
    }
    found.mps = gpu::open_mps(*program, std::move(variables));
  } else {
    facts.no_mps = program.error().message;
  }
  if (gpus.empty()) facts.no_mps = "there is no GPU";
  for (const core::Backend& backend : core::list_backends(facts)) {
    spdlog::info("enforcement: {}: {}{}", backend.name,
                 backend.used ? "" : "not used: ", backend.detail);
  }
  return found;
}

}  // namespace

Result<std::unique_ptr<Node>> Node::open(NodeOptions options) {
  auto node = std::unique_ptr<Node>(new Node());
  auto opened = gpu::open_devices(options.standin);
  if (!opened && options.standin) return tl::make_unexpected(opened.error());
  node->devices_ = opened ? std::move(*opened) : gpu::no_devices(opened.error().message);
  node->gpus_ = TRY(node->devices_->list());
  spdlog::info("{}; {} GPUs{}", node->devices_->description(), node->gpus_.size(),
               node->devices_->simulated() ? ", simulated" : "");
  node->enforcer_ = TRY(Enforcer::create(find_backends(options, *node->devices_, node->gpus_)));
  node->standin_ = std::move(options.standin);
  return node;
}

}  // namespace aliquot::node
