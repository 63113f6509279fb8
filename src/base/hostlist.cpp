#include "base/hostlist.hpp"

#include "base/text.hpp"

namespace aliquot {
namespace {

constexpr std::size_t kMostHosts = 65'536;
constexpr std::size_t kLongestNumber = 18;

tl::unexpected<Error> broken(std::string_view text) {
  return fail(Error::Code::invalid_argument, "Invalid hostlist: {}",
              text.size() > 200 ? quote(text) : std::string(text.substr(0, text.find('\n'))));
}

// Each range of one bracket as the numbers it stands for, with their leading zeros.
Result<std::vector<std::string>> expand_ranges(std::string_view ranges, std::string_view whole) {
  std::vector<std::string> numbers;
  for (const auto range : split(ranges, ',')) {
    const auto dash = range.find('-');
    const auto low = range.substr(0, dash);
    const auto high = dash == range.npos ? low : range.substr(dash + 1);
    const auto first = parse_digits(low);
    const auto last = parse_digits(high);
    if (!first || !last || *last < *first || low.size() > kLongestNumber ||
        high.size() > kLongestNumber) {
      return broken(whole);
    }
    if (static_cast<std::size_t>(*last - *first) >= kMostHosts - numbers.size()) {
      return fail(Error::Code::out_of_range, "Invalid hostlist: more than {} hosts", kMostHosts);
    }
    for (auto i = *first; i <= *last; ++i) {
      numbers.push_back(fmt::format("{:0{}}", i, low.size()));
    }
  }
  return numbers;
}

Result<std::vector<std::string>> expand_one(std::string_view part, std::string_view whole) {
  std::vector<std::string> hosts{""};
  while (!part.empty()) {
    const auto open = part.find_first_of("[]");
    for (auto& host : hosts) host += part.substr(0, open);
    if (open == part.npos) break;
    const auto close = part.find(']', open);
    if (part[open] == ']' || close == part.npos) return broken(whole);
    const auto numbers = TRY(expand_ranges(part.substr(open + 1, close - open - 1), whole));
    if (hosts.size() * numbers.size() > kMostHosts) {
      return fail(Error::Code::out_of_range, "Invalid hostlist: more than {} hosts", kMostHosts);
    }
    std::vector<std::string> longer;
    longer.reserve(hosts.size() * numbers.size());
    for (const auto& host : hosts) {
      for (const auto& number : numbers) longer.push_back(host + number);
    }
    hosts = std::move(longer);
    part.remove_prefix(close + 1);
  }
  return hosts;
}

struct Numbered {
  std::string_view prefix;
  std::string_view digits;  // empty: not numbered
};

Numbered split_number(std::string_view host) {
  auto start = host.size();
  while (start > 0 && host[start - 1] >= '0' && host[start - 1] <= '9' &&
         host.size() - start < kLongestNumber) {
    --start;
  }
  return {host.substr(0, start), host.substr(start)};
}

// b is the number after a, written as wide.
bool follows(std::string_view a, std::string_view b) {
  const auto next = parse_digits(a).value_or(0) + 1;
  return fmt::format("{:0{}}", next, a.size()) == b;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
  std::vector<std::string> hosts;
  for (const auto part : split_outside_brackets(text)) {
    if (part.empty()) continue;
    for (auto& host : TRY(expand_one(part, text))) {
      if (hosts.size() == kMostHosts) {
        return fail(Error::Code::out_of_range, "Invalid hostlist: more than {} hosts", kMostHosts);
      }
      hosts.push_back(std::move(host));
    }
  }
  return hosts;
}

std::string fold_hostlist(const std::vector<std::string>& hosts) {
  std::string out;
  for (std::size_t i = 0; i < hosts.size();) {
    const auto first = split_number(hosts[i]);
    auto end = i + 1;  // the neighbours that share the prefix
    while (!first.digits.empty() && end < hosts.size() &&
           split_number(hosts[end]).prefix == first.prefix &&
           !split_number(hosts[end]).digits.empty()) {
      ++end;
    }
    if (!out.empty()) out += ',';
    if (end == i + 1) {
      out += hosts[i++];
      continue;
    }
    out += first.prefix;
    out += '[';
    for (auto at = i; at < end;) {
      auto last = at;
      while (last + 1 < end &&
             follows(split_number(hosts[last]).digits, split_number(hosts[last + 1]).digits)) {
        ++last;
      }
      if (at > i) out += ',';
      out += split_number(hosts[at]).digits;
      if (last > at) {
        out += '-';
        out += split_number(hosts[last]).digits;
      }
      at = last + 1;
    }
    out += ']';
    i = end;
  }
  return out;
}

}  // namespace aliquot
