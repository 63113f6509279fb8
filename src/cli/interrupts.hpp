// Waits for Ctrl-C and SIGTERM without a handler. While an Interrupts lives, these signals do not
// end the program: they stay pending until wait() takes them. This holds for its thread and for
// threads started later. A signal that the caller had ignored (nohup) stays ignored.
#pragma once

#include <signal.h>

#include "base/time.hpp"

namespace aliquot::cli {

class Interrupts {
 public:
  Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  // Waits this long at most; true when one came.
  bool wait(Millis at_most);

 private:
  sigset_t awaited_;
  sigset_t before_;
};

}  // namespace aliquot::cli
