#include "core/dependency.hpp"

#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = core::parse_dependencies(fuzz::as_text(data, size));
  fuzz::require_one_line(parsed);
  if (parsed && parsed->all.size() > 1) {
    fuzz::require(core::parse_dependencies(core::format_dependencies(*parsed)) == parsed);
  }
  return 0;
}
