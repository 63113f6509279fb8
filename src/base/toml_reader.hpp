// Settings files: TOML read by a table of readers, one for each key there is. Whatever is unknown,
// of the wrong type or out of range is refused with its file and line. What the keys are and mean
// is the caller's; this only knows how to read values and how to complain.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/slurm_time.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace aliquot {

// Where something stands in the file, its value, and how to complain about it.
class TomlPlace {
 public:
  TomlPlace(const toml::node& node, std::string_view file, std::string key)
      : node_(node), file_(file), key_(std::move(key)) {}

  [[nodiscard]] tl::unexpected<Error> complain(std::string_view what) const;

  [[nodiscard]] Result<std::string> text() const;
  [[nodiscard]] Result<std::vector<std::string>> texts() const;
  [[nodiscard]] Result<bool> truth() const;
  [[nodiscard]] Result<std::int64_t> number(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] Result<std::vector<std::int64_t>> numbers(std::int64_t least,
                                                          std::int64_t most) const;
  // `1`, `1.5`: a factor from 1 to `most`, in 1/10,000.
  [[nodiscard]] Result<Compute> factor(std::int64_t most) const;
  [[nodiscard]] Result<TimeLimit> time() const;  // seconds as a number, or as Slurm writes times
  [[nodiscard]] Result<Millis> span() const;
  [[nodiscard]] Result<Bytes> size() const;

  // The place as a table, for readers of nested ones.
  [[nodiscard]] const toml::node& node() const { return node_; }
  [[nodiscard]] std::string_view file() const { return file_; }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  const toml::node& node_;
  std::string_view file_;
  std::string key_;
};

using TomlReader = std::function<Result<void>(const TomlPlace&)>;
using TomlReaders = std::map<std::string, TomlReader, std::less<>>;

// `prefix` stands before the keys in messages: "jobs.".
Result<void> read_toml_table(const toml::table& table, const TomlReaders& readers,
                             std::string_view file, const std::string& prefix);

// A whole file's text; `name` stands in messages: "/etc/aliquot/aliquot.toml:7: …".
Result<void> read_toml(std::string_view text, std::string_view name, const TomlReaders& readers);
// The text of a settings file. One that is not there is an error.
Result<std::string> read_settings_file(const std::string& path);

// Readers that put what they read into a variable, or into an optional; it must outlive them.
template <class To, class T>
TomlReader read_into(To& to, Result<T> (TomlPlace::*read)() const) {
  return [&to, read](const TomlPlace& place) -> Result<void> {
    to = TRY((place.*read)());
    return {};
  };
}
template <class To>
TomlReader number_into(To& to, std::int64_t most, std::int64_t least = 1) {
  return [&to, most, least](const TomlPlace& place) -> Result<void> {
    to = TRY(place.number(least, most));
    return {};
  };
}
inline TomlReader text_into(std::string& to) { return read_into(to, &TomlPlace::text); }
inline TomlReader truth_into(bool& to) { return read_into(to, &TomlPlace::truth); }
inline TomlReader span_into(Millis& to) { return read_into(to, &TomlPlace::span); }
TomlReader toml_table(TomlReaders readers);
TomlReader one_of(std::string& to, std::vector<std::string> allowed);

}  // namespace aliquot
