// What srun does about the descriptors and the terminal of its tasks.
#pragma once

#include <termios.h>
#include <unistd.h>

#include <set>

namespace aliquot::cli {

// The descriptors that were open when this program started: they are the user's. What is opened
// later is ours, and no child may have it.
class UsersFiles {
 public:
  UsersFiles();  // before anything is opened
  // In a child: exec closes all others; 0, 1 and 2 stay open.
  void keep_only() const;

 private:
  std::set<int> files_;
};

// Switches our terminal to raw mode, and back in the destructor, or for as long as something is
// said.
class RawTerminal {
 public:
  explicit RawTerminal(bool wanted);
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

  template <class Body>
  void pause(Body&& body) const {
    put_back();
    body();
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &raw_);
  }

 private:
  void put_back() const;

  termios raw_{};
  termios before_{};
  bool changed_ = false;
};

}  // namespace aliquot::cli
