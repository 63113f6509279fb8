// What aliquot_submit.lua knows of a site: which GPU models its partitions have, in how many shards
// each is counted, and where parts of GPUs are given.
//
// A request is booked as shards, each about one unit of GPU memory, so that slurmctld packs GPU by
// GPU with its own code. Compute needs no second resource: a share books the larger of what its
// memory and its compute need. So the compute promised on a GPU stays within the over-commit
// factor. lua/submit.lua has the rules; booking_model_test.hpp says the same in C++, and
// submit_lua_words_test compares the two.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

// One GPU model as Slurm's configuration names it (the gres Type).
struct GpuModel {
  std::string name;
  Bytes memory;
  std::int64_t shards = 1;         // of one GPU: shards_of() in site_settings.hpp
  std::int64_t most_per_node = 1;  // GPUs on the node that has the most of them
};

struct PartitionGpus {
  std::string name;
  std::vector<std::string> models;      // names of GpuModel
  bool shared = true;                   // a share may run on one of its nodes
  bool foreign = false;                 // has GPUs, and Aliquot manages none of them
  PartitionShare share = {};            // what is otherwise than everywhere
  std::vector<std::string> nodes = {};  // of SiteTable::gpus_by_node
};

// Where shares are given: shell patterns, of which one must match; none: everywhere.
struct Gates {
  std::vector<std::string> partitions = {};
  std::vector<std::string> accounts = {};
  std::vector<std::string> reservations = {};
};

struct SiteTable {
  std::vector<GpuModel> models = {};
  std::vector<PartitionGpus> partitions = {};
  std::string default_partition = {};
  Bytes unit = gib(1);              // what the shards were counted in: shards_of()
  Compute overcommit = kWholeGpu;   // compute promised on a GPU at most
  std::int64_t mps_per_gpu = 100;   // what a user's mps:P counts in
  std::int64_t shards_per_gpu = 8;  // what a user's shard:K counts in
  Gates gates = {};
  // Slurm before kMixingFixed puts whole-GPU jobs on GPUs that hold shards. Where there may be
  // shares, one whole GPU is then booked as all of its shards, and several take the whole node.
  bool whole_as_shards = false;
  // Where each GPU of a node is a gres type of its own, slot_name(): the nodes, and what they have.
  struct Gpus {
    std::string model;
    std::int64_t count = 0;
  };
  std::map<std::string, std::vector<Gpus>> gpus_by_node = {};
};

// `h200.2`: the gres type of one GPU of a node, counted among those of its model.
std::string slot_name(std::string_view model, std::int64_t number);
// The model of such a type.
std::string_view model_of_slot(std::string_view type);

// The model of this name, whatever its case; null: none.
const GpuModel* find_model(const SiteTable& site, std::string_view name);

// What shares are counted in for jobs of these partitions, as ShareSettings::in() has it.
struct ShareUnits {
  Compute overcommit;
  std::int64_t mps_per_gpu;
  std::int64_t shards_per_gpu;
};
ShareUnits units_in(const SiteTable& site, std::string_view partitions);

// Whether the numbers make sense, and Lua counts them exactly.
Result<void> check(const SiteTable& site);

}  // namespace aliquot::slurm
