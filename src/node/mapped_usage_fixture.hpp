// For tests: the usage file of a grant as the library in a job has it, and processes that hold
// slots in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/ids.hpp"
#include "enforce/abi.h"
#include "sys/fd.hpp"
#include "sys/process.hpp"

namespace aliquot::test {

class MappedUsage {
 public:
  // grant: the folder of the grant, which is there.
  explicit MappedUsage(const std::filesystem::path& grant) : path_(grant / ALIQUOT_USAGE_FILE) {
    const sys::Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    void* memory =
        ::mmap(nullptr, sizeof(aliquot_usage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) std::abort();
    usage_ = static_cast<aliquot_usage*>(memory);
  }
  MappedUsage(const MappedUsage&) = delete;
  MappedUsage& operator=(const MappedUsage&) = delete;
  ~MappedUsage() {
    while (!children_.empty()) end(*children_.begin());
    ::munmap(usage_, sizeof *usage_);
  }
  aliquot_usage* operator->() const { return usage_; }

  // A process that holds a slot, until it is ended; and every second byte of more.
  Pid take(std::uint32_t slot, int more = 0, off_t from = 0) {
    sys::Pipe ready = sys::make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_start = slot;
      lock.l_len = 1;
      ::fcntl(fd, F_SETLK, &lock);
      for (int i = 0; i < more; ++i) {
        lock.l_start = from + off_t{2} * i;
        ::fcntl(fd, F_SETLK, &lock);
      }
      if (!sys::write_all(ready.write.get(), "x")) ::_exit(1);
      ::alarm(60);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready.read.get(), &byte, 1), 1);
    usage_->slots[slot].pid = child;
    children_.insert(Pid(child));
    return Pid(child);
  }
  void end(Pid child) {
    ::kill(child.value(), SIGKILL);
    sys::wait_for_child(child);
    children_.erase(child);
  }

 private:
  std::filesystem::path path_;
  aliquot_usage* usage_ = nullptr;
  std::set<Pid> children_;
};

}  // namespace aliquot::test
