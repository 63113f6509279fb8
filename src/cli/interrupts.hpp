// Ctrl-C and SIGTERM as something to ask for, instead of a handler: while one of these lives, its
// thread and those started after it do not get these signals; they wait here. A signal that the
// caller had ignored (nohup) stays ignored.
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
