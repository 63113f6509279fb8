#include "base/resource_limits.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "base/text.hpp"

namespace aliquot {

const std::vector<LimitName>& limit_names() {
  static const std::vector<LimitName> names = {
      {"CPU", RLIMIT_CPU},     {"FSIZE", RLIMIT_FSIZE},   {"DATA", RLIMIT_DATA},
      {"STACK", RLIMIT_STACK}, {"CORE", RLIMIT_CORE},     {"RSS", RLIMIT_RSS},
      {"NPROC", RLIMIT_NPROC}, {"NOFILE", RLIMIT_NOFILE}, {"MEMLOCK", RLIMIT_MEMLOCK},
      {"AS", RLIMIT_AS}};
  return names;
}

Result<std::vector<std::string>> parse_propagate(std::string_view text) {
  std::vector<std::string> wanted;
  if (equals_ignoring_case(text, "NONE")) return wanted;
  if (text.empty() || equals_ignoring_case(text, "ALL")) {
    for (const LimitName& limit : limit_names()) wanted.emplace_back(limit.name);
    return wanted;
  }
  constexpr std::string_view kPrefix = "RLIMIT_";
  for (std::string_view word : split(text, ',')) {
    if (word.empty()) continue;
    if (word.starts_with(kPrefix)) word.remove_prefix(kPrefix.size());
    if (std::ranges::find(limit_names(), word, &LimitName::name) == limit_names().end()) {
      return fail(Error::Code::invalid_argument, "Bad rlimit name: {}", word);
    }
    wanted.emplace_back(word);
  }
  return wanted;
}

}  // namespace aliquot
