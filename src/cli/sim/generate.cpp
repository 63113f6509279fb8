#include <string>

#include "cli/console.hpp"
#include "cli/sim/arguments.hpp"
#include "cli/sim/sim.hpp"
#include "sim/file.hpp"
#include "sim/synthetic.hpp"

namespace aliquot::cli {
namespace {

struct GenerateOptions {
  std::string nodes_file;
  std::string pods_file;
  std::string seed = "1";
  std::string nodes = "1200", pods = "8000";
  std::string share = "38%", multi = "1.5%", cpu_only = "12%", spec = "10%";
};

Result<sim::SyntheticKnobs> parse_knobs(const GenerateOptions& options) {
  sim::SyntheticKnobs knobs;
  knobs.seed = static_cast<std::uint64_t>(TRY(parse_count("--seed", options.seed, 0, INT64_MAX)));
  knobs.nodes = TRY(parse_count("--nodes-count", options.nodes, 1, 1'000'000));
  knobs.pods = TRY(parse_count("--pods-count", options.pods, 1, 10'000'000));
  knobs.share = TRY(parse_part("--share", options.share));
  knobs.multi = TRY(parse_part("--multi", options.multi));
  knobs.cpu_only = TRY(parse_part("--cpu-only", options.cpu_only));
  knobs.spec = TRY(parse_part("--spec", options.spec));
  return knobs;
}

int generate(const GenerateOptions& options) {
  const auto knobs = parse_knobs(options);
  if (!knobs) return misused(knobs.error());
  const auto trace = sim::generate_trace(*knobs);
  if (!trace) return misused(trace.error());
  if (auto written = sim::write_file(options.nodes_file, sim::format_nodes(trace->nodes));
      !written) {
    return failed(written.error());
  }
  if (auto written = sim::write_file(options.pods_file, sim::format_pods(trace->pods)); !written) {
    return failed(written.error());
  }
  return kDone;
}

}  // namespace

void add_sim_generate(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, generate);
  command.add_option("--nodes", options.nodes_file, "File to write the nodes to")->required();
  command.add_option("--pods", options.pods_file, "File to write the pods to")->required();
  add_defaulted(command, "--seed", options.seed, "Other seeds draw other traces");
  add_defaulted(command, "--nodes-count", options.nodes, "Number of nodes");
  add_defaulted(command, "--pods-count", options.pods, "Number of pods");
  add_defaulted(command, "--share", options.share, "Pods that want a part of a GPU");
  add_defaulted(command, "--multi", options.multi, "Pods that want several GPUs");
  add_defaulted(command, "--cpu-only", options.cpu_only, "Pods that want no GPU");
  add_defaulted(command, "--spec", options.spec, "Pods with GPUs that name models");
}

}  // namespace aliquot::cli
