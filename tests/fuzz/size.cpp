#include "base/size.hpp"

#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = parse_size(fuzz::as_text(data, size));
  fuzz::require_one_line(parsed);
  if (parsed) fuzz::require(*parsed >= Bytes(0) && parse_size(format_size(*parsed)) == *parsed);
  return 0;
}
