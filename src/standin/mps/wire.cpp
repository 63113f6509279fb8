#include "standin/mps/wire.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace aliquot::standin {
namespace {

// A socket's address is short and a directory's name may be long: go through a descriptor of the
// directory.
class ControlAddress {
 public:
  explicit ControlAddress(const std::string& directory)
      : directory_(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    address_.sun_family = AF_UNIX;
    std::snprintf(address_.sun_path, sizeof address_.sun_path, "/proc/self/fd/%d/control",
                  directory_);
  }
  ~ControlAddress() {
    if (directory_ >= 0) close(directory_);
  }
  ControlAddress(const ControlAddress&) = delete;
  ControlAddress& operator=(const ControlAddress&) = delete;

  [[nodiscard]] bool valid() const { return directory_ >= 0; }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] const char* path() const { return address_.sun_path; }

 private:
  int directory_;
  sockaddr_un address_{};
};

}  // namespace

std::string pipe_directory() {
  const char* directory = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return directory != nullptr && *directory != '\0' ? directory : "/tmp/nvidia-mps";
}

int connect_to_control(const std::string& directory) {
  const ControlAddress address(directory);
  if (!address.valid()) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, address.get(), sizeof(sockaddr_un)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

int listen_at_control(const std::string& directory) {
  const ControlAddress address(directory);
  if (!address.valid()) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  unlink(address.path());
  if (bind(fd, address.get(), sizeof(sockaddr_un)) != 0 || chmod(address.path(), 0666) != 0 ||
      listen(fd, 128) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

bool send_line(int fd, std::string line) {
  line += '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

bool receive_line(int fd, std::string* line) {
  line->clear();
  for (char c = 0;;) {
    const ssize_t n = recv(fd, &c, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    if (c == '\n') return true;
    *line += c;
  }
}

std::uint64_t limit_of_device(std::string_view text, unsigned ordinal) {
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) continue;
    unsigned device = 0;
    const auto [end, error] = std::from_chars(item.begin(), item.begin() + equals, device);
    if (error == std::errc{} && end == item.begin() + equals && device == ordinal)
      return parse_size(item.substr(equals + 1));
  }
  return 0;
}

std::uint64_t parse_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc{}) return 0;
  std::string_view unit(end, static_cast<std::size_t>(text.end() - end));
  if (unit.size() == 2 && (unit[1] == 'B' || unit[1] == 'b')) unit.remove_suffix(1);
  if (unit.empty()) return number;
  const auto place = std::string_view("KkMmGgTt").find(unit[0]);
  return unit.size() == 1 && place != std::string_view::npos ? number << 10 * (place / 2 + 1) : 0;
}

}  // namespace aliquot::standin
