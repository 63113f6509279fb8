// How a GPU request is booked under Slurm: as shards, each about one unit of GPU memory, so that
// slurmctld packs GPU by GPU with its own code. Compute needs no second resource: a share books the
// more of what its memory and its compute take, and so the compute promised on a GPU stays within
// the over-commit factor whatever else is booked there. Pure. The same rules stand in
// lua/submit.lua, where slurmctld runs them; submit_lua_test holds the two to each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "core/request.hpp"
#include "core/request_parse.hpp"
#include "slurm/settings.hpp"

namespace aliquot::slurm {

// One GPU model as Slurm's configuration names it (the gres Type).
struct GpuModel {
  std::string name;
  Bytes memory;
  std::int64_t shards = 1;         // of one GPU: shards_of() in settings.hpp
  std::int64_t most_per_node = 1;  // GPUs on the node that has the most of them
};

struct Partition {
  std::string name;
  std::vector<std::string> models;  // names of GpuModel
  bool shared = true;               // whether a share can be on a node of it
  bool foreign = false;             // has GPUs, and none of them is ours
};

// Where shares are given: shell patterns, of which one must match; none: everywhere.
struct Gates {
  std::vector<std::string> partitions = {};
  std::vector<std::string> accounts = {};
  std::vector<std::string> reservations = {};
};

// What a booking depends on: the site's settings and the GPUs its partitions have.
struct SiteTable {
  std::vector<GpuModel> models = {};
  std::vector<Partition> partitions = {};
  std::string default_partition = {};
  Bytes unit = gib(1);              // what the shards were counted in: shards_of()
  Compute overcommit = kWholeGpu;   // compute promised on a GPU at most
  std::int64_t mps_per_gpu = 100;   // what a user's mps:P counts in
  std::int64_t shards_per_gpu = 8;  // what a user's shard:K counts in
  Gates gates = {};
  // Slurm before 23.11.5 puts gpu jobs on GPUs that hold shards: where there may be shares, a whole
  // GPU is all of its shards, and several whole GPUs take the whole node.
  bool whole_as_shards = false;
};

// Whether the numbers make sense, and stay where Lua's are exact.
Result<void> check(const SiteTable& site);

core::GpuUnits units_of(const SiteTable& site);

using What = std::variant<core::WholeGpu, core::Amounts, core::Tickets>;

// The shards that `what` books on a GPU of this model; nothing where it is more than that GPU.
std::optional<std::int64_t> shards_for(const What& what, const GpuModel& model,
                                       const SiteTable& site);

// What a job that booked so many of a GPU's shards may take there: what it asked for, and no more
// than was booked. Nothing where it is more than that GPU.
std::optional<core::Portion> promised(const What& what, std::int64_t booked, Bytes gpu_memory,
                                      std::int64_t shards, const core::GpuUnits& units);

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

  friend bool operator==(const Booking&, const Booking&) = default;
};

// What a job with these options books in this partition: one name, several with commas, or none
// for the default. The options are as Slurm carries them: --gpus-per-node is part of --gres there.
// The gates are not asked. GPUs that are not ours are left to Slurm, without words.
Result<Booking> book(const SiteTable& site, std::string_view partition,
                     const core::GpuOptions& options);

}  // namespace aliquot::slurm
