// JSON as Slurm's commands print it: indented by two, a key to a line. Only writing; what our own
// API says is api/json.hpp's.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace aliquot::cli {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth);
  JsonWriter& value(std::integral auto number) { return whole(static_cast<std::int64_t>(number)); }
  JsonWriter& null();

  template <class T>
  JsonWriter& field(std::string_view name, const T& what) {
    return key(name).value(what);
  }

  // With a newline at the end.
  [[nodiscard]] std::string text() const { return text_ + '\n'; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& whole(std::int64_t number);
  void separate();
  void indent();

  std::string text_;
  std::size_t depth_ = 0;
  bool first_ = true;  // in the innermost bracket
  bool after_key_ = false;
};

}  // namespace aliquot::cli
