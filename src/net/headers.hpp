// What a server keeps of a request's header, from the lines as they came. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace aliquot::net {

using HeaderLine = std::pair<std::string_view, std::string_view>;  // name, value
using Headers = std::map<std::string, std::string, std::less<>>;

// Those of kHeadersKept, by their names in lower case; of several the first. Refused: a request
// that says twice whom it calls or who asks, as somebody between may have gone by the other one, or
// that has to say whom it calls (`wants_host`: since HTTP/1.1) and does not.
Result<Headers> keep_headers(const std::vector<HeaderLine>& lines, bool wants_host);

}  // namespace aliquot::net
