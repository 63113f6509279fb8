#include "fuzz.hpp"
#include "slurm/samples.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto sample = slurm::decode_sample(fuzz::as_text(data, size));
  fuzz::require_one_line(sample);
  if (sample) {
    fuzz::require(sample->gpus.size() <= 64);
    fuzz::require(slurm::decode_sample(slurm::encode_sample(*sample)) == *sample);
  }
  return 0;
}
