// Locks within the process. Plain data, so that a forked child can make them new by zeroing.
#pragma once

#include <cerrno>

#include <pthread.h>

namespace aliquot::enforce {

struct Lock {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

class Hold {
 public:
  explicit Hold(Lock& lock) : lock_(lock) { (void)pthread_mutex_lock(&lock_.mutex); }
  ~Hold() { (void)pthread_mutex_unlock(&lock_.mutex); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Lock& lock_;
};

// A hook does system calls of its own; the program's errno is not its business.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

}  // namespace aliquot::enforce
