// Percent-encoding of paths and queries, for both ends of the wire.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.hpp"

namespace aliquot::net {

// Nothing for a broken escape or a NUL, escaped or not. In a query a plus is a blank.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_blank);

struct Target {
  std::string path;
  std::map<std::string, std::string> query;
};

// `/v1/jobs?user=a%20b`; nothing when it is no absolute path or badly encoded.
std::optional<Target> parse_target(std::string_view text);

}  // namespace aliquot::net
