#include "net/headers.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "net/http.hpp"

namespace aliquot::net {

Result<Headers> keep_headers(const std::vector<HeaderLine>& lines, bool wants_host) {
  Headers kept;
  for (const auto& [name, value] : lines) {
    const auto found = std::ranges::find_if(kHeadersKept, [&name = name](std::string_view one) {
      return equals_ignoring_case(one, name);
    });
    if (found == kHeadersKept.end()) continue;
    const bool is_new = kept.emplace(*found, value).second;
    if (!is_new && (*found == "host" || *found == "authorization")) {
      return fail(Error::Code::invalid_argument, "the request has two headers {}", *found);
    }
  }
  if (wants_host && !kept.contains("host")) {
    return fail(Error::Code::invalid_argument, "the request has no header host");
  }
  return kept;
}

}  // namespace aliquot::net
