#include "slurm/view/limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.hpp"
#include "base/units.hpp"
#include "slurm/gres.hpp"
#include "slurm/job_state.hpp"
#include "slurm/site.hpp"

namespace aliquot::slurm {
namespace {

using Level = Check::Level;

constexpr std::int64_t kMostCounted = 1'000'000'000;

// `limit` in the currency of the bill, down to a whole shard: what CPUs have beside is no GPU.
std::int64_t billed_gpus(std::int64_t limit, const GpuBill& bill) {
  const auto shards = bill.shard > 1 ? limit - limit % bill.shard : limit;
  return shards * kWholeGpu.value() / bill.gpu;
}

// Of all GPUs together; nothing: no limit counts them so.
std::optional<std::int64_t> joint_limit(std::string_view limits, const GpuWorth& worth) {
  std::optional<std::int64_t> least;
  const auto take = [&](std::int64_t gpus) { least = least ? std::min(*least, gpus) : gpus; };
  const auto billing = tres_count(limits, "billing");
  if (billing > 0 && billing <= kMostCounted && worth.bill.gpu > 0 && worth.bill.shard > 0) {
    take(billed_gpus(billing, worth.bill));
  }
  const auto shards = tres_count(limits, "gres/shard");
  if (worth.whole_as_shards && shards > 0 && shards <= kMostCounted && worth.shards > 0) {
    take(shards * kWholeGpu.value() / worth.shards);
  }
  return least;
}

// What a job takes of GPUs at least.
struct Wants {
  std::int64_t amount = 0;  // in 1/10,000 of a GPU
  bool whole_nodes = false;
};

// How many GPUs each node of the job's partition has, of those with `least` of them or more.
std::vector<std::int64_t> gpus_of_nodes(const Snapshot& snapshot, const SiteSettings& settings,
                                        const SlurmJob& job, std::int64_t least) {
  std::vector<std::int64_t> counts;
  for (const auto& node : snapshot.nodes) {
    if (std::ranges::count(node.partitions, job.partition) == 0) continue;
    const auto there = std::ssize(gpus_of(node, settings));
    if (there >= least) counts.push_back(there);
  }
  return counts;
}

// Who takes whole nodes has all GPUs of the smallest that would do.
Wants wants_of(const Snapshot& snapshot, const SiteSettings& settings, const SlurmJob& job,
               const GpuWorth& worth) {
  const auto nodes = std::max<std::int64_t>(1, tres_count(job.tres_requested, "node"));
  const auto shards = booked_of(job, "shard").value_or(0);
  const auto gpus = booked_of(job, "gpu").value_or(0);
  // `-G 2` is of the job, on whichever nodes, and stands nowhere else.
  const auto in_all = shards == 0 && gpus == 0 ? tres_count(job.tres_requested, "gres/gpu") : 0;
  if (std::max({shards, gpus, in_all}) > kMostCounted / nodes) return {};
  std::int64_t whole = std::max(gpus * nodes, in_all);
  Wants wants{.whole_nodes = job.exclusive && whole > 0};
  const auto counts = gpus_of_nodes(snapshot, settings, job, std::max<std::int64_t>(1, gpus));
  if (wants.whole_nodes && !counts.empty()) {
    const auto [least, most] = std::ranges::minmax(counts);
    whole = std::max(whole, least * nodes);
    // Nodes that are alike are taken one after the other.
    if (least == most) whole = (whole + least - 1) / least * least;
  }
  const auto parts = worth.shards > 0 ? shards * kWholeGpu.value() / worth.shards : 0;
  wants.amount = whole * kWholeGpu.value() + parts * nodes;
  return wants;
}

// In 1/10,000 of a GPU, by what the job holds.
std::int64_t counted_of(const SlurmJob& job, const GpuBill& bill, const GpuWorth& worth) {
  std::int64_t gpus = 0;
  std::int64_t shards = 0;
  for (const auto& detail : job.details) {
    for (const auto& item : parse_gres_detail(detail.gres).value_or(std::vector<GresHold>())) {
      if (item.name == "gpu") gpus += item.count;
      if (item.name == "shard") shards += item.count;
    }
  }
  if (gpus > kMostCounted || shards > kMostCounted) return 0;
  if (worth.bill.gpu > 0 && bill.gpu > 0 && bill.shard > 0) {
    const double billed = static_cast<double>(gpus) * static_cast<double>(bill.gpu) +
                          static_cast<double>(shards) * static_cast<double>(bill.shard);
    const double parts =
        billed / static_cast<double>(worth.bill.gpu) * static_cast<double>(kWholeGpu.value());
    return std::llround(std::min(parts, 1e12));
  }
  const auto parts = worth.shards > 0 ? shards * kWholeGpu.value() / worth.shards : 0;
  return gpus * kWholeGpu.value() + parts;
}

std::string_view what_gpus_count(const GpuWorth& worth) {
  return worth.whole_as_shards ? "counts nothing that is booked as shards, as whole GPUs are here"
                               : "counts whole GPUs only";
}

Check missed(std::string_view whose, std::string_view name, std::string_view modify,
             std::int64_t gpus, const GpuWorth& worth) {
  // Without weights, those that setup gives.
  const bool billed = worth.bill.gpu > 0 && worth.bill.shard > 0;
  const GpuBill bill = billed ? worth.bill : GpuBill{worth.shards * kShardBill, kShardBill};
  return {
      "limits", Level::warn,
      fmt::format("{}: {}=gres/gpu={} {}", whose, name, gpus, what_gpus_count(worth)),
      fmt::format("{}sacctmgr modify {} set {}=billing={}",
                  billed ? "" : "aliquot slurm setup --billing --apply, restart slurmctld, then ",
                  modify, name, billing_limit(gpus, bill))};
}

}  // namespace

GpuWorth gpu_worth(const Snapshot& snapshot, const SiteSettings& settings) {
  GpuWorth worth;
  for (const auto& node : snapshot.nodes) {
    for (const auto& gpu : gpus_of(node, settings))
      worth.shards = std::max(worth.shards, gpu.shards);
  }
  for (const auto& partition : snapshot.partitions) {
    if (partition.is_default) worth.bill = gpu_bill(partition.billing_weights);
  }
  worth.whole_as_shards =
      parse_slurm_version(snapshot.version).value_or(kMixingFixed) < kMixingFixed;
  return worth;
}

GpuLimit gpu_limit(std::string_view qos_lines, std::string_view qos, const GpuWorth& worth) {
  GpuLimit limit;
  for (const auto line : split(qos_lines, '\n')) {
    const auto bar = line.find('|');
    if (bar == line.npos || line.substr(0, bar) != qos) continue;
    const auto limits = line.substr(bar + 1);
    limit.most = joint_limit(limits, worth);
    if (limit.most) break;
    if (const auto gpus = tres_count(limits, "gres/gpu"); gpus > 0) {
      limit.partial = fmt::format("gres/gpu={} of QOS {} {}", gpus, qos, what_gpus_count(worth));
    } else if (const auto shards = tres_count(limits, "gres/shard"); shards > 0) {
      limit.partial = fmt::format("gres/shard={} of QOS {} counts shares only", shards, qos);
    }
    break;
  }
  return limit;
}

std::int64_t gpus_counted(const Snapshot& snapshot, std::string_view qos, std::uint32_t uid,
                          const GpuWorth& worth) {
  std::int64_t counted = 0;
  for (const auto& job : snapshot.jobs) {
    if (job.uid != uid || !holds_gpus(job.state)) continue;
    const auto partition =
        std::ranges::find(snapshot.partitions, job.partition, &SlurmPartition::name);
    const bool known = partition != snapshot.partitions.end();
    if (job.qos != qos && !(known && partition->qos == qos)) continue;
    counted += counted_of(job, known ? gpu_bill(partition->billing_weights) : worth.bill, worth);
  }
  return counted;
}

std::string never_allowed(std::string_view qos_lines, const Snapshot& snapshot,
                          const SiteSettings& settings, const SlurmJob& job) {
  const GpuWorth worth = gpu_worth(snapshot, settings);
  std::vector<std::string> names{job.qos};
  for (const auto& partition : snapshot.partitions) {
    if (partition.name == job.partition && !partition.qos.empty()) names.push_back(partition.qos);
  }
  const auto wants = wants_of(snapshot, settings, job, worth);
  for (const auto& qos : names) {
    const auto most = gpu_limit(qos_lines, qos, worth).most;
    if (!most || wants.amount <= *most) continue;
    return fmt::format("It takes {} GPU{}{}, and its QOS {} gives {} to one user",
                       limit_text(wants.amount), wants.amount == kWholeGpu.value() ? "" : "s",
                       wants.whole_nodes ? ", as its nodes are its own" : "", quote(qos),
                       limit_text(*most));
  }
  return "";
}

std::string limit_text(std::int64_t limit) {
  return fmt::format("{}", static_cast<double>(limit) / static_cast<double>(kWholeGpu.value()));
}

std::vector<Check> check_limits(std::string_view qos_lines, std::string_view association_lines,
                                const GpuWorth& worth) {
  std::vector<Check> checks;
  const auto look = [&](std::string_view limits, const std::string& whose, std::string_view name,
                        const std::string& modify) {
    const auto billing = tres_count(limits, "billing");
    if (billing > 0 && worth.bill.gpu > 0 && billing < worth.bill.shard) {
      checks.push_back(
          {"limits", Level::warn,
           fmt::format("{}: {}=billing={} is less than one shard, {}: no job with a GPU starts",
                       whose, name, billing, worth.bill.shard),
           fmt::format("sacctmgr modify {} set {}=billing={}", modify, name,
                       billing_limit(1, worth.bill))});
    }
    const auto gpus = tres_count(limits, "gres/gpu");
    if (gpus <= 0 || gpus > kMostCounted || joint_limit(limits, worth)) return;
    checks.push_back(missed(whose, name, modify, gpus, worth));
  };
  constexpr std::array kNames = {"MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES", "MaxTRESPerJob"};
  for (const auto line : split(qos_lines, '\n')) {
    const auto parts = split(line, '|');
    for (std::size_t i = 1; i < parts.size() && i <= kNames.size(); ++i) {
      look(parts[i], fmt::format("QOS {}", parts[0]), kNames.at(i - 1),
           fmt::format("qos {}", parts[0]));
    }
  }
  for (const auto line : split(association_lines, '\n')) {
    const auto parts = split(line, '|');
    if (parts.size() < 3) continue;
    const bool user = !parts[1].empty();
    for (std::size_t i = 2; i < parts.size() && i < 4; ++i) {
      look(parts[i],
           user ? fmt::format("user {} of account {}", parts[1], parts[0])
                : fmt::format("account {}", parts[0]),
           i == 2 ? "GrpTRES" : "MaxTRESPerJob",
           user ? fmt::format("user where name={} account={}", parts[1], parts[0])
                : fmt::format("account {}", parts[0]));
    }
  }
  if (checks.empty()) {
    checks.push_back({"limits", Level::ok, "none on GPUs that shares get around"});
  }
  return checks;
}

}  // namespace aliquot::slurm
