#include "base/percent.hpp"

#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = parse_percent(fuzz::as_text(data, size));
  fuzz::require_one_line(parsed);
  if (parsed) {
    fuzz::require(*parsed > Compute(0) && *parsed <= kWholeGpu);
    fuzz::require(parse_percent(format_percent(*parsed)) == *parsed);
  }
  return 0;
}
