#include "cli/users.hpp"

#include <pwd.h>

#include "base/text.hpp"

namespace aliquot::cli {

std::optional<Uid> find_user(std::string_view name_or_number) {
  const std::string name(name_or_number);
  if (const auto* entry = ::getpwnam(name.c_str())) return Uid(entry->pw_uid);
  const auto number = parse_digits(name);
  if (number && *number < UINT32_MAX) return Uid(static_cast<std::uint32_t>(*number));
  return std::nullopt;
}

tl::expected<std::vector<std::uint32_t>, std::string> resolve_users(std::string_view list) {
  std::vector<std::uint32_t> uids;
  for (const auto name : split(list, ',')) {
    const auto uid = find_user(name);
    if (!uid) return tl::make_unexpected(std::string(name));
    uids.push_back(uid->value());
  }
  return uids;
}

}  // namespace aliquot::cli
