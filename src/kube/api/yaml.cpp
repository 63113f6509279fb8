#include "kube/api/yaml.hpp"

#include <yaml.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

namespace aliquot::kube {

namespace json = boost::json;

namespace {

constexpr int kDeepest = 64;

json::value scalar_of(std::string_view text, bool is_plain) {
  if (is_plain) {
    if (text.empty() || text == "~" || text == "null") return nullptr;
    if (text == "true") return true;
    if (text == "false") return false;
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
    const auto read = std::from_chars(text.data(), end, number);
    // 007 is a name, not a number.
    if (read.ec == std::errc() && read.ptr == end && (digits == "0" || !digits.starts_with('0'))) {
      return number;
    }
  }
  return json::string(text);
}

// libyaml's events, one at a time: what of the text was not asked for is not read.
class YamlReader {
 public:
  explicit YamlReader(std::string_view text) {
    // It fails only where there is no memory, as `new` does.
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;
  ~YamlReader() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }

  Result<json::value> document() {
    TRY(next());  // the beginning of the stream
    TRY(next());
    if (event_.type == YAML_STREAM_END_EVENT) return json::value();
    TRY(next());  // behind the beginning of the document
    json::value root = TRY(value(0));
    TRY(next());  // the end of the document, or what should not stand behind the value
    return root;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong(std::size_t line, std::string_view what) const {
    return fail(Error::Code::invalid_argument, "line {}: {}", line + 1, what);
  }

  Result<void> next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (yaml_parser_parse(&parser_, &event_) != 0) return {};
    // What is no UTF-8 has no line of its own: it is behind what was read.
    const bool bad_text = parser_.error == YAML_READER_ERROR;
    return wrong(bad_text ? parser_.mark.line : parser_.problem_mark.line,
                 parser_.problem == nullptr ? "this cannot be read" : parser_.problem);
  }

  Result<void> refuse(const void* anchor, const void* tag) const {
    if (anchor == nullptr && tag == nullptr) return {};
    return wrong(event_.start_mark.line, "anchors, aliases and tags are not understood");
  }

  // The value whose first event was read; its last event stands when it returns.
  Result<json::value> value(int depth) {
    if (depth > kDeepest) return wrong(event_.start_mark.line, "this is nested too deep");
    if (event_.type == YAML_SEQUENCE_START_EVENT) {
      TRY(refuse(event_.data.sequence_start.anchor, event_.data.sequence_start.tag));
      return list(depth);
    }
    if (event_.type == YAML_MAPPING_START_EVENT) {
      TRY(refuse(event_.data.mapping_start.anchor, event_.data.mapping_start.tag));
      return mapping(depth);
    }
    const auto& scalar = event_.data.scalar;
    const bool is_alias = event_.type == YAML_ALIAS_EVENT;
    TRY(refuse(is_alias ? event_.data.alias.anchor : scalar.anchor,
               is_alias ? nullptr : scalar.tag));
    return scalar_of({reinterpret_cast<const char*>(scalar.value), scalar.length},
                     scalar.style == YAML_PLAIN_SCALAR_STYLE);
  }

  Result<json::value> list(int depth) {
    json::array items;
    for (TRY(next()); event_.type != YAML_SEQUENCE_END_EVENT; TRY(next())) {
      items.push_back(TRY(value(depth + 1)));
    }
    return items;
  }

  Result<json::value> mapping(int depth) {
    json::object fields;
    for (TRY(next()); event_.type != YAML_MAPPING_END_EVENT; TRY(next())) {
      const std::size_t line = event_.start_mark.line;
      if (event_.type == YAML_ALIAS_EVENT) TRY(value(depth));  // says so
      if (event_.type != YAML_SCALAR_EVENT) {
        return wrong(line, "keys of this kind are not understood");
      }
      const auto& scalar = event_.data.scalar;
      TRY(refuse(scalar.anchor, scalar.tag));
      const std::string key(reinterpret_cast<const char*>(scalar.value), scalar.length);
      if (key == "<<") return wrong(line, "keys of this kind are not understood");
      TRY(next());
      if (!fields.emplace(key, TRY(value(depth + 1))).second) {
        return wrong(line, "this key is there already");
      }
    }
    return fields;
  }

  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

}  // namespace

Result<json::value> parse_yaml(std::string_view text) { return YamlReader(text).document(); }

}  // namespace aliquot::kube
