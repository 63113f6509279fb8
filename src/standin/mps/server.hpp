// The MPS server process. On a real machine it runs its clients' work; here the compute model does
// that, and the server is the process that shows up in lists, holds its share of memory, and takes
// its clients with it when it dies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "standin/state/state.hpp"

namespace aliquot::standin {

struct ServerPlace {
  pid_t pid = -1;
  int slot = -1;
  std::uint32_t generation = 0;
};

// Starts one as the user and waits until it has its place on the machine.
[[nodiscard]] ServerPlace launch_server(const State& state, uid_t uid,
                                        const std::vector<unsigned>& gpus);

// The main function of the server process: nvidia-cuda-mps-server REPORT-FD GPU…
int server_main(int argc, char** argv);

}  // namespace aliquot::standin
