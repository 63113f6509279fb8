// What sshare prints: the tree of accounts and users with their shares and usage, in the columns of
// --format. Text only. So far every user is an account of their own below the root.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"

namespace aliquot::cli {

inline constexpr std::string_view kSshareFormat =
    "account,user,rawshares,normshares,rawusage,effectvusage,fairshare";
inline constexpr std::string_view kSshareLong =
    "account,user,rawshares,normshares,rawusage,normusage,effectvusage,fairshare,levelfs,"
    "grptresmins,tresrunmins";
// --helpformat
std::string list_sshare_fields();

struct SshareView {
  std::string format = std::string(kSshareFormat);
  bool header = true;
  bool users_only = false;                    // -U
  std::optional<std::string> delimiter = {};  // -p, -P
  bool trailing = false;                      // -p
};
// `all` are those who share the machine, `shown` those of them that were asked for.
Result<std::string> format_sshare(const api::ShareList& all,
                                  const std::vector<const api::ShareInfo*>& shown,
                                  const SshareView& view);

}  // namespace aliquot::cli
