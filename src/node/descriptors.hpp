// What a child keeps open of its parent's, between fork and exec. A child that is slow or hangs
// there would hold everything else of the daemon's: its lock, its connections, and the script of
// another job that is being written, which then cannot be executed ("Text file busy").
#pragma once

#include <cstddef>

namespace aliquot::node {

// Closes all but 0, 1, 2 and these, which it sorts (negative ones are nobody). System calls only.
void close_others(int* kept, std::size_t count);

}  // namespace aliquot::node
