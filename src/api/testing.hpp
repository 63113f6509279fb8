// For tests: gives every field of a value of the API a value of its own that is not the default.
#pragma once

#include <boost/pfr/core.hpp>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aliquot::api {

template <class T>
void fill(T& value, std::int64_t& next);

template <class T>
void fill_one(std::optional<T>& value, std::int64_t& next) {
  fill(value.emplace(), next);
}
template <class T>
void fill_one(std::vector<T>& value, std::int64_t& next) {
  fill(value.emplace_back(), next);
}
template <class T>
void fill_one(std::map<std::string, T>& value, std::int64_t& next) {
  fill(value["key"], next);
}
inline void fill_one(std::string& value, std::int64_t& next) {
  value = "text " + std::to_string(++next);
}
inline void fill_one(bool& value, std::int64_t&) { value = !value; }
template <std::integral T>
void fill_one(T& value, std::int64_t& next) {
  value = static_cast<T>(++next);
}
template <class T>
requires std::is_aggregate_v<T>
void fill_one(T& value, std::int64_t& next) {
  boost::pfr::for_each_field(value, [&](auto& field) { fill(field, next); });
}

template <class T>
void fill(T& value, std::int64_t& next) {
  fill_one(value, next);
}
template <class T>
T filled() {
  T value;
  std::int64_t next = 100;
  fill(value, next);
  return value;
}

}  // namespace aliquot::api
