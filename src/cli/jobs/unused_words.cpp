#include "cli/jobs/unused_words.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <array>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

bool not_zero(std::string_view value) { return value != "0"; }
bool not_none(std::string_view value) { return !equals_ignoring_case(value, "none"); }
bool not_empty(std::string_view value) { return !value.empty(); }
bool for_reservation(std::string_view value) {
  const auto letters = value.substr(0, value.find(':') == value.npos ? 0 : value.find(':'));
  return letters.find_first_of("Rr") != letters.npos;
}

// Where in a cluster, how to get there, and which of its cores: one machine is one node, nothing is
// sent to it, and its jobs have CPU time, not cores.
constexpr auto kIdle = std::to_array<std::string_view>({
    "acctg-freq",
    "bcast",
    "bcast-exclude",
    "compress",
    "contiguous",
    "cores-per-socket",
    "cpu-bind",
    "delay-boot",
    "distribution",
    "exact",
    "extra-node-info",
    "gres-flags",
    "hint",
    "ignore-pbs",
    "mem-bind",
    "msg-timeout",
    "network",
    "no-kill",
    "ntasks-per-core",
    "ntasks-per-socket",
    "oversubscribe",
    "send-libs",
    "slurmd-debug",
    "sockets-per-node",
    "spread-job",
    "switches",
    "threads",
    "threads-per-core",
    "unbuffered",
    "use-min-nodes",
    "wait-all-nodes",
    "wait-for-switch",
    "wckey",
    "whole",
    "x11",
});

constexpr std::string_view kNoPrograms =
    "srun runs no programs around a step: run them in the script, before and after srun";
constexpr std::string_view kNoSpareCores = "no cores are set aside for the system here";
constexpr std::string_view kNoBuffer = "this machine has no burst buffer";
constexpr std::string_view kNotPublic = "it is Slurm's own, for tests of srun";

constexpr auto kRefused = std::to_array<RefusedOption>({
    {"accel-bind", "say which GPU each task gets with --gpu-bind"},
    {"batch", "this machine is one node, without features to choose it by"},
    {"bb", kNoBuffer},
    {"bbf", kNoBuffer},
    {"cluster-constraint", "there is one cluster here, without features to choose it by"},
    {"container", "OCI bundles are not run: start the container in the script, as podman run …"},
    {"core-spec", kNoSpareCores, not_zero},
    {"cpu-freq", "the clocks of the CPUs are left as they are"},
    {"debugger-test", kNotPublic},
    {"epilog", kNoPrograms, not_none},
    {"exclusive", "write --exclusive alone, for the machine and all its GPUs", not_empty},
    {"export-file", "write the variables as --export=ALL,NAME=value"},
    {"gid", "a job runs with its user's own groups: write --uid, or newgrp in the script"},
    {"gpu-freq", "the clocks of the GPUs are left as they are: nvidia-smi -lgc sets them, as root"},
    {"gpus-per-socket", "GPUs are not counted by socket here: write --gpus"},
    {"het-group", "a job has one component here"},
    {"interactive", kNotPublic},
    {"launch-cmd", kNotPublic},
    {"launcher-opts", kNotPublic},
    {"licenses", "this engine counts no licenses"},
    {"mcs-label", "this engine knows no security labels"},
    {"no-allocate", "a step runs in a job: leave -Z out"},
    {"nodefile", "this machine is one node: name it with --nodelist, or leave it out"},
    {"ntasks-per-tres", "write --ntasks-per-gpu"},
    {"power", "this engine does not manage power"},
    {"prefer", "GPU models are required or not asked for: write --constraint"},
    {"profile", "this engine writes no profiles: aliquot top and seff show what a job uses",
     not_none},
    {"prolog", kNoPrograms, not_none},
    {"reboot", "jobs do not reboot the machine"},
    {"relative", "the job has one node, number 0", not_zero},
    {"resv-ports", "no ports are kept for steps"},
    {"signal", "R: is for jobs that overlap reservations; write the signal without it",
     for_reservation},
    {"task-epilog", kNoPrograms},
    {"task-prolog", kNoPrograms},
    {"thread-spec", kNoSpareCores, not_zero},
    {"time-min", "time limits are not shortened to fit: write the shorter one as --time"},
    {"tmp", "space in /tmp is not counted: look at it in the script, with df", not_zero},
});

}  // namespace

std::span<const std::string_view> idle_options() { return kIdle; }
std::span<const RefusedOption> refused_options() { return kRefused; }

Parsed<void> check_words(const OptionSet& options) {
  for (const RefusedOption& refused : kRefused) {
    const auto* value = options.find(refused.name);
    if (value == nullptr || (refused.asks != nullptr && !refused.asks(value->text))) continue;
    if (refused.name == "export-file" && ::access(value->text.c_str(), R_OK) != 0) {
      return tl::make_unexpected(
          Misuse{1, fmt::format("Could not open user environment file {}", value->text)});
    }
    const auto shown = value->text.empty() ? "" : fmt::format("={}", value->text);
    return tl::make_unexpected(
        Misuse{1, fmt::format("--{}{}: {}", refused.name, shown, refused.why)});
  }
  return {};
}

}  // namespace aliquot::cli
