// The user database: names to numbers, and back (sys/identity.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "base/ids.hpp"
#include "sys/identity.hpp"

namespace aliquot::cli {

std::optional<Uid> find_user(std::string_view name_or_number);
using sys::user_name;

// Uids for `ann,1001`. The error is the first name that nobody has.
tl::expected<std::vector<std::uint32_t>, std::string> resolve_users(std::string_view list);

}  // namespace aliquot::cli
