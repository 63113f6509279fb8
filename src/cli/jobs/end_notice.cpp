#include "cli/jobs/end_notice.hpp"

#include <sys/eventfd.h>

namespace aliquot::cli {

EndNotice::EndNotice() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EndNotice::leave(api::JobInfo job) {
  const std::lock_guard lock(mutex_);
  job_ = std::move(job);
  ::eventfd_write(event_.get(), 1);
}

std::optional<api::JobInfo> EndNotice::take() {
  const std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  if (::eventfd_read(event_.get(), &count) != 0) return std::nullopt;
  return std::exchange(job_, std::nullopt);
}

}  // namespace aliquot::cli
