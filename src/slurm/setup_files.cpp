#include "slurm/setup_files.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "base/text.hpp"
#include "sys/file.hpp"
#include "sys/owned_file.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestConf = 16UL << 20U;

bool trusted(uid_t owner, const std::string& slurm_user) {
  if (owner == 0 || owner == ::geteuid()) return true;
  const passwd* entry = slurm_user.empty() ? nullptr : ::getpwnam(slurm_user.c_str());
  return entry != nullptr && entry->pw_uid == owner;
}

// Where the file is, with no links left on the way. Its folder must be there.
Result<fs::path> real_path(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  if (error) return sys::system_error(error.value(), "cannot find", path);
  return real;
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  const auto length = std::strftime(static_cast<char*>(text), sizeof text, "%Y%m%dT%H%M%S", &parts);
  return {static_cast<char*>(text), length};
}

// A new file in place of the old one, with its owner and mode.
Result<void> put(const fs::path& path, const std::string& text) {
  struct stat old {};
  const bool there = ::lstat(path.c_str(), &old) == 0;
  if (there && !S_ISREG(old.st_mode)) {
    return fail(Error::Code::failed_state, "{} is not a plain file", quote(path.string()));
  }
  const mode_t mode = there ? old.st_mode & 07777U : 0644U;
  if (!there) return sys::write_whole(path, text, mode, true);
  return sys::write_owned(path, text, mode, {old.st_uid, old.st_gid});
}

}  // namespace

Result<std::string> read_conf_file(const std::string& path) {
  const fs::path real = TRY(real_path(path));
  return sys::read_whole(real, kLargestConf);
}

Result<void> check_path(const std::string& path, const std::string& slurm_user) {
  const fs::path real = TRY(real_path(path));
  fs::path at;
  for (const fs::path& part : real) {
    at /= part;
    struct stat status {};
    if (::lstat(at.c_str(), &status) != 0) {
      if (errno == ENOENT && at == real) return {};  // a file that is yet to be made
      return sys::system_error(errno, "cannot look at", at);
    }
    const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
    if (!trusted(status.st_uid, slurm_user)) {
      return fail(Error::Code::permission_denied,
                  "{} belongs to an ordinary user, who could put another file there: chown root it",
                  quote(at.string()));
    }
    const bool group_writes = (status.st_mode & S_IWGRP) != 0 && status.st_gid != 0;
    if (((status.st_mode & S_IWOTH) != 0 || group_writes) && !sticky) {
      return fail(Error::Code::permission_denied,
                  "{} can be written by others than its owner: chmod go-w it", quote(at.string()));
    }
  }
  return {};
}

Result<std::string> apply_plan(const SetupPlan& plan, const std::string& backups,
                               const std::string& slurm_user) {
  for (const FileChange& change : plan.changes) {
    if (::geteuid() == 0) TRY(check_path(change.path, slurm_user));
    // Somebody may have edited it while the plan was looked at.
    const auto now = read_conf_file(change.path);
    const bool same =
        now ? change.before == *now : !change.before && now.error().code == Error::Code::not_found;
    if (!same) {
      return fail(Error::Code::failed_state, "{} has changed meanwhile: run it again", change.path);
    }
  }
  if (::mkdir(backups.c_str(), 0700) != 0 && errno != EEXIST) {
    return sys::system_error(errno, "cannot make", backups);
  }
  if (::geteuid() == 0) TRY(check_path(backups, slurm_user));
  fs::path kept = fs::path(backups) / now_text();
  for (int i = 2; ::mkdir(kept.c_str(), 0700) != 0; ++i) {
    if (errno != EEXIST || i > 100) return sys::system_error(errno, "cannot make", kept);
    kept = fs::path(backups) / fmt::format("{}.{}", now_text(), i);
  }
  for (const FileChange& change : plan.changes) {
    if (!change.before) continue;
    const auto name = fs::path(change.path).relative_path().string();
    std::string flat = name;
    for (char& c : flat) c = c == '/' ? '%' : c;
    TRY(sys::write_whole(kept / flat, *change.before, 0600, true));
  }
  for (const FileChange& change : plan.changes) {
    const fs::path real = TRY(real_path(change.path));
    if (change.after) {
      TRY(put(real, *change.after));
    } else if (::unlink(real.c_str()) != 0 && errno != ENOENT) {
      return sys::system_error(errno, "cannot remove", real);
    }
    // slurmctld looks at the time of this file alone.
    if (real.filename() == "aliquot_submit.lua") {
      ::utimensat(AT_FDCWD, (real.parent_path() / "job_submit.lua").c_str(), nullptr,
                  AT_SYMLINK_NOFOLLOW);
    }
  }
  return kept.string();
}

}  // namespace aliquot::slurm
