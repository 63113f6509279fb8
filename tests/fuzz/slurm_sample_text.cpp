#include "fuzz.hpp"
#include "slurm/sample_text.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const auto gpus = slurm::parse_sample_text(text);
  if (gpus) {
    fuzz::require(slurm::may_hold_samples(text) && !slurm::sample_texts_differ(text, text));
    fuzz::require(slurm::parse_sample_text(slurm::format_sample_text(*gpus)) == *gpus);
    for (const auto& gpu : *gpus) fuzz::require(gpu.utilisation <= kWholeGpu);
  }
  return 0;
}
