// Slurm's own words for what a job holds of a node's GPUs, as `scontrol show job -d` prints them:
//
//   gpu:h200:2(IDX:0-1)                      whole GPUs
//   shard:h200:12(IDX:2)                     on one GPU, before 23.11
//   shard:h200:12(8/140,4/140,0/140,0/140)   GPU by GPU, since
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::slurm {

struct GresHold {
  std::string name;  // "gpu", "shard", "mps", …
  std::string type;  // "h200"; may be empty
  std::int64_t count = 0;
  // How many on which GPU, counted as gres.conf lists them. Of several GPUs of which only the sum
  // is known, each has an equal part, rounded down.
  std::map<std::int64_t, std::int64_t> on = {};
  friend bool operator==(const GresHold&, const GresHold&) = default;
};

// Comes from slurmctld, but from whichever version of it: what it does not understand is an error.
Result<std::vector<GresHold>> parse_gres_detail(std::string_view text);

// "0-2,5" as numbers. Bounded: nobody has so many GPUs in a node.
Result<std::vector<std::int64_t>> parse_index_list(std::string_view text);

}  // namespace aliquot::slurm
