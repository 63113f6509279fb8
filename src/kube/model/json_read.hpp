// Looking into foreign JSON without trusting its shape, beside what api/api.hpp has for objects.
// For the sources of kube alone.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "kube/api/api.hpp"

namespace aliquot::kube {

// Whatever the library throws becomes an error: of foreign text there may be any.
inline Result<boost::json::value> parse_json(std::string_view text) {
  try {
    boost::system::error_code error;
    auto parsed = boost::json::parse({text.data(), text.size()}, error);
    if (error) return fail(Error::Code::invalid_argument, "it is no JSON: {}", error.message());
    return parsed;
  } catch (const std::exception& error) {  // out of memory
    return fail(Error::Code::internal, "{}", error.what());
  }
}

inline const boost::json::value* find_value(const boost::json::object& in, std::string_view key) {
  return in.if_contains({key.data(), key.size()});
}

inline bool find_flag(const boost::json::object& in, std::string_view key) {
  const auto* found = find_value(in, key);
  const bool* flag = found == nullptr ? nullptr : found->if_bool();
  return flag != nullptr && *flag;
}

inline boost::json::string_view as_json(std::string_view text) {
  return {text.data(), text.size()};
}
inline std::string as_text(boost::json::string_view text) { return {text.data(), text.size()}; }

}  // namespace aliquot::kube
