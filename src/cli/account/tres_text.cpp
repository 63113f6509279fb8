#include "cli/account/tres_text.hpp"

#include <fmt/format.h>

#include "base/size.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace aliquot::cli {
namespace {

constexpr std::int64_t kMostGpusWritten = 1'000'000;

tl::unexpected<Error> bad_tres(std::string_view text) {
  return fail(Error::Code::invalid_argument,
              "{} is no limit: write gres/gpu=4, gres/gpu=0.5, cpu=8 or mem=64G, with commas "
              "between them, and =-1 for none",
              quote(text));
}

// `4`, `0.25`: in 1/10,000.
std::optional<std::int64_t> read_gpus(std::string_view text) {
  const auto dot = text.find('.');
  const auto whole = parse_digits(text.substr(0, dot));
  if (!whole || *whole > kMostGpusWritten) return std::nullopt;
  std::int64_t parts = 0;
  if (dot != text.npos) {
    std::string digits(text.substr(dot + 1));
    if (digits.empty() || digits.size() > 4) return std::nullopt;
    digits.resize(4, '0');
    const auto read = parse_digits(digits);
    if (!read) return std::nullopt;
    parts = *read;
  }
  return *whole * kWholeGpu.value() + parts;
}

}  // namespace

Result<void> read_tres(std::string_view text, api::TresLimit& limit) {
  if (text.empty()) return bad_tres(text);
  api::TresLimit changed = limit;
  for (const std::string_view one : split(text, ',')) {
    std::size_t equals = one.rfind('=');
    std::string_view name = one.substr(0, equals);
    if (equals == one.npos || equals_ignoring_case(name, "gres")) {
      // gres/gpu:4, gres=gpu/4
      equals = one.find_last_of(":/");
      if (equals == one.npos) return bad_tres(one);
      name = one.substr(0, equals);
    }
    const std::string_view value = one.substr(equals + 1);
    const bool none = value == "-1";
    const auto is = [&](std::string_view known) { return equals_ignoring_case(name, known); };
    if (is("gres/gpu") || is("gres=gpu")) {
      changed.gpus = none ? std::nullopt : read_gpus(value);
      if (!none && !changed.gpus) return bad_tres(one);
    } else if (is("cpu")) {
      changed.cpus = none ? std::nullopt : parse_digits(value);
      if (!none && !changed.cpus) return bad_tres(one);
    } else if (is("mem")) {
      const auto size = parse_size(value);
      if (!none && !size) return bad_tres(one);
      changed.memory = none ? std::nullopt : std::optional(size->value());
    } else if (is("gres/shard") || is("gres/mps")) {
      return fail(Error::Code::invalid_argument,
                  "shares count as their part of a GPU: write gres/gpu=0.5, not {}", quote(one));
    } else {
      return fail(Error::Code::invalid_argument,
                  "{} is not counted here: there are gres/gpu (of every model), cpu and mem",
                  quote(name));
    }
  }
  limit = changed;
  return {};
}

std::string format_tres(const api::TresLimit& limit) {
  std::string text;
  const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ",") + one; };
  if (limit.cpus) add(fmt::format("cpu={}", *limit.cpus));
  if (limit.memory) add("mem=" + format_size(Bytes(*limit.memory)));
  if (limit.gpus) {
    std::string gpus =
        fmt::format("{}.{:04}", *limit.gpus / kWholeGpu.value(), *limit.gpus % kWholeGpu.value());
    gpus.erase(gpus.find_last_not_of('0') + 1);
    if (gpus.ends_with('.')) gpus.pop_back();
    add("gres/gpu=" + gpus);
  }
  return text;
}

}  // namespace aliquot::cli
