#include "sim/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.hpp"

namespace aliquot::sim {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int get() const { return number_; }
  // Closing is where a full disk may first be told.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

tl::unexpected<Error> failed(std::string_view verb, const std::string& path) {
  const int reason = errno;
  const auto code = reason == ENOENT                      ? Error::Code::not_found
                    : reason == EACCES || reason == EPERM ? Error::Code::permission_denied
                                                          : Error::Code::unavailable;
  return fail(code, "cannot {} {}: {}", verb, quote(path), std::strerror(reason));
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return failed("read", path);
  std::string text;
  std::array<char, 65536> block;
  while (true) {
    const auto count = ::read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read", path);
    if (count == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > kMostBytes) {
      return fail(Error::Code::out_of_range, "cannot read {}: it is larger than 1 GiB",
                  quote(path));
    }
  }
}

Result<void> write_file(const std::string& path, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) return failed("write", path);
  while (!text.empty()) {
    const auto count = ::write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("write", path);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (!file.close()) return failed("write", path);
  return {};
}

}  // namespace aliquot::sim
