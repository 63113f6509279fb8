#include "cli/option_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"

namespace aliquot::cli {
namespace {

constexpr int kBadWord = 255;  // what exit(-1) becomes

bool one_of_words(std::string_view value, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return equals_ignoring_case(value, word); });
}

bool is_small_number(std::string_view text) {
  const auto number = parse_digits(text);
  return number && *number <= INT32_MAX;
}

// `30`, `task=30,energy=10`
bool is_frequency(std::string_view value) {
  return std::ranges::all_of(split(value, ','), [](std::string_view part) {
    const auto sign = part.find('=');
    if (sign == part.npos) return part.empty() || is_small_number(part);
    return one_of_words(part.substr(0, sign), {"energy", "network", "filesystem", "task"}) &&
           is_small_number(part.substr(sign + 1));
  });
}

// `block:cyclic,Pack`, `plane=4`
bool is_distribution(std::string_view value) {
  const auto comma = std::min(value.find(','), value.size());
  const auto rest = value.substr(std::min(comma + 1, value.size()));
  if (comma < value.size() && !one_of_words(rest, {"pack", "nopack"})) return false;
  const auto levels = split(value.substr(0, comma), ':');
  if (levels.size() > 3) return false;
  if (one_of_words(levels[0].substr(0, levels[0].find('=')), {"plane"})) {
    return levels.size() == 1 && levels[0].find('=') != std::string_view::npos &&
           is_small_number(levels[0].substr(levels[0].find('=') + 1));
  }
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool first = i == 0 && one_of_words(levels[i], {"arbitrary"});
    const bool inner = i > 0 && one_of_words(levels[i], {"fcyclic"});
    if (!first && !inner && !one_of_words(levels[i], {"*", "block", "cyclic"})) return false;
  }
  return true;
}

// `verbose,local`, `map_mem:0,1`
bool is_memory_binding(std::string_view value) {
  while (!value.empty()) {
    const auto comma = std::min(value.find(','), value.size());
    const auto word = value.substr(0, comma);
    if (one_of_words(word.substr(0, word.find(':')), {"map_mem", "mask_mem"})) {
      return word.find(':') != word.npos;
    }
    if (!one_of_words(word, {"q", "quiet", "v", "verbose", "none", "no", "rank", "local", "sort",
                             "nosort", "p", "prefer", "help", "nonstop"})) {
      return false;
    }
    if (comma == value.size()) return true;
    value.remove_prefix(comma + 1);
  }
  return false;
}

// `verbose,cores`, `map_cpu:0,1`
bool is_cpu_binding(std::string_view value) {
  while (!value.empty()) {
    const auto comma = std::min(value.find(','), value.size());
    const auto word = value.substr(0, comma);
    if (one_of_words(word.substr(0, word.find(':')),
                     {"map_cpu", "mapcpu", "mask_cpu", "maskcpu", "map_ldom", "mapldom",
                      "mask_ldom", "maskldom"})) {
      return true;
    }
    if (!one_of_words(word,
                      {"q",         "quiet",   "v",       "verbose", "none",       "no",   "rank",
                       "rank_ldom", "socket",  "sockets", "ldom",    "ldoms",      "core", "cores",
                       "thread",    "threads", "board",   "boards",  "one_thread", "help"})) {
      return false;
    }
    if (comma == value.size()) return true;
    value.remove_prefix(comma + 1);
  }
  return true;
}

// `none`, `energy,task`
bool is_profile(std::string_view value) {
  return std::ranges::all_of(split(value, ','), [](std::string_view word) {
    return one_of_words(word, {"none", "all", "energy", "task", "lustre", "network"});
  });
}

// `10`, `10S`, `L`
bool is_login_time(std::string_view value) {
  if (!value.empty() && std::string_view("sSlL").find(value.back()) != std::string_view::npos) {
    value.remove_suffix(1);
  }
  return value.empty() || parse_digits(value).has_value();
}

}  // namespace

Parsed<void> check_option_words(std::string_view name, std::string_view value) {
  const auto unless = [](bool good, int status, std::string message) -> Parsed<void> {
    if (good) return {};
    return tl::make_unexpected(Misuse{status, std::move(message)});
  };
  const auto specification = [&](bool good) {
    return unless(good, kBadWord, fmt::format("Invalid --{} specification", name));
  };
  const auto numeric = [&](bool good) {
    return unless(good, 1, fmt::format("Invalid numeric value \"{}\" for --{}.", value, name));
  };
  if (name == "acctg-freq") {
    return unless(is_frequency(value), kBadWord,
                  fmt::format("Invalid --acctg-freq specification: {}", value));
  }
  if (name == "delay-boot") {
    return specification(parse_time_limit(value).has_value() || parse_digits(value).has_value());
  }
  if (name == "distribution") return specification(is_distribution(value));
  if (name == "exclusive") {
    return specification(value.empty() || one_of_words(value, {"user", "mcs"}));
  }
  if (name == "get-user-env") return specification(is_login_time(value));
  if (name == "gres-flags") {
    return specification(one_of_words(value, {"disable-binding", "enforce-binding"}));
  }
  if (name == "no-kill") {
    return specification(value.empty() || one_of_words(value, {"set", "off", "no"}));
  }
  if (name == "send-libs") {
    return specification(value.empty() || one_of_words(value, {"yes", "no"}));
  }
  if (name == "tmp") return specification(parse_size(value).has_value());
  if (name == "jobid" || name == "relative") return numeric(is_small_number(value));
  if (name == "wait-all-nodes") {
    return is_small_number(value) ? specification(value == "0" || value == "1") : numeric(false);
  }
  if (name == "profile") {
    return unless(is_profile(value), kBadWord, fmt::format("invalid --profile={} option", value));
  }
  if (name == "hint") {
    return unless(one_of_words(value, {"compute_bound", "memory_bound", "multithread",
                                       "nomultithread", "help"}),
                  1, fmt::format("unrecognized --hint argument \"{}\", see --hint=help", value));
  }
  if (name == "mem-bind") {
    return unless(is_memory_binding(value), kBadWord,
                  fmt::format("unrecognized --mem-bind argument \"{}\"", value));
  }
  if (name == "cpu-bind" && !is_cpu_binding(value)) {
    return tl::make_unexpected(
        Misuse{.status = 1,
               .message = "Failed to parse --cpu-bind= values.",
               .fatal = true,
               .plain = "srun: cluster configuration lacks support for cpu binding",
               .why = fmt::format("unrecognized --cpu-bind argument \"{}\"", value)});
  }
  if (name == "switches") {
    const auto at = value.find('@');
    return numeric(is_small_number(value.substr(0, at)) &&
                   (at == value.npos || parse_time_limit(value.substr(at + 1)).has_value()));
  }
  if (name == "extra-node-info") {
    const auto parts = split(value, ':');
    constexpr std::array<std::string_view, 3> kPlaces{"first", "second", "third"};
    for (std::size_t i = 0; i < parts.size() && i < kPlaces.size() && !value.empty(); ++i) {
      if (parts[i] == "*" || (is_small_number(parts[i]) && parts[i] != "0")) continue;
      return unless(
          false, 1,
          fmt::format("Invalid numeric value \"{}\" for {} arg of -B.", parts[i], kPlaces[i]));
    }
  }
  return {};
}

}  // namespace aliquot::cli
