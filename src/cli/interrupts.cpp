#include "cli/interrupts.hpp"

#include <time.h>

namespace aliquot::cli {

Interrupts::Interrupts() {
  ::sigemptyset(&awaited_);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::sigaddset(&awaited_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
}

Interrupts::~Interrupts() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool Interrupts::wait(Millis at_most) {
  const timespec limit{.tv_sec = at_most.value() / 1000,
                       .tv_nsec = at_most.value() % 1000 * 1'000'000};
  return ::sigtimedwait(&awaited_, nullptr, &limit) > 0;
}

}  // namespace aliquot::cli
