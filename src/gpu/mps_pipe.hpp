// One control daemon of MPS as those see it who may command it, and the one command that is wanted
// where processes are ended: part_clients(). A client that is killed in the middle of a long kernel
// takes all clients of its server along (measured: docs/enforcement.md), one whose work was ended
// by the server before does not.
//
// Whoever signals uses it: the daemon, and aliquot-stepd, which needs nobody else. So it is small,
// holds nothing, and may be used by several at once: they take turns by a lock in the folder, since
// nothing says that a control daemon hears two at a time.
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

// What the daemon answers to these lines. Waits for its turn for as long again.
MpsAnswer tell(const MpsPipe& pipe, const std::string& commands, Millis patience);
// The words of it that are numbers.
std::vector<pid_t> numbers(const std::string& text);

// How long processes that are to end may go on, because several jobs are ended at once and wait for
// each other, and then because the server does not answer. One process takes it some 20 ms.
struct MpsPatience {
  Millis turn = seconds(10);
  Millis answer = seconds(3);
};

// Ends what these processes do on the GPU: none is harmed by their end afterwards. Who is no client
// is left out. Never takes longer than that, whatever has become of the server. What was not as it
// should be, in one line; empty: all was.
std::string part_clients(const MpsPipe& pipe, const std::vector<pid_t>& processes,
                         const MpsPatience& patience = {});

}  // namespace aliquot::gpu
