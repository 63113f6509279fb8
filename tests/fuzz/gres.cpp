#include "core/request_parse.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = core::parse_gpu_options({.gres = std::string(fuzz::as_text(data, size))});
  fuzz::require_one_line(parsed);
  if (parsed) fuzz::require(core::parse_gpu_options(core::options_of(*parsed)) == parsed);
  return 0;
}
