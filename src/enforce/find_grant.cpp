#include "enforce/find_grant.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <fcntl.h>
#include <unistd.h>

#include "enforce/abi.h"
#include "enforce/old_libc.hpp"

namespace aliquot::enforce {
namespace {

constexpr const char* kJob = "/job_";

// The whole of a small file as text; false where it is not there or has no end in sight.
bool read_text(int fd, char* text, std::size_t size) {
  std::size_t length = 0;
  while (length + 1 < size) {
    const ssize_t n = read(fd, text + length, size - 1 - length);
    if (n < 0) return false;
    if (n == 0) {
      text[length] = '\0';
      return true;
    }
    length += static_cast<std::size_t>(n);
  }
  return false;
}

bool read_file(const char* path, char* text, std::size_t size) {
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = read_text(fd, text, size);
  (void)close(fd);
  return done;
}

// Two lines: the group, and the folder that holds the grants.
bool read_place(const char* path, uid_t owner, char* text, std::size_t size, char** grants) {
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info {};
  const bool trusted = status_of(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == owner &&
                       (info.st_mode & 022) == 0;
  const bool done = trusted && read_text(fd, text, size);
  (void)close(fd);
  if (!done) return false;
  char* end = std::strchr(text, '\n');
  if (end == nullptr || end == text) return false;
  *end = '\0';
  *grants = end + 1;
  end = std::strchr(*grants, '\n');
  if (end != nullptr) *end = '\0';
  return **grants == '/';
}

}  // namespace

unsigned long long job_in_groups(const char* text, const char* group) {
  while (text != nullptr && *text != '\0') {
    const char* end = std::strchr(text, '\n');
    const std::size_t length =
        end == nullptr ? std::strlen(text) : static_cast<std::size_t>(end - text);
    char line[ALIQUOT_PATH_BYTES * 4];
    if (length < sizeof line) {
      std::memcpy(line, text, length);
      line[length] = '\0';
      // 7:memory:/path in v1, 0::/path in v2.
      const char* path = std::strchr(line, ':');
      if (path != nullptr) path = std::strchr(path + 1, ':');
      const char* at = path == nullptr ? nullptr : std::strstr(path + 1, group);
      if (at != nullptr) at = std::strstr(at, kJob);
      if (at != nullptr) {
        char* rest = nullptr;
        const unsigned long long job = std::strtoull(at + std::strlen(kJob), &rest, 10);
        // job_7.1: its run after the first requeue.
        if (*rest == '.') (void)std::strtoull(rest + 1, &rest, 10);
        if (job != 0 && (*rest == '\0' || *rest == '/')) return job;
      }
    }
    text = end == nullptr ? nullptr : end + 1;
  }
  return 0;
}

bool find_grant_by_group(const char* places, uid_t owner, const char* cgroup_file, char* folder,
                         std::size_t size) {
  char groups[8192];
  bool looked = false;
  for (const char* name : {ALIQUOT_PLACE_ENGINE, ALIQUOT_PLACE_SLURM}) {
    char path[ALIQUOT_PATH_BYTES * 2];
    char text[ALIQUOT_PATH_BYTES * 2];
    char* grants = nullptr;
    const int length = std::snprintf(path, sizeof path, "%s/%s", places, name);
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof path ||
        !read_place(path, owner, text, sizeof text, &grants))
      continue;
    if (!looked && !read_file(cgroup_file, groups, sizeof groups)) return false;
    looked = true;
    const unsigned long long job = job_in_groups(groups, text);
    if (job == 0) continue;
    const int written = std::snprintf(folder, size, "%s/%llu", grants, job);
    struct stat info {};
    // A job without shares has no grant, and nothing to be held to.
    if (written > 0 && static_cast<std::size_t>(written) < size && status_of(folder, &info) == 0 &&
        S_ISDIR(info.st_mode))
      return true;
  }
  return false;
}

bool find_grant_here(const char* here, uid_t owner, char* folder, std::size_t size) {
  struct stat info {};
  if (status_of(here, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != owner ||
      (info.st_mode & 022) != 0 || std::strlen(here) >= size)
    return false;
  std::memcpy(folder, here, std::strlen(here) + 1);
  return true;
}

}  // namespace aliquot::enforce
