// Descriptors, pipes and the terminal, as srun needs them for its tasks.
#pragma once

#include <termios.h>
#include <unistd.h>

#include <set>
#include <string_view>
#include <utility>

namespace aliquot::cli {

// A descriptor that closes itself.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File() { close(); }

  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

struct Pipe {
  File read;
  File write;
};
// Closed ends where there is none to be had.
Pipe make_pipe();

// The descriptors this program was started with, which are its user's. What else is open later is
// ours, and nobody else's business.
class UsersFiles {
 public:
  UsersFiles();  // before anything is opened
  // In a child: with exec all others close, and 0, 1 and 2 stay.
  void keep_only() const;

 private:
  std::set<int> files_;
};

// Also where the other side takes its time; gives up where it is gone.
void write_all(int file, std::string_view text);

// Our own terminal, letter by letter; gives it back as it was.
class RawTerminal {
 public:
  explicit RawTerminal(bool wanted);
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

 private:
  termios before_{};
  bool changed_ = false;
};

}  // namespace aliquot::cli
