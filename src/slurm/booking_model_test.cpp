#include "slurm/booking_model_test.hpp"

#include <algorithm>

#include "base/size.hpp"
#include "base/text.hpp"
#include "core/request_words.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm::test {
namespace {

using Code = Error::Code;

std::int64_t ceil_div(std::int64_t numerator, std::int64_t denominator) {
  return numerator / denominator + (numerator % denominator > 0 ? 1 : 0);
}

// Shards for the memory. What follows in proportion is a proportion of the shards, not of the
// bytes: halves of a GPU of 140.4 GiB are 70 shards each, so that two fit.
std::int64_t shards_of_memory(const Part& part, const GpuModel& model,
                              const core::GpuUnits& units) {
  if (const auto* amounts = std::get_if<core::Amounts>(&part)) {
    if (amounts->memory) {
      const auto one = shard_memory(model.memory, model.shards, 1).value();
      return std::min(model.shards, ceil_div(amounts->memory->value(), one));
    }
    return ceil_div(model.shards * amounts->compute->value(), kWholeGpu.value());
  }
  if (const auto* tickets = std::get_if<core::Tickets>(&part)) {
    const bool mps = tickets->kind == core::Tickets::Kind::mps;
    return ceil_div(model.shards * tickets->count, mps ? units.mps : units.shards);
  }
  return model.shards;
}

// The models of these partitions; those of the whole cluster where one is not in the table.
std::vector<const GpuModel*> models_of(const SiteTable& site, std::string_view partitions) {
  std::vector<const GpuModel*> models;
  const auto add = [&](const GpuModel* model) {
    if (model != nullptr && std::ranges::find(models, model) == models.end()) {
      models.push_back(model);
    }
  };
  for (const auto name : split(partitions, ',')) {
    const auto partition = std::ranges::find(site.partitions, name, &PartitionGpus::name);
    if (partition == site.partitions.end()) {
      for (const auto& model : site.models) add(&model);
    } else {
      for (const auto& model : partition->models) add(find_model(site, model));
    }
  }
  return models;
}

// Whether every one of these partitions is in the table and `matches`.
bool all_are(const SiteTable& site, std::string_view partitions,
             bool (*matches)(const PartitionGpus& partition)) {
  return std::ranges::all_of(split(partitions, ','), [&](std::string_view name) {
    const auto partition = std::ranges::find(site.partitions, name, &PartitionGpus::name);
    return partition != site.partitions.end() && matches(*partition);
  });
}

std::string names_of(const std::vector<const GpuModel*>& models) {
  std::vector<std::string_view> names;
  names.reserve(models.size());
  for (const auto* model : models) names.emplace_back(model->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Those of the partition's models that the request allows.
Result<std::vector<const GpuModel*>> candidates(const SiteTable& site, std::string_view partition,
                                                const core::GpuRequest& request) {
  const auto here = models_of(site, partition);
  if (here.empty()) {
    return fail(Code::not_found, "the partition {} has no GPU", quote(partition));
  }
  if (request.models.empty()) return here;
  auto wanted = here;
  std::erase_if(wanted, [&](const auto* model) {
    return std::ranges::find(request.models, to_lower(model->name)) == request.models.end();
  });
  if (wanted.empty()) {
    return fail(Code::not_found, "there is no GPU of model {} in the partition {}: write one of {}",
                quote(fmt::format("{}", fmt::join(request.models, "|"))), quote(partition),
                names_of(here));
  }
  return wanted;
}

// In the site's own spelling.
std::string gres_of(const GpuModel* model, std::int64_t shards) {
  if (model == nullptr) return fmt::format("shard:{}", shards);
  return fmt::format("shard:{}:{}", model->name, shards);
}

Result<Booking> book_share(const SiteTable& site, std::string_view partition,
                           const core::GpuRequest& request,
                           const std::vector<const GpuModel*>& models) {
  if (request.count != 1) {
    return fail(Code::unsupported,
                "{} parts of GPUs on a node are not possible: ask for one, or for whole GPUs",
                request.count);
  }
  const GpuModel* largest = nullptr;  // of those it fits on
  std::int64_t need = 0;              // on whichever of them
  std::int64_t least = 0;             // not to land on the others
  for (const auto* model : models) {
    if (const auto shards = shards_for(request.what, *model, site, partition)) {
      need = std::max(need, *shards);
      if (largest == nullptr || model->memory > largest->memory) largest = model;
    } else {
      least = std::max(least, model->shards + 1);
    }
  }
  if (largest == nullptr) {
    Bytes memory;
    for (const auto* model : models) memory = std::max(memory, model->memory);
    return fail(Code::invalid_argument,
                "{} is more than any GPU of the partition {} has: the largest has {} of memory",
                core::format_gpu_request(request), quote(partition), format_size(memory));
  }
  Booking booking{.kind = Booking::Kind::shards, .words = core::format_gpu_request(request)};
  if (request.models.size() == 1) {
    booking.gres = gres_of(largest, need);
  } else if (std::max(need, least) <= largest->shards) {
    booking.gres = gres_of(nullptr, std::max(need, least));
  } else {
    booking.gres = gres_of(largest, shards_for(request.what, *largest, site, partition).value());
  }
  return booking;
}

Result<Booking> book_whole(const SiteTable& site, std::string_view partition,
                           const core::GpuOptions& options, const core::GpuRequest& request,
                           const std::vector<const GpuModel*>& models) {
  Booking booking{.kind = Booking::Kind::native, .words = core::format_gpu_request(request)};
  std::int64_t most = 0;
  for (const auto* model : models) most = std::max(most, model->most_per_node);
  // Only --gres counts by node for certain: Slurm may spread --gpus over several.
  const auto by_node = TRY(core::parse_gpu_options({.gres = options.gres}));
  if (by_node && by_node->count > most) {
    return fail(Code::invalid_argument,
                "{} GPUs of one node are more than any of the partition {} has: write at most {}",
                by_node->count, quote(partition), most);
  }
  const bool alone = all_are(site, partition, [](const PartitionGpus& p) { return !p.shared; });
  if (!site.whole_as_shards || alone) return booking;
  const auto shards = models.front()->shards;
  const bool alike =
      std::ranges::all_of(models, [&](const auto* model) { return model->shards == shards; });
  if (request.count != 1 || !alike) {
    booking.exclusive = true;
    return booking;
  }
  booking.kind = Booking::Kind::shards;
  booking.gres = gres_of(request.models.size() == 1 ? models.front() : nullptr, shards);
  return booking;
}

}  // namespace

core::GpuUnits units_of(const SiteTable& site, std::string_view partitions) {
  const auto units = units_in(site, partitions);
  return {units.overcommit, units.mps_per_gpu, units.shards_per_gpu};
}

std::optional<std::int64_t> shards_for(const Part& part, const GpuModel& model,
                                       const SiteTable& site, std::string_view partitions) {
  const auto units = units_of(site, partitions);
  const auto portion = core::portion_of(part, model.memory, units);
  if (!portion || model.shards < 1) return std::nullopt;
  if (std::holds_alternative<core::WholeGpu>(part)) return model.shards;
  const auto compute =
      ceil_div(portion->compute.value() * model.shards, units.compute_limit.value());
  return std::max({shards_of_memory(part, model, units), compute, std::int64_t{1}});
}

Result<Booking> book(const SiteTable& site, std::string_view partition,
                     const core::GpuOptions& options) {
  if (partition.empty()) partition = site.default_partition;
  if (all_are(site, partition, [](const PartitionGpus& p) { return p.foreign; })) {
    if (!options.gpu_mem && !options.gpu_share) return Booking{.kind = Booking::Kind::native};
    return fail(Code::unsupported, "the GPUs of the partition {} are not shared", quote(partition));
  }
  const auto request = TRY(core::parse_gpu_options(options));
  if (!request) return Booking{};
  const auto models = TRY(candidates(site, partition, *request));
  if (!std::holds_alternative<core::WholeGpu>(request->what)) {
    return book_share(site, partition, *request, models);
  }
  return book_whole(site, partition, options, *request, models);
}

}  // namespace aliquot::slurm::test
