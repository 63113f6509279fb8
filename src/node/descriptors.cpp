#include "node/descriptors.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace aliquot::node {

void close_others(int* kept, std::size_t count) {
  std::sort(kept, kept + count);
  int from = STDERR_FILENO + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (kept[i] < from) continue;
    if (kept[i] > from) syscall(SYS_close_range, from, kept[i] - 1, 0);
    from = kept[i] + 1;
  }
  syscall(SYS_close_range, from, ~0U, 0);
}

}  // namespace aliquot::node
