// libslurm says on stderr, line by line, what it then also returns: not while this lives.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "sys/fd.hpp"

namespace aliquot::slurm {

class Silence {
 public:
  Silence() : kept_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const sys::Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (null) ::dup2(null.get(), STDERR_FILENO);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
  ~Silence() {
    if (kept_) ::dup2(kept_.get(), STDERR_FILENO);
  }

 private:
  sys::Fd kept_;
};

}  // namespace aliquot::slurm
