#include "sim/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace aliquot::sim {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const sys::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  auto text = file ? sys::read_all(file.get(), kMostBytes) : std::nullopt;
  if (text) return std::move(*text);
  if (errno != EFBIG) return sys::system_error(errno, "cannot read", quote(path));
  return fail(Error::Code::out_of_range, "cannot read {}: it is larger than 1 GiB", quote(path));
}

Result<void> write_file(const std::string& path, std::string_view text) {
  sys::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file || !sys::write_all(file.get(), text))
    return sys::system_error(errno, "cannot write", quote(path));
  // Closing is where a full disk may first be told.
  if (::close(file.release()) != 0) return sys::system_error(errno, "cannot write", quote(path));
  return {};
}

}  // namespace aliquot::sim
