#include "base/slurm_time.hpp"
#include "base/timestamp.hpp"
#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  const auto limit = parse_time_limit(text);
  fuzz::require_one_line(limit);
  if (limit) {
    for (const auto style : {TimeStyle::squeue, TimeStyle::scontrol, TimeStyle::sinfo}) {
      fuzz::require(parse_time_limit(format_time_limit(*limit, style)) == *limit);
    }
  }

  const auto moment = parse_timestamp(text);
  fuzz::require_one_line(moment);
  if (moment) fuzz::require(parse_timestamp(format_timestamp(*moment)) == *moment);
  return 0;
}
