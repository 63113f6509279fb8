// How much memory a program is shown: its job's share, as if that were the card.
#pragma once

#include <cstdint>

namespace aliquot::enforce {

struct View {
  std::uint64_t total, free;
  bool limited;
};

// From what the driver says. A GPU the job was not given has nothing to show.
View share_view(int gpu, std::uint64_t free, std::uint64_t total);

}  // namespace aliquot::enforce
