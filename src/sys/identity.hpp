// Who a user is, by the user database. That may ask the network (LDAP): not where others
// wait, and never in aliquot-stepd, which is handed an Identity instead.
#pragma once

#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace aliquot::sys {

struct Identity {
  Uid uid;
  Gid gid;
  std::vector<Gid> groups = {};  // supplementary, with gid
  std::string user = {};
  std::string home = {};
  std::string shell = {};
};

Result<Identity> find_identity(Uid uid);

// By name, or by number where there is none.
std::string user_name(Uid uid);
std::string group_name(Gid gid);
// Of a process; empty: it has gone.
std::string user_of(Pid pid);

}  // namespace aliquot::sys
