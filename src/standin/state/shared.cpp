// Memory that several processes can hold. Who holds it is asked of the kernel: to hold it is to
// have its FIFO open, by whatever descriptor and in whatever process; that nobody has is what a
// writer is told who does not want to wait. Beside the FIFO lies a file with the content.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "standin/state/state.hpp"

namespace aliquot::standin {
namespace {

bool is_held(const std::string& fifo) {
  const int fd = ::open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0) close(fd);
  return fd >= 0 || errno != ENXIO;
}

}  // namespace

std::string State::holders_of(std::uint64_t number) const {
  return path_ + ".nvidiactl." + std::to_string(number);
}

std::string State::shared_file(std::uint64_t number) const {
  return path_ + ".mem." + std::to_string(number);
}

Shared* State::find_shared(std::uint64_t number) {
  for (Shared& each : layout_->shared)
    if (each.used && each.number == number) return &each;
  return nullptr;
}

std::uint64_t State::share(int slot, unsigned gpu, std::uint64_t bytes, std::size_t size) {
  for (Shared& each : layout_->shared) {
    if (each.used) continue;
    const std::uint64_t number = ++layout_->shared_count;
    struct stat info {};
    const mode_t mode = fstat(fd_, &info) == 0 ? info.st_mode & 0666 : 0600;
    const int fd = ::open(shared_file(number).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    const bool made = fd >= 0 && fchmod(fd, mode) == 0 &&
                      ftruncate(fd, static_cast<off_t>(size)) == 0 &&
                      mkfifo(holders_of(number).c_str(), 0600) == 0 &&
                      chmod(holders_of(number).c_str(), mode) == 0;
    if (fd >= 0) close(fd);
    if (!made) {
      forget_shared(number);
      return 0;
    }
    each = {true, false, gpu, slot, process(slot).generation, bytes, number, -1, 0};
    return number;
  }
  return 0;
}

int State::hold_shared(std::uint64_t number) const {
  return ::open(holders_of(number).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
}

int State::open_content(std::uint64_t number) const {
  return ::open(shared_file(number).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
}

void State::forget_shared(std::uint64_t number) const {
  unlink(shared_file(number).c_str());
  unlink(holders_of(number).c_str());
}

std::uint64_t State::shared_of(int fd) const {
  char link[64];
  char target[512] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (readlink(link, target, sizeof target - 1) < 0) return 0;
  const std::string start = path_ + ".nvidiactl.";
  const std::string name = target;
  return name.starts_with(start) ? std::strtoull(name.c_str() + start.size(), nullptr, 10) : 0;
}

void State::note_import(std::uint64_t number, int slot, bool ends) {
  Shared* each = find_shared(number);
  if (each == nullptr) return;
  if (!ends)
    std::tie(each->importer, each->importer_generation) = std::pair(slot, process(slot).generation);
  else if (each->importer == slot)
    each->importer = -1;
}

std::uint64_t State::attributed(int slot, unsigned gpu) {
  const Process& p = process(slot);
  std::uint64_t sum = p.bytes[gpu];
  for (const Shared& each : layout_->shared)
    if (each.used && each.orphan && each.gpu == gpu && each.importer == slot &&
        each.importer_generation == p.generation)
      sum += each.bytes;
  return sum;
}

void State::abandon(std::uint64_t number) {
  Shared* each = find_shared(number);
  if (each == nullptr || each->orphan) return;
  each->orphan = true;
  refund(each->owner, each->gpu, each->bytes);
  reap_shared();
}

void State::reap_shared() {
  for (Shared& each : layout_->shared)
    if (each.used && each.orphan && !is_held(holders_of(each.number))) {
      forget_shared(each.number);
      each.used = false;
    }
}

}  // namespace aliquot::standin
