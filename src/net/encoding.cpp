#include "net/encoding.hpp"

#include "base/text.hpp"

namespace aliquot::net {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

}  // namespace

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_blank) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') return std::nullopt;
    if (plus_is_blank && text[i] == '+') {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_value(text[i + 1]);
      const int low = hex_value(text[i + 2]);
      if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

std::optional<Target> parse_target(std::string_view text) {
  if (text.empty() || text[0] != '/') return std::nullopt;
  Target target;
  const std::size_t mark = text.find('?');
  auto path = percent_decode(text.substr(0, mark), false);
  if (!path) return std::nullopt;
  target.path = std::move(*path);
  if (mark == std::string_view::npos) return target;
  for (const std::string_view part : split(text.substr(mark + 1), '&')) {
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    const auto key = percent_decode(part.substr(0, equals), true);
    const auto value =
        equals == std::string_view::npos ? "" : percent_decode(part.substr(equals + 1), true);
    if (!key || !value) return std::nullopt;
    target.query[*key] = *value;
  }
  return target;
}

}  // namespace aliquot::net
