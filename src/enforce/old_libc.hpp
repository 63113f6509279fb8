// Included before every source of the library (CMakeLists.txt): what newer versions of glibc moved
// or made new is asked for by its oldest name, so that one build runs on glibc 2.17 (RHEL 7) and
// whatever came later. What has no older name (stat and fstat were macros until 2.33) is asked of
// the kernel. tests/enforce/libc.bats reads the result.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ALIQUOT_BASE_VERSION "GLIBC_2.2.5"
#define ALIQUOT_CONSISTENT_VERSION "GLIBC_2.12"
#else  // aarch64 begins with 2.17
#define ALIQUOT_BASE_VERSION "GLIBC_2.17"
#define ALIQUOT_CONSISTENT_VERSION "GLIBC_2.17"
#endif

// libdl and libpthread became part of libc in 2.34. On older systems they are libraries of their
// own, which the library names as needed.
__asm__(".symver dlopen,dlopen@" ALIQUOT_BASE_VERSION);
__asm__(".symver dlerror,dlerror@" ALIQUOT_BASE_VERSION);
__asm__(".symver dlvsym,dlvsym@" ALIQUOT_BASE_VERSION);
__asm__(".symver pthread_mutex_timedlock,pthread_mutex_timedlock@" ALIQUOT_BASE_VERSION);
__asm__(".symver pthread_mutex_consistent,pthread_mutex_consistent@" ALIQUOT_CONSISTENT_VERSION);

namespace aliquot::enforce {

inline int status_of(int fd, struct stat* out) {
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}
inline int status_of(const char* path, struct stat* out) {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0));
}

}  // namespace aliquot::enforce
