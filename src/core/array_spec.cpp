#include "core/array_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/number_ranges.hpp"
#include "base/text.hpp"

namespace aliquot::core {
namespace {

Result<std::int64_t> parse_task(std::string_view text) {
  const auto value = parse_digits(text);
  if (!value) return fail(Error::Code::invalid_argument, "{} is no array index", quote(text));
  if (*value > kMaxArrayTask) {
    return fail(Error::Code::out_of_range, "array index {} is over {}", quote(text), kMaxArrayTask);
  }
  return *value;
}

// `7`, `1-6` or `0-12:4`.
Result<void> parse_part(std::string_view text, std::vector<std::int64_t>& tasks) {
  std::int64_t step = 1;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    step = TRY(parse_task(text.substr(colon + 1)));
    text = text.substr(0, colon);
    if (step == 0 || text.find('-') == std::string_view::npos) {
      return fail(Error::Code::invalid_argument, "a stride needs a range: write 0-12:4");
    }
  }
  const auto dash = text.find('-');
  const std::int64_t first = TRY(parse_task(text.substr(0, dash)));
  const std::int64_t last =
      dash == std::string_view::npos ? first : TRY(parse_task(text.substr(dash + 1)));
  if (last < first) {
    return fail(Error::Code::invalid_argument, "the range {} runs backwards", quote(text));
  }
  for (std::int64_t task = first; task <= last; task += step) {
    // Repeats may come once over: they are removed later, but must not fill the memory.
    if (tasks.size() >= 2 * kMaxArraySize) {
      return fail(Error::Code::out_of_range, "an array has at most {} elements", kMaxArraySize);
    }
    tasks.push_back(task);
  }
  return {};
}

}  // namespace

Result<ArraySpec> parse_array(std::string_view text) {
  ArraySpec array;
  // As squeue shows it.
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  for (std::string_view part : split(text, ',')) {
    if (const auto percent = part.find('%'); percent != std::string_view::npos) {
      const auto limit = parse_digits(part.substr(percent + 1));
      if (!limit) {
        return fail(Error::Code::invalid_argument, "{} is no number of tasks at once",
                    quote(part.substr(percent + 1)));
      }
      array.limit = *limit;
      part = part.substr(0, percent);
    }
    TRY(parse_part(part, array.tasks));
  }
  std::ranges::sort(array.tasks);
  array.tasks.erase(std::unique(array.tasks.begin(), array.tasks.end()), array.tasks.end());
  if (array.tasks.size() > kMaxArraySize) {
    return fail(Error::Code::out_of_range, "an array has at most {} elements", kMaxArraySize);
  }
  return array;
}

std::string format_array(const ArraySpec& array) {
  const auto& tasks = array.tasks;
  if (tasks.empty()) return "";
  constexpr std::size_t kFew = 5;
  const std::int64_t stride = tasks.size() > kFew ? tasks[1] - tasks[0] : 1;
  const auto uneven = std::ranges::adjacent_find(
      tasks, [stride](std::int64_t a, std::int64_t b) { return b - a != stride; });
  std::string out = stride > 1 && uneven == tasks.end()
                        ? fmt::format("{}-{}:{}", tasks.front(), tasks.back(), stride)
                        : format_ranges(tasks);
  if (array.limit > 0) out += fmt::format("%{}", array.limit);
  return out;
}

}  // namespace aliquot::core
