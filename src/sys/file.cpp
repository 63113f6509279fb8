#include "sys/file.hpp"

#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sys/fd.hpp"
#include "sys/owned_file.hpp"

namespace aliquot::sys {

tl::unexpected<Error> system_error(int error, std::string_view what,
                                   const std::filesystem::path& path) {
  Error::Code code = Error::Code::internal;
  if (error == ENOENT || error == ENOTDIR || error == ENODEV) code = Error::Code::not_found;
  if (error == EACCES || error == EPERM) code = Error::Code::permission_denied;
  if (error == EEXIST) code = Error::Code::already_exists;
  if (error == EBUSY || error == EAGAIN || error == ENOSPC) code = Error::Code::unavailable;
  return fail(code, "{} {}: {}", what, path.string(), std::strerror(error));
}

namespace {

Result<void> write_new(const std::filesystem::path& path, std::string_view text, mode_t mode,
                       bool durable, const FileOwner* owner) {
  auto temporary = path;
  temporary += fmt::format(".{}.tmp", getpid());
  unlink(temporary.c_str());
  {
    const Fd fd(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return system_error(errno, "cannot write", temporary);
    if (!write_all(fd.get(), text) ||
        (owner != nullptr && fchown(fd.get(), owner->user, owner->group) != 0) ||
        fchmod(fd.get(), mode) != 0 || (durable && fsync(fd.get()) != 0)) {
      const int error = errno;
      unlink(temporary.c_str());
      return system_error(error, "cannot write", temporary);
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return system_error(error, "cannot write", path);
  }
  if (durable) {
    const Fd folder(open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder || fsync(folder.get()) != 0) return system_error(errno, "cannot sync", path);
  }
  return {};
}

}  // namespace

Result<void> write_whole(const std::filesystem::path& path, std::string_view text, mode_t mode,
                         bool durable) {
  return write_new(path, text, mode, durable, nullptr);
}

Result<void> write_owned(const std::filesystem::path& path, std::string_view text, mode_t mode,
                         const FileOwner& owner) {
  return write_new(path, text, mode, true, &owner);
}

bool is_owned(const std::filesystem::path& path, std::string_view text, mode_t mode,
              const FileOwner& owner) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if ((status.st_mode & 07777U) != mode || FileOwner{status.st_uid, status.st_gid} != owner) {
    return false;
  }
  const auto there = read_all(fd.get(), text.size() + 1);
  return there && *there == text;
}

Result<void> let_run(const std::filesystem::path& path, Uid user) {
  struct List {
    posix_acl_xattr_header head;
    std::array<posix_acl_xattr_entry, 5> entries;
  };
  constexpr auto kRun = static_cast<std::uint16_t>(ACL_READ | ACL_EXECUTE);
  const auto id = static_cast<std::uint32_t>(ACL_UNDEFINED_ID);
  // In the kernel's order. It wants little endian, as all machines with these GPUs are.
  const List list{{POSIX_ACL_XATTR_VERSION},
                  {{{ACL_USER_OBJ, kRun, id},
                    {ACL_USER, kRun, user.value()},
                    {ACL_GROUP_OBJ, 0, id},
                    {ACL_MASK, kRun, id},
                    {ACL_OTHER, 0, id}}}};
  if (setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0) return {};
  if (errno == ENOTSUP) {
    return fail(Error::Code::unsupported, "{} has no access control lists", path.string());
  }
  return system_error(errno, "cannot give the right to run", path);
}

Result<std::string> read_whole(const std::filesystem::path& path, std::size_t limit) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return system_error(errno, "cannot read", path);
  auto text = read_all(fd.get(), limit);
  if (text) return std::move(*text);
  if (errno != EFBIG) return system_error(errno, "cannot read", path);
  return fail(Error::Code::out_of_range, "{} is larger than {} bytes", path.string(), limit);
}

}  // namespace aliquot::sys
