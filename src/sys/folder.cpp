#include "sys/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "base/text.hpp"
#include "sys/file.hpp"

namespace aliquot::sys {

namespace {

Result<struct stat> make_and_look(const std::filesystem::path& path, mode_t mode) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (!error && ::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) {
    return fail(Error::Code::unavailable, "cannot create {}: {}", quote(path.string()),
                error.message());
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return fail(Error::Code::failed_state, "{} is no folder", quote(path.string()));
  }
  return status;
}

}  // namespace

Result<void> make_own_folder(const std::filesystem::path& path, mode_t mode) {
  const struct stat status = TRY(make_and_look(path, mode));
  // In a folder of somebody else's all we keep there would be theirs.
  if (status.st_uid != ::geteuid()) {
    return fail(Error::Code::permission_denied, "{} belongs to another user", quote(path.string()));
  }
  if (::chmod(path.c_str(), mode) != 0) return system_error(errno, "cannot set the mode of", path);
  return {};
}

Result<void> make_safe_folder(const std::filesystem::path& path, mode_t mode) {
  const struct stat status = TRY(make_and_look(path, mode));
  if (status.st_uid != ::geteuid() || (status.st_mode & 0022U) != 0) {
    return fail(Error::Code::permission_denied, "{} is not safe: somebody else's, or open to all",
                quote(path.string()));
  }
  return {};
}

Result<TemporaryFolder> TemporaryFolder::create(std::string_view name) {
  std::error_code error;
  const auto above = std::filesystem::temp_directory_path(error);
  if (error) {
    return fail(Error::Code::unavailable, "there is no folder for temporary files: {}",
                error.message());
  }
  std::string pattern = above / fmt::format("{}-XXXXXX", name);
  if (::mkdtemp(pattern.data()) == nullptr) {
    return fail(Error::Code::unavailable, "cannot make a folder in {}: {}", above.string(),
                std::strerror(errno));
  }
  return TemporaryFolder(pattern);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
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

}  // namespace aliquot::sys
