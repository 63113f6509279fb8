#include "node/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/text.hpp"
#include "node/file.hpp"

namespace aliquot::node {

Result<void> make_own_folder(const std::filesystem::path& path, mode_t mode) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return fail(Error::Code::unavailable, "cannot create {}: {}", quote(path.string()),
                error.message());
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return fail(Error::Code::failed_state, "{} is no folder", quote(path.string()));
  }
  // In a folder of somebody else's all we keep there would be theirs.
  if (status.st_uid != ::geteuid()) {
    return fail(Error::Code::permission_denied, "{} belongs to another user", quote(path.string()));
  }
  if (::chmod(path.c_str(), mode) != 0) return system_error(errno, "cannot set the mode of", path);
  return {};
}

Result<Fd> lock_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return system_error(errno, "cannot open", path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const std::string holder = read_whole(path, 64).value_or("");
    return fail(Error::Code::already_exists, "another daemon (pid {}) uses the folder {}",
                holder.substr(0, holder.find('\n')), quote(folder.string()));
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::write(lock.get(), pid.data(), pid.size()) != std::ssize(pid)) {
    return system_error(errno, "cannot write", path);
  }
  return lock;
}

}  // namespace aliquot::node
