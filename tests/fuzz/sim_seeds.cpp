#include "fuzz.hpp"
#include "sim/seeds.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto seeds = sim::parse_seeds(fuzz::as_text(data, size));
  fuzz::require_one_line(seeds);
  if (seeds) fuzz::require(!seeds->empty() && seeds->size() <= 10'000);
  return 0;
}
