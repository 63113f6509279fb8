// What we read ourselves of a request: the target, and of its header who is called and who asks.
// The input is the target and the header's lines.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "fuzz.hpp"
#include "net/encoding.hpp"
#include "net/headers.hpp"
#include "show/door.hpp"

using namespace aliquot;

namespace {

void try_target(std::string_view text) {
  const auto target = net::parse_target(text);
  if (!target) return;
  fuzz::require(target->path.starts_with('/') && target->path.find('\0') == std::string::npos);
  fuzz::require(net::percent_decode(net::percent_encode(target->path), false) == target->path);
  for (const auto& [name, value] : target->query) {
    fuzz::require(name.find('\0') == std::string::npos && value.find('\0') == std::string::npos);
  }
}

// A name of ours, an address, or nobody who is let in.
void try_door(const net::Request& request) {
  const show::Listen listen{.host = "gpu1", .port = 9834, .names = {"gpu1.example.org"}};
  const auto host = request.headers.find("host");
  if (show::calls_us(request, listen)) {
    fuzz::require(host != request.headers.end());
    const std::string& text = host->second;
    const bool address = text.find_first_not_of("0123456789abcdefABCDEF.:[]%") == std::string::npos;
    const auto is_named = [&](std::string_view name) {
      if (text.size() < name.size()) return false;
      if (!equals_ignoring_case(std::string_view(text).substr(0, name.size()), name)) return false;
      const auto rest = std::string_view(text).substr(name.size());
      return rest.empty() || (rest.front() == ':' && is_digits(rest.substr(1)));
    };
    fuzz::require(address || is_named("localhost") || is_named("gpu1") ||
                  is_named("gpu1.example.org") || text.starts_with('['));
  }
  const std::string_view token = show::token_of(request);
  if (token.empty()) return;
  const std::string& said = request.headers.at("authorization");
  fuzz::require(said.size() == token.size() + 7 && said.ends_with(token));
  fuzz::require(equals_ignoring_case(std::string_view(said).substr(0, 7), "bearer "));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<net::HeaderLine> lines;
  bool first = true;
  for (const std::string_view line : split(fuzz::as_text(data, size), '\n')) {
    if (std::exchange(first, false)) {
      try_target(line);
    } else if (const auto colon = line.find(':'); colon != line.npos) {
      const auto value = line.substr(colon + 1);
      lines.emplace_back(line.substr(0, colon),
                         value.substr(std::min(value.find_first_not_of(' '), value.size())));
    }
  }
  const auto count = [&](std::string_view name) {
    return std::ranges::count_if(
        lines, [&](const net::HeaderLine& line) { return equals_ignoring_case(line.first, name); });
  };
  auto kept = net::keep_headers(lines, true);
  fuzz::require_one_line(kept);
  fuzz::require(kept.has_value() == (count("host") == 1 && count("authorization") <= 1));
  if (kept) {
    net::Request request;
    request.headers = std::move(*kept);
    try_door(request);
  }
  return 0;
}
