#include "slurm/site_table.hpp"

#include <algorithm>

#include "base/size.hpp"
#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

using Code = Error::Code;

// Lua 5.1 counts in doubles: all of its products and sums must stay under 2^53.
constexpr Bytes kMostMemory{std::int64_t{1} << 52};
constexpr std::int64_t kMostShards = std::int64_t{1} << 31;
constexpr std::int64_t kMostTickets = 1'000'000;
constexpr Compute kMostCompute = kWholeGpu * 10;

}  // namespace

const GpuModel* find_model(const SiteTable& site, std::string_view name) {
  const auto found = std::ranges::find_if(
      site.models, [&](const auto& model) { return equals_ignoring_case(model.name, name); });
  return found == site.models.end() ? nullptr : &*found;
}

std::string slot_name(std::string_view model, std::int64_t number) {
  return fmt::format("{}.{}", model, number);
}

std::string_view model_of_slot(std::string_view type) {
  const auto dot = type.rfind('.');
  if (dot == type.npos || !parse_digits(type.substr(dot + 1))) return type;
  return type.substr(0, dot);
}

ShareUnits units_in(const SiteTable& site, std::string_view partitions) {
  ShareSettings share;
  share.overcommit = site.overcommit;
  share.mps_per_gpu = site.mps_per_gpu;
  share.shards_per_gpu = site.shards_per_gpu;
  for (const auto& partition : site.partitions) {
    share.by_partition[partition.name] = partition.share;
  }
  const auto own = share.in(partitions);
  return {own.overcommit, own.mps_per_gpu, own.shards_per_gpu};
}

Result<void> check(const SiteTable& site) {
  if (site.overcommit < kWholeGpu || site.overcommit > kMostCompute) {
    return fail(Code::invalid_argument, "share.overcommit is not between 1.0 and 10");
  }
  for (const auto tickets : {site.mps_per_gpu, site.shards_per_gpu}) {
    if (tickets < 1 || tickets > kMostTickets) {
      return fail(Code::invalid_argument,
                  "share.mps_per_gpu and share.shards_per_gpu must be between 1 and {}",
                  kMostTickets);
    }
  }
  for (const auto& model : site.models) {
    const bool fits = model.memory >= Bytes(1) && model.memory <= kMostMemory &&
                      model.shards >= 1 && model.shards <= kMostShards &&
                      model.shards <= model.memory.value();
    if (!fits || model.most_per_node < 1) {
      return fail(Code::invalid_argument,
                  "{} shards do not make a GPU {} of {}: choose another share.unit", model.shards,
                  quote(model.name), format_size(model.memory));
    }
  }
  for (const auto& model : site.models) {
    if (find_model(site, model.name) != &model) {
      return fail(Code::already_exists, "the GPU model {} is there twice: give each one name",
                  quote(model.name));
    }
  }
  for (const auto& partition : site.partitions) {
    for (const auto& model : partition.models) {
      if (find_model(site, model) == nullptr) {
        return fail(Code::not_found, "partition {} names the GPU model {}, which is nowhere",
                    quote(partition.name), quote(model));
      }
    }
  }
  return {};
}

}  // namespace aliquot::slurm
