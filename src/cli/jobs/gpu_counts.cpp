#include "cli/jobs/gpu_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "core/request_parse.hpp"

namespace aliquot::cli {
namespace {

// Slurm says why, and then its word for it.
tl::unexpected<Misuse> no_such_gres(std::string_view why) {
  return tl::make_unexpected(Misuse{.status = 1,
                                    .message = "Invalid generic resource (gres) specification",
                                    .why = std::string(why)});
}

// `2` or `h100:2`
std::optional<std::int64_t> counted_gpus(std::string_view text) {
  const auto colon = text.rfind(':');
  return parse_digits(colon == text.npos ? text : text.substr(colon + 1));
}

std::int64_t product(std::int64_t one, std::int64_t other) {
  std::int64_t all = 0;
  return __builtin_mul_overflow(one, other, &all) ? INT64_MAX : all;
}

bool is_given_with(const OptionSet& options, const OptionSet::Value& one, std::string_view name) {
  const auto* other = options.find(name);
  return other != nullptr && other->source == one.source;
}

// Slurm's words where it has some.
Parsed<void> check_conflicts(const OptionSet& options) {
  if (const auto* tasks = options.find("ntasks-per-gpu")) {
    for (const std::string_view other : {"gpus-per-task", "ntasks-per-node"}) {
      if (is_given_with(options, *tasks, other)) {
        return tl::make_unexpected(Misuse{
            1,
            fmt::format("--{} is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU",
                        other),
            true});
      }
    }
  }
  if (const auto* cpus = options.find("cpus-per-gpu");
      cpus != nullptr && is_given_with(options, *cpus, "cpus-per-task")) {
    return no_such_gres("--cpus-per-gpu is mutually exclusive with --cpus-per-task");
  }
  const auto* each = options.find("gpus-per-task");
  const auto all = counted_gpus(options.text("gpus"));
  const auto one = counted_gpus(options.text("gpus-per-task"));
  if (const auto tasks = options.number("ntasks");
      each != nullptr && is_given_with(options, *each, "gpus") &&
      is_given_with(options, *each, "ntasks") && tasks && all && one && *one > 0 &&
      *all != *tasks * *one) {
    return no_such_gres(
        "Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested "
        "tasks "
        "differ from -n/--ntasks.");
  }
  return {};
}

}  // namespace

std::int64_t gpus_asked(const OptionSet& options) {
  const auto request = core::parse_gpu_options({.gres = options.maybe("gres"),
                                                .gpus = options.maybe("gpus"),
                                                .gpus_per_node = options.maybe("gpus-per-node"),
                                                .gpus_per_task = options.maybe("gpus-per-task"),
                                                .gpu_mem = options.maybe("gpu-mem"),
                                                .gpu_share = options.maybe("gpu-share"),
                                                .tasks = options.number("ntasks").value_or(1)});
  return request && *request ? (*request)->count : 0;
}

Parsed<std::optional<std::int64_t>> tasks_by_gpu(const OptionSet& options, std::int64_t gpus) {
  const auto each = options.number("ntasks-per-gpu");
  if (!each || options.has("ntasks")) return std::optional<std::int64_t>();
  if (gpus == 0) {
    return tl::make_unexpected(
        Misuse{1, "--ntasks-per-gpu: say how many GPUs, with --gpus, or how many tasks"});
  }
  return std::optional(product(*each, gpus));
}

Parsed<void> count_by_gpu(const OptionSet& options, api::JobSpec& job) {
  if (auto fine = check_conflicts(options); !fine) return fine;
  std::int64_t gpus = gpus_asked(options);
  if (const auto each = options.number("ntasks-per-gpu"); each && gpus == 0 && job.ntasks) {
    if (*job.ntasks % *each != 0) {
      return tl::make_unexpected(
          Misuse{1, fmt::format("-n/--ntasks {} is not a multiple of --ntasks-per-gpu={}",
                                *job.ntasks, *each)});
    }
    gpus = *job.ntasks / *each;
    job.gpus = fmt::format("{}", gpus);
  }
  const auto tasks = tasks_by_gpu(options, gpus);
  if (!tasks) return tl::make_unexpected(tasks.error());
  if (*tasks) job.ntasks = *tasks;

  for (const std::string_view name : {"cpus-per-gpu", "mem-per-gpu"}) {
    if (options.has(name) && gpus == 0 && !job.gpus) {
      return tl::make_unexpected(
          Misuse{1, fmt::format("--{}: the job asks for no GPU: add --gpus", name)});
    }
  }
  job.min_cpus = options.number("mincpus");
  if (const auto each = options.number("cpus-per-gpu")) {
    // The stronger of two ways to say it.
    const auto* by_task = options.find("cpus-per-task");
    const auto* by_gpu = options.find("cpus-per-gpu");
    if (by_task != nullptr && by_task->source > by_gpu->source) return {};
    job.cpus_per_task.reset();
    job.min_cpus = std::max(job.min_cpus.value_or(0), product(*each, gpus));
  }
  return {};
}

}  // namespace aliquot::cli
