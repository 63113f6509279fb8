#include "core/request_words.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = core::parse_request(fuzz::as_text(data, size));
  fuzz::require_one_line(parsed);
  if (!parsed) return 0;
  if (parsed->gpus) {
    fuzz::require(parsed->gpus->count >= 1);
    fuzz::require(parsed->gpus->count <= static_cast<std::int64_t>(core::kMaxGpusPerNode));
  }
  fuzz::require(core::parse_request(core::format_request(*parsed)) == parsed);
  return 0;
}
