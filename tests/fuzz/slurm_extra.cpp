#include "fuzz.hpp"
#include "slurm/extra.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const auto gpus = slurm::parse_extra(text);
  if (gpus) {
    fuzz::require(slurm::extra_is_ours(text) && !slurm::extra_differs(text, text));
    for (const auto& gpu : *gpus) fuzz::require(gpu.percent <= 100 && gpu.used_mib >= 0);
  }
  return 0;
}
