// Apart from spawn.cpp because aliquot-stepd must not ask the user database.
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "node/spawn.hpp"

namespace aliquot::node {

Result<Identity> find_identity(Uid uid) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  int error = 0;
  while ((error = getpwuid_r(uid.value(), &entry, buffer.data(), buffer.size(), &found)) ==
         ERANGE) {
    buffer.resize(buffer.size() * 2);
  }
  if (error != 0) {
    return fail(Error::Code::unavailable, "cannot look up user {}: {}", uid, std::strerror(error));
  }
  if (found == nullptr) return fail(Error::Code::not_found, "there is no user {}", uid);

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

}  // namespace aliquot::node
