// Base64 as Secrets and *-data fields are written in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aliquot::kube {

// Blanks and ends of lines do not count, the padding may be missing. Nothing: it is none.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace aliquot::kube
