#include <string>
#include <vector>

#include "cli/console.hpp"
#include "cli/interrupts.hpp"
#include "cli/sim/arguments.hpp"
#include "cli/sim/progress_bar.hpp"
#include "cli/sim/sim.hpp"
#include "sim/experiment.hpp"
#include "sim/file.hpp"
#include "sim/report.hpp"
#include "sim/seeds.hpp"
#include "sim/synthetic.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

struct ReplayOptions {
  std::string nodes_file;
  std::string pods_file;
  std::string policy = "aliquot";
  std::string seeds = "42-51";
  std::string order = "own";
  std::string arrived = "130";
  std::string overcommit = "1";
  std::string scale = "1";
  std::string jobs = "1";
  std::string expected_file;
  std::string workload;
  bool json = false;
};

// What the command line says, understood.
struct Arguments {
  sim::Plan plan;
  Compute compute_limit = kWholeGpu;
  std::int64_t scale = 1;
};

Result<Arguments> parse_arguments(const ReplayOptions& options) {
  Arguments arguments;
  if (options.nodes_file.empty() != options.pods_file.empty()) {
    return fail(Error::Code::invalid_argument,
                "give both --nodes and --pods, or neither for the synthetic trace");
  }
  if (options.expected_file.empty() && !options.workload.empty()) {
    return fail(Error::Code::invalid_argument, "--workload goes with --expected");
  }
  arguments.plan.policies = TRY(sim::parse_policies(options.policy));
  arguments.plan.seeds = TRY(sim::parse_seeds(options.seeds));
  arguments.plan.draw = TRY(sim::parse_draw(options.order));
  arguments.plan.arrived = TRY(parse_count("--arrived", options.arrived, 1, 1'000));
  arguments.plan.jobs = static_cast<unsigned>(TRY(parse_count("--jobs", options.jobs, 1, 256)));
  arguments.compute_limit = TRY(parse_factor("--overcommit", options.overcommit));
  arguments.scale = TRY(parse_count("--scale", options.scale, 1, 1'000));
  if (arguments.plan.draw == sim::Draw::published && arguments.scale != 1) {
    return fail(Error::Code::invalid_argument, "--order published goes without --scale");
  }
  return arguments;
}

Result<sim::Workload> read_workload(const ReplayOptions& options, const Arguments& arguments) {
  if (options.nodes_file.empty()) {
    const auto trace = TRY(sim::generate_trace({}));
    auto workload =
        TRY(sim::make_workload(trace.nodes, trace.pods, arguments.scale, arguments.compute_limit));
    workload.nodes_name = "synthetic";
    workload.pods_name = "synthetic";
    return workload;
  }
  const auto nodes =
      TRY(sim::parse_nodes(TRY(sim::read_file(options.nodes_file)), options.nodes_file));
  const auto pods = TRY(sim::parse_pods(TRY(sim::read_file(options.pods_file)), options.pods_file));
  auto workload = TRY(sim::make_workload(nodes, pods, arguments.scale, arguments.compute_limit));
  workload.nodes_name = options.nodes_file;
  workload.pods_name = options.pods_file;
  return workload;
}

Result<std::vector<sim::Expected>> read_expected(const ReplayOptions& options) {
  if (options.expected_file.empty()) return std::vector<sim::Expected>();
  const auto all =
      TRY(sim::parse_expected(TRY(sim::read_file(options.expected_file)), options.expected_file));
  const auto workload =
      options.workload.empty() ? sim::workload_name(options.pods_file) : options.workload;
  return sim::expected_of(all, workload);
}

Result<sim::Outcome> run_watched(const sim::Workload& workload, const sim::Plan& plan) {
  Interrupts interrupts;
  const sys::SystemClock clock;
  ProgressBar bar(clock);
  return sim::run_plan(workload, plan, [&](std::int64_t done_per_mille) {
    bar.show(done_per_mille);
    return !interrupts.wait(Millis(20));
  });
}

int replay(const ReplayOptions& options) {
  const auto arguments = parse_arguments(options);
  if (!arguments) return misused(arguments.error());
  const auto workload = read_workload(options, *arguments);
  if (!workload) return failed(workload.error());
  const auto expected = read_expected(options);
  if (!expected) return failed(expected.error());

  const auto outcome = run_watched(*workload, arguments->plan);
  if (!outcome) return failed(outcome.error());
  if (outcome->stopped) {
    complain("stopped before the end: no results");
    return kInterrupted;
  }
  const sim::Report report{*workload,        arguments->plan, *outcome, arguments->compute_limit,
                           arguments->scale, *expected};
  if (options.json) return print(sim::format_json(report));
  auto text = sim::format_text(report);
  if (options.nodes_file.empty()) {
    text +=
        "The trace is a synthetic one. The published one is Alibaba's cluster-trace-gpu-v2023, as "
        "used by "
        "the FGD paper (ATC'23) in hkust-adsl/kubernetes-scheduler-simulator.\n";
  }
  return print(text);
}

}  // namespace

void add_sim_replay(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, replay);
  command.add_option("--nodes", options.nodes_file, "Nodes, as CSV; default: a synthetic trace");
  command.add_option("--pods", options.pods_file, "Pods, as CSV");
  add_defaulted(command, "--policy", options.policy, "Policies, a,b or all (see 'sim policies')");
  add_defaulted(command, "--seeds", options.seeds, "Seeds, as 42-51, 7 or 1,3,5");
  add_defaulted(command, "--order", options.order, "Orders that seeds draw: own or published");
  add_defaulted(command, "--arrived", options.arrived,
                "Stop at so many percent of the GPUs asked for");
  add_defaulted(command, "--overcommit", options.overcommit, "Compute to grant per shared GPU");
  add_defaulted(command, "--scale", options.scale, "Copies of the cluster and of the pods");
  add_defaulted(command, "--jobs", options.jobs, "Threads");
  command.add_option("--expected", options.expected_file,
                     "Published results to compare with, as CSV");
  command.add_option("--workload", options.workload,
                     "Which of them; default: from the name of the pods' file");
  command.add_flag("--json", options.json, "Print one JSON object");
}

}  // namespace aliquot::cli
