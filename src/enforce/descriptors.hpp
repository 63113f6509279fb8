// Whether a descriptor that was given to the program is still open anywhere: here, under another
// number, in another process, or on its way through a socket. Memory exported to a descriptor lives
// as long. The kernel knows: an entry of an epoll instance goes when the last descriptor of its
// file is closed, and does not keep it open itself. Nothing is ever waited for.
#pragma once

#include <cstdint>

namespace aliquot::enforce {

// Follows the descriptor under that name (not 0), which several may have. What cannot be followed
// counts as open for ever.
void follow_descriptor(int fd, std::uint64_t name);
// The name under which this very descriptor is followed, or 0.
std::uint64_t followed_name(int fd);

// Asks the kernel once, and then tells of each name whether a descriptor of it is open.
class OpenDescriptors {
 public:
  OpenDescriptors();
  ~OpenDescriptors();
  OpenDescriptors(const OpenDescriptors&) = delete;
  OpenDescriptors& operator=(const OpenDescriptors&) = delete;
  [[nodiscard]] bool any(std::uint64_t name) const;
  // The name of the descriptor with that number; 0 when there is none, or more than one.
  [[nodiscard]] std::uint64_t only_of(int fd) const;

 private:
  char* text_ = nullptr;
  bool known_ = false;
};

void reset_descriptors();

}  // namespace aliquot::enforce
