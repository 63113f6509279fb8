#include "core/array_spec.hpp"

#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = core::parse_array(fuzz::as_text(data, size));
  fuzz::require_one_line(parsed);
  if (parsed) fuzz::require(core::parse_array(core::format_array(*parsed)) == parsed);
  return 0;
}
