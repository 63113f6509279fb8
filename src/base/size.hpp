// Memory sizes as Slurm reads and writes them: powers of 1024, a bare number is MiB.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/units.hpp"

namespace aliquot {

// `8G`, `8GiB`, `8gb`, `1.5G`, `512` (MiB), `4096K`, `100B`. Zero is a size: what `--mem=0` means
// is the caller's to say. Decimals are rounded down to a byte.
Result<Bytes> parse_size(std::string_view text);

// Exact, in the largest unit that leaves a whole number: `8G`, `1536M`, `100B`, `0`. parse_size
// reads it back.
std::string format_size(Bytes size);

}  // namespace aliquot
