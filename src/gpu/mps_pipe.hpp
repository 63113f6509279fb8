// Talks to one control daemon of MPS. part_clients() is for those who end processes: a client that
// is killed in the middle of a long kernel takes all clients of its server along (measured:
// docs/enforcement.md). A client whose work the server has ended before does no harm.
//
// The daemon and aliquot-stepd both use it, maybe at the same time. They take turns by a lock in
// the folder, because it is not known whether a control daemon can talk to two programs at once.
// Nothing is kept between two calls.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace aliquot::gpu {

struct MpsPipe {
  std::string program;                        // nvidia-cuda-mps-control
  std::vector<std::string> environment = {};  // of the program: what the stand-in needs
  std::string folder = {};                    // its pipes are in folder/p
  friend bool operator==(const MpsPipe&, const MpsPipe&) = default;
};

// Runs the program with these arguments and this input. Nothing else is inherited.
struct MpsOrder {
  std::vector<std::string> arguments = {};
  std::vector<std::string> environment = {};  // more of it
  std::string input = {};
  Millis patience = Millis(0);
};
struct MpsAnswer {
  int status = -1;   // -1: it did not end in time, or not by itself
  std::string text;  // what it said, on both streams
};
MpsAnswer run_control(const MpsPipe& pipe, const MpsOrder& order);

// What the control daemon answers to these lines. Before, it waits for its turn, at most for the
// same patience.
MpsAnswer tell(const MpsPipe& pipe, const std::string& commands, Millis patience);
// The words of it that are numbers.
std::vector<pid_t> numbers(const std::string& text);

// How long part_clients() may take, and so keep the processes alive. A process takes some 20 ms.
struct MpsPatience {
  Millis turn = seconds(10);   // for the turn, where several jobs are ended at once
  Millis answer = seconds(3);  // for the server's answers
};

// Ends what these processes do on the GPU, so that killing them afterwards harms no other client.
// Processes that are no clients are left out. Returns a complaint of one line; empty: all went
// well.
std::string part_clients(const MpsPipe& pipe, const std::vector<pid_t>& processes,
                         const MpsPatience& patience = {});

}  // namespace aliquot::gpu
