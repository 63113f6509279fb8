#include "core/request_parse.hpp"
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
  const auto again = core::parse_gpu_options(core::options_of(parsed->gpus));
  fuzz::require(again.has_value() && *again == parsed->gpus);
  return 0;
}
