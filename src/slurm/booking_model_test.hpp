// For tests: how a request is booked, by the same rules as lua/submit.lua and core's own reader of
// requests. What slurmctld runs is the Lua; submit_lua_words_test compares it with this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.hpp"
#include "core/request.hpp"
#include "core/request_parse.hpp"
#include "slurm/site_table.hpp"

namespace aliquot::slurm::test {

using Part = decltype(core::GpuRequest::what);

core::GpuUnits units_of(const SiteTable& site, std::string_view partitions = "");

// The shards that `part` books on a GPU of this model; nothing where it is more than that GPU.
std::optional<std::int64_t> shards_for(const Part& part, const GpuModel& model,
                                       const SiteTable& site, std::string_view partitions = "");

struct Booking {
  enum class Kind : std::uint8_t {
    none,    // asks for no GPU
    shards,  // gres says which
    native,  // whole GPUs, left to Slurm as written
  };
  Kind kind = Kind::none;
  std::string gres = {};   // `shard:35`, `shard:h200:35`
  bool exclusive = false;  // native: takes whole nodes
  std::string words = {};  // core::format_gpu_request of what was asked
};

// What a job with these options books in this partition: one name, several with commas, or none
// for the default. The options are as Slurm carries them: --gpus-per-node is part of --gres there.
// The gates are not asked. GPUs that are not ours are left to Slurm, without words.
Result<Booking> book(const SiteTable& site, std::string_view partition,
                     const core::GpuOptions& options);

}  // namespace aliquot::slurm::test
