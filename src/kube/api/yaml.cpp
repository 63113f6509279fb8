#include "kube/api/yaml.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"

namespace aliquot::kube {

namespace json = boost::json;

namespace {

constexpr std::size_t kDeepest = 64;

struct YamlLine {
  std::size_t number = 0;
  std::size_t indent = 0;
  std::string_view text;  // without indentation and the blanks at its end
  std::string_view raw;   // as it is, for blocks of text
};

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Where a quoted scalar at the beginning ends, behind its quote; npos: it does not.
std::size_t quoted_end(std::string_view text) {
  const char mark = text.front();
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (mark == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == mark) {
      if (mark == '\'' && i + 1 < text.size() && text[i + 1] == '\'') {
        ++i;
      } else {
        return i + 1;
      }
    }
  }
  return std::string_view::npos;
}

// Without a comment: a # at the beginning or behind a blank, outside of quotes.
std::string_view without_comment(std::string_view text) {
  char quote_mark = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote_mark != 0) {
      if (quote_mark == '"' && c == '\\') {
        ++i;
      } else if (c == quote_mark) {
        quote_mark = 0;
      }
    } else if ((c == '"' || c == '\'') && (i == 0 || is_blank(text[i - 1]) || text[i - 1] == '[' ||
                                           text[i - 1] == '{' || text[i - 1] == ',')) {
      quote_mark = c;
    } else if (c == '#' && (i == 0 || is_blank(text[i - 1]))) {
      return trim_blanks(text.substr(0, i));
    }
  }
  return trim_blanks(text);
}

class YamlReader {
 public:
  explicit YamlReader(std::string_view text) {
    std::size_t number = 0;
    for (std::string_view raw : split(text, '\n')) {
      ++number;
      if (!raw.empty() && raw.back() == '\r') raw.remove_suffix(1);
      const std::size_t indent = std::min(raw.find_first_not_of(' '), raw.size());
      lines_.push_back({number, indent, trim_blanks(raw), raw});
    }
  }

  Result<json::value> read() {
    skip_empty();
    while (!at_end() && line().indent == 0 && line().text.starts_with('%')) {
      advance();
      skip_empty();
    }
    if (!at_end() && line().text == "---") advance();
    skip_empty();
    if (at_end() || ends_document()) return json::value(nullptr);
    auto value = TRY(block(line().indent, 0));
    skip_empty();
    if (!at_end() && !ends_document()) return refuse("this belongs to nothing above it");
    return value;
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ >= lines_.size(); }
  [[nodiscard]] const YamlLine& line() const { return lines_[at_]; }
  [[nodiscard]] bool ends_document() const {
    return line().indent == 0 && (line().text == "---" || line().text == "...");
  }
  void advance() { ++at_; }
  void skip_empty() {
    while (!at_end() && without_comment(line().text).empty()) advance();
  }
  [[nodiscard]] tl::unexpected<Error> refuse(std::string_view why) const {
    const std::size_t number = lines_.empty() ? 0 : lines_[std::min(at_, lines_.size() - 1)].number;
    return fail(Error::Code::invalid_argument, "line {}: {}", number, why);
  }

  static bool is_entry(std::string_view text) { return text == "-" || text.starts_with("- "); }

  // Where the colon behind a key is; npos: there is no key.
  static std::size_t key_end(std::string_view text) {
    std::size_t from = 0;
    if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
      from = quoted_end(text);
      if (from == std::string_view::npos) return from;
      while (from < text.size() && is_blank(text[from])) ++from;
      return from < text.size() && text[from] == ':' ? from : std::string_view::npos;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '#' && i > 0 && is_blank(text[i - 1])) break;
      if (text[i] == ':' && (i + 1 == text.size() || is_blank(text[i + 1]))) return i;
    }
    return std::string_view::npos;
  }

  // Of the lines from here on that have this indentation.
  Result<json::value> block(std::size_t indent, std::size_t depth) {
    if (depth > kDeepest) return refuse("this is too deep");
    if (line().indent < line().raw.size() && line().raw[line().indent] == '\t') {
      return refuse("a line must not begin with a tab");
    }
    if (is_entry(line().text)) return list(indent, depth);
    if (line().text.front() != '{' && line().text.front() != '[' &&
        key_end(line().text) != std::string_view::npos) {
      return mapping(indent, depth);
    }
    const std::string_view text = line().text;
    return inline_value(text, indent, depth, false);
  }

  Result<json::value> list(std::size_t indent, std::size_t depth) {
    json::array entries;
    for (skip_empty(); !at_end() && !ends_document(); skip_empty()) {
      if (line().indent != indent || !is_entry(line().text)) {
        if (line().indent > indent) return refuse("this is indented too far");
        break;
      }
      const std::string_view rest = trim_blanks(line().text.substr(1));
      if (without_comment(rest).empty()) {
        advance();
        entries.push_back(TRY(nested(indent, depth, false)));
        continue;
      }
      // The entry goes on in the same line: as if its text began a line of its own.
      const std::size_t inner = indent + static_cast<std::size_t>(rest.data() - line().text.data());
      if (is_entry(rest) ||
          (rest.front() != '{' && rest.front() != '[' && key_end(rest) != std::string_view::npos)) {
        lines_[at_].indent = inner;
        lines_[at_].text = rest;
        entries.push_back(TRY(block(inner, depth + 1)));
      } else {
        entries.push_back(TRY(inline_value(rest, indent, depth, false)));
      }
    }
    return entries;
  }

  Result<json::value> mapping(std::size_t indent, std::size_t depth) {
    json::object object;
    for (skip_empty(); !at_end() && !ends_document(); skip_empty()) {
      if (line().indent != indent || is_entry(line().text)) {
        if (line().indent > indent) return refuse("this is indented too far");
        break;
      }
      const std::string_view text = line().text;
      const std::size_t colon = key_end(text);
      if (colon == std::string_view::npos) return refuse("this is no `key: value`");
      const std::string_view written = trim_blanks(text.substr(0, colon));
      if (written.empty() || written.front() == '?' || written == "<<" || written.front() == '&' ||
          written.front() == '*' || written.front() == '!') {
        return refuse("keys of this kind are not understood");
      }
      const json::value key = TRY(scalar(written));
      const std::string name =
          key.is_string() ? std::string(key.get_string()) : std::string(written);
      if (object.contains(name)) return refuse("this key is there already");
      const std::string_view rest = trim_blanks(text.substr(colon + 1));
      if (without_comment(rest).empty()) {
        advance();
        object[name] = TRY(nested(indent, depth, true));
      } else {
        object[name] = TRY(inline_value(rest, indent, depth, true));
      }
    }
    return object;
  }

  // What stands below a key or a dash; nothing: null. A list may stand as far left as its key.
  Result<json::value> nested(std::size_t indent, std::size_t depth, bool below_key) {
    skip_empty();
    if (at_end() || ends_document()) return json::value(nullptr);
    const bool inside =
        line().indent > indent || (below_key && line().indent == indent && is_entry(line().text));
    if (!inside) return json::value(nullptr);
    return block(line().indent, depth + 1);
  }

  // A value in the line of its key, dash, or alone; it may go on below.
  Result<json::value> inline_value(std::string_view text, std::size_t indent, std::size_t depth,
                                   bool below_key) {
    const char first = text.front();
    if (first == '|' || first == '>') return text_block(text, indent);
    if (first == '{' || first == '[') return flow(text, depth);
    if (first == '&' || first == '*' || first == '!' || first == '@' || first == '`') {
      return refuse("anchors, aliases and tags are not understood");
    }
    if (text == "?" || text.starts_with("? "))
      return refuse("keys of this kind are not understood");
    std::string whole(without_comment(text));
    const bool in_quotes = first == '"' || first == '\'';
    advance();
    // Further lines that are indented more go on with it, joined by blanks.
    const std::size_t start = at_ - 1;
    while (!at_end() && !ends_document()) {
      const bool open = in_quotes && quoted_end(whole) == std::string_view::npos;
      if (!open && in_quotes) break;
      if (line().text.empty()) {
        if (!open) break;
        advance();
        continue;
      }
      if (line().indent <= indent && (below_key || !open)) break;
      if (!open && (key_end(line().text) != std::string_view::npos || is_entry(line().text))) break;
      if (!open && line().text.front() == '#') break;
      whole += ' ';
      whole += open ? line().text : without_comment(line().text);
      if (whole.size() > (4UL << 20U)) return refuse("this value is too long");
      advance();
    }
    if (in_quotes) {
      const std::size_t end = quoted_end(whole);
      if (end == std::string_view::npos) {
        at_ = start;
        return refuse("a quote is not closed");
      }
      if (!without_comment(std::string_view(whole).substr(end)).empty()) {
        at_ = start;
        return refuse("something stands behind the quoted text");
      }
      whole.resize(end);
    }
    return scalar(whole);
  }

  Result<json::value> text_block(std::string_view mark, std::size_t indent) {
    const bool folded = mark.front() == '>';
    char chomp = 0;
    std::size_t wanted = 0;
    for (const char c : without_comment(mark.substr(1))) {
      if ((c == '-' || c == '+') && chomp == 0) {
        chomp = c;
      } else if (c >= '1' && c <= '9' && wanted == 0) {
        wanted = indent + static_cast<std::size_t>(c - '0');
      } else {
        return refuse("this mark of a block of text is not understood");
      }
    }
    advance();
    std::string text;
    for (; !at_end(); advance()) {
      const std::string_view raw = line().raw;
      if (line().text.empty() && (wanted == 0 || raw.size() <= wanted)) {
        text += '\n';
        continue;
      }
      if (wanted == 0) wanted = std::max(line().indent, indent + 1);
      if (line().indent < wanted) break;
      text += raw.substr(wanted);
      text += '\n';
    }
    const std::size_t end = text.find_last_not_of('\n');
    if (chomp != '+') text.resize(end == std::string::npos ? 0 : end + (chomp == '-' ? 1 : 2));
    if (folded) fold(text);
    return json::value(text);
  }

  static void fold(std::string& text) {
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      if (text[i] != '\n' || text[i + 1] == '\n') continue;
      if (i > 0 && text[i - 1] == '\n') continue;
      text[i] = ' ';
    }
  }

  // JSON's brackets, over several lines where they are not closed; words in them need no quotes.
  Result<json::value> flow(std::string_view text, std::size_t depth) {
    std::string whole(without_comment(text));
    const std::size_t start = at_;
    advance();
    while (!is_closed(whole)) {
      if (at_end() || whole.size() > (4UL << 20U)) {
        at_ = start;
        return refuse("a bracket is not closed");
      }
      whole += ' ';
      whole += without_comment(line().text);
      advance();
    }
    std::string_view rest = whole;
    auto value = flow_value(rest, depth);
    if (!value || !trim_blanks(rest).empty()) {
      at_ = start;
      return value ? refuse("something stands behind the bracket") : refuse(value.error().message);
    }
    return value;
  }

  static bool is_closed(std::string_view text) {
    std::size_t open = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '"' || (c == '\'' && (i == 0 || !is_word(text[i - 1])))) {
        const std::size_t end = quoted_end(text.substr(i));
        if (end == std::string_view::npos) return false;
        i += end - 1;
      } else if (c == '{' || c == '[') {
        ++open;
      } else if ((c == '}' || c == ']') && (open == 0 || --open == 0)) {
        return true;
      }
    }
    return false;
  }
  static bool is_word(char c) {
    return !is_blank(c) && c != ',' && c != '[' && c != '{' && c != ':';
  }

  // Messages without a line: flow() adds it.
  Result<json::value> flow_value(std::string_view& text, std::size_t depth) {
    const auto wrong = [](std::string_view why) {
      return fail(Error::Code::invalid_argument, "{}", why);
    };
    if (depth > kDeepest) return wrong("this is too deep");
    text = trim_blanks(text);
    if (text.empty()) return wrong("a value is missing");
    if (text.front() != '{' && text.front() != '[') return flow_scalar(text, ",]}");
    const bool is_object = text.front() == '{';
    const char close = is_object ? '}' : ']';
    text = trim_blanks(text.substr(1));
    json::object object;
    json::array entries;
    while (true) {
      if (text.empty()) return wrong("a bracket is not closed");
      if (text.front() == close) break;
      if (is_object) {
        const json::value key = TRY(flow_scalar(text, ":,}"));
        text = trim_blanks(text);
        json::value value = nullptr;
        if (!text.empty() && text.front() == ':') {
          text = trim_blanks(text.substr(1));
          if (text.empty()) return wrong("a value is missing");
          if (text.front() != ',' && text.front() != close)
            value = TRY(flow_value(text, depth + 1));
        }
        if (!key.is_string()) return wrong("a key is no text");
        object[key.get_string()] = std::move(value);
      } else {
        entries.push_back(TRY(flow_value(text, depth + 1)));
      }
      text = trim_blanks(text);
      if (text.empty()) return wrong("a bracket is not closed");
      if (text.front() == ',') {
        text = trim_blanks(text.substr(1));
      } else if (text.front() != close) {
        return wrong("a comma is missing");
      }
    }
    text.remove_prefix(1);
    if (is_object) return object;
    return entries;
  }

  Result<json::value> flow_scalar(std::string_view& text, std::string_view ends) {
    std::size_t end = 0;
    if (text.front() == '"' || text.front() == '\'') {
      end = quoted_end(text);
      if (end == std::string_view::npos) {
        return fail(Error::Code::invalid_argument, "a quote is not closed");
      }
    } else {
      while (end < text.size() && ends.find(text[end]) == std::string_view::npos) ++end;
    }
    const std::string_view word = trim_blanks(text.substr(0, end));
    text.remove_prefix(end);
    if (word.empty()) return fail(Error::Code::invalid_argument, "a value is missing");
    return scalar(word);
  }

  [[nodiscard]] Result<json::value> scalar(std::string_view text) const {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
      return json::value(nullptr);
    }
    if (text == "true" || text == "True" || text == "TRUE") return json::value(true);
    if (text == "false" || text == "False" || text == "FALSE") return json::value(false);
    if (text.front() == '\'' || text.front() == '"') return unquote(text);
    const bool negative = text.front() == '-';
    const std::string_view digits = text.substr(negative ? 1 : 0);
    if (digits == "0" || (is_digits(digits) && digits.front() != '0')) {
      if (const auto number = parse_digits(digits)) {
        return json::value(negative ? -*number : *number);
      }
    }
    return json::value(text);
  }

  [[nodiscard]] Result<json::value> unquote(std::string_view text) const {
    const char mark = text.front();
    if (quoted_end(text) != text.size()) return refuse("something stands behind the quoted text");
    const std::string_view inner = text.substr(1, text.size() - 2);
    std::string out;
    for (std::size_t i = 0; i < inner.size(); ++i) {
      if (mark == '\'') {
        out += inner[i];
        if (inner[i] == '\'') ++i;
      } else if (inner[i] != '\\') {
        out += inner[i];
      } else if (!unescape(inner, ++i, out)) {
        return refuse("an escape in the quoted text is not understood");
      }
    }
    return json::value(out);
  }

  // The escape at `at`, behind its backslash; `at` is its last byte then.
  static bool unescape(std::string_view text, std::size_t& at, std::string& out) {
    constexpr std::string_view kNames = "nrt\"\\/ 0abefv";
    constexpr std::string_view kBytes("\n\r\t\"\\/ \0\a\b\x1b\f\v", 13);
    if (at >= text.size()) return false;
    if (const auto known = kNames.find(text[at]); known != std::string_view::npos) {
      out += kBytes[known];
      return true;
    }
    const std::size_t digits = text[at] == 'x' ? 2 : text[at] == 'u' ? 4 : 0;
    if (digits == 0 || at + digits >= text.size()) return false;
    unsigned code = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      const int value = hex_value(text[at + i]);
      if (value < 0) return false;
      code = code * 16 + static_cast<unsigned>(value);
    }
    at += digits;
    if (code >= 0xD800 && code <= 0xDFFF) return false;
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0U | (code >> 6U));
      out += static_cast<char>(0x80U | (code & 0x3FU));
    } else {
      out += static_cast<char>(0xE0U | (code >> 12U));
      out += static_cast<char>(0x80U | ((code >> 6U) & 0x3FU));
      out += static_cast<char>(0x80U | (code & 0x3FU));
    }
    return true;
  }

  std::vector<YamlLine> lines_;
  std::size_t at_ = 0;
};

}  // namespace

Result<json::value> parse_yaml(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    // JSON itself, as some write their configuration.
    json::parse_options options;
    options.max_depth = kDeepest;
    boost::system::error_code error;
    try {
      json::value value = json::parse({text.data(), text.size()}, error, {}, options);
      if (!error) return value;
    } catch (const std::exception&) {
      // Read as YAML: it says in which line what is wrong.
    }
  }
  return YamlReader(text).read();
}

}  // namespace aliquot::kube
