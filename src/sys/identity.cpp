#include "sys/identity.hpp"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "sys/process.hpp"

namespace aliquot::sys {
namespace {

// A line of the database, passwd or group, with the texts that it points to.
template <class Line>
struct Entry {
  std::vector<char> texts = std::vector<char>(16384);
  Line line{};
  Line* found = nullptr;  // null: there is no such user or group
};

// errno, where the database does not answer.
template <class Line, class Read>
int look_up(Read read, std::uint32_t id, Entry<Line>& entry) {
  int error = 0;
  // A group's line has all its members.
  while ((error = read(id, &entry.line, entry.texts.data(), entry.texts.size(), &entry.found)) ==
         ERANGE) {
    entry.texts.resize(entry.texts.size() * 2);
  }
  return error;
}

}  // namespace

Result<Identity> find_identity(Uid uid) {
  Entry<passwd> read;
  if (const int error = look_up(getpwuid_r, uid.value(), read); error != 0) {
    return fail(Error::Code::unavailable, "cannot look up user {}: {}", uid, std::strerror(error));
  }
  if (read.found == nullptr) return fail(Error::Code::not_found, "there is no user {}", uid);

  const passwd& entry = read.line;
  Identity identity{.uid = uid,
                    .gid = Gid(entry.pw_gid),
                    .user = entry.pw_name,
                    .home = entry.pw_dir,
                    .shell = entry.pw_shell};
  if (identity.home.empty()) identity.home = "/";
  if (identity.shell.empty()) identity.shell = "/bin/sh";
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  while (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    // Some libraries do not say how many there are.
    count = std::max(count, static_cast<int>(groups.size()) * 2);
    groups.resize(static_cast<std::size_t>(count));
  }
  for (int i = 0; i < count; ++i) {
    identity.groups.emplace_back(groups[static_cast<std::size_t>(i)]);
  }
  return identity;
}

std::string user_name(Uid uid) {
  Entry<passwd> entry;
  look_up(getpwuid_r, uid.value(), entry);
  return entry.found == nullptr ? std::to_string(uid.value()) : entry.line.pw_name;
}

std::string group_name(Gid gid) {
  Entry<group> entry;
  look_up(getgrgid_r, gid.value(), entry);
  return entry.found == nullptr ? std::to_string(gid.value()) : entry.line.gr_name;
}

std::string user_of(Pid pid) {
  const auto owner = owner_of(pid);
  return owner ? user_name(*owner) : "";
}

}  // namespace aliquot::sys
